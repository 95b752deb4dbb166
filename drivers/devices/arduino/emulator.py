"""QEMU instead of the board: the firmware is built and started, and ends with the process that started it.

Its clock counts instructions (``-icount``), so that equal work takes equal time on any host. It does not model the time
of a Cortex-M4F.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

from drivers.devices.arduino.toolchain import Firmware, build, qemu_command
from drivers.failures import released_on_error
from drivers.links.serial_line import DEVICE, SLICE_S, SerialLine
from rig.errors import SetupError

START_S = 10.0
BAUD = 115200
_UNTIL_END_OF_INPUT = '"$@" & exec >&-; read -r _; kill -9 $!; wait; rm -rf "$0"'
"""A shell starts QEMU and waits for the end of its own input, which comes when the rig closes it or dies.

Only QEMU keeps the shell's standard output, which is the line; so the line ends with QEMU.
"""


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
    """Unwraps microseconds that count instructions: they only grow, and are independent of the host's clock."""

    def __init__(self) -> None:
        self._last = 0

    def unwrap(self, raw: int, before_ns: int, after_ns: int) -> int:
        """Return the ticks of a reading that is less than 2^32 after the last one."""
        self._last += (raw - self._last) % (1 << 32)
        return self._last


class Emulator:
    """A running QEMU, its ``line`` and the ``firmware`` that was built for it.

    Raises ``SetupError`` with QEMU's own words where it ends before the firmware speaks.
    """

    def __init__(self, network: Path | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="neurorig-board-"))
        ours, theirs = socket.socketpair()
        self.line = SerialLine(SocketPort(ours), "QEMU", BAUD, DEVICE)
        with theirs, released_on_error(self._forget):
            self.firmware: Firmware = build(self._folder, network)
            with (self._folder / "errors").open("wb") as errors:
                self._shell = subprocess.Popen(
                    ["sh", "-c", _UNTIL_END_OF_INPUT, str(self._folder), *qemu_command(self.firmware)],
                    stdin=subprocess.PIPE, stdout=theirs.fileno(), stderr=errors,
                    start_new_session=True,  # so that Ctrl-C stops the rig, which then ends QEMU
                )  # fmt: skip
        with released_on_error(self.close):
            self._await_words(ours)

    @property
    def shell_pid(self) -> int:
        """Return the process that watches over QEMU."""
        return self._shell.pid

    def close(self) -> None:
        """End QEMU and wait until it has ended. May be called twice."""
        assert self._shell.stdin is not None
        try:
            self._shell.stdin.close()
            self._shell.wait(START_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._shell.pid, signal.SIGKILL)
            self._shell.wait()
        finally:
            self._forget()

    def _forget(self) -> None:
        self.line.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _await_words(self, peer: socket.socket) -> None:
        heard = select.select([peer], [], [], START_S)[0]
        if heard and peer.recv(1, socket.MSG_PEEK):
            return
        said = (self._folder / "errors").read_text(errors="replace")[:400].strip() or "it said nothing"
        what = f"QEMU {'has ended' if heard else f'did not start within {START_S:g} s'}: {said}"
        raise SetupError(what, field="program", value="qemu-system-arm", remedy="Use QEMU 7.2 or later")
