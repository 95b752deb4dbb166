"""Open files below a directory through the directory's descriptor, without following links; write whole files.

The directory is opened once. Nobody can therefore exchange it, or a file in it, between the check and the use. Windows
has no descriptors of directories; there, names are checked for links. New files have at most the mode 0644, and new
directories 0755, whatever the umask is. A file is replaced completely or not at all, and only a regular file is
replaced.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO

from rig.errors import IntegrityError, RigError, StoreError, UsageError, reason, refused
from rig.recording.disk.size_limits import check_dense, content_of

FILE_MODE, FOLDER_MODE = 0o644, 0o755
BY_DESCRIPTOR = {os.open, os.mkdir, os.stat, os.rename, os.unlink} <= os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_FOLDER = os.O_RDONLY | _PLAIN | getattr(os, "O_DIRECTORY", 0)
IN_MEMORY = 32 << 20
"""A file of at most this many bytes is read once, and the same bytes are hashed and used."""
PIECE = 1 << 20
TICK_NS = 20_000_000
"""With an older kernel, two changes of a file within this time may have the same time stamp."""
BROKEN = "broken"
Refuse = Callable[[Path, str, str], RigError]


class Folder:
    """An open directory. ``path`` is used only in messages, and on systems without descriptors."""

    def __init__(self, path: Path, handle: int | None) -> None:
        self.path, self._handle = path, handle
        self._let_go = weakref.finalize(self, os.close, handle) if handle is not None else None

    def __str__(self) -> str:
        return str(self.path)

    def close(self) -> None:
        """Close the directory; its files cannot be reached afterwards."""
        if self._let_go is not None:
            self._let_go()
            self._handle = -1

    @staticmethod
    def at(path: Path | Folder, *, make: bool = False) -> Folder:
        """Open a directory that a user names; links are followed. With ``make``, make it first. Raises ``OSError``."""
        if isinstance(path, Folder):
            return path
        if make:
            made(path)
        return Folder(path, os.open(path, _FOLDER & ~getattr(os, "O_NOFOLLOW", 0)) if BY_DESCRIPTOR else None)

    def sub(self, name: str, *, make: bool = False) -> Folder:
        """Open a directory below this one. Raises ``OSError``, and ``StoreError`` for a link or a file in its place."""
        found = self
        for part in self._inside(name).parts:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(found._at(part), FOLDER_MODE, dir_fd=found._handle)
            found = found._step(part)
        return found

    def _step(self, part: str) -> Folder:
        if not BY_DESCRIPTOR:
            self._check(part, stat.S_ISDIR)
            return Folder(self.path / part, None)
        try:
            return Folder(self.path / part, os.open(part, _FOLDER, dir_fd=self._handle))
        except OSError:
            self._check(part, stat.S_ISDIR)
            raise

    def open(self, name: str, flags: int) -> int:
        """Open a file below the directory; this is an ``opener`` for ``open``.

        Raises ``OSError``, and ``StoreError`` for a link, a pipe, a device or a directory in its place.
        """
        folder, last = self._holder(name)
        if not BY_DESCRIPTOR:
            folder._check(last, stat.S_ISREG)
        # without O_NONBLOCK, opening a pipe without a writer waits for ever
        flags |= _PLAIN | getattr(os, "O_NONBLOCK", 0)
        try:
            found = os.open(folder._at(last), flags, FILE_MODE, dir_fd=folder._handle)
        except OSError:
            folder._check(last, stat.S_ISREG)
            raise
        try:
            folder._check(last, stat.S_ISREG, os.fstat(found).st_mode)
        except StoreError:
            os.close(found)
            raise
        return found

    def stat(self, name: str) -> os.stat_result | None:
        """Return the status of a file, None if there is none; links are not followed. Raises what ``sub`` raises."""
        try:
            folder, last = self._holder(name)
            return os.stat(folder._at(last), follow_symlinks=False, dir_fd=folder._handle)
        except (FileNotFoundError, ValueError):  # no file has a name with a null byte
            return None

    def has(self, name: str) -> bool:
        """Return whether a regular file has this name. Raises ``StoreError`` if anything else has it."""
        found = self.stat(name)
        self._check(name, stat.S_ISREG, 0 if found is None else found.st_mode)
        return found is not None

    def names(self, name: str = "") -> list[str]:
        """Return the sorted names in this directory, or in the directory ``name`` below it; none if it is missing."""
        try:
            folder = self.sub(name)
            return sorted(os.listdir(folder.path if folder._handle is None else folder._handle))  # noqa: PTH208
        except FileNotFoundError:
            return []

    def walk(self) -> Iterator[str]:
        """Yield every regular file at any depth, sorted by name in each directory. Links and devices are left out."""
        for name in self.names():
            found = self.stat(name)
            if found is not None and stat.S_ISDIR(found.st_mode):
                yield from (f"{name}/{inner}" for inner in self.sub(name).walk())
            elif found is not None and stat.S_ISREG(found.st_mode):
                yield name

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return the content of a file. Raises what ``open`` raises, and ``OSError`` for more than ``most_bytes``."""
        with open(name, "rb", opener=self.open) as file:
            return content_of(file, self.path / name, most_bytes)

    def remove(self, name: str) -> None:
        """Remove a file, or the link in its place; it need not exist. Raises ``OSError``."""
        with suppress(FileNotFoundError):
            folder, last = self._holder(name)
            os.unlink(folder._at(last), dir_fd=folder._handle)

    def rename(self, name: str, to: Folder, new: str) -> None:
        """Move the entry ``name`` to ``new`` in the directory ``to``, replacing what is there. Raises ``OSError``."""
        os.replace(self._at(name), to._at(new), src_dir_fd=self._handle, dst_dir_fd=to._handle)

    def sync(self) -> None:
        """Write the directory's names to disk. Raises ``OSError``."""
        if self._handle is not None:
            _sync(self._handle)

    @contextmanager
    def replacing(self, name: str, *, sync: bool = False, mode: int = FILE_MODE) -> Iterator[IO[bytes]]:
        """Yield a file that replaces the one of this name when the block ends, and is removed if the block raises.

        Raises what ``open`` raises, also for a link in the place of the file.
        """
        folder, last = self._holder(name, make=True)
        folder.has(last)
        temporary = f".{last[:200]}.{os.urandom(4).hex()}"
        try:
            with open(temporary, "xb", opener=folder.open) as file:
                if mode != FILE_MODE and hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), mode)
                yield file
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            folder.rename(temporary, folder, last)
        except BaseException:
            with suppress(OSError):
                folder.remove(temporary)
            raise
        if sync:
            folder.sync()

    def write(self, name: str, content: bytes, *, sync: bool = False) -> None:
        """Write a whole file, or nothing, as ``replacing`` does; missing folders are made."""
        with self.replacing(name, sync=sync) as file:
            file.write(content)

    def _holder(self, name: str, *, make: bool = False) -> tuple[Folder, str]:
        place = self._inside(name)
        return self.sub(str(place.parent), make=make), place.name

    def _inside(self, name: str) -> Path:
        place = Path(name)
        if place.anchor or ".." in place.parts:
            what, remedy = f"{name!r} leads out of {self.path}", "Restore the original recording"
            raise StoreError(what, field="run", value=name, remedy=remedy)
        return place

    def _at(self, name: str) -> str:
        return str(self.path / name) if self._handle is None else name

    def _check(self, name: str, wanted: Callable[[int], bool], kind: int = 0) -> None:
        """Raise ``StoreError`` if the entry of a name is not of the wanted kind."""
        with suppress(OSError, ValueError):
            kind = kind or os.stat(self._at(name), follow_symlinks=False, dir_fd=self._handle).st_mode
        if kind and not wanted(kind):
            what = "a link" if stat.S_ISLNK(kind) else "no directory" if wanted is stat.S_ISDIR else "no regular file"
            remedy = "Remove it, or restore the original recording; it holds plain files and no links"
            raise StoreError(f"{self.path / name} is {what}", field="run", value=str(self.path), remedy=remedy)


class Opened:
    """A file that is opened once. A small file is kept in memory; a larger file is read through its descriptor.

    A read of a larger file fails if it was changed after it was opened.
    """

    def __init__(self, folder: Folder, name: str, in_memory: int = IN_MEMORY) -> None:
        self.name, self._path, self._handle = name, folder.path, folder.open(name, os.O_RDONLY)
        self._stamp = self._now()
        self.size = os.fstat(self._handle).st_size
        check_dense(os.fstat(self._handle), name)
        if self.size > in_memory and 0 <= time.time_ns() - self._stamp[-1] < TICK_NS:
            time.sleep(TICK_NS * 1e-9)
        self._content: bytes | None = None
        if self.size <= in_memory:
            self._content = self._bytes(0, self.size)
            self.size = len(self._content)
            self._close()

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._close()

    def _close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _now(self) -> tuple[int, ...]:
        found = os.fstat(self._handle)
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def _bytes(self, at: int, count: int) -> bytes:
        parts, end = list[bytes](), min(at + count, self.size)
        while at < end and (part := _read_at(self._handle, end - at, at)):
            parts.append(part)
            at += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def sha256(self) -> str:
        """Return the hex digest of all bytes. Raises ``IntegrityError`` as ``read`` does."""
        if self._content is not None:
            return hashlib.sha256(self._content).hexdigest()
        digest = hashlib.sha256()
        for at in range(0, self.size, PIECE):
            digest.update(self._bytes(at, PIECE))
        self._check()
        return digest.hexdigest()

    def read(self, at: int, count: int) -> memoryview:
        """Return ``count`` bytes from offset ``at``, or fewer at the end of the file.

        Raises ``IntegrityError`` for a file that has changed since it was opened.
        """
        if self._content is not None:
            return memoryview(self._content)[at : at + count]
        found = self._bytes(at, count)
        self._check()
        return memoryview(found)

    def _check(self) -> None:
        if self._now() != self._stamp:
            what = f"{self._path} was altered: {self.name} was changed while it was read"
            remedy = "Restore the original recording, and leave it alone while it is read"
            raise IntegrityError(what, field="run", value=str(self._path), remedy=remedy)


def _read_at(handle: int, count: int, at: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(handle, count, at)
    os.lseek(handle, at, os.SEEK_SET)
    return os.read(handle, count)


def made(path: Path) -> Path:
    """Make a directory and its missing parents, with at most the mode 0755. Raises ``OSError``."""
    try:
        path.mkdir(mode=FOLDER_MODE)
    except FileNotFoundError:
        made(path.parent)
        path.mkdir(mode=FOLDER_MODE, exist_ok=True)
    except OSError as error:
        if error.errno != errno.EEXIST or not path.is_dir():
            raise
    return path


# ---- whole files at a path that a user names ---------------------------------------------


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
    """Sync one file, or the names in one directory, to disk. On Windows, a reader can sync neither."""
    if not BY_DESCRIPTOR:
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        _sync(handle)
    finally:
        os.close(handle)


def _sync(handle: int) -> None:
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some disks sync no directories, such as shared folders of VirtualBox
            raise


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
