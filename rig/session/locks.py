"""Locks between processes. A lock ends with its process. A caller either waits for it, with a message, or fails."""

import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from getpass import getuser
from pathlib import Path

from filelock import FileLock, Timeout

from rig.errors import SetupError, StoreError
from rig.recording.disk.size_limits import read_bounded

POLL_S = 0.1
Say = Callable[[str], None]


def runtime_dir() -> Path:
    """Return the user's directory for lock files.

    It is ``NEURORIG_RUNTIME_DIR``, else ``XDG_RUNTIME_DIR/neurorig``, else ``/run/user/UID/neurorig``, else
    ``neurorig-UID`` in the directory for temporary files. Raises ``SetupError`` for a link, and for a directory that
    another user owns or others can write. Raises ``StoreError`` if the directory cannot be made.
    """
    named = os.environ.get("NEURORIG_RUNTIME_DIR")
    uid = os.getuid() if hasattr(os, "getuid") else None
    user = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}")
    shared = Path(tempfile.gettempdir()) / f"neurorig-{getuser() if uid is None else uid}"
    folder = Path(named) if named else user / "neurorig" if os.access(user, os.W_OK) else shared
    try:
        return own_dir(folder, "NEURORIG_RUNTIME_DIR")
    except OSError as error:
        raise _no_locks(folder, error) from error


def own_dir(folder: Path, variable: str) -> Path:
    """Return a directory; if it does not exist, make it so that only this user may enter it.

    The environment variable ``variable`` can name another directory; messages say so. Raises ``OSError``, and
    ``SetupError`` for a link and for a directory that another user owns or others can write.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    uid = os.getuid() if hasattr(os, "getuid") else None
    wrong = "is a link" if stat.S_ISLNK(found.st_mode) else ""
    if uid not in (None, found.st_uid):
        wrong = f"belongs to user {found.st_uid}"
    elif os.name == "posix" and not wrong and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        wrong = "can be written by others"
    if wrong:
        what = f"{folder} {wrong}"
        remedy = f"Name a directory of your own, of mode 700, in {variable}"
        raise SetupError(what, field=variable, value=str(folder), remedy=remedy)
    return folder


@contextmanager
def device_lock(device: str, wait: bool = True, say: Say | None = None, which: str = "") -> Iterator[None]:
    """Lock ``device`` (a name, or path.py:function) inside the block, against all other processes of this user.

    ``which`` distinguishes devices of one driver, for example by port; see ``rig.session.setup.which_of``.

    Raises ``SetupError`` when another process holds the lock and ``wait`` is off.
    """
    name = str(Path(device).resolve()) if ".py:" in device else device
    safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in Path(name).name)[-40:]
    digest = hashlib.sha256(f"{name} {which}".strip().encode()).hexdigest()
    path = runtime_dir() / f"device-{safe}-{digest[:8]}.lock"
    apart = "" if which else ". Devices of one driver are told apart by its options `port` and `address`"
    with locked(path, f"device {device}{f' ({which})' if which else ''}", wait, say, f"Wait until it ends{apart}"):
        yield


@contextmanager
def locked(
    path: Path, what: str, wait: bool = True, say: Say | None = None, remedy: str = "Wait until it ends"
) -> Iterator[None]:
    """Lock the file ``path`` inside the block. Messages name ``what`` is locked.

    If this must wait, ``say`` gets one message that names the process with the lock. The lock file and a second file,
    which names the last process with the lock, are not removed. Raises ``SetupError`` if another process has the lock
    and ``wait`` is off, ``StoreError`` on a file system without locks.
    """
    holder = holder_of(path)
    lock = FileLock(path, mode=0o600, thread_local=False, fallback_to_soft=False)
    if not _acquired(lock, path):
        in_use = f"in use by process {_holder_in(holder)}"
        if not wait:
            raise SetupError(f"{what} is {in_use}", field="lock", value=str(path), remedy=remedy)
        if say is not None:
            say(f"waiting for {what}, {in_use}")
        _acquired(lock, path, wait=True)
    try:
        _sign(holder)
        yield
    finally:
        with suppress(OSError):  # a driver may have closed its file
            lock.release()


def _sign(holder: Path) -> None:
    """Write the id of this process to ``holder``; a link that another user put there is not followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    try:
        with os.fdopen(os.open(holder, flags, 0o600), "w") as file:
            file.write(str(os.getpid()))
    except OSError as error:
        raise _no_locks(holder, error) from error


def holder_of(path: Path) -> Path:
    """Return the path of the file that names the last process with the lock ``path``."""
    return path.with_name(f"{path.name}.holder")


def _holder_in(holder: Path) -> str:
    with suppress(OSError):
        return read_bounded(holder, 64).decode(errors="replace")
    return "unknown"


@contextmanager
def claimed(folder: Path, what: str, say: Say | None = None) -> Iterator[Path]:
    """Make the directory ``folder`` and lock it for this process or thread; at the end, remove it if it is empty."""
    path = folder / ".lock"
    lock = FileLock(path, mode=0o600, thread_local=False, fallback_to_soft=False)
    wait = False
    while not lock.is_locked:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # the last process has just removed the folder
            if not _acquired(lock, path, wait) and say is not None:
                say(f"waiting for {what}, which another process is recording")
            wait = True
    try:
        yield folder
    finally:
        with suppress(OSError):
            path.unlink()
            folder.rmdir()
        lock.release()


def _acquired(lock: FileLock, path: Path, wait: bool = False) -> bool:
    try:
        lock.acquire(blocking=wait, poll_interval=POLL_S)
    except Timeout:
        return False
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _no_locks(path, error) from error
    return True


def _no_locks(path: Path, error: OSError) -> StoreError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = "Make room on its disk" if full else "Use a directory of your own, on a file system that has locks"
    return StoreError(f"cannot lock {path}: {error.strerror}", field="lock", value=str(path), remedy=remedy)
