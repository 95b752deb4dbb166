"""Reading of files that anyone may have written: only regular files, and only up to a stated size."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

TEXT_BYTES = 16 << 20
"""The largest file of settings: a session, a grid, a bench file, a calibration."""


def read_bounded(path: Path, most_bytes: int = TEXT_BYTES) -> bytes:
    """Return the content of a regular file.

    Raises ``OSError``, also for a pipe, a device or a directory, which might never end, and for a file that is larger.
    """
    # without O_NONBLOCK, opening a pipe that no one writes to waits for ever
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        content = file.read(most_bytes + 1) if found.st_size <= most_bytes else b""
    if max(found.st_size, len(content)) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes", str(path))
    return content
