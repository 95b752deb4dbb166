"""Estimate a Xylo board's stopwatch on the host, and begin and end of a span from the arrival of readouts."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from rig.errors import DeviceError

TICK_HZ = 1_000_000
"""Stamps of power readings are whole microseconds."""
COUNTER = 1 << 32
"""The stopwatch starts again from 0 here if it has 32 bits: after 71.6 minutes."""
BACK_US = 800_000
"""A stamp may be at most this far before the newest one: readings of different channels are not in order. A board is
open for longer than this before a measurement, so a restart of the stopwatch is always seen."""
WINDOW_NS = 3_000_000_000
"""The stamp with the least delay is used for this long; a clock that is 100 ppm off moves by 0.3 ms meanwhile."""
LOOK_NS, NEAR = 2_000_000, 0.25
"""The time of a readout is sure if the checks before and after it are this close (ns), because spans are given in
milliseconds. It must be sure within this share of the steps from either end."""


class HeldUpError(DeviceError):
    """This program was held up when a span began or ended, so its times are unknown."""


class StopWatch:
    """The board's stopwatch on the host, from the stamps of the last seconds with the least delay."""

    def __init__(self) -> None:
        self._quickest: deque[tuple[int, int]] = deque()  # arrival and lag in ns, lags growing
        self._newest_us: int | None = None
        self._oldest_us = 0

    def heard(self, stamp_us: int, arrived_ns: int) -> int:
        """Add a stamp that has arrived; return it unwrapped. Raises ``ValueError`` if the stopwatch went back."""
        if self._newest_us is None:
            self._newest_us = self._oldest_us = stamp_us
        newest = self._newest_us
        stamp_us += COUNTER * round((newest - stamp_us) / COUNTER)
        if stamp_us < newest - BACK_US:
            raise ValueError(f"its stopwatch went back from {newest} to {stamp_us} us, as if it was started again")
        self._newest_us = max(newest, stamp_us)
        lag = arrived_ns - stamp_us * 1000
        while self._quickest and self._quickest[-1][1] >= lag:
            self._quickest.pop()
        self._quickest.append((arrived_ns, lag))
        while self._quickest[0][0] < arrived_ns - WINDOW_NS:
            self._quickest.popleft()
        return stamp_us

    def moves(self) -> bool:
        """Return whether the stamps have changed."""
        return self._newest_us is not None and self._newest_us > self._oldest_us

    def tick(self, at_ns: int) -> int:
        """Return when data that arrived at ``at_ns`` was sent (stopwatch us), if it had the least delay."""
        return (at_ns - self._quickest[0][1]) // 1000


def span_of(arrived: NDArray[np.int64]) -> tuple[int, int]:
    """Return when the core began the first step and ended the last (host ns), from the checks for its readouts.

    ``arrived`` has shape (steps, 2): the check that found a readout, and the check before. The readout is taken to come
    halfway between them. If these are too far apart at an end of the span, the nearest exact readout and the mean step
    give that end. Raises ``HeldUpError`` if no readout near an end is exact enough.
    """
    steps, unsure_ns = len(arrived), arrived[:, 0] - arrived[:, 1]
    if steps < 2:
        raise DeviceError("a sample of one time step cannot be timed", field="steps", value=steps)
    at_ns = arrived[:, 0] - unsure_ns // 2
    near = max(1, round(NEAR * steps))
    first = int(np.argmax(unsure_ns[:near] <= LOOK_NS))
    last = steps - 1 - int(np.argmax(unsure_ns[::-1][:near] <= LOOK_NS))
    if max(unsure_ns[first], unsure_ns[last]) > LOOK_NS:
        what = (
            f"this program was held up for {max(unsure_ns[first], unsure_ns[last]) * 1e-6:.3g} ms while it timed a span"
        )
        remedy = "Close other programs, and give longer samples or repeat them (--repeat 100)"
        raise HeldUpError(what, field="span", value=int(unsure_ns.max()), remedy=remedy)
    step_ns = (at_ns[last] - at_ns[first]) / max(last - first, 1)
    begin_ns, end_ns = at_ns[first] - (first + 1) * step_ns, at_ns[last] + (steps - 1 - last) * step_ns
    return round(begin_ns), round(end_ns)
