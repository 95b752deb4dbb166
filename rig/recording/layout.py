"""The paths of the files of a run directory, and their digests."""

from __future__ import annotations

import hashlib
import itertools
import stat
from collections.abc import Iterable
from pathlib import Path

from rig.errors import StoreError

GENESIS = "0" * 64
EVENTS = "events.jsonl"
SEAL = "events.jsonl.sha256"
DERIVED = "derived"


def trace_path(rail: str) -> str:
    """Return the path of a rail's readings, relative to the run directory."""
    return f"traces/{_safe(rail)}.arrows"


def payload_path(sample_id: str) -> str:
    """Return the path of a stored payload, relative to the run directory."""
    return f"artifacts/payloads/{_safe(sample_id)}.npy"


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)


def is_recorded(path: Path, name: str) -> bool:
    """Return whether there is a file ``name`` in a recording.

    Raises ``StoreError`` for a link, a pipe, a device or a directory in its place, or a link in the place of a
    directory that holds it.
    """
    steps = list(itertools.accumulate(Path(name).parts, lambda folder, step: folder / step, initial=path))[1:]
    for step in steps:
        try:
            kind = step.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError, ValueError):  # no file has a name with a null byte
            return False
        if not (stat.S_ISREG if step == steps[-1] else stat.S_ISDIR)(kind):
            what = "a link" if stat.S_ISLNK(kind) else "no regular file" if step == steps[-1] else "no directory"
            remedy = "Restore the original recording; it holds plain files and no links"
            raise StoreError(f"{step} is {what}", field="run", value=str(path), remedy=remedy)
    return True


def check_run(path: Path) -> None:
    """Raise ``StoreError`` for what is no run directory."""
    if not is_recorded(path, EVENTS):
        lacks = f"is not a run directory: it has no {EVENTS}" if path.exists() else "does not exist"
        remedy = "Name the directory that `rig measure --out` wrote, or a run inside a session"
        raise StoreError(f"{path} {lacks}", field="run", value=str(path), remedy=remedy)


def read_files(path: Path, tables: Iterable[str]) -> list[Path]:
    """Return the tables, traces and payloads of a run directory. Raises ``StoreError`` as ``is_recorded`` does."""
    found = [path / f"{table}.arrows" for table in tables]
    found += [
        file for pattern in ("traces/*.arrows", "artifacts/payloads/*.npy") for file in sorted(path.glob(pattern))
    ]
    return [file for file in found if is_recorded(path, file.relative_to(path).as_posix())]


def recorded_files(path: Path) -> list[Path]:
    """Return every file of a run that the stop line must list, sorted."""
    own = {path / EVENTS, path / SEAL}
    derived = path / DERIVED
    return sorted(p for p in path.rglob("*") if p.is_file() and p not in own and derived not in p.parents)


def sha256_of(path: Path) -> str:
    """Return the hex digest of a file, which is read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
