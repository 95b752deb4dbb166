"""What happens when a disk is full while a run is recorded: each file ends with its last whole piece."""

from __future__ import annotations

import hashlib
import io
from typing import Any

from rig.errors import StoreError
from rig.recording.disk.files import Folder

MAKE_ROOM = "Make room, or choose another --out. What was recorded until now is kept; `rig report` reads it"


def unwritable(what: str, error: Exception, remedy: str) -> StoreError:
    """Return the error for a part of a recording that cannot be written."""
    return StoreError(f"{what} cannot be written: {error}", field="out", value=repr(error), remedy=remedy)


class Whole(io.FileIO):
    """A file in which each write is complete or raises; Arrow ignores how many bytes were written."""

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        left = view
        while left:
            left = left[super().write(left) or 0 :]
        return len(view)


class Hashed(Whole):
    """A file whose SHA-256 is computed while it is written. Data wait in memory until ``put``.

    Arrow writes a batch in many pieces of a few bytes, and each write to a file lets other threads run.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        super().__init__(name, "wb", opener=folder.open)
        self.sha256, self.hashed, self._waiting = hashlib.sha256(), 0, bytearray()

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._waiting += view
        return len(view)

    def put(self) -> None:
        """Write the waiting data in one piece; none wait afterwards, even if this raises ``OSError``."""
        data, self._waiting = self._waiting, bytearray()
        if data:
            super().write(data)
            self.sha256.update(data)
            self.hashed += len(data)

    def cut(self, end: int, sha256: Any) -> None:
        """Cut the file to ``end`` bytes, and return to its hash at that length. Raises ``OSError``."""
        self.truncate(end)
        self.sha256, self.hashed = sha256, end
