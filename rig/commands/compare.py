"""``rig compare``: runs, sessions or submissions side by side."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rig.terminal import say_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rig compare A B...``."""
    parser.add_argument(
        "path",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="a run, a session, a folder of runs as folds, or a submission; the first is the reference",
    )
    parser.add_argument("--verbose", action="store_true", help="show every figure, and not only those of the device")


def run(args: argparse.Namespace) -> int:
    """Print the differences. Raises a ``RigError`` for what cannot be read or compared."""
    from rig.plugins import load
    from rig.submission.compare import compare

    found = compare(args.path)
    if args.json:
        say_json(json.dumps([comparison.to_json() for comparison in found]))
    else:
        load("reports", "comparison")(found, verbose=args.verbose)
    return 0
