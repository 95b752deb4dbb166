"""``rig completion``: print shell code that completes command lines, by argcomplete."""

import argparse
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rig.errors import RigError
from rig.plugins import imported, names
from rig.terminal import answer

GROUPS = {"device": "devices", "meter": "meters", "scenario": "scenarios", "workload": "workloads", "rules": "rules"}
"""The group of names that an argument takes, by argument."""
COMMANDS = {"compare": "path", "report": "path", "submit": "session"}
"""The argument that is a recording, by command."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"), help="the shell that completes")


def run(args: argparse.Namespace) -> int:
    """Print the code. Raises ``MissingExtraError`` without argcomplete."""
    shown: str = _argcomplete().shellcode(["rig"], shell=args.shell)
    return answer({"shell": args.shell, "code": shown}, *shown.splitlines(), as_json=args.json)


def complete(parser: Callable[[str], argparse.ArgumentParser]) -> None:
    """Answer a shell that asks how to complete a command line, and exit. Raises ``MissingExtraError``."""
    command = [*os.environ.get("COMP_LINE", "").split(), "", ""][1]
    whole = parser(command)
    choices: Any = next(action for action in whole._actions if action.dest == "command").choices
    for action in choices[command]._actions if command in choices else ():
        if action.dest in GROUPS:
            vars(action)["completer"] = lambda group=GROUPS[action.dest], **_: [*named_in_bench(group), *names(group)]
        elif action.dest == COMMANDS.get(command):
            vars(action)["completer"] = lambda **_: _recordings()
    _argcomplete().autocomplete(whole)


def named_in_bench(group: str) -> list[str]:
    """Return the devices or meters in the bench file of this folder; none if it cannot be read."""
    from rig.bench.bench_file import find_bench
    from rig.bench.bench_file_fields import read

    with suppress(RigError):
        if group in ("devices", "meters") and (path := find_bench(None)) is not None:
            return list(getattr(read(path)[0], group))
    return []


def _recordings() -> list[str]:
    from rig.session.find_recordings import recordings_in

    return [path.name for path in recordings_in()] + [str(path) for path in Path().iterdir() if path.is_dir()]


def _argcomplete() -> Any:
    return imported("argcomplete", "the completion of command lines", "completion", field="command", value="completion")
