"""Write whole files: a file is replaced completely or not at all, and only a regular file is replaced."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO

from rig.errors import RigError, StoreError, UsageError, reason, refused
from rig.recording.disk.files import FILE_MODE, Folder, made

BROKEN = "broken"
Refuse = Callable[[Path, str, str], RigError]


def bad_out(path: Path, what: str, remedy: str = "") -> UsageError:
    """Return the error for a path that a user named but that cannot be written."""
    return refused("out", str(path), remedy or "Choose a path that can be written", f"out {str(path)!r} {what}")


def not_stored(path: Path, what: str, remedy: str = "") -> StoreError:
    """Return the error for a file of a session or a sweep that cannot be written."""
    remedy = remedy or "Make room or correct the permissions, and run the same command again"
    return StoreError(f"{path} {what}", field="out", value=str(path), remedy=remedy)


def unwritten(error: Exception) -> str:
    """Return the text that follows the path in the message about a file system error."""
    return f"cannot be written ({reason(error)})"


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Convert an error of the file system inside the block, which writes ``path``, to ``StoreError``."""
    try:
        yield
    except OSError as error:
        raise not_stored(path, unwritten(error)) from error


def regular(path: Path, refuse: Refuse = bad_out) -> Path:
    """Return the regular file that ``path`` names, with links followed; it need not exist.

    Raises the error that ``refuse`` makes for a device, a pipe, a directory or a broken link.
    """
    try:
        place = path.resolve()
        if place.is_dir():
            raise refuse(path, "is a directory", "Name a file in this directory")
        if path.is_symlink() and not place.exists():
            raise refuse(path, "is a link to a file that does not exist", "Remove the link, or name another file")
        if place.exists() and not place.is_file():
            raise refuse(path, "is not a regular file", "Name a file; for standard output there is --json")
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError
        raise refuse(path, unwritten(error), "") from error
    return place


def inside(root: Path, path: Path) -> Path:
    """Return ``path`` if it is inside the directory ``root`` after all links are followed.

    Raises ``StoreError`` otherwise.
    """
    try:
        found = path.resolve()
        if found.is_relative_to(root.resolve()):
            return path
    except (OSError, RuntimeError) as error:
        raise not_stored(path, unwritten(error)) from error
    raise not_stored(path, f"leads out of {root}, to {found}", "Remove the link, or write elsewhere with --out")


@contextmanager
def replacing(path: Path, *, sync: bool = False, refuse: Refuse = bad_out) -> Iterator[IO[bytes]]:
    """Yield a file that replaces ``path`` when the block ends, and is removed if the block raises.

    With ``sync``, the content is synced to disk before the file replaces ``path``, and the name afterwards. Raises the
    error that ``refuse`` makes for a path that is not a regular file or cannot be written.
    """
    place = regular(path, refuse)
    try:
        mode = stat.S_IMODE(place.stat().st_mode) & FILE_MODE if place.exists() else FILE_MODE
        with Folder.at(place.parent).replacing(place.name, sync=sync, mode=mode) as file:
            yield file
    except OSError as error:
        raise refuse(path, unwritten(error), "") from error


def write_whole(path: Path, content: bytes, *, sync: bool = False, refuse: Refuse = bad_out) -> Path:
    """Write a file as ``replacing`` does, and return its path."""
    with replacing(path, sync=sync, refuse=refuse) as file:
        file.write(content)
    return path


def sync_to_disk(path: Path) -> None:
    """Sync one file, or the names in one directory, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def folder_inside(root: Path, path: Path) -> Path:
    """Make the directory ``path`` if it is ``inside`` the directory ``root``, and return it. Raises ``StoreError``."""
    with storing(path):
        return made(inside(root, path))


def set_aside(folder: Path, path: Path, key: str) -> Path:
    """Move a file or recording to ``broken`` in ``folder``, named ``key`` and the first free number; return its path.

    Raises ``StoreError``, also if ``broken`` or the directory of ``path`` is a link.
    """
    with storing(path):
        root = Folder.at(folder)
        aside, source = root.sub(BROKEN, make=True), root.sub(path.parent.relative_to(folder).as_posix())
        suffix = path.suffix if path.is_file() else ""
        target = next(t for n in count(1) if aside.stat(t := f"{key}.{n}{suffix}") is None)
        source.rename(path.name, aside, target)
        aside.sync()
    return folder / BROKEN / target
