"""Bounds on files that anyone may have written: size of files and lines, length of texts, depth of nesting.

A file is refused before it is read into memory, and a text before it is decoded.
"""

import errno
import math
import os
import re
import stat
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rig.errors import StoreError

TEXT_BYTES = 16 << 20
"""The largest file of settings: a session, a grid, a bench file, a calibration."""
EVENTS_BYTES = 1 << 30
"""The largest ``events.jsonl``."""
LINE_BYTES = 64 << 20
"""The longest line of ``events.jsonl``."""
START_BYTES = 16 << 20
"""The longest start line."""
TEXT_CHARACTERS = 100_000
"""The longest text in a start line, in the description of a trace, or in a column other than outputs."""
DEPTH = 64
"""The deepest nesting of lists and objects in a line."""
SPARSE_BYTES, DENSITY = 64 << 20, 1e-3
"""A file above ``SPARSE_BYTES`` is refused if less than ``DENSITY`` of it is on disk; recordings are not sparse."""
TABLE_BYTES, CELLS_BYTES = 1 << 40, 1 << 20
"""The largest table of text, and its longest line."""
DIGITS = 400
"""The longest number, in digits; the largest double has 309."""
_NUMBER = re.compile(rb"(?<![0-9])[0-9]{%d}" % (DIGITS + 1))
_TEXTS = re.compile(rb'"(?:[^"\\]++|\\.)*+"')  # possessive: to go back would take 100 bytes for each byte of text


def open_bounded(path: Path, most_bytes: int) -> BinaryIO:
    """Open a regular file to read it.

    Raises ``OSError``, also for more than ``most_bytes``, and for a pipe, a device or a directory, because reading it
    might never end.
    """
    # without O_NONBLOCK, opening a pipe without a writer waits for ever
    file = os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb")
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if found.st_size > most_bytes:
        file.close()
        raise _too_large(path, most_bytes)
    return file


def read_bounded(path: Path, most_bytes: int = TEXT_BYTES) -> bytes:
    """Return the content of a file. Raises ``OSError`` as ``open_bounded`` does."""
    with open_bounded(path, most_bytes) as file:
        return content_of(file, path, most_bytes)


def content_of(file: BinaryIO, path: Path, most_bytes: int) -> bytes:
    """Return the content of the open file at ``path``. Raises ``OSError`` for more than ``most_bytes``."""
    size = os.fstat(file.fileno()).st_size
    content = b"" if size > most_bytes else file.read(min(2 * size + 1, most_bytes + 1))  # it may grow meanwhile
    if max(size, len(content)) > most_bytes:
        raise _too_large(path, most_bytes)
    return content


def check_lines(path: Path) -> None:
    """Raise ``OSError`` for a table of text with a line that is too long, and as ``open_bounded`` does."""
    with open_bounded(path, TABLE_BYTES) as file:
        while len(piece := file.read(CELLS_BYTES)) == CELLS_BYTES:
            if b"\n" not in piece and b"\r" not in piece:
                raise OSError(errno.EFBIG, f"it has a line of more than {CELLS_BYTES} bytes", str(path))


def _too_large(path: Path, most_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes", str(path))


def check_line(line: bytes, number: int) -> None:
    """Raise ``StoreError`` for a line of ``events.jsonl`` that is too long or that ``check_json`` refuses."""
    check_json(line, f"line {number + 1} of events.jsonl", LINE_BYTES if number else START_BYTES)


def check_json(text: bytes, where: str, most_bytes: float = math.inf) -> None:
    """Raise ``StoreError`` for JSON that is too long, nested too deeply or has a number of too many digits."""
    if len(text) > most_bytes:
        raise _beyond(where, f"is longer than {most_bytes} bytes", len(text))
    nested = text.count(b"[") + text.count(b"{") > DEPTH
    if not nested and not _NUMBER.search(text):
        return
    bare = _TEXTS.sub(b"", text)
    if number := _NUMBER.search(bare):
        raise _beyond(where, f"has a number of more than {DIGITS} digits", len(number[0]))
    marks = np.frombuffer(bare, dtype=np.uint8)
    steps = np.isin(marks, list(b"[{")).astype(np.int32) - np.isin(marks, list(b"]}"))
    if (deepest := int(np.cumsum(steps).max(initial=0))) > DEPTH:
        raise _beyond(where, f"is nested more than {DEPTH} deep", deepest)


def check_texts(document: Any, where: str = "the start line") -> None:
    """Raise ``StoreError`` for a document that has a text that is too long, or that is nested too deeply."""
    waiting = [(document, 0)]
    while waiting:
        value, depth = waiting.pop()
        if depth > DEPTH:
            raise _beyond(where, f"is nested more than {DEPTH} deep", depth)
        if isinstance(value, dict):
            waiting += [(inner, depth + 1) for pair in value.items() for inner in pair]
        elif isinstance(value, (list, tuple)):
            waiting += [(inner, depth + 1) for inner in value]
        elif isinstance(value, str) and len(value) > TEXT_CHARACTERS:
            raise _beyond(where, f"has a text of more than {TEXT_CHARACTERS} characters", len(value))


def check_dense(found: os.stat_result, name: str) -> None:
    """Raise ``StoreError`` for a large sparse file, because reading it could take hours."""
    held = getattr(found, "st_blocks", found.st_size) * 512
    if found.st_size > SPARSE_BYTES and held < DENSITY * found.st_size:
        raise _beyond(name, f"has {found.st_size} bytes, of which {held} are on the disk", found.st_size)


def _beyond(where: str, what: str, value: int) -> StoreError:
    remedy = "No recording of the rig is like this; see its origin"
    return StoreError(f"{where} {what}", field="bounds", value=value, remedy=remedy)
