"""QEMU in the place of the board: the firmware is built and started, and ends with whoever started it.

Its clock counts instructions (``-icount``), so that the same work takes the same time on any host. It is no model of
the time that a Cortex-M4F takes.
"""

from __future__ import annotations

import contextlib
import select
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from drivers.cleanup import released_on_error
from drivers.devices.arduino.toolchain import Firmware, build, qemu_command
from drivers.links.serial_line import DEVICE, SLICE_S, SerialLine
from rig.errors import SetupError

START_S = 10.0
BAUD = 115200
_UNTIL_END_OF_INPUT = 'dir=$1; shift; "$@" 2>"$dir/errors" & read -r _; kill -9 $!; wait; rm -rf "$dir"'
"""A shell starts QEMU and waits on its own input, which ends when the rig closes it or dies in whatever way."""


class SocketPort:
    """A connected socket with the calls of a serial port that ``SerialLine`` makes."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        peer.settimeout(START_S)
        self.write, self.close = peer.sendall, peer.close

    @property
    def in_waiting(self) -> int:
        """Bytes that can be read at once. Raises ``OSError`` where the other end hung up."""
        if not select.select([self._peer], [], [], 0.0)[0]:
            return 0
        if count := len(self._peer.recv(1 << 16, socket.MSG_PEEK)):
            return count
        raise OSError("QEMU has ended")

    def read(self, size: int) -> bytes:
        """Wait a moment for up to ``size`` bytes. Raises ``OSError`` where the other end hung up."""
        if not select.select([self._peer], [], [], SLICE_S)[0]:
            return b""
        if got := self._peer.recv(size):
            return got
        raise OSError("QEMU has ended")


class GuestClock:
    """Unwraps microseconds that count instructions: they only grow, and bear no relation to the host's clock."""

    def __init__(self) -> None:
        self._last = 0

    def unwrap(self, raw: int, before_ns: int, after_ns: int) -> int:
        """Ticks of a reading that is less than 2^32 after the last one."""
        self._last += (raw - self._last) % (1 << 32)
        return self._last


class Emulator:
    """A running QEMU, its ``line`` and the ``firmware`` that was built for it."""

    def __init__(self, network: Path | None = None) -> None:
        folder = Path(tempfile.mkdtemp(prefix="neurorig-board-"))
        with released_on_error(lambda: shutil.rmtree(folder, ignore_errors=True)):
            self.firmware: Firmware = build(folder, network)
            command = qemu_command(self.firmware, folder / "serial")
            self._shell = subprocess.Popen(
                ["sh", "-c", _UNTIL_END_OF_INPUT, "sh", str(folder), *command],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,  # so that Ctrl-C stops the rig, which then ends QEMU
            )  # fmt: skip
        with released_on_error(self._end):
            self.line = SerialLine(SocketPort(_connected(folder)), "QEMU", BAUD, DEVICE)

    @property
    def shell_pid(self) -> int:
        """The process that watches over QEMU."""
        return self._shell.pid

    def close(self) -> None:
        """End QEMU and wait until it has ended. May be called twice."""
        self.line.close()
        self._end()

    def _end(self) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait(START_S)


def _connected(folder: Path) -> socket.socket:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s:
        peer = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            peer.connect(str(folder / "serial"))
            return peer
        peer.close()
        time.sleep(0.01)
    said = (folder / "errors").read_text()[:400] if (folder / "errors").exists() else ""
    what = f"QEMU did not start within {START_S:g} s: {said or 'it said nothing'}"
    raise SetupError(what, field="program", value="qemu-system-arm", remedy="Use QEMU 7.2 or later")
