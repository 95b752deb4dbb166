"""Shorten long traces for computations that do not need each reading."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rig.analysis.timing.pooling import BLOCK
from rig.analysis.timing.readings import numbers
from rig.recording.traces import Trace
from rig.types import Bools, Floats, Rail


def thinned(trace: Trace, at_once: int) -> Trace:
    """Return a long trace of a counter with about ``at_once`` of its readings; return other traces unchanged."""
    n = len(trace.value)
    if n <= at_once or trace.rail.kind != "cumulative":
        return trace
    kept = np.append(np.arange(0, n - 1, -(-n // at_once)), n - 1)
    return replace(
        trace,
        start_tick=np.asarray(trace.start_tick[kept]),
        end_tick=np.asarray(trace.end_tick[kept]),
        value=np.asarray(trace.value[kept]),
        overload=np.asarray(trace.overload[kept]),
        uniform=False,
    )


def proportional(rail: Rail) -> bool:
    """Return whether the mean of readings gives the mean of power."""
    return rail.conversion.supply_rail is None and rail.conversion.burden_ohm == 0.0


def in_means(trace: Trace, at_once: int, copies: int = 1, block: int = BLOCK) -> Trace:
    """Return a trace on a uniform grid as at most ``at_once`` means of successive readings.

    A mean is NaN if any of its readings is not a number, and an overload if any is. If each reading was delivered
    ``copies`` times, the means are timed as if it had been delivered once.
    """
    n = len(trace.value)
    many = -(-n // (at_once * copies)) * copies
    whole = n // many * many
    step = max(block // many, 1) * many
    values, overloads = list[Floats](), list[Bools]()
    for a in range(0, whole, step):
        part = trace.part(a, min(a + step, whole))
        values.append(np.where(numbers(part.value), part.value, np.nan).reshape(-1, many).mean(axis=1))
        overloads.append(np.asarray(part.overload.reshape(-1, many).any(axis=1)))
    first = np.arange(0, whole, many) // copies
    start, end = np.asarray(trace.start_tick[first]), np.asarray(trace.end_tick[first + many // copies - 1])
    rail = replace(trace.rail, rate_hz=trace.rail.rate_hz * copies / many)
    return replace(trace, rail=rail, start_tick=start, end_tick=end, value=np.concatenate(values),
                   overload=np.concatenate(overloads))  # fmt: skip
