"""Open hostile reports in a browser: no text in a recording may run as a script or send a request.

    python -m benchmarks.faults.pages [--browser chromium]

Ten payloads are put into every free-text field of four recordings, and the hashes are recomputed. The 40 recordings are
then reported. Headless Chromium opens every page and every picture as a document, from a server on loopback. All
addresses in the payloads point to this server. Each payload is also opened in a page without protection. There the
browser must run or fetch it, or the check would prove nothing. Prints the findings and, last, one JSON line. Exits 1 if
a payload did anything in a report, or nothing in a page without protection.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.command_line import concluded, parser_of
from benchmarks.faults.fields import reported as evaluated
from benchmarks.faults.forge import bind_again, hash_again, lines_of, read, store, unpacked
from benchmarks.faults.hostile import places
from rig.errors import RigError
from rig.recording.layout import DERIVED, EVENTS
from rig.recording.session_json import FILE
from rig.session.report import report

RECORDINGS = ("single-two-phases-repeat", "qubo-cpu-sa", "crash-device-raises", "single-session")
AT_A_TIME = 30
OWN = "document.documentElement.dataset.owned=1"
PAYLOADS = (
    f"<script>{OWN}</script>",
    f'"><img src=URL onerror={OWN}>',
    f"'><svg onload={OWN}>",
    f'<iframe srcdoc="<script>parent.{OWN}</script>"></iframe>',
    f'<a href="javascript:{OWN}" autofocus onfocus={OWN}>x</a><input autofocus onfocus={OWN}>',
    "</style><link rel=stylesheet href=URL><style>@import url(URL);</style>",
    '<meta http-equiv=refresh content="0;url=URL">',
    f"]]></text></svg><script>{OWN}</script><!--",
    "{{7*7}}{% for x in (1,) %}" + f"<script>{OWN}</script>" + "{% endfor %}",
    f"</title></head><body onload={OWN}><object data=URL></object><video src=URL onerror={OWN}></video>",
)
INDEX = """<!doctype html><title>none</title>%s<script>
onload = () => setTimeout(() => {
  const owned = [...document.querySelectorAll("iframe")].filter(f => {
    try { return f.contentDocument.documentElement.dataset.owned } catch (e) { return true }
  });
  document.body.textContent = "OWN" + "ED[" + owned.map(f => f.name).join(" ") + "]";
}, 3000);
</script>"""


def hostile(recording: Path, payload: str, spots: Sequence[tuple[Any, ...]], into: Path) -> Path:
    """Copy a recording; put ``payload`` into ``spots`` of its start lines, its labels, a note and its folder name."""
    path = shutil.copytree(recording, into / re.sub(r"[/%]", "", f"run {payload}"))
    for run in sorted(p.parent for p in path.rglob(EVENTS)):
        lines = lines_of(run)
        for at in spots:
            inner = lines[0]
            try:
                for key in at[:-1]:
                    inner = inner[key]
                inner[at[-1]] = payload
            except (KeyError, IndexError, TypeError):
                continue  # another run of the session does not have this place
        samples = run / "samples.arrows"
        if samples.is_file():
            table = read(samples)
            rows = [row | {"label": payload} if row.get("label") else row for row in table.to_pylist()]
            store(samples, table.from_pylist(rows, table.schema))
        lines[-1:-1] = [{"type": "note", "about": "files", "text": payload}]
        hash_again(run, lines)
    if (path / FILE).is_file():
        bind_again(path)
    return path


def spots_of(recording: Path, work: Path) -> list[tuple[Any, ...]]:
    """Return the places of free text in a start line. With any text there, the recording is still reported."""
    run = next(iter(sorted(p.parent for p in recording.rglob(EVENTS))))
    start = lines_of(run)[0]
    found: list[tuple[Any, ...]] = []
    for at in places(start):
        value: Any = start
        for key in at:
            value = value[key]
        if not isinstance(value, str) or at[0] in ("type", "prev", "session", "schema"):
            continue
        try:
            evaluated(hostile(recording, PAYLOADS[0], [*found, at], work), 1.0)
            found.append(at)
        except RigError:
            pass
        shutil.rmtree(work)
    return found


class Loopback(ThreadingHTTPServer):
    """A server of files by name; ``hits`` are the paths that payloads requested."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.content: dict[str, tuple[str, bytes]] = {}
        self.hits: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    """Serves the known files, and records requests for anything else."""

    server: Loopback

    def do_GET(self) -> None:
        kind, content = self.server.content.get(self.path, ("", b""))
        if not kind and not self.path.startswith("/favicon"):
            self.server.hits.append(self.path)
        self.send_response(200 if kind else 404)
        self.send_header("Content-Type", kind or "text/plain")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def opened(browser: str, pages: dict[str, tuple[str, bytes]], server: Loopback) -> tuple[set[str], set[str]]:
    """Open every page as a document; return the pages in which a script ran, and the requested addresses."""
    ran, asked, names = set[str](), set[str](), list(pages)
    for k in range(0, len(names), AT_A_TIME):
        found = _opened(browser, {name: pages[name] for name in names[k : k + AT_A_TIME]}, server)
        ran, asked = ran | found[0], asked | found[1]
    return ran, asked


def _opened(browser: str, pages: dict[str, tuple[str, bytes]], server: Loopback) -> tuple[set[str], set[str]]:
    """Open some of the pages as documents; return the same as ``opened``."""
    server.content = {f"/{name}": page for name, page in pages.items()}
    frames = "".join(f'<iframe name="{name}" src="/{name}"></iframe>' for name in pages)
    server.content["/index"] = ("text/html; charset=utf-8", (INDEX % frames).encode())
    server.hits.clear()
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [
                browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
                "--no-first-run", f"--user-data-dir={profile}", "--timeout=60000", "--virtual-time-budget=20000",
                "--dump-dom", f"{server.url}/index",
            ],
            capture_output=True, text=True, timeout=280.0, check=False,
        )  # fmt: skip
    owned = re.search(r"OWNED\[(.*?)\]", done.stdout)
    if owned is None:
        raise SystemExit(f"the browser did not open the pages: {done.stdout[-300:]} {done.stderr[-600:]}")
    return set(owned[1].split()), set(server.hits)


def hostile_pages(url: str, folder: Path) -> Iterator[tuple[str, tuple[str, bytes]]]:
    """Yield every page and picture of the hostile reports by name."""
    for name in RECORDINGS:
        recording = unpacked(name, folder / "recordings")
        spots = spots_of(recording, folder / "try")
        print(f"{name}: {len(spots)} places can have any text", flush=True)
        for k, payload in enumerate(PAYLOADS):
            path = hostile(recording, payload.replace("URL", f"{url}/hit{k}"), spots, folder / f"{name}-{k}")
            report(path)
            for file in sorted(path.rglob("*")):
                if DERIVED in file.parts and file.suffix in (".html", ".svg"):
                    kind = "text/html; charset=utf-8" if file.suffix == ".html" else "image/svg+xml"
                    yield (
                        f"{name}-{k}/{len(file.parts)}-{file.parent.parent.name[:3]}-{file.name}",
                        (kind, file.read_bytes()),
                    )


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--browser", default=shutil.which("chromium") or shutil.which("google-chrome"))
    args = parser.parse_args()
    if args.browser is None:
        raise SystemExit("no Chromium is installed; name one by --browser")
    server = Loopback()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    bare = {
        f"bare-{k}": (
            "text/html; charset=utf-8",
            f"<!doctype html><p>{p.replace('URL', f'{server.url}/hit{k}')}".encode(),
        )
        for k, p in enumerate(PAYLOADS)
    }
    ran, asked = opened(args.browser, bare, server)
    seen = [k for k in range(len(PAYLOADS)) if f"bare-{k}" in ran or f"/hit{k}" in asked]
    print(f"bare: {len(seen)} of {len(PAYLOADS)} payloads ran a script or requested an address")
    with tempfile.TemporaryDirectory() as folder:
        pages = dict(hostile_pages(server.url, Path(folder)))
    ran, asked = opened(args.browser, pages, server)
    for what, found in (("a script ran in", ran), ("asked for", asked)):
        print("\n".join(f"{what} {name}" for name in sorted(found)), end="\n" if found else "")
    reports = sum(name.endswith("report.html") for name in pages)
    passed = not ran and not asked and len(seen) == len(PAYLOADS)
    counts = {"recordings": len(RECORDINGS) * len(PAYLOADS), "pages": reports, "pictures": len(pages) - reports}
    counts |= {"scripts": len(ran), "requests": len(asked)}
    return concluded({"benchmark": "pages", **counts, "pass": passed}, passed)


if __name__ == "__main__":
    sys.exit(main())
