"""``rig reduce`` is gone: ``rig import`` and ``rig report`` do its job. Only this release says so."""

from __future__ import annotations

import argparse

from rig.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take whatever the command took."""
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Raise ``UsageError``, which names the commands to use."""
    remedy = "Import the trace (`rig import --format raw-numbers`, plain-csv or joulescope-jls), then `rig report RUN`"
    raise UsageError("`rig reduce` is gone", field="command", value="reduce", remedy=remedy)
