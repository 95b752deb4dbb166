"""Single readings that are errors on the wire and no power: zero, full scale, or with a bit turned over.

Noise seldom repeats a value, so an exact zero that stands alone and far from neighbours which agree with each other is
no measurement. Other readings that stand so are errors if they come in idle windows as in spans, and lie below their
neighbours as well as above: peaks of a device do neither.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rig.analysis.timing.activity_signal import inside, merged
from rig.analysis.timing.mended import Mended
from rig.analysis.timing.timebase import Timebase
from rig.recording.reader import Trace
from rig.types import Bools, Floats

LEAST, MOST = 64, 1 << 20
"""The least and the most readings of a trace that are looked at."""
FAR = 15.0
"""Typical differences of neighbours that an error is away from its own at least."""
AGREE = 0.25
"""Part of this distance by which its neighbours may differ."""
ALONE = 0.75
"""Part of the readings of one value that must stand so; others stand where power steps."""
FEW = 0.02
"""Part of all readings from which a value is no error any more."""
EVEN = 0.2
"""Part of the errors that must lie below their neighbours, and above, and of those expected in idle windows."""


def without_wire_errors(trace: Trace, clock: Timebase, idle_s: Floats) -> Mended:
    """Return a trace with errors on the wire as NaN; ``idle_s`` are the idle windows, shape (k, 2)."""
    wrong = _wrong(trace, clock, idle_s)
    if wrong is None or not np.any(wrong):
        return Mended(trace)
    note = (
        f"Rail {trace.rail.name}: {int(wrong.sum())} single readings are far from neighbours that agree with each "
        "other, at idle as under load, as errors on the wire are. They count as missing"
    )
    return Mended(replace(trace, value=np.where(wrong, np.nan, trace.value)), (note,))


def _wrong(trace: Trace, clock: Timebase, idle_s: Floats) -> Bools | None:
    """Which readings are errors on the wire, shape (n,); None if that cannot be told."""
    in_memory = isinstance(trace.value, np.ndarray)  # a long trace stays in its file
    if trace.rail.kind not in ("mean", "point") or not in_memory or not LEAST <= len(trace.value) <= MOST:
        return None
    value = np.asarray(trace.value, dtype=np.float64)
    beside = np.concatenate([[np.nan], value, [np.nan]])
    before, after = beside[:-2], beside[2:]
    typical = float(np.nanmedian(np.abs(np.diff(value)))) if np.any(np.isfinite(np.diff(value))) else 0.0
    off = np.minimum(np.abs(value - before), np.abs(value - after))
    lone = (typical > 0.0) & (off > FAR * typical) & (np.abs(before - after) < AGREE * off)
    wrong = _of_value(value, 0.0, lone)
    middle_s = clock.seconds(0.5 * (trace.start_tick + trace.end_tick))
    at_idle = inside(merged(idle_s), middle_s, middle_s) >= 0
    count, below = np.count_nonzero(lone), np.count_nonzero(lone & (value < before))
    even = EVEN * count < below < (1.0 - EVEN) * count
    if even and np.count_nonzero(lone & at_idle) > EVEN * count * float(at_idle.mean()) and count <= FEW * len(value):
        wrong |= lone | _of_value(value, float(np.nanmax(value)), lone)
    return wrong


def _of_value(value: Floats, at: float, lone: Bools) -> Bools:
    """Which readings are of this value, if they are few and nearly all of them stand alone; shape (n,)."""
    mine = value == at
    count = np.count_nonzero(mine)
    alone = np.count_nonzero(mine & lone) >= ALONE * count and count <= FEW * len(value)
    return np.asarray(mine & alone)
