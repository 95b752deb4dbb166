"""QEMU instead of the board: the firmware is built and started, and ends with the process that started it.

While the board computes, its clock counts instructions (``-icount``), so that equal work takes equal time on any host.
This is no model of the time on a Cortex-M4F. On a simulated bench, the answers and times are QEMU's, and the bench's
virtual time advances by these times.
"""

import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from drivers.devices.arduino.toolchain import Firmware, build, qemu_command
from drivers.devices.mlperf_tiny.queries import TinyDevice
from drivers.failures import released_on_error
from drivers.links.serial_line import DEVICE, SLICE_S, SerialLine
from drivers.links.virtual_time import VirtualTime
from rig.errors import SetupError
from rig.types import Budget, DeviceInfo, Reply, Sample, SimulatedBench

START_S = 10.0
BAUD = 115200
_UNTIL_END_OF_INPUT = '"$@" & exec >&-; read -r _; kill -9 $!; wait; rm -rf "$0"'
"""A shell starts QEMU and waits for the end of its own input. The input ends when the rig closes it or dies.

The shell's standard output is the serial line. Only QEMU keeps it open, so the line closes when QEMU ends. At the end
the shell removes the folder of the build.
"""
TICK_NS, POLL_S = 1000, 0.5
RAIL = "board"
SUPPLY_V, PHASE_A, IDLE_A = 3.3, 3.3e-3, 1.6e-3
IDLE_W = {RAIL: SUPPLY_V * IDLE_A}
PHASES_W = {phase: {RAIL: SUPPLY_V * PHASE_A} for phase in ("preprocessing", "inference", "both")}
ASSUMPTION = "assumed, not measured: about 52 uA/MHz at 64 MHz in every phase, and about half of it at idle"


class SocketPort:
    """A connected socket with the calls of a serial port that ``SerialLine`` makes."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        peer.settimeout(START_S)
        self.write, self.close = peer.sendall, peer.close

    @property
    def in_waiting(self) -> int:
        """Bytes that can be read at once. Raises ``OSError`` where the other end hung up."""
        return len(self._received(0.0, 1 << 16, socket.MSG_PEEK))

    def read(self, size: int) -> bytes:
        """Wait a moment for up to ``size`` bytes. Raises ``OSError`` where the other end hung up."""
        return self._received(SLICE_S, size)

    def _received(self, wait_s: float, size: int, flags: int = 0) -> bytes:
        if not select.select([self._peer], [], [], wait_s)[0]:
            return b""
        if got := self._peer.recv(size, flags):
            return got
        raise OSError("QEMU has ended")


class GuestClock:
    """Unwraps QEMU's microsecond counter of 32 bits, whose rate against the host's clock varies."""

    def __init__(self) -> None:
        self._last = 0

    def unwrap(self, raw: int, before_ns: int, after_ns: int) -> int:
        """Return the ticks of a reading that is less than 2^32 ticks after the previous reading."""
        self._last += (raw - self._last) % (1 << 32)
        return self._last


class Emulator:
    """A running QEMU, its ``line`` and the ``firmware`` that was built for it.

    Raises what ``build`` raises, and ``SetupError`` with QEMU's text if the firmware sends nothing in ``START_S``.
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


def simulation(firmware: Firmware) -> dict[str, Any]:
    """Return what is recorded about a simulated board: where its time and power come from, and the build's size."""
    return {
        "time": "SIMULATED: QEMU counts instructions, 16 ns each; it is no model of the time on a Cortex-M4F",
        "flash_bytes": firmware.flash_bytes,
        "ram_bytes": firmware.ram_bytes,
        "power_profile": {"idle_w": IDLE_W, "phase_w": PHASES_W, "assumption": ASSUMPTION},
    }


def taken(firmware: Firmware) -> str:
    """Return a text on the flash and RAM that the whole build takes, including the network."""
    sizes = f"{firmware.flash_bytes} bytes of flash and {firmware.ram_bytes} bytes of RAM"
    return f"; the build for {firmware.board} takes {sizes}, without the stack"


class SimulatedBoard:
    """A board in QEMU as a Device. The board runs a loop; then the simulated bench is busy for the same time.

    ``end`` stops QEMU.
    """

    def __init__(self, board: TinyDevice, plant: SimulatedBench, end: Callable[[], None]) -> None:
        self._board, self._end = board, end
        plant.install(IDLE_W, PHASES_W)
        self._time = VirtualTime[Reply](plant, TICK_NS)
        self.poll, self.timer, self.stage = self._time.finished, self._time.timer, board.stage

    def info(self) -> DeviceInfo:
        """Return what the board stated when it was opened."""
        return self._board.info()

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        """Run every phase once."""
        self.submit_repeated(samples, 1, None, budget)

    def submit_repeated(self, samples: Sequence[Sample], times: int, phase: str | None, budget: Budget | None) -> None:
        """Run on the board, and occupy the bench for the time that the board's counter measured."""
        self._board.submit_repeated(samples, times, phase, budget)
        replies: list[Reply] = []
        while len(replies) < len(samples):
            replies += self._board.poll(POLL_S)
        for reply in replies:
            lasting = ((s.phase, (s.off_tick - s.on_tick) * TICK_NS, s.executions) for s in reply.spans)
            spans = tuple(self._time.occupy(*each) for each in lasting)
            self._time.give(Reply(reply.sample_id, reply.output, spans, activity=reply.activity))

    def close(self) -> None:
        """End QEMU. May be called twice."""
        self._time.clear()
        self._board.close()
        self._end()
