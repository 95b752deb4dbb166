"""``rig report``: the figures of a run directory or session, computed and rendered."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rig.errors import MeasurementRefusedError

if TYPE_CHECKING:
    from rig.session.report import Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rig report DIR``."""
    parser.add_argument("path", type=Path, metavar="DIR")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write the report; default: DIR/derived")
    parser.add_argument("--verbose", action="store_true", help="print every figure and every note")


def run(args: argparse.Namespace) -> int:
    """Report and print. Raises a ``RigError`` for a recording that cannot be read."""
    from rig.session.report import report

    return show(report(args.path, args.out), args.json, args.verbose)


def show(found: Report, as_json: bool, verbose: bool = False) -> int:
    """Print a report; the exit code says whether power was measured and could not be stated."""
    from rig.plugins import load

    if as_json:
        sys.stdout.write(json.dumps(found.to_json()) + "\n")
    elif found.result is not None:
        load("reports", "console")(found.result, verbose=verbose)
        kind = "run" if found.runs is None else "session"
        sys.stdout.write(f"{kind:7} {found.path}\nreport  {found.folder / 'report.html'}\n")
    return MeasurementRefusedError.exit_code if found.power_refused else 0
