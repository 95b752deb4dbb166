"""The paths of the files of a run directory, and their digests."""

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain, count
from pathlib import Path

from rig.errors import StoreError
from rig.recording.disk.files import Folder

GENESIS = "0" * 64
EVENTS = "events.jsonl"
SEAL = "events.jsonl.sha256"
DERIVED = "derived"
TRACES, PAYLOADS = "traces", "artifacts/payloads"


def trace_path(rail: str) -> str:
    """Return the path of a rail's readings, relative to the run directory."""
    return f"{TRACES}/{_safe(rail)}.arrows"


def payload_path(sample_id: str) -> str:
    """Return the path of a stored payload, relative to the run directory."""
    return f"{PAYLOADS}/{_safe(sample_id)}.npy"


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)


def distinct(names: Iterable[str]) -> list[str]:
    """Return the names, made different for folders in one place: a name that occurs again gets a number.

    Many disks do not distinguish case.
    """
    found: dict[str, str] = {}
    for name in names:
        numbered = chain([name], (f"{name}-{k}" for k in count(2)))
        free = next(one for one in numbered if one.casefold() not in found)
        found[free.casefold()] = free
    return list(found.values())


def is_recorded(path: Path, name: str) -> bool:
    """Return whether there is a file ``name`` in a recording.

    Raises ``StoreError`` if it is a link, a pipe, a device or a directory, or if a directory in its path is a link.
    """
    try:
        return Folder.at(path).has(name)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # no file has a name with a null byte
        return False


def run_folder(path: Path | Folder) -> Folder:
    """Open a run directory. Raises ``StoreError`` for a path that is no run directory, and ``OSError``."""
    found = path if isinstance(path, Folder) else None
    with suppress(FileNotFoundError, NotADirectoryError, ValueError):
        found = Folder.at(path)
    if found is None or not found.has(EVENTS):
        lacks = "does not exist" if found is None else f"is not a run directory: it has no {EVENTS}"
        lacks = "is a file" if isinstance(path, Path) and path.is_file() else lacks
        remedy = "Name the directory that `rig measure --out` wrote, or a run inside a session"
        raise StoreError(f"{path} {lacks}", field="run", value=str(path), remedy=remedy)
    return found


def read_files(folder: Folder, tables: Iterable[str]) -> list[str]:
    """Return the files of the tables, traces and payloads that a run directory has.

    Raises ``StoreError`` if one of them is a link, a pipe, a device or a directory.
    """
    found = [f"{table}.arrows" for table in tables]
    for place, end in ((TRACES, ".arrows"), (PAYLOADS, ".npy")):
        found += [f"{place}/{name}" for name in folder.names(place) if name.endswith(end)]
    return [name for name in found if folder.has(name)]


def recorded_files(folder: Folder) -> list[str]:
    """Return every file of a run that the stop line must list, sorted."""
    return sorted(n for n in folder.walk() if n not in (EVENTS, SEAL) and not n.startswith(f"{DERIVED}/"))


def sha256_of(path: Path) -> str:
    """Return the hex digest of a file; it is read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
