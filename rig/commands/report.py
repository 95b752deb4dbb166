"""``rig report``: compute and render the figures of a run directory or session."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rig.errors import InvalidResultError, MeasurementRefusedError
from rig.terminal import say, say_json

if TYPE_CHECKING:
    from rig.analysis.result.result import Result
    from rig.session.report import Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="DIR", help="a run directory or a session, or its name below runs/")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write the report; default: DIR/derived")
    parser.add_argument(
        "--beside", type=Path, metavar="OTHER",
        help="add a table that compares OTHER, a recording of the network in floats or by another meter",
    )  # fmt: skip
    parser.add_argument("--verbose", action="store_true", help="print every figure and every note")
    parser.add_argument("--allow-invalid", action="store_true", help="exit with 0 also if the verdict is INVALID")


def run(args: argparse.Namespace) -> int:
    """Report and print. Raises a ``RigError`` if a recording cannot be read or compared."""
    from rig.session.find_recordings import meant, one_of
    from rig.session.report import report

    args.path = one_of(meant(args.path))
    beside = None
    if args.beside:
        from rig.comparing.compare import compare
        from rig.plugins import load

        beside = load("reports", "beside")(compare([meant(args.beside), args.path])[0])
    found = report(args.path, args.out, beside, teller(args.json, args.verbose), pages=not args.json)
    return show(found, args.json, args.allow_invalid)


def teller(as_json: bool, verbose: bool) -> Callable[[Result], None] | None:
    """Return the function that prints the figures before pages are written; None for JSON."""
    from rig.plugins import load

    return None if as_json else partial(load("reports", "console"), verbose=verbose)


def show(found: Report, as_json: bool, allow_invalid: bool = False) -> int:
    """Print the path of a report, or its JSON.

    Return an exit code that shows whether power could not be stated and whether the verdict is INVALID.
    """
    if as_json:
        say_json(found.text())
    else:
        for one in (found.runs or ()) if found.result is None else (found,):
            if one.result is not None:
                kind = "run" if one.runs is None else "session"
                digest = one.result.session_digest or one.result.run_digest
                say(f"{kind:7} {one.path}", f"digest  {digest}", f"report  {one.folder / 'report.html'}")
    if found.unfinished and not as_json:
        from rig.session.resumable_session import go_on

        say(f"next    {go_on(found.path)}")
    if found.power_refused:
        return MeasurementRefusedError.exit_code
    return InvalidResultError.exit_code if found.invalid and not allow_invalid else 0
