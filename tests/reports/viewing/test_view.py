"""`rig view` serves one page and its picture's requests, on the loopback address, to those with the token."""

import http.client
import json
import re
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from reports.page_templates import page_of, policy
from reports.viewing.trace_in_viewer import Whole, whole_trace
from reports.viewing.view_command import server_of
from rig.commands.shell.main import main
from rig.errors import SetupError, StoreError
from tests.support.made_up import HOSTILE
from tests.support.paths import ROOT
from tests.support.processes import MAIN, begun
from tests.support.raised import raised
from tests.support.run_by_hand import observed, rewritten

PAGE = b"<!DOCTYPE html><p>the page</p>"


def columns(rail: int, low_s: float, high_s: float, count: int) -> dict[str, Any]:
    if rail:
        raise ValueError("no such stretch")
    return {"rail": rail, "low": low_s, "high": high_s, "columns": count}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server, found = server_of(PAGE, policy(scripts=True, server=True), columns)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def asked(url: str, path: str | None = None, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """Return status, content and headers of one request; the path is sent unchanged."""
    to = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", to.port or 0, timeout=60)
    connection.request(method, to.path if path is None else path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, answer.read(), dict(answer.getheaders())
    connection.close()
    return found


# ---- the server ---------------------------------------------------------------------------


def test_an_impossible_address_is_a_bad_request(url: str) -> None:
    assert asked(url, "http://[x/", Host=urlsplit(url).netloc)[0] == 400


def test_a_client_that_leaves_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    server, found = server_of(PAGE, "", columns)
    server.daemon_threads = False  # so that closing waits for the answer
    client = socket.create_connection(("127.0.0.1", urlsplit(found).port or 0))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.sendall(b"GET /")
    client.close()
    server.handle_request()
    server.server_close()
    assert capsys.readouterr() == ("", "")


def test_the_token_gives_the_page_and_its_data(url: str) -> None:
    status, page, headers = asked(url)
    _, data, _ = asked(url, f"{urlsplit(url).path}data?rail=0&low=1.5&high=2e0&columns=100")

    assert (status, page) == (200, PAGE)
    assert json.loads(data) == {"rail": 0, "low": 1.5, "high": 2.0, "columns": 100}
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert (headers["Cache-Control"], headers["Referrer-Policy"]) == ("no-store", "no-referrer")


def test_the_address_is_local_with_a_long_token(url: str) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", url)


ELSEWHERE = ("evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "[::1]:{port}")


@pytest.mark.parametrize("host", [*ELSEWHERE, "localhost:{port}"])
def test_a_foreign_host_header_is_refused(url: str, host: str) -> None:
    """A refused host is absent, has another port, or is another site's name for this address (DNS rebinding)."""
    status, content, _ = asked(url, Host=host.format(port=urlsplit(url).port))
    assert (status, PAGE in content) == ((403, False) if host in ELSEWHERE else (200, True))


@pytest.mark.parametrize("path", [
    "/", "/data?rail=0&low=0&high=1&columns=10", "{token}", "{token}x/", "{token}/../", "{token}/../../etc/passwd",
    "{token}//etc/passwd", "{token}/events.jsonl", "{token}/%2e%2e/", "{upper}/", "*",
])  # fmt: skip
def test_no_other_path_is_served(url: str, path: str) -> None:
    token = urlsplit(url).path.rstrip("/")

    status, content, _ = asked(url, path.format(token=token, upper=token.swapcase()))

    assert (status, content) == (404, b"no such page")


@pytest.mark.parametrize("query", [
    "", "rail=0", "rail=0&low=a&high=1&columns=9", "rail=0&low=0&high=1&columns=1e9", "rail=1&low=0&high=1&columns=9",
    "&".join(f"x{k}=1" for k in range(50)),
])  # fmt: skip
def test_a_malformed_query_is_refused(url: str, query: str) -> None:
    assert asked(url, f"{urlsplit(url).path}data?{query}")[0] == 400


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_writing_is_refused(url: str, method: str) -> None:
    assert asked(url, method=method)[0] == 501


def test_an_unavailable_port_is_a_typed_error() -> None:
    server, url = server_of(PAGE, "", columns)
    with server:
        for port in (urlsplit(url).port or 0, 70_000, -1):
            raised(SetupError, server_of, PAGE, "", columns, port, says="is not available")


# ---- what it shows ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("view") / "run"
    observed(path, 3)
    return path


@pytest.fixture(scope="module")
def whole(recording: Path) -> Whole:
    return whole_trace(recording)


def test_the_model_names_rails_and_spans(whole: Whole) -> None:
    model = whole.model()

    assert model["rails"] == [{"name": "core", "unit": "W"}]
    assert model["mark"] == "SIMULATED"
    assert {jump["title"] for jump in model["jumps"]} == {
        "first", "slowest", "fastest", "most energetic", "farthest from the mean power of their phase",
    }  # fmt: skip
    assert [phase["name"] for phase in model["phases"]] == ["inference", "idle"]
    assert any("placed by clock readings alone" in note for note in model["notes"])


def test_the_energy_of_a_span_sums_its_readings(whole: Whole) -> None:
    model = whole.model()
    jump = next(j for j in model["jumps"] if j["title"] == "most energetic")

    seen = whole.columns(0, jump["low"], jump["high"], 4000)

    lengths = np.diff(np.clip(seen["edges"], jump["low"], jump["high"]))
    energy_j = float(np.dot(lengths, np.array(seen["mean"], dtype=float)))
    said = re.findall(r": ([\d.]+) (\w)J$", jump["text"])[0]
    assert float(said[0]) * {"m": 1e-3, "µ": 1e-6, "n": 1e-9}[said[1]] == pytest.approx(energy_j, rel=5e-3)


def test_a_stretch_includes_its_spans(whole: Whole) -> None:
    windows = whole.windows["inference"]
    low, high = windows[3, 0], windows[5, 1]

    seen = whole.columns(0, low, high, 100)

    assert seen["spans"] == [(0, *w) for w in windows[3:6].tolist()]
    assert json.dumps(seen, allow_nan=False)


@pytest.mark.parametrize(
    "stretch", [(1, 0.0, 1.0), (-1, 0.0, 1.0), (0, 1.0, 1.0), (0, float("nan"), 1.0), (0, 0.0, float("inf"))]
)
def test_an_invalid_stretch_is_refused(whole: Whole, stretch: tuple[int, float, float]) -> None:
    raised(ValueError, whole.columns, *stretch, 100, says="no such stretch")


def test_no_name_of_a_recording_becomes_script(recording: Path, tmp_path: Path) -> None:
    def rename(events: list[dict[str, Any]], tables: dict[str, Any]) -> None:
        events[0]["run_id"] = events[0]["device"]["name"] = HOSTILE
        table = tables["traces/core.arrows"]
        meta = {k.decode(): v.decode() for k, v in table.schema.metadata.items()}
        meta["rail"] = json.dumps(json.loads(meta["rail"]) | {"name": HOSTILE})
        tables["traces/core.arrows"] = table.replace_schema_metadata(meta)

    page = page_of(whole_trace(rewritten(recording, tmp_path / "run", rename)).model())

    assert len(re.findall(r"<script", page)) == 2
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_a_recording_without_a_trace_of_power_is_refused(recording: Path, tmp_path: Path) -> None:
    def drop(events: list[dict[str, Any]], tables: dict[str, Any]) -> None:
        events[-1]["files"].pop("traces/core.arrows")

    bare = rewritten(recording, tmp_path / "run", drop)
    (bare / "traces" / "core.arrows").unlink()

    assert main(["view", str(bare)]) == StoreError.exit_code


def test_ctrl_c_ends_the_viewer(recording: Path) -> None:
    """The command runs in its own process, so that the signal is real."""
    with begun(MAIN, "view", recording, "--json", cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            document = json.loads(process.stdout.readline())
            status, page, _ = asked(document["url"])
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()  # if the signal is lost, the test fails instead of waiting for ever

    assert (status, process.returncode, errors) == (200, 0, "")
    assert b"trace-model" in page
    assert document["rails"] == ["core"]
