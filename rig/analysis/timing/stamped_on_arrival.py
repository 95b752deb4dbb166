"""Readings that were stamped when they arrived at the host, later than they were taken, get the grid of their meter.

A meter's means over one interval after the other never overlap. If their stamps do, they are not the times of the
readings. The earliest arrivals then show the grid, apart from a delay that all readings share.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rig.analysis.timing.mended import Mended
from rig.recording.traces import Trace
from rig.types import Floats

LEAST, LOOKED_AT = 64, 1 << 20
"""The least and the most readings of a trace that are looked at."""
OVERLAP, OFTEN = 0.02, 8
"""Part of a reading by which it must overlap the one before, and readings that do."""
FINE = 100.0
"""Ticks in a reading from which it is placed on whole ticks."""
STEPS = 2.0
"""Ticks by which rounded stamps may overlap."""
GROUPS = 12
"""Stretches of the trace whose earliest arrival shows the grid."""
OFF_GRID, CHANCE = 0.5, 4.0
"""Readings by which such an arrival may miss the grid before readings must be missing, and times of its scatter."""


def on_grid(trace: Trace, tick_hz: float) -> Mended:
    """Return a trace that was stamped on arrival on the grid of its declared rate, and any other as it is."""
    rail = trace.rail
    if not _on_arrival(trace, period := tick_hz / rail.rate_hz if rail.rate_hz > 0.0 else 0.0):
        return Mended(trace)
    whole = trace.part(0, len(trace.value))  # all stamps are needed, also of a long trace
    grid, miss = _grid(whole.end_tick, period)
    behind = whole.end_tick - grid
    delay = period + float(np.mean(np.abs(behind)))
    what = "their irregular stamps are used, since readings are missing"
    if miss <= OFF_GRID * period + CHANCE * _scatter(behind, period):
        length = np.median(whole.end_tick - whole.start_tick).astype(grid.dtype)
        whole = replace(whole, start_tick=grid - length, end_tick=grid)
        what = "the earliest of them show the grid of the meter, which is used"
    else:
        delay += float(np.std(behind))
    note = (
        f"Rail {rail.name}: readings overlap, so they were stamped on arrival, on average "
        f"{np.mean(behind) / tick_hz:.3g} s later than the earliest; {what}. All may be late by about "
        f"{delay / tick_hz:.3g} s, unless the activity shows where they were taken"
    )
    return Mended(whole, (note,), late_ticks=delay)


def _on_arrival(trace: Trace, period: float) -> bool:
    """Whether means of one interval overlap, which only the stamps of their arrival can."""
    if trace.uniform or trace.rail.kind != "mean" or period <= 0.0 or len(trace.value) < LEAST:
        return False
    start, end = trace.start_tick[:LOOKED_AT], trace.end_tick[:LOOKED_AT]
    length = float(np.median(end - start))
    overlaps = int(np.count_nonzero(start[1:] < end[:-1] - max(OVERLAP * length, STEPS)))
    return length <= (1.0 + OVERLAP) * period and overlaps >= OFTEN


def _scatter(behind: Floats, period: float) -> float:
    """By how much the earliest arrivals of stretches scatter, in ticks: the mean delay over the arrivals in each.

    Readings that come as a packet arrive once.
    """
    arrivals = 1 + np.count_nonzero(np.abs(np.diff(behind)) > OVERLAP * period)
    return float(np.mean(np.abs(behind))) * GROUPS / arrivals


def _grid(end: Floats, period: float) -> tuple[Floats, float]:
    """The straight line below the arrivals, shape (n,), and how far the earliest of each stretch are above or below."""
    number = np.arange(len(end), dtype=np.float64)
    late = end - end[0] - period * number
    parts = np.array_split(np.arange(len(end)), GROUPS)
    first = np.array([part[np.argmin(late[part])] for part in parts])
    slope, start = np.polyfit(number[first], late[first], 1)
    line = start + slope * number
    since = period * number + line
    if period > FINE:  # ticks of a clock that began long ago stay exact as integers
        since = np.round(since).astype(end.dtype)
    return end[0] + since, float(np.max(np.abs(late[first] - line[first])))
