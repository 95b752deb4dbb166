"""The board on a simulated bench: QEMU gives answers and times, and the bench's virtual time advances by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from drivers.devices.arduino.toolchain import Firmware
from drivers.links.virtual_time import VirtualTime
from rig.types import Budget, DeviceInfo, Reply, Sample, SimulatedBench

TICK_NS, POLL_S = 1000, 0.5
RAIL = "board"
SUPPLY_V, PHASE_A, IDLE_A = 3.3, 3.3e-3, 1.6e-3
IDLE_W = {RAIL: SUPPLY_V * IDLE_A}
PHASES_W = {phase: {RAIL: SUPPLY_V * PHASE_A} for phase in ("preprocessing", "inference", "both")}
ASSUMPTION = "assumed, not measured: about 52 uA/MHz at 64 MHz in every phase, and about half of it at idle"


def simulation(firmware: Firmware) -> dict[str, Any]:
    """Return what a recording must say about a simulated board: the source of time and power, and the build's size."""
    return {
        "time": "SIMULATED: QEMU counts instructions, 16 ns each; it is no model of the time on a Cortex-M4F",
        "flash_bytes": firmware.flash_bytes,
        "ram_bytes": firmware.ram_bytes,
        "power_profile": {"idle_w": IDLE_W, "phase_w": PHASES_W, "assumption": ASSUMPTION},
    }


def taken(firmware: Firmware) -> str:
    """Return the board's memory that the whole build takes, including the network."""
    sizes = f"{firmware.flash_bytes} bytes of flash and {firmware.ram_bytes} bytes of RAM"
    return f"; the build for {firmware.board} takes {sizes}, without the stack"


class Loops(Protocol):
    """The board that gives the time of its loops."""

    def info(self) -> DeviceInfo: ...
    def stage(self, samples: Sequence[Sample]) -> None: ...
    def submit_repeated(
        self, samples: Sequence[Sample], times: int, phase: str | None, budget: Budget | None
    ) -> None: ...
    def poll(self, timeout_s: float) -> Sequence[Reply]: ...
    def close(self) -> None: ...


class SimulatedBoard:
    """The Device protocol over a board in QEMU, which runs each loop first; ``end`` ends QEMU."""

    def __init__(self, board: Loops, plant: SimulatedBench, end: Callable[[], None]) -> None:
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
        """Run on the board, and occupy the bench for the time that the board's counter shows."""
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
