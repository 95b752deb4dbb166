"""One file, written whole or not at all, and only where a regular file may stand."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rig.errors import UsageError

_MODE = 0o644


def regular(path: Path) -> Path:
    """Where a file named ``path`` is written: links followed. Raises ``UsageError`` for what is there and no file.

    A rename would replace a device, a pipe or a link by a file.
    """
    try:
        place = path.resolve()
        if place.is_dir():
            raise _refused(path, "is a directory", "Name a file in it")
        if path.is_symlink() and not place.exists():
            raise _refused(path, "is a link to what is not there", "Remove the link, or name another file")
        if place.exists() and not place.is_file():
            raise _refused(path, "is not a regular file", "Name a file; for standard output there is --json")
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError
        raise _unwritable(path, error) from error
    return place


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that stands at ``path`` when the block ends, whole, and not at all if it raises.

    Raises ``UsageError`` as ``regular`` does, and for a path that cannot be written.
    """
    place = regular(path)
    temporary: Path | None = None
    try:
        mode = stat.S_IMODE(place.stat().st_mode) if place.exists() else _MODE
        handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            yield file
        temporary.chmod(mode)
        temporary.replace(place)
    except BaseException as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritable(path, error) from error
        raise


def write_whole(path: Path, content: bytes) -> Path:
    """Write a file whole or not at all, and return its path. Raises as ``replacing``."""
    with replacing(path) as file:
        file.write(content)
    return path


def _unwritable(path: Path, error: Exception) -> UsageError:
    why = getattr(error, "strerror", None) or str(error)
    return _refused(path, f"cannot be written ({why})", "Choose a path that can be")


def _refused(path: Path, what: str, remedy: str) -> UsageError:
    return UsageError(f"out {str(path)!r} {what}", field="out", value=str(path), remedy=remedy)
