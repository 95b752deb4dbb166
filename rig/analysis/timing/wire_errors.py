"""Single readings that are errors on the wire and no power: zero, full scale, or with a bit turned over.

Noise seldom repeats a value, so an exact zero that stands alone and far from neighbours which agree with each other is
no measurement. Other readings that stand so are errors if they come in idle windows as in spans, and lie below their
neighbours as well as above: peaks of a device do neither.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.timing.activity_signal import inside, merged
from rig.analysis.timing.mended import Mended
from rig.analysis.timing.stretches import spread_out
from rig.analysis.timing.timebase import Timebase
from rig.recording.traces import Trace
from rig.types import Bools, Floats

LEAST, MOST = 64, 1 << 20
"""The least readings that tell, and the most of a trace from which it is told what its errors are."""
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
    some = spread_out(trace, MOST)
    errors = _errors(some, clock, idle_s)
    count = 0 if errors is None else int(np.count_nonzero(errors.among(some.value)))
    if errors is None or not count:
        return Mended(trace)
    of = ""
    if len(some.value) < len(trace.value):
        of, errors = f" of {len(some.value)} that were looked at", replace(errors, runs=False)
    note = (
        f"Rail {trace.rail.name}: {count} single readings{of} are far from neighbours that agree with each "
        "other, at idle as under load, as errors on the wire are. They count as missing"
    )
    return Mended(trace.without(errors.among), (note,))


@dataclass(frozen=True)
class _Errors:
    """Errors on the wire are the readings of some values, and with ``lone`` all that stand far off their neighbours.

    Without ``runs``, those between two of the same value are none: where not all readings were looked at, a device that
    sleeps at exactly zero may lie between.
    """

    typical: float
    values: tuple[float, ...]
    lone: bool
    runs: bool = True

    def among(self, value: Floats) -> Bools:
        """Return which of successive readings are errors, shape (n,)."""
        wrong = np.isin(value, self.values)
        if not self.runs:
            wrong[1:-1] &= (value[1:-1] != value[:-2]) | (value[1:-1] != value[2:])
        return wrong | _stand_alone(value, self.typical) if self.lone else wrong


def _errors(trace: Trace, clock: Timebase, idle_s: Floats) -> _Errors | None:
    """Which readings are errors on the wire, as these show; None if that cannot be told."""
    value = trace.value
    if trace.rail.kind not in ("mean", "point") or len(value) < LEAST:
        return None
    steps = np.diff(value)
    typical = float(np.nanmedian(np.abs(steps))) if np.any(np.isfinite(steps)) else 0.0
    lone = _stand_alone(value, typical)
    if not np.any(lone):
        return None
    middle_s = clock.seconds(0.5 * (trace.start_tick + trace.end_tick))
    at_idle = inside(merged(idle_s), middle_s, middle_s) >= 0
    count, below = np.count_nonzero(lone), np.count_nonzero(lone[1:] & (steps < 0.0))
    even = EVEN * count < below < (1.0 - EVEN) * count
    alike = np.count_nonzero(lone & at_idle) > EVEN * count * float(at_idle.mean())
    all_lone = bool(even and alike and count <= FEW * len(value))
    asked = (0.0, float(np.nanmax(value))) if all_lone else (0.0,)
    return _Errors(typical, tuple(at for at in asked if _of_value(value, at, lone)), all_lone)


def _stand_alone(value: Floats, typical: float) -> Bools:
    """Which readings are far from neighbours that agree with each other, shape (n,)."""
    beside = np.concatenate([[np.nan], value, [np.nan]])
    before, after = beside[:-2], beside[2:]
    off = np.minimum(np.abs(value - before), np.abs(value - after))
    return np.asarray((typical > 0.0) & (off > FAR * typical) & (np.abs(before - after) < AGREE * off))


def _of_value(value: Floats, at: float, lone: Bools) -> bool:
    """Whether readings of this value are errors: few, and nearly all of them stand alone."""
    mine = value == at
    count = np.count_nonzero(mine)
    return bool(0 < count <= FEW * len(value) and np.count_nonzero(mine & lone) >= ALONE * count)
