"""Work of a simulated device in the virtual time of its simulated bench."""

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from rig.errors import SetupError
from rig.types import SimulatedBench, Span

T = TypeVar("T")


def needed(bench: SimulatedBench | None, device: str) -> SimulatedBench:
    """Return the bench of a simulated device. Raises ``SetupError`` without one."""
    if bench is None:
        what = f"the simulated {device} needs a simulated bench: its power and its time are virtual"
        raise SetupError(what, field="bench", remedy="Use the simulated bench, or pass bench=")
    return bench


class VirtualTime(Generic[T]):
    """A queue of work periods, one after another. The result of a period is available once the period has ended.

    The device's counter has ticks of ``tick_ns``, and started at 0 when the device was opened.
    """

    def __init__(self, plant: SimulatedBench, tick_ns: int) -> None:
        self._plant, self._tick_ns = plant, tick_ns
        self._open_ns = self._busy_until_ns = plant.clock.now_ns()
        self._pending: deque[tuple[int, T]] = deque()

    def occupy(self, phase: str, lasting_ns: int, executions: int) -> Span:
        """Simulate the power of a phase, from now on or once the device is free; return the span of the phase."""
        on_ns = max(self._plant.clock.now_ns(), self._busy_until_ns)
        self._busy_until_ns = on_ns + lasting_ns
        self._plant.occupy(phase, on_ns, self._busy_until_ns)
        return Span(phase, self._tick(on_ns), self._tick(self._busy_until_ns), executions)

    def give(self, result: T) -> None:
        """Make ``finished`` return ``result`` once all work added so far has ended."""
        self._pending.append((self._busy_until_ns, result))

    def finished(self, timeout_s: float) -> Sequence[T]:
        """Sleep until the oldest period ends, at most for ``timeout_s``; return all results that are then ready."""
        if not self._pending:
            return ()
        clock = self._plant.clock
        clock.sleep_until(min(self._pending[0][0], clock.now_ns() + round(max(timeout_s, 0.0) * 1e9)))
        done = []
        while self._pending and self._pending[0][0] <= clock.now_ns():
            done.append(self._pending.popleft()[1])
        return tuple(done)

    def timer(self) -> int:
        """Return the present value of the counter."""
        return self._tick(self._plant.clock.now_ns())

    def clear(self) -> None:
        """Discard all pending results."""
        self._pending.clear()

    def _tick(self, ns: int) -> int:
        return (ns - self._open_ns) // self._tick_ns
