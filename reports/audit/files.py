"""Files that anyone may have written: bounded, regular, inside their folder; JSON that is what its schema says."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import itertools
import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import best_match

import rig.types
from rig.errors import StoreError

TEXT_BYTES = 16 << 20
FILE_BYTES = 1 << 44
FILES_MOST = 100_000
DENSITY = 1e-3
"""A file of which less than this share is on disk is a hole, which would take hours to read."""
SMALL, RATIO_MOST = 64 << 20, 200
"""Whatever unpacks to more than both, in bytes and for each byte, is a bomb; recordings shrink by far less."""
SCHEMAS = Path(rig.types.__file__).parent / "recording" / "schemas"
SCHEMA_FAULTS_MOST = 20
REMEDY = "No recording of the rig is like this; ask for the original"
DRIVEL = dict.fromkeys((*range(32), *range(127, 160), *range(8203, 8208), *range(8234, 8239)), " ")


def refuse(where: object, what: str, value: object = None, remedy: str = REMEDY) -> NoReturn:
    """Raise a ``StoreError`` about a file that cannot be audited."""
    raise StoreError(clean(f"{where} {what}"), field="audit", value=value, remedy=remedy)


def clean(text: object, most: int = 300) -> str:
    """Untrusted text on one line of at most ``most`` characters, without control and direction characters."""
    shown = " ".join(str(text)[: 4 * most].translate(DRIVEL).split()).encode("utf-8", "replace").decode()
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."


def walk(root: Path) -> dict[str, int]:
    """The size in bytes of each regular file below ``root``, by its relative path. Refuses links and the like."""
    held: dict[str, int] = {}
    for folder, inner, files in os.walk(root, onerror=_unlisted):
        for place in sorted(Path(folder, name) for name in (*inner, *files)):
            name, found = place.relative_to(root).as_posix(), place.lstat()
            if stat.S_ISREG(found.st_mode):
                held[name] = found.st_size
            elif not stat.S_ISDIR(found.st_mode):
                refuse(name, "is a link or no regular file")
        if len(held) > FILES_MOST:
            refuse(root.name, f"holds more than {FILES_MOST} files")
    return held


def _unlisted(error: OSError) -> NoReturn:
    """A folder that cannot be listed may hold anything."""
    raise error


def inside(root: Path, name: object) -> Path:
    """The file that an untrusted relative path names below ``root``. Refuses any other path, and links on the way."""
    parts = str(name).split("/")
    if not isinstance(name, str) or any(p in ("", ".", "..") or "\\" in p or "\0" in p or ":" in p for p in parts):
        refuse(f"the path {name!r}", "leads outside of its folder")
    place = root
    for part in parts:
        place = place / part
        if place.is_symlink():
            refuse(name, "is a link")
    return place


@contextlib.contextmanager
def opened(path: Path, most: int) -> Iterator[io.BufferedReader]:
    """A regular file of at most ``most`` bytes, to be read. Raises ``StoreError`` for anything else."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_size > most:
                refuse(path.name, f"is no regular file of at most {most} bytes", found.st_size)
            held = getattr(found, "st_blocks", found.st_size) * 512
            if found.st_size > SMALL and held < DENSITY * found.st_size:
                refuse(path.name, f"has {found.st_size} bytes, of which {held} are on the disk", found.st_size)
            yield file
    except OSError as error:
        refuse(path.name, f"cannot be read: {error.strerror or error}")


def read_bytes(path: Path, most: int = TEXT_BYTES) -> bytes:
    """The content of a regular file of at most ``most`` bytes. Raises ``StoreError`` for anything else."""
    with opened(path, most) as file:
        return file.read(most)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file in hex, read in blocks."""
    with opened(path, FILE_BYTES) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parse_json(text: bytes | str, where: object) -> Any:
    """Decode JSON. Refuses NaN, infinity, repeated keys, endless nesting and numbers of thousands of digits."""
    try:
        return json.loads(text, object_pairs_hook=_once, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        refuse(where, f"is no JSON that can be read: {error}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:20]} is no finite number")
    return value


@functools.cache
def _schema(name: str) -> dict[str, Any]:
    return dict(json.loads((SCHEMAS / f"{name}.json").read_bytes()))


@functools.cache
def _validator(name: str, part: str) -> Any:
    whole = _schema(name)
    # the rig's reader takes no 1E12 for a whole number
    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    strict = validators.extend(Draft202012Validator, type_checker=types)
    return strict({"$defs": whole["$defs"], "$ref": f"#/$defs/{part}"} if part else whole)


@functools.cache
def _of_lines() -> dict[str, Draft202012Validator]:
    """For lines of each type that the format knows, and of others (""): the schema without what is for other types."""
    whole = _schema("event")
    ways = {way["if"]["properties"]["type"]["const"]: [way] for way in whole["allOf"]}
    bare = {key: told for key, told in whole.items() if key != "allOf"}
    events = {kind: bare | {"allOf": way} for kind, way in ways.items()}
    return {kind: Draft202012Validator(one) for kind, one in (events | {"": bare}).items()} | {
        kind: _validator(kind, "") for kind in ("start", "stop")
    }


def defaults(name: str, part: str) -> dict[str, Any]:
    """What one part of a schema means where a key is left out."""
    keys = _schema(name)["$defs"][part]["properties"].items()
    return {key: told["default"] for key, told in keys if "default" in told}


def line_faults(line: dict[str, Any]) -> list[str]:
    """What of a line of ``events.jsonl`` differs from the schema of its type, in words."""
    known = _of_lines()
    return _faults(line, known.get(str(line.get("type")), known[""]))


def schema_faults(value: Any, name: str, part: str = "") -> list[str]:
    """What of a document differs from a schema (start, submission), or from one ``part`` of it, in words."""
    return _faults(value, _validator(name, part))


def _faults(value: Any, schema: Draft202012Validator) -> list[str]:
    found = itertools.islice(schema.iter_errors(value), SCHEMA_FAULTS_MOST)
    nearest = [best_match([error]) for error in found]  # of several ways, the one that fits best
    return [clean(f"{error.json_path.removeprefix('$')}: {error.message}".lstrip(".: ")) for error in nearest]
