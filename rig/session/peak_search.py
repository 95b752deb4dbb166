"""Search for the highest rate that is served in time, and for the largest size that is solved."""

from __future__ import annotations

import math
from collections.abc import Callable

from rig.errors import MeasurementRefusedError

STEP = 2.0
CLOSE = 1.02
"""The search ends when the lowest failed rate is at most this many times the highest good rate."""
MOST_PROBES = 40
LOWEST = 1.0 / 1024.0
"""The search gives up below this fraction of the first rate: if rare samples miss the bound, no rate helps."""


def find_peak(holds: Callable[[float], bool], start_hz: float) -> float:
    """Find the highest rate that holds: double or halve until one holds and one fails, then bisect geometrically.

    Raises ``MeasurementRefusedError`` if none holds.
    """
    low, high, rate_hz = 0.0, math.inf, start_hz
    for _ in range(MOST_PROBES):
        if holds(rate_hz):
            low = max(low, rate_hz)
        else:
            high = min(high, rate_hz)
        if low and high / low <= CLOSE:
            break
        if math.isinf(high):
            rate_hz = low * STEP
        elif not low:
            rate_hz = high / STEP
            if rate_hz < start_hz * LOWEST:
                break
        else:
            rate_hz = math.sqrt(low * high)
    if not low:
        what = f"no rate from {start_hz:g} down to {high:g} per second meets the latency bound"
        remedy = "Give a longer latency_bound_s, or read the reports of the probes"
        raise MeasurementRefusedError(what, field="arrival_hz", value=high, remedy=remedy)
    return low


def find_largest(holds: Callable[[int], bool], start: int, close: float = 1.05, most: int = 2**24) -> int:
    """Return the largest whole number that holds, within a factor ``close``; 0 if none at or below ``start`` does."""
    low, high, size = 0, 0, start
    for _ in range(MOST_PROBES):
        if holds(size):
            low = size
        else:
            high = size
        if (low and high and high <= max(low * close, low + 1)) or low >= most or high == 2:
            break
        if not high:
            size = min(2 * low, most)
        elif not low:
            size = max(high // 2, 2)
        else:
            size = (low + high) // 2
    return low
