"""``rig import``: make a run directory from a trace that another program recorded."""

import argparse
from pathlib import Path

from rig.terminal import answer, command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("source", type=Path, metavar="SOURCE", help="the file or folder as it was recorded")
    add("--format", required=True, metavar="NAME", help="an importer of `rig list`, or path.py:function")
    add("--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the importer; may be repeated")
    add("--keep-identity", action="store_true", help="also record home directories and absolute paths")
    add("--out", type=Path, required=True, metavar="DIR", help="the new run directory or session")


def run(args: argparse.Namespace) -> int:
    """Import, and print what was written. Raises a ``RigError`` for a wrong format or a missing option."""
    from rig.importing.write import run_import

    notes: list[str] = []
    found = run_import(args.format, args.source, args.out, args.option, notes.append, args.keep_identity)
    paths = [str(path) for path in found]
    lines = [*(f"run     {path}" for path in paths), *(f"note    {note}" for note in notes)]
    return answer({"runs": paths, "notes": notes}, *lines, f"next    {command('report', args.out)}", as_json=args.json)
