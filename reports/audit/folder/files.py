"""Read untrusted files: only regular, bounded ones inside their folder. Clean untrusted text to one line."""

from __future__ import annotations

import json
import os
import posixpath
import stat
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from rig.errors import StoreError
from rig.recording.disk.bounded import check_json
from rig.recording.disk.decoding import strict
from rig.recording.disk.files import Folder, Opened

TEXT_BYTES, FILES_MOST = 16 << 20, 100_000
REMEDY = "No recording of the rig is like this; ask for the original"
WHAT_TO_NAME = "Name a run, a session (with its session.json) or a submission, or its archive"
DRIVEL = dict.fromkeys((*range(32), *range(127, 160), *range(8203, 8208), *range(8234, 8239)), " ")


def refuse(where: object, what: str, value: object = None, remedy: str = REMEDY) -> NoReturn:
    """Raise a ``StoreError`` about a file that cannot be audited."""
    raise StoreError(clean(f"{where} {what}"), field="audit", value=value, remedy=remedy)


def clean(text: object, most: int = 300) -> str:
    """Return untrusted text on one line of at most ``most`` characters, without control and direction characters."""
    shown = " ".join(str(text)[: 4 * most].translate(DRIVEL).split()).encode("utf-8", "replace").decode()
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."


def walk(root: Path) -> dict[str, int]:
    """Return the bytes of each regular file below ``root``, by its relative path. Refuses links and special files."""
    held: dict[str, int] = {}
    for folder, inner, files in os.walk(root, onerror=_unlisted):
        below = Path(folder).relative_to(root)
        for own in sorted((*inner, *files)):  # as texts, because Path objects of thousands of files take seconds
            found, name = os.lstat(f"{folder}/{own}"), posixpath.join(*below.parts, own)
            if stat.S_ISREG(found.st_mode):
                held[name] = found.st_size
            elif not stat.S_ISDIR(found.st_mode):
                refuse(name, "is a link or no regular file")
        if len(held) > FILES_MOST:
            refuse(root.name, f"holds more than {FILES_MOST} files")
    return held


def _unlisted(error: OSError) -> NoReturn:
    """Refuse a folder that cannot be listed, because it may contain anything."""
    raise error


def inside(root: Path, name: object) -> Path:
    """Return the file below ``root`` that an untrusted relative path names. Refuse other paths and any link."""
    parts = str(name).split("/")
    if not isinstance(name, str) or any(p in ("", ".", "..") or "\\" in p or "\0" in p or ":" in p for p in parts):
        refuse(f"the path {name!r}", "leads outside of its folder")
    place = root.joinpath(*parts)
    if any(map(os.path.islink, (place, *place.parents[: len(parts) - 1]))):
        refuse(name, "is a link")
    return place


def read_bytes(path: Path, most: int = TEXT_BYTES) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes. Raises ``StoreError`` for anything else."""
    try:
        return Folder.at(path.parent).read(path.name, most)
    except OSError as error:
        refuse(path.name, f"cannot be read: {error.strerror or error}")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a regular file in hex, read in blocks. Raises ``StoreError`` for anything else."""
    try:
        return Opened(Folder.at(path.parent), path.name).sha256()
    except OSError as error:
        refuse(path.name, f"cannot be read: {error.strerror or error}")


def parse_json(text: bytes, where: str) -> Any:
    """Decode JSON. Refuses NaN, infinity, repeated keys, endless nesting and numbers of thousands of digits."""
    try:
        check_json(text, where)
        return strict(text)
    except (ValueError, RecursionError) as error:
        refuse(where, f"is no JSON that can be read: {error}")


@cache
def held(name: str) -> Any:
    """Return the content of a JSON file of the auditor's own, which lies beside its code."""
    return json.loads(Path(__file__).parents[1].joinpath(name).read_bytes())
