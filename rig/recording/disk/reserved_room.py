"""Keep disk space for the end of a recording, so that one that fills its disk still ends with its last line."""

from __future__ import annotations

import os

from rig.recording.disk.files import Folder, Whole

ROOM = ".room"
"""A file that reserves disk space for the stop line and the seal until they are written."""
ROOM_BYTES = 1 << 16
LINE_BYTES = 256
"""Bytes reserved in the stop line for one file."""


class ReservedRoom:
    """Disk space below a run directory for a stop line that lists ``files`` files, and for the seal."""

    def __init__(self, folder: Folder, files: int) -> None:
        self._folder, self._bytes = folder, 0
        self.keep(files)

    def keep(self, files: int) -> None:
        """Reserve the space for so many files. Raises ``OSError``."""
        needed = ROOM_BYTES + LINE_BYTES * files
        if needed > self._bytes:
            needed += ROOM_BYTES
            with Whole(ROOM, "ab", opener=self._folder.open) as file:
                file.write(bytes(needed - self._bytes))
                os.fsync(file.fileno())
            self._bytes = needed

    def give_back(self) -> None:
        """Free the space, for the last line and the seal."""
        self._folder.remove(ROOM)
