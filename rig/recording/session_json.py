"""Sessions: runs that belong together. ``session.json`` lists their hashes in order.

In addition, the start line of each run has the hash of the run before (the chain). The digest of a session is the
SHA-256 of ``session.json``. It depends on every run, the purpose of each run, and the order.
"""

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict

from rig.errors import IntegrityError, StoreError
from rig.recording.disk.decoding import strict
from rig.recording.disk.files import Folder, storing
from rig.recording.disk.size_limits import EVENTS_BYTES, TEXT_BYTES
from rig.recording.events import SessionLink
from rig.recording.layout import EVENTS, GENESIS, is_recorded, run_folder, sha256_of
from rig.recording.read_events import converted, first_line

SCHEMA = "neurorig-session/1"
FILE = "session.json"
SEAL = "session.json.sha256"
REQUEST = "request.json"
"""The request of a session; the file exists until the session is complete."""
PlainName = Annotated[str, Meta(pattern=r"\A(?!\.)[^/\\\x00-\x1f\x7f]{1,200}\Z")]
"""The name of a directory inside another one: no path, and no control character."""

BrokenOff = Annotated[str, Meta(pattern=r"\Abroken/(?!\.)[^/\\\x00-\x1f\x7f]{1,220}\Z")]
"""The place, inside the session, of a recording that was interrupted."""


class SizeProbe(Struct, frozen=True):
    """One size that a search tried: whether the device solved it, and the result or the error."""

    nodes: int
    held: bool
    found: str


class BoundRun(msgspec.Struct, frozen=True):
    """One run of a session: its directory, what it is for, and the SHA-256 of its ``events.jsonl``."""

    path: PlainName
    purpose: Annotated[str, Meta(max_length=100)]
    events_sha256: str


class _Named(msgspec.Struct):
    schema: Any


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    created_utc: datetime
    runs: list[BoundRun]
    tried: list[SizeProbe] | None = None
    repeated: list[BrokenOff] = []


class Session(Struct, frozen=True):
    """A session whose hashes are verified."""

    path: Path
    runs: tuple[tuple[Path, str], ...]
    """The run directories in order, each with its purpose."""
    probes: tuple[SizeProbe, ...]
    """The sizes that a search for the largest size tried, in order."""
    repeated: tuple[str, ...]
    """Runs that were interrupted and recorded again; their first recordings are kept in ``broken/``."""
    digest: str
    sealed: bool
    folder: Folder
    """The open directory, through which files below it are written."""
    digests: tuple[str, ...]
    """SHA-256 of the ``events.jsonl`` of each run."""


def bind(
    folder: Path, runs: Sequence[tuple[str, str]], probes: Sequence[SizeProbe] = (), repeated: Sequence[str] = (),
    *, seal: bool = True,
) -> str:  # fmt: skip
    """Write ``session.json`` for pairs of directory name and purpose inside ``folder``; return the session's digest.

    The file is written whole or not at all, and then its seal. An unfinished session has no seal.
    """
    within = Folder.at(folder)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    bound = [{"path": n, "purpose": p, "events_sha256": sha256_of(folder / n / EVENTS)} for n, p in runs]
    document: dict[str, Any] = {"schema": SCHEMA, "created_utc": now, "runs": bound}
    document |= {"tried": [asdict(t) for t in probes]} if probes else {}
    document |= {"repeated": list(repeated)} if repeated else {}
    content = json.dumps(document, indent=1).encode() + b"\n"
    digest = hashlib.sha256(content).hexdigest()
    with storing(folder / FILE):
        within.remove(SEAL)
        within.write(FILE, content, sync=True)
        if seal:
            within.write(SEAL, f"{digest}  {FILE}\n".encode(), sync=True)
    return digest


def is_session(path: Path) -> bool:
    """Return whether a directory has a ``session.json``. Raises ``StoreError`` as ``is_recorded`` does."""
    return is_recorded(path, FILE)


def open_session(path: Path) -> Session:
    """Read and verify ``session.json``: its seal, the hash of every run, and the chain of their start lines.

    Raises ``StoreError`` if it cannot be read, and ``IntegrityError`` if a run, its purpose, its place or the seal
    differs from what was recorded.
    """
    try:
        folder = Folder.at(path)
        content = folder.read(FILE, TEXT_BYTES)
        seal = folder.read(SEAL, TEXT_BYTES) if folder.has(SEAL) else None
        strict(content)
        schema = msgspec.json.decode(content, type=_Named).schema
        document = None if schema != SCHEMA else msgspec.json.decode(content, type=_Document)
    except (OSError, ValueError, RecursionError) as error:
        what, remedy = f"{path / FILE} cannot be read: {error}", "Restore this file, or report each run by itself"
        raise StoreError(what, field="session", value=str(path), remedy=remedy) from error
    if document is None:
        what = f"{path / FILE} has schema {repr(schema)[:100]}"
        remedy = f"This version reads {SCHEMA}; install the newest one to read others"
        raise StoreError(what, field="schema", value=schema, remedy=remedy)
    digest = hashlib.sha256(content).hexdigest()
    if seal not in (None, f"{digest}  {FILE}\n".encode()):
        _altered(path, f"{path / FILE} differs from its seal{converted(content)}")
    names = [run.path for run in document.runs]
    if double := {name for name in names if names.count(name) > 1}:
        _altered(path, f"{path / FILE} binds {min(double)} twice")
    _check_chain(path, document.runs, [_link(folder, run) for run in document.runs])
    runs = tuple((path / run.path, run.purpose) for run in document.runs)
    tried, repeated = tuple(document.tried or ()), tuple(document.repeated)
    digests = tuple(run.events_sha256 for run in document.runs)
    return Session(path, runs, tried, repeated, digest, seal is not None, folder, digests)


def runs_in(path: Path) -> list[tuple[Path, str]]:
    """Return the runs of the session ``path``, each with its purpose; for a single run, ``path`` itself with "".

    Raises what ``open_session`` and ``run_folder`` raise.
    """
    if is_session(path):
        return list(open_session(path).runs)
    run_folder(path)
    return [(path, "")]


def _link(session: Folder, run: BoundRun) -> SessionLink | None:
    """Verify the hash and purpose of a run; return its place in the session, as its start line states it."""
    path, where = session.path, session.path / run.path
    try:
        events = session.read(f"{run.path}/{EVENTS}", EVENTS_BYTES)
    except FileNotFoundError:
        _altered(path, f"{where} is missing, and {path / FILE} binds it")
    except StoreError as error:
        _altered(path, error.message)
    if hashlib.sha256(events).hexdigest() != run.events_sha256:
        _altered(path, f"{where} is not the run whose hash is in {path / FILE}")
    purpose, link = first_line(where, events)
    if purpose != run.purpose:
        _altered(path, f"{where} was recorded for {purpose!r}, and {path / FILE} says {run.purpose!r}")
    return link


def _check_chain(path: Path, runs: Sequence[BoundRun], links: Sequence[SessionLink | None]) -> None:
    """Raise ``IntegrityError`` if a run does not follow the one before. Imports and the oldest runs have no chain."""
    if not any(links):
        return
    previous = GENESIS
    for number, (run, link) in enumerate(zip(runs, links, strict=True), start=1):
        first = links[0]
        if link is None or first is None or link.id != first.id:
            _altered(path, f"{run.path} is a run of another session")
        if (link.number, link.previous) != (number, previous):
            _altered(path, f"{run.path} does not follow from the run before it: one is missing, moved or replaced")
        previous = run.events_sha256


def _altered(path: Path, what: str) -> NoReturn:
    remedy = "Restore the original recording, or report the run by itself"
    raise IntegrityError(what, field="session", value=str(path), remedy=remedy)
