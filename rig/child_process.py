"""Run code of drivers in a child process, and capture what it prints.

``rig measure`` forks before anything heavy is imported; the fork takes a millisecond. The parent imports nothing more:
it passes signals on, shows what drivers print, and reports if a driver, and not the rig, ended the child. On systems
that do not name the sender of a signal (macOS, Windows), all code runs in one process.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from rig.errors import DriverLeftError, Interrupted
from rig.terminal import aside, tell

HAS_PARENT = hasattr(os, "fork") and hasattr(signal, "sigtimedwait")
LOOK_S = 0.25
PIECE = 1 << 16
_DEATH = 1  # PR_SET_PDEATHSIG
_told: int | None = None
"""The descriptor to which this process writes its exit code, if a parent reads it."""


def supervised(work: Callable[[], int], log: Path | None, *, parent: bool) -> int:
    """Run ``work``, which runs code of drivers, and return its exit code.

    What drivers print goes to standard error, and at the end to the file ``log``. Raises ``DriverLeftError`` if the
    process ended in another way than by ``work``.
    """
    from tempfile import TemporaryFile

    with TemporaryFile() as printed:
        shown = _Shown(printed)
        try:
            if parent and HAS_PARENT:
                return _beside(work, printed, shown)
            with aside(printed.fileno()):
                return work()
        finally:
            if _told is None:
                shown.rest(log)


def leave(code: int) -> None:
    """End this process immediately, as a decision of the rig."""
    _say(code)
    os._exit(code)


def _beside(work: Callable[[], int], printed: BinaryIO, shown: _Shown) -> int:
    """Fork: the child runs ``work`` and returns its exit code; the parent waits, and returns the same code."""
    global _told  # noqa: PLW0603  after the fork, the child has this module to itself
    passed = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*passed, signal.SIGCHLD})
    ear, mouth = os.pipe()
    sys.stdout.flush()
    parent, child = os.getpid(), os.fork()
    if not child:
        os.close(ear)
        _told = mouth
        _dies_with(parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            with aside(printed.fileno(), back=False):
                code = work()
        except Exception:  # a mistake in the rig: Python prints where, and exits with 1
            _say(1)
            raise
        signal.pthread_sigmask(signal.SIG_BLOCK, passed)
        _say(code)
        return code
    os.close(mouth)
    heard = False
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        came = signal.sigtimedwait({*passed, signal.SIGCHLD}, LOOK_S)
        # Ctrl-C on a terminal reaches the child by itself, so only signals that a process sent are passed on
        if came is not None and came.si_signo in passed and came.si_code <= 0:
            os.kill(child, came.si_signo)
        heard = heard or (came is not None and came.si_signo in passed)
        shown.more()
    while came := signal.sigtimedwait(passed, 0):  # too late to be passed on: the child has ended
        heard = True
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    said = os.read(ear, 1) if select.select([ear], [], [], 0)[0] else b""
    os.close(ear)
    if said:
        return said[0]
    code = os.waitstatus_to_exitcode(ended[1])
    if heard and code == Interrupted.exit_code:
        return code
    how = f"by the signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    what = f"the process ended {how}, and the rig did not end it: code of a driver exited, or something killed it"
    remedy = "Correct the driver. What was recorded until then is kept; `rig report` reads it"
    raise DriverLeftError(what, field="process", value=code, remedy=remedy)


def _say(code: int) -> None:
    if _told is not None:
        with suppress(OSError):
            os.write(_told, bytes([code & 0xFF]))


def _dies_with(parent: int) -> None:
    """Have the system kill this process when its parent is killed."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DEATH, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class _Shown:
    """Shows what drivers print on standard error, as dim lines that begin with ``driver:``."""

    def __init__(self, printed: BinaryIO) -> None:
        self._printed, self._at, self._rest = printed, 0, b""

    def more(self) -> bool:
        """Show the whole lines that have arrived, and return whether there were any bytes."""
        if hasattr(os, "pread"):  # the child shares the offset in the file
            found = os.pread(self._printed.fileno(), PIECE, self._at)
        else:
            self._printed.seek(self._at)
            found = self._printed.read(PIECE)
        self._at += len(found)
        *lines, self._rest = (self._rest + found).split(b"\n")
        for line in lines:
            self._line(line)
        if len(self._rest) > PIECE:
            self._line(self._rest)
            self._rest = b""
        return bool(found)

    def rest(self, log: Path | None) -> None:
        """Show the rest; write all output to ``log``, if there is any output and the recording was begun."""
        while self.more():
            pass
        if self._rest:
            self._line(self._rest)
        if log is not None and self._at and log.with_suffix("").exists():
            with suppress(OSError), open(log, "ab", opener=_new) as file:
                self._printed.seek(0)
                while piece := self._printed.read(PIECE):
                    file.write(piece)

    def _line(self, line: bytes) -> None:
        tell(f"driver: {line.decode(errors='replace')}", dim=True)


def _new(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o644)


class Kept:
    """Restores, after a block, the interpreter's hooks and recursion limit, which a driver may have changed."""

    def __enter__(self) -> None:
        self._depth, self._hooks = sys.getrecursionlimit(), (sys.excepthook, threading.excepthook)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        sys.setrecursionlimit(self._depth)
        sys.excepthook, threading.excepthook = self._hooks
