"""What happens when the disk is full while a run is recorded: each file ends with its last whole batch or line.

Space is reserved for the last line and the seal, so that they can be written even then. Files are cut in
``rig.recording.columns.arrow_files`` and ``rig.recording.write_events``.
"""

import hashlib
import io
import os
from typing import Any

from rig.errors import StoreError
from rig.recording.disk.files import Folder

MOVED = "Leave the directory where it is while it is recorded: it was moved or removed"
MAKE_ROOM = "Make room, or choose another --out. What was recorded until now is kept; `rig report` reads it"
ROOM = ".room"
"""A file that reserves disk space for the stop line and the seal until they are written."""
ROOM_BYTES = 1 << 16
LINE_BYTES = 256
"""Bytes that are reserved for one file in the stop line."""


def unwritable(what: str, error: Exception, remedy: str) -> StoreError:
    """Return the error for a part of a recording that cannot be written."""
    if isinstance(error, FileNotFoundError) and remedy == MAKE_ROOM:
        remedy = MOVED
    return StoreError(f"{what} cannot be written: {error}", field="out", value=repr(error), remedy=remedy)


class Whole(io.FileIO):
    """A file in which each write is complete or raises, because ``FileIO`` may write a part."""

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        left = view
        while left:
            left = left[super().write(left) or 0 :]
        return len(view)


class Hashed(Whole):
    """A file whose SHA-256 is computed while it is written: ``hashed`` bytes until now, without a failed write."""

    def __init__(self, folder: Folder, name: str) -> None:
        super().__init__(name, "wb", opener=folder.open)
        self.sha256, self.hashed = hashlib.sha256(), 0

    def write(self, data: Any) -> int:
        super().write(data)
        self.sha256.update(data)
        self.hashed += len(data)
        return len(data)


def keep_room(folder: Folder, kept: int, files: int) -> int:
    """Reserve space for a stop line that lists ``files`` files, and for the seal. Raises ``OSError``.

    ``kept`` bytes are reserved already. Return how many bytes are reserved now.
    """
    needed = ROOM_BYTES + LINE_BYTES * files
    if needed <= kept:
        return kept
    needed += ROOM_BYTES
    with Whole(ROOM, "ab", opener=folder.open) as file:
        file.write(bytes(needed - kept))
        os.fsync(file.fileno())
    return needed
