"""``rig reduce`` is gone: use ``rig import`` and ``rig report``. Only this release has this message."""

from __future__ import annotations

import argparse

from rig.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Accept all arguments that the command accepted."""
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Raise ``UsageError``, which names the commands to use."""
    remedy = "Import the trace (`rig import --format raw-numbers`, plain-csv or joulescope-jls), then `rig report RUN`"
    raise UsageError("`rig reduce` is gone", field="command", value="reduce", remedy=remedy)
