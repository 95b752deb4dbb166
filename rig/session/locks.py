"""Locks between processes that a crash lets go of: ``flock`` on files, waited for with a word or refused."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rig.errors import SetupError, StoreError

POLL_S = 0.1
Say = Callable[[str], None]


def runtime_dir() -> Path:
    """The user's directory for lock files, for as long as the machine is up.

    ``NEURORIG_RUNTIME_DIR``, else ``XDG_RUNTIME_DIR/neurorig``, else ``/run/user/UID/neurorig``, else a directory
    of the user's own below that for temporary files. Raises ``SetupError`` for one that is somebody else's.
    """
    named = os.environ.get("NEURORIG_RUNTIME_DIR")
    user = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
    shared = Path(tempfile.gettempdir()) / f"neurorig-{os.getuid()}"
    folder = Path(named) if named else user / "neurorig" if os.access(user, os.W_OK) else shared
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = folder.lstat().st_uid
    except OSError as error:
        raise _no_locks(folder, error) from error
    if owner != os.getuid():
        raise SetupError(
            f"{folder} belongs to user {owner}",
            field="NEURORIG_RUNTIME_DIR",
            value=str(folder),
            remedy="Name a directory of your own in NEURORIG_RUNTIME_DIR",
        )
    return folder


@contextmanager
def device_lock(device: str, wait: bool = True, say: Say | None = None, which: str = "") -> Iterator[None]:
    """Nobody else on this host measures ``device`` (a name, or path.py:function) inside.

    ``which`` tells it apart from others of its driver, as by their ports; see ``rig.session.setup.which_of``.

    Raises ``SetupError`` when another process holds it and ``wait`` is off.
    """
    name = str(Path(device).resolve()) if ".py:" in device else device
    safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in Path(name).name)[-40:]
    digest = hashlib.sha256(f"{name} {which}".strip().encode()).hexdigest()
    path = runtime_dir() / f"device-{safe}-{digest[:8]}.lock"
    with locked(path, f"device {device}{f' ({which})' if which else ''}", wait, say):
        yield


@contextmanager
def locked(path: Path, what: str, wait: bool = True, say: Say | None = None) -> Iterator[None]:
    """Hold the lock file ``path`` for ``what``; the file stays. ``say`` is told once whom it waits for.

    Raises ``SetupError`` when another process holds it and ``wait`` is off, ``StoreError`` where there are no locks.
    """
    handle = _opened(path)
    try:
        told = False
        while not _taken(handle, path):
            holder = os.pread(handle, 32, 0).decode(errors="replace").strip()
            if not wait:
                raise SetupError(
                    f"{what} is in use by process {holder}",
                    field="lock",
                    value=str(path),
                    remedy="Let it end first",
                )
            if not told and say is not None:
                say(f"waiting for {what}, in use by process {holder}")
            told = True
            time.sleep(POLL_S)
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


@contextmanager
def claimed(folder: Path, what: str, say: Say | None = None) -> Iterator[Path]:
    """The directory ``folder``, made if need be, for this process or thread alone; removed again when left empty."""
    lock = folder / ".lock"
    told = False
    while (handle := _claim(folder, lock)) is None:
        if not told and say is not None:
            say(f"waiting for {what}, which another process has in hand")
            told = True
        time.sleep(POLL_S)
    try:
        yield folder
    finally:
        lock.unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()
        os.close(handle)


def _claim(folder: Path, lock: Path) -> int | None:
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            handle = _opened(lock)
        except FileNotFoundError:  # its last holder removed the folder just now
            continue
        try:
            held = _taken(handle, lock)
            # a lock file that its last holder has removed keeps nobody out
            if held and _still(handle, lock):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        if not held:
            return None


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _no_locks(path, error) from error


def _taken(handle: int, path: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise _no_locks(path, error) from error
    return True


def _still(handle: int, path: Path) -> bool:
    try:
        return path.stat().st_ino == os.fstat(handle).st_ino
    except FileNotFoundError:
        return False


def _no_locks(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot lock {path}: {error.strerror}",
        field="lock",
        value=str(path),
        remedy="Use a directory of your own, on a file system that has locks",
    )
