"""Reserve disk space for the end of a recording, so that its last line can be written even if the disk is full."""

from __future__ import annotations

import os

from rig.recording.disk.files import Folder, Whole

ROOM = ".room"
"""A file that reserves disk space for the stop line and the seal until they are written."""
ROOM_BYTES = 1 << 16
LINE_BYTES = 256
"""Bytes that are reserved for one file in the stop line."""


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
