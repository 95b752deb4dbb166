"""The stopwatch of a Xylo board as the host sees it, and where a span begins and ends by looks at its readouts."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from rig.errors import DeviceError

TICK_HZ = 1_000_000
"""The stamps of power readings are whole microseconds."""
COUNTER = 1 << 32
"""Where the stopwatch wraps if it has 32 bits, after 71.6 minutes."""
BACK_US = 800_000
"""A stamp may be at most this far before the newest one: readings of different channels are not in order. A board is
open for longer than this before a measurement, so a restart of the stopwatch is always seen."""
WINDOW_NS = 3_000_000_000
"""The quickest stamp is used for this long; a clock that is 100 ppm off moves by 0.3 ms meanwhile."""
LOOK_NS, NEAR = 2_000_000, 0.25
"""A readout is sure if two looks around it are this close, because spans are stated in milliseconds; and how far in it
may be."""


class HeldUpError(DeviceError):
    """This program did not look while the ends of a span came by, so nobody knows where they are."""


class StopWatch:
    """The board's stopwatch as the host sees it, by the quickest stamps of the last seconds."""

    def __init__(self) -> None:
        self._quickest: deque[tuple[int, int]] = deque()  # arrival and lag in ns, lags growing
        self._newest_us: int | None = None
        self._oldest_us = 0

    def heard(self, stamp_us: int, arrived_ns: int) -> int:
        """Note a stamp that has arrived, and return it unwrapped. Raises ``ValueError`` if the stopwatch went back."""
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
        """Return whether stamps differ."""
        return self._newest_us is not None and self._newest_us > self._oldest_us

    def tick(self, at_ns: int) -> int:
        """Return microseconds of the stopwatch when what arrived at ``at_ns`` was sent by the quickest way."""
        return (at_ns - self._quickest[0][1]) // 1000


def span_of(arrived: NDArray[np.int64]) -> tuple[int, int]:
    """Return when the core began the first step and ended the last, by the looks at its readouts (ns of the host).

    ``arrived`` has shape (steps, 2): the look that found a readout, and the look before it. A readout came halfway
    between them. If the two are far apart, the next readout towards the middle, with the mean step, gives the end of
    the span. Raises ``HeldUpError`` if no readout is exact enough.
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
