"""Readings that only repeat the one before: of a host that polls faster than the meter converts, or a link that stalls.

Noise seldom repeats a value. A reading that equals the one before, in a trace whose other readings all differ, was not
measured: the host was given the last one again. If the first reading of each value comes at a steady pace, it is the
pace at which the meter converts, and shows when each conversion ended. Otherwise the repeated readings are missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rig.analysis.timing.mended import Mended
from rig.analysis.timing.stretches import spread_out
from rig.analysis.timing.timebase import Timebase
from rig.analysis.verdict import Check
from rig.recording.traces import Trace
from rig.types import Bools, Floats, Indices

LEAST, MOST = 64, 1 << 20
"""The least readings that tell, and the most of a trace from which it is told whether readings repeat."""
CHANCE = 0.01
"""Part of the values that may come back later in the trace; above it, readings may be equal by chance."""
STEADY = 1.02
"""Polls by which the first readings of values may miss a steady pace; less than one is expected."""
HALVINGS = 30
WHOLE = 1e-3
"""A declared aperture that is one poll to within this part was taken from the rate, and is no knowledge of its own."""
SLOWER = 1.05
"""Polls in a conversion from which the host polls faster than the meter converts."""
BEYOND_S = 0.1
"""How far the last reading may lie after the end of the recording."""
FEW = 0.05
"""Share of the readings that a stalled link may repeat before power is refused."""


def as_measured(trace: Trace, clock: Timebase, end_s: float) -> Mended:
    """Return a trace with repeated readings on the pace of their conversions, or else as NaN.

    A trace that reaches beyond the end of the recording, ``end_s``, stays: it holds more readings than were taken.
    """
    name, some = trace.rail.name, spread_out(trace, MOST)
    whole = len(some.value) == len(trace.value)
    beyond = float(clock.seconds(trace.end_tick[-1:])[0]) > end_s + BEYOND_S
    repeats = None if beyond else _repeats(some)
    again = np.zeros(1, bool) if repeats is None else repeats.among(some.value)
    if repeats is None or not again.any():
        return Mended(trace)
    if whole and (conversions := _conversions(some)) is not None:
        return Mended(conversions, (_asked_too_often(name, len(trace.value) / len(conversions.value)),))
    share, rule = float(again.mean()), f"readings of rail {name} that repeat the one before"
    checks = (Check(rule, f"{share:.1%}", f"at most {FEW:.0%}", False),) if share > FEW else ()
    return Mended(trace.without(repeats.among), (_stalled(name, again, whole),), checks=checks)


def _asked_too_often(name: str, polls: float) -> str:
    return (
        f"Rail {name}: the host asked {polls:.3g} times for each conversion of the meter. Each is used once, at the "
        "steady pace at which new values came"
    )


def _stalled(name: str, again: Bools, whole: bool) -> str:
    of = "" if whole else f" of {len(again)} that were looked at"
    return (
        f"Rail {name}: {int(again.sum())} readings{of} repeat the one before to the last digit, as when a link stalls. "
        "They count as missing"
    )


@dataclass(frozen=True)
class _Repeats:
    """Readings that equal the one before were not measured, unless of values that many ``share``, or at an end.

    What is looked at of a long trace may not reach the end of a range, so all from ``low`` down and ``high`` up stay.
    """

    share: Floats
    low: float
    high: float

    def among(self, value: Floats) -> Bools:
        """Return which of successive readings were not measured, shape (n,)."""
        again: Bools = np.concatenate([[False], value[1:] == value[:-1]])
        at = np.flatnonzero(again)
        again[at] = (value[at] > self.low) & (value[at] < self.high) & ~np.isin(value[at], self.share)
        return again


def _repeats(trace: Trace) -> _Repeats | None:
    """Which readings repeat the one before though noise would not; None if that cannot be told."""
    value = trace.value
    if trace.rail.kind not in ("mean", "point") or len(value) < LEAST:
        return None
    again = np.concatenate([[False], value[1:] == value[:-1]])
    if not np.any(again):
        return None
    first = value[~again & np.isfinite(value)]
    kept, count = np.unique(first, return_counts=True)
    if len(kept) < LEAST or 1.0 - len(kept) / len(first) > CHANCE:
        return None
    return _Repeats(kept[count > 1], float(kept[0]), float(kept[-1]))  # the ends of a range are shared, not repeated


def _conversions(trace: Trace) -> Trace | None:
    """One reading for each conversion of a meter that converts at a steady pace; None if the pace is not steady."""
    if not trace.uniform or trace.rail.rate_hz <= 0.0:
        return None
    first = np.flatnonzero(np.diff(trace.value) != 0.0) + 1  # when the very first value was new is not known
    number = np.arange(len(first), dtype=np.float64)
    pace = _steadiest(first, number)
    declared = 1.0 if trace.rail.aperture_s is None else trace.rail.aperture_s * trace.rail.rate_hz
    lasting = pace if abs(declared - 1.0) < WHOLE else min(pace, declared)
    late = first - pace * number
    if pace < SLOWER or float(np.ptp(late)) > STEADY:
        return None
    ends = 0.5 * float(late.max() + late.min() - 1.0) + pace * number
    return replace(
        trace,
        rail=replace(trace.rail, rate_hz=trace.rail.rate_hz / float(pace)),
        start_tick=_ticks_at(trace.end_tick, ends - lasting),
        end_tick=_ticks_at(trace.end_tick, ends),
        value=np.asarray(trace.value[first], dtype=np.float64),
        overload=np.asarray(trace.overload[first]),
    )


def _steadiest(first: Indices, number: Floats) -> float:
    """The polls to a conversion from which the first readings of values stray least; how far is convex in it."""
    mean = float(first[-1] - first[0]) / (len(first) - 1)
    low, high = mean - 2.0 / len(first), mean + 2.0 / len(first)
    for _ in range(HALVINGS):
        left, right = (2.0 * low + high) / 3.0, (low + 2.0 * high) / 3.0
        if np.ptp(first - left * number) < np.ptp(first - right * number):
            high = right
        else:
            low = left
    return 0.5 * (low + high)


def _ticks_at(end_tick: NDArray[np.int64], number: Floats) -> NDArray[np.int64]:
    """Ticks of a uniform trace at numbers of its readings that are no integers."""
    period = float(end_tick[-1] - end_tick[0]) / (len(end_tick) - 1)
    return np.asarray(end_tick[0] + np.round(number * period).astype(np.int64))
