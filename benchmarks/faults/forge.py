"""Forge recordings: replace lines and files, and recompute every hash, as an attacker would."""

import hashlib
import json
import os
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from rig.recording.disk.files import Folder
from rig.recording.layout import EVENTS, GENESIS, SEAL, recorded_files, sha256_of
from rig.recording.session_json import FILE, SEAL as SESSION_SEAL

GOLDEN = Path("tests/golden")
Line = dict[str, Any]


def workplace() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary directory, in memory if there is a ``/dev/shm``."""
    return tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)


def unpacked(name: str, into: Path) -> Path:
    """Unpack one of the recordings that are kept with the tests; return its path."""
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as packed:
        packed.extractall(into, filter="data")
    return into / name


def lines_of(run: Path) -> list[Line]:
    return [json.loads(line) for line in (run / EVENTS).read_bytes().splitlines()]


def hash_again(run: Path, lines: Sequence[Any] | None = None) -> None:
    """Write ``lines``, or the run's own lines, with the hashes of its present files and with a new chain and seal.

    A line given as ``bytes`` is written after the fields of the chain, without leading white space and opening brace.
    """
    found = lines_of(run) if lines is None else lines
    previous, content = GENESIS, b""
    for seq, given in enumerate(found):
        line = given
        if isinstance(line, dict) and line.get("type") == "stop" and isinstance(line.get("files"), dict):
            listed = {name: sha256_of(run / name) for name in recorded_files(Folder.at(run))}
            line = line | {"files": listed | {k: v for k, v in line["files"].items() if k not in listed}}
        head = b'{"seq":%d,"prev":"%s",' % (seq, previous.encode())
        rest = {k: v for k, v in line.items() if k not in ("seq", "prev")} if isinstance(line, dict) else line
        body = rest if isinstance(rest, bytes) else json.dumps(rest).encode()
        whole = head + body.lstrip()[1:]
        previous = hashlib.sha256(whole).hexdigest()
        content += whole + b"\n"
    (run / EVENTS).write_bytes(content)
    (run / SEAL).write_text(f"{hashlib.sha256(content).hexdigest()}  {EVENTS}\n")


def bind_again(session: Path, change: Callable[[Line], None] = lambda document: None) -> None:
    """Change ``session.json``, recompute its hashes of the runs, and seal it."""
    document = json.loads((session / FILE).read_text())
    change(document)
    for run in document["runs"]:
        if os.path.isfile(session / run["path"] / EVENTS):  # noqa: PTH113 (also for a name that is too long)
            run["events_sha256"] = sha256_of(session / run["path"] / EVENTS)
    content = json.dumps(document).encode()
    (session / FILE).write_bytes(content)
    (session / SESSION_SEAL).write_text(f"{hashlib.sha256(content).hexdigest()}  {FILE}\n")


def read(file: Path) -> pa.Table:
    with pa.OSFile(str(file)) as source, pa.ipc.open_stream(source) as reader:
        return reader.read_all()


def store(file: Path, table: pa.Table) -> None:
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
