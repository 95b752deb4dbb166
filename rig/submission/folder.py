"""Write a submission folder beside its final place, and rename it at the end; sign it; write its archive.

The bytes of an archive depend only on the folder. ``ssh-keygen`` signs, with a key that never enters the folder.
"""

import base64
import gzip
import hashlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO

from rig.engine.interrupts import interrupt, on_signals
from rig.errors import MissingExtraError, RigError, StoreError, UsageError, refused
from rig.recording import session_json as sessions_format
from rig.recording.disk.files import BROKEN, bad_out, made, not_stored, replacing, unwritten
from rig.recording.layout import DERIVED, EVENTS, SEAL, distinct, is_recorded, sha256_of
from rig.recording.read_events import read_log
from rig.recording.session_json import is_session, runs_in
from rig.recording.submission import LINE, MANIFEST, NAMESPACE, SESSIONS, SIGNATURE, Submission, manifest_of, missing
from rig.session.resumable_session import go_on
from rig.submission import submission_toml
from rig.submission.configurations import Row
from rig.submission.files_made import Made, made_of, made_with

ARCHIVES = (".tar.gz", ".tgz")
KIND = b"ssh-ed25519"
"""The kind of key that signs. ``ssh-keygen`` verifies the signature in an audit."""


@dataclass(frozen=True)
class Submitted:
    """A submission that was written."""

    path: Path
    document: Submission
    rows: tuple[Row, ...]
    root: str
    """SHA-256 of the manifest: the hash to publish."""
    missing: tuple[str, ...]
    """Fields that the submitter left empty."""
    left_out: tuple[str, ...]
    """Files in the sessions that no hash of a recording covers."""


def submit(
    sessions: Sequence[Path], about: Path, out: Path, archive: Path | None = None, key: Path | None = None
) -> Submitted:
    """Make a submission folder of sessions and of single runs; with ``key``, sign it; with ``archive``, pack it.

    The pages are made from the copies of the sessions, as ``made_again`` makes them. If a copy does not match its
    hashes, nothing is left. Raises ``UsageError`` for unusable paths, ``DataError`` for an unusable
    ``submission.toml`` and for sessions that share a recording, and what ``rig.report`` raises for a recording.
    """
    _check_paths(sessions, out, archive)
    given, raw = submission_toml.read_about(about)
    named = dict(zip(_names(sessions), sessions, strict=True))
    head = Submission(
        format=1, rig_version=version("neurorig"), made_with=made_with(), name=out.name, about=given, configurations=[]
    )
    files = files_of(named)
    with _beside(out) as folder:
        hashes = {name: _copy(source, folder / name) for name, source in files.items()}
        made = _made(folder, named, head, raw)
        hashes |= {name: _write(folder / name, body) for name, body in made.files.items()}
        root = _write(folder / MANIFEST, manifest_of(hashes))
        if key is not None:
            sign(folder, key)
        if archive is not None:
            with replacing(archive) as file:
                _pack(folder, out.name, file)
    left = [f for name, path in named.items() for f in _left_out(path, name, set(files))]
    return Submitted(out, made.document, made.rows, root, tuple(missing(given)), tuple(left))


def _made(folder: Path, sessions: Mapping[str, Path], head: Submission, about: bytes) -> Made:
    """Make the pages from the copies of the sessions; an error names the original."""
    try:
        return made_of(folder, list(sessions), head, about)
    except RigError as error:
        for name, path in sorted(sessions.items(), reverse=True):  # one name may begin with another
            copy = str(folder / SESSIONS / name)
            error.message = error.message.replace(copy, str(path))
            error.value = str(error.value).replace(copy, str(path)) if isinstance(error.value, str) else error.value
        raise


def _check_paths(sessions: Sequence[Path], out: Path, archive: Path | None) -> None:
    for path, name in ((out, "out"), *([(archive, "archive")] if archive is not None else [])):
        if path.exists() or path.is_symlink():
            raise refused(name, str(path), f"Name a new one with --{name}", f"{path} exists already")
        if not path.parent.is_dir():
            raise bad_out(path, "is in a directory that does not exist")
        if (whole := _holder(path)) is not None:
            what = f"{path} lies inside of {whole}, whose hashes would no longer cover all of it"
            raise refused(name, str(path), f"Name a place beside it with --{name}", what)
    if archive is not None and not archive.name.endswith(ARCHIVES):
        raise refused("archive", str(archive), f"Let its name end in {', '.join(ARCHIVES)}")
    places = [os.path.realpath(path) for path in sessions]
    if double := next((path for path in places if places.count(path) > 1), None):
        raise UsageError(f"{double} is named twice", field="session", value=double, remedy="Name it once")


def _holder(path: Path) -> Path | None:
    """Return the submission, session or run that contains a path, if its hashes cover that place."""
    for folder in path.resolve().parents:
        if folder.name == DERIVED:
            return None
        if any((folder / name).exists() for name in (MANIFEST, sessions_format.FILE, EVENTS)):
            return folder
    return None


# ---- what is copied -----------------------------------------------------------------------


def _names(sessions: Sequence[Path]) -> list[str]:
    """Return a plain name for each session, numbered if two have the same."""
    plain = (re.sub(r"[^A-Za-z0-9._-]", "_", Path(os.path.realpath(path)).name).lstrip(".")[:100] for path in sessions)
    return distinct(name or "session" for name in plain)


def files_of(sessions: Mapping[str, Path]) -> dict[str, Path]:
    """Return every file that a submission takes from sessions and runs, by its path in the submission.

    These are the files that a hash covers, and the broken recordings that a session keeps. Raises ``StoreError`` for
    links and devices, and for sessions and runs that have not ended.
    """
    return {f"{SESSIONS}/{name}/{inner}": file for name, path in sessions.items() for inner, file in _files_of(path)}


def _files_of(root: Path) -> Iterator[tuple[str, Path]]:
    session = is_session(root)
    if session:
        if (root / sessions_format.REQUEST).exists():
            what, remedy = f"{root} is not whole", f"Go on with it: {go_on(root)}"
            raise StoreError(what, field="session", value=str(root), remedy=remedy)
        yield from _plain(root, (sessions_format.FILE, sessions_format.SEAL))
        torn = sorted((root / BROKEN).rglob("*")) if (root / BROKEN).is_dir() else []
        inside = (p.relative_to(root).as_posix() for p in torn if (p.is_symlink() or not p.is_dir()))
        yield from _plain(root, (name for name in inside if DERIVED not in Path(name).parts))
    for run, _ in runs_in(root):
        stop = read_log(run).stop
        if stop is None:
            what = f"{run} was broken off: it has no stop line"
            remedy = "Measure again; only whole runs can be submitted"
            raise StoreError(what, field="session", value=str(run), remedy=remedy)
        where = f"{run.relative_to(root).as_posix()}/" if session else ""
        yield from ((f"{where}{name}", source) for name, source in _plain(run, (EVENTS, SEAL, *stop.files)))


def _plain(root: Path, names: Iterator[str] | Sequence[str]) -> Iterator[tuple[str, Path]]:
    for name in names:
        if is_recorded(root, name):
            if LINE.fullmatch(f"{'0' * 64}  {name}") is None:
                what, remedy = f"the name {name!r} in {root} cannot be in a manifest", "Rename this file"
                raise StoreError(what, field="session", value=name, remedy=remedy)
            yield name, root / name


def _left_out(session: Path, name: str, taken: set[str]) -> Iterator[str]:
    """Yield the files of a session that the submission does not take, except derived ones."""
    for file in sorted(session.rglob("*")):
        inner = file.relative_to(session)
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
            folder = made(out.with_name(f".{out.name[:200]}.{secrets.token_hex(4)}"))
            yield folder
            folder.rename(out)
    except BaseException as error:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise _refused(error, folder, out) from error
        raise


def _refused(error: OSError, folder: Path | None, out: Path) -> StoreError:
    """Return the error that names a file which cannot be written, or a session's file which cannot be read."""
    place = Path(str(error.filename or out))
    if folder is not None and place.is_relative_to(folder):
        return not_stored(out / place.relative_to(folder), unwritten(error))
    if folder is None or error.filename is None:
        return not_stored(out, unwritten(error))
    what, remedy = f"{place} cannot be read ({error.strerror})", "Correct its permissions, and submit again"
    return StoreError(what, field="session", value=str(place), remedy=remedy)


def _write(path: Path, content: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def _copy(source: Path, target: Path) -> str:
    """Copy a file and return the hash of what was written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as read, target.open("wb") as written:
        shutil.copyfileobj(read, written)
    return sha256_of(target)


def _pack(folder: Path, name: str, file: IO[bytes]) -> None:
    """Write a folder as an archive with sorted names, and without this machine's owners, times and modes."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        entry.mode = 0o755 if entry.isdir() else 0o644
        return entry

    packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
    with packed, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in (folder, *sorted(folder.rglob("*"))):
            inner = path.relative_to(folder).as_posix()
            archive.add(path, arcname=f"{name}/{inner}" if path != folder else name, recursive=False, filter=plain)


# ---- signing -----------------------------------------------------------------------------


def sign(folder: Path, key: Path) -> None:
    """Sign the manifest in ``folder``.

    Raises ``MissingExtraError`` where OpenSSH is not installed, and ``UsageError`` for a key that cannot be used.
    """
    if not key.is_file():
        remedy = "Make one with `ssh-keygen -t ed25519 -f KEY`"
        raise refused("sign", str(key), remedy, f"the key {key} is not a file")
    command = ["ssh-keygen", "-Y", "sign", "-f", str(key.resolve()), "-n", NAMESPACE, str(folder / MANIFEST)]
    try:
        ended = subprocess.run(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, check=False)
    except OSError as error:
        what, remedy = "signing needs ssh-keygen, which is not installed", "Install OpenSSH (openssh-client on Debian)"
        raise MissingExtraError(what, field="sign", value=str(key), remedy=remedy) from error
    if ended.returncode != 0:
        said = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise _unusable(key, f"ssh-keygen did not sign: {said}")
    signature = folder / SIGNATURE
    signature.chmod(0o644)
    blob = base64.b64decode("".join(signature.read_text().split("\n")[1:]).partition("-----")[0])
    if blob[18 : 18 + len(KIND)] != KIND:  # after 6 bytes, a version and two lengths
        raise _unusable(key, "it is not an Ed25519 key")


def _unusable(key: Path, what: str) -> UsageError:
    return refused("sign", str(key), "Give an Ed25519 key of your own, readable by you alone", f"key {key}: {what}")
