"""View the whole trace of a run in a browser on this computer."""

from __future__ import annotations

import argparse
import time
from contextlib import suppress
from pathlib import Path

from reports.page_templates import page_of, policy
from reports.viewing.server import server_of
from rig.status_line import StatusLine
from rig.terminal import answer, say

LARGE_BYTES = 1e9
QUIET_S = 2.0
"""Work that ends within this time shows no progress."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rig view RUN``."""
    parser.add_argument("run_path", type=Path, metavar="RUN", help="a run directory, or a session")
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="port of the loopback address; default: a free one"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C. Raises a ``RigError`` if the recording cannot be read or the port is not available."""
    from reports.viewing.whole import whole_trace

    if sum(file.stat().st_size for file in args.run_path.rglob("*.arrows")) > LARGE_BYTES:
        say("verifying the hashes of the recording", error=True)
    live, began_s = StatusLine(), time.monotonic()

    def told(done: int, of: int) -> None:
        lasted_s = time.monotonic() - began_s
        if lasted_s > QUIET_S:
            left = f"{lasted_s * (of / done - 1.0):.0f} s left"
            live.pace(f"{100.0 * done / of:3.0f} %  {done:,} readings  {left}")

    whole = whole_trace(args.run_path, told)
    live.clear()
    model = whole.model()
    server, url = server_of(page_of(model).encode(), policy(scripts=True, server=True), whole.columns, args.port)
    document = {"url": url, "run": str(whole.run.path), "rails": [r["name"] for r in model["rails"]]}
    answer(document, url, "Open it in a browser on this computer. Ctrl-C ends it", as_json=args.json)
    with server, suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0
