"""Show the progress of a run that is recorded in another terminal."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rig.errors import StoreError
from rig.terminal import answer

if TYPE_CHECKING:
    from reports.watch.run_status import Standing

EVERY_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rig tail RUN``."""
    parser.add_argument("path", type=Path, metavar="RUN", help="a run or session; without a terminal, it is shown once")


def run(args: argparse.Namespace) -> int:
    """Rewrite one line until the run ends; without a terminal, print the progress once.

    Raises ``StoreError`` if nothing is recorded.
    """
    from rig.status_line import StatusLine

    line = StatusLine(quiet=args.json)
    try:
        last = follow(args.path, line.show, _wait if line.shown else lambda: False)
    except KeyboardInterrupt:
        return 0
    finally:
        line.clear()
    return answer(last.to_json(), last.text(), as_json=args.json)


def follow(path: Path, show: Callable[[str], None], wait: Callable[[], bool]) -> Standing:
    """Show the progress of a run, or of a session's newest run, until it ends or ``wait`` returns False.

    Returns its last state. Raises ``StoreError`` if nothing is recorded.
    """
    from reports.watch.run_status import Growing, newest
    from rig.recording.session_json import REQUEST

    growing: Growing | None = None
    while True:
        found = newest(path)
        if found is None:
            remedy = "Name the directory of a run that is recorded"
            raise StoreError(f"nothing is recorded in {path}", field="run", value=str(path), remedy=remedy)
        if growing is None or growing.path != found:
            growing = Growing(found)
        standing = growing.look()
        show(standing.text())
        if (standing.ended and not (path / REQUEST).is_file()) or not wait():
            return standing


def _wait() -> bool:
    time.sleep(EVERY_S)
    return True
