"""View the whole trace of a run in a browser on this computer.

The server gives one page and the columns of its picture, on the loopback address, to anyone who knows its token. It
serves no files. Requests whose Host is neither this address nor localhost are refused, so no other site reaches it.
"""

import argparse
import hmac
import json
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from reports.page_templates import page_of, policy
from rig.errors import SetupError
from rig.status_line import StatusLine
from rig.terminal import answer, say

LARGE_BYTES = 1e9
QUIET_S = 2.0
"""Work that ends within this time shows no progress."""
LOOPBACK = "127.0.0.1"
Columns = Callable[[int, float, float, int], dict[str, Any]]


def server_of(page: bytes, policy: str, columns: Columns, port: int = 0) -> tuple[ThreadingHTTPServer, str]:
    """Return a server bound to a port of the loopback address (a free one if 0), and the URL of its page.

    ``columns(rail, low_s, high_s, columns)`` returns what the page requests; it raises ``ValueError`` for a bad
    request. Raises ``SetupError`` if the port is not available.
    """
    token = secrets.token_urlsafe(24)

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version, timeout = "rig", "", 30.0

        def do_GET(self) -> None:
            if self.headers.get("Host") not in hosts:
                self._answer(HTTPStatus.FORBIDDEN, b"only by the loopback address", "text/plain")
                return
            try:
                answer = self._found(urlsplit(self.path))
            except (KeyError, ValueError, OverflowError) as error:
                answer = HTTPStatus.BAD_REQUEST, f"bad request: {error}".encode(), "text/plain"
            self._answer(*answer)

        def _found(self, asked: SplitResult) -> tuple[HTTPStatus, bytes, str]:
            if _same(asked.path, f"/{token}/"):
                return HTTPStatus.OK, page, "text/html; charset=utf-8"
            if not _same(asked.path, f"/{token}/data"):
                return HTTPStatus.NOT_FOUND, b"no such page", "text/plain"
            given = {name: values[0] for name, values in parse_qs(asked.query, max_num_fields=8).items()}
            stretch = float(given["low"]), float(given["high"]), int(given["columns"])
            found = json.dumps(columns(int(given["rail"]), *stretch), allow_nan=False)
            return HTTPStatus.OK, found.encode(), "application/json"

        def _answer(self, status: HTTPStatus, content: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Security-Policy", f"{policy}; frame-ancestors 'none'")
            for name, value in HEADERS.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: every path contains the token."""

    try:
        server = _Server((LOOPBACK, port), Handler)
    except (OSError, OverflowError) as error:
        remedy = "Leave --port out, and a free port is taken"
        raise SetupError(f"port {port} is not available: {error}", field="port", value=port, remedy=remedy) from error
    hosts = {f"{name}:{server.server_port}" for name in (LOOPBACK, "localhost")}
    return server, f"http://{LOOPBACK}:{server.server_port}/{token}/"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that closed its connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def _same(given: str, path: str) -> bool:
    """Compare in a time that does not depend on the token."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), path.encode())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rig view RUN``."""
    parser.add_argument("run_path", type=Path, metavar="RUN", help="a run directory, or a session")
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="port of the loopback address; default: a free one"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C. Raises a ``RigError`` if the recording cannot be read or the port is not available."""
    from reports.viewing.trace_in_viewer import whole_trace

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
