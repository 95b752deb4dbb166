"""A submission folder is written beside its place and renamed at the end; its archive has the same bytes each time."""

from __future__ import annotations

import gzip
import hashlib
import re
import shutil
import signal
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO

import msgspec

from rig.analysis.session_recordings import shared_recording
from rig.engine.interrupts import interrupt, on_signals
from rig.errors import DataError, IntegrityError, StoreError, UsageError, refused
from rig.plugins import load
from rig.recording import session as sessions_format
from rig.recording.atomic_write import BROKEN, bad_out, not_stored, replacing, unwritten
from rig.recording.layout import DERIVED, EVENTS, SEAL, is_recorded
from rig.recording.submission import FILE, LINE, MANIFEST, SESSIONS, About, Submission, manifest_of, missing
from rig.session.book import go_on
from rig.session.report import Evaluated, evaluated
from rig.submission import about as about_file
from rig.submission.configurations import Row, rows_of
from rig.submission.crate import FILE as CRATE
from rig.submission.crate import crate
from rig.submission.signature import sign

ARCHIVES = (".tar.gz", ".tgz")
_PIECE = 1 << 20


@dataclass(frozen=True)
class Submitted:
    """A submission that was written."""

    path: Path
    document: Submission
    rows: tuple[Row, ...]
    root: str
    """SHA-256 of the manifest: the hash to publish."""
    missing: tuple[str, ...]
    """What the submitter left empty."""
    left_out: tuple[str, ...]
    """Files in the sessions that no hash of a recording covers."""


def submit(
    sessions: Sequence[Path], about: Path, out: Path, archive: Path | None = None, key: Path | None = None
) -> Submitted:
    """Make a submission folder of sessions and lone runs, and its archive; sign it with ``key`` if there is one.

    Every session is verified before anything is written. Raises ``UsageError`` for paths that cannot be used,
    ``DataError`` for a ``submission.toml`` that cannot and for sessions that share a recording, and what ``rig.report``
    raises for a recording.
    """
    _check_paths(sessions, out, archive)
    given, raw = about_file.read_about(about)
    read = list(zip(_names(sessions), map(evaluated, sessions), strict=True))
    _check_apart(read)
    files = {f"{SESSIONS}/{name}/{inner}": source for name, found in read for inner, source in _files_of(found)}
    rows = rows_of(read)
    document = _document(out.name, given, rows)
    pages: Mapping[str, bytes] = load("reports", "submission")(document, [(row.result, row.run) for row in rows])
    content = msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
    own = {**pages, FILE: content, about_file.FILE: raw}
    own[CRATE] = crate(document, sorted(name for name in own if "/" not in name))
    with _beside(out) as folder:
        hashes = {name: _write(folder / name, body) for name, body in own.items()}
        hashes |= {name: _copy(source, folder / name) for name, source in files.items()}
        _check_same(read, hashes)
        root = _write(folder / MANIFEST, manifest_of(hashes))
        if key is not None:
            sign(folder, key)
        if archive is not None:
            with replacing(archive) as file:
                _pack(folder, out.name, file)
    left = [f for name, found in read for f in _left_out(found, name, set(files))]
    return Submitted(out, document, tuple(rows), root, tuple(missing(given)), tuple(left))


def _document(name: str, about: About, rows: Sequence[Row]) -> Submission:
    configurations = [row.configuration for row in rows]
    return Submission(format=1, rig_version=version("neurorig"), name=name, about=about, configurations=configurations)


def _check_paths(sessions: Sequence[Path], out: Path, archive: Path | None) -> None:
    for path, name in ((out, "out"), *([(archive, "archive")] if archive is not None else [])):
        if path.exists() or path.is_symlink():
            raise refused(name, str(path), f"Name a new one with --{name}", f"{path} exists already")
        if not path.parent.is_dir():
            raise bad_out(path, "is in a directory that does not exist")
    if archive is not None and not archive.name.endswith(ARCHIVES):
        raise refused("archive", str(archive), f"Let its name end in {', '.join(ARCHIVES)}")
    places = [path.resolve() for path in sessions]
    if double := next((path for path in places if places.count(path) > 1), None):
        raise UsageError(f"{double} is named twice", field="session", value=str(double), remedy="Name it once")


def _check_apart(read: Sequence[tuple[str, Evaluated]]) -> None:
    """Refuse sessions that share a recording: it would count as two measurements. Raises ``DataError``."""
    runs = ((f"{found.path}/{part.name}", part.run) for _, found in read for part in found.parts)
    if shared := shared_recording(runs):
        one, other, file = shared
        raise DataError(
            f"{one} and {other} hold the same recording: their {file} are equal byte by byte",
            field="session",
            value=other,
            remedy="Hand in each recording once, and measure again for another trial",
        )


# ---- what is copied -----------------------------------------------------------------------


def _names(sessions: Sequence[Path]) -> list[str]:
    """A plain name for each session, numbered where two have the same."""
    names: list[str] = []
    for path in sessions:
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", path.resolve().name).lstrip(".")[:100] or "session"
        numbered = (f"{plain}-{k}" for k in range(2, len(sessions) + 2))
        names.append(plain if plain not in names else next(name for name in numbered if name not in names))
    return names


def _files_of(found: Evaluated) -> Iterator[tuple[str, Path]]:
    """Every file that a hash of the session covers, and what was broken off; links and devices are refused."""
    root = found.path
    if found.session is not None:
        if (root / sessions_format.REQUEST).exists():
            what, remedy = f"{root} is not whole", f"Go on with it: {go_on(root)}"
            raise StoreError(what, field="session", value=str(root), remedy=remedy)
        yield from _plain(root, (sessions_format.FILE, sessions_format.SEAL))
        torn = sorted((root / BROKEN).rglob("*")) if (root / BROKEN).is_dir() else []
        inside = (p.relative_to(root).as_posix() for p in torn if (p.is_symlink() or not p.is_dir()))
        yield from _plain(root, (name for name in inside if DERIVED not in Path(name).parts))
    for part in found.parts:
        run, stop = part.run.path, part.run.stop
        if stop is None:
            what, remedy = (
                f"{run} was broken off: it has no stop line",
                "Measure again; only whole runs can be submitted",
            )
            raise StoreError(what, field="session", value=str(run), remedy=remedy)
        where = "" if found.session is None else f"{run.relative_to(root).as_posix()}/"
        yield from ((f"{where}{name}", source) for name, source in _plain(run, (EVENTS, SEAL, *stop.files)))


def _plain(root: Path, names: Iterator[str] | Sequence[str]) -> Iterator[tuple[str, Path]]:
    for name in names:
        if is_recorded(root, name):
            if LINE.fullmatch(f"{'0' * 64}  {name}") is None:
                what, remedy = f"the name {name!r} in {root} cannot stand in a manifest", "Name this file otherwise"
                raise StoreError(what, field="session", value=name, remedy=remedy)
            yield name, root / name


def _left_out(found: Evaluated, name: str, taken: set[str]) -> Iterator[str]:
    """What lies in a session beside what was recorded, and would go unnoticed."""
    for file in sorted(found.path.rglob("*")):
        inner = file.relative_to(found.path)
        beside = DERIVED not in inner.parts and not file.is_dir()
        if beside and f"{SESSIONS}/{name}/{inner.as_posix()}" not in taken:
            yield str(file)


# ---- writing ------------------------------------------------------------------------------


@contextmanager
def _beside(out: Path) -> Iterator[Path]:
    """Yield a folder beside ``out`` that becomes ``out`` when the block ends, and is removed if the block raises."""
    folder: Path | None = None
    try:
        with on_signals(interrupt, signal.SIGTERM):
            folder = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
            yield folder
            folder.chmod(0o755)
            folder.rename(out)
    except BaseException as error:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise not_stored(out, unwritten(error)) from error
        raise


def _write(path: Path, content: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def _copy(source: Path, target: Path) -> str:
    """Copy a file and return the hash of what was written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with source.open("rb") as read, target.open("wb") as written:
        while piece := read.read(_PIECE):
            digest.update(piece)
            written.write(piece)
    return digest.hexdigest()


def _check_same(read: Sequence[tuple[str, Evaluated]], hashes: Mapping[str, str]) -> None:
    """Refuse a recording that was changed after it was verified."""
    for name, found in read:
        for part in found.parts:
            run, stop = part.run, part.run.stop
            where = f"{SESSIONS}/{name}/" + ("" if found.session is None else f"{run.path.name}/")
            for file, expected in {EVENTS: run.digest, **({} if stop is None else stop.files)}.items():
                if hashes[where + file] != expected:
                    what, remedy = (
                        f"{run.path / file} changed while it was copied",
                        "Let nothing write it, and try again",
                    )
                    raise IntegrityError(what, field="session", value=str(run.path), remedy=remedy)


def _pack(folder: Path, name: str, file: IO[bytes]) -> None:
    """Write a folder as an archive: names in order, without owners, times and modes of this machine."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        entry.mode = 0o755 if entry.isdir() else 0o644
        return entry

    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in (folder, *sorted(folder.rglob("*"))):
            inner = path.relative_to(folder).as_posix()
            archive.add(path, arcname=f"{name}/{inner}" if path != folder else name, recursive=False, filter=plain)
