"""Corrections of the host's clock during a run, as the clocks show that were read between its stamps.

A time service steps the clock of a host, or turns its rate. Every other clock then seems to step at the same moment. If
brackets of one clock lie on no line within their round trips, and those of another do too once the host's stamps follow
the first, it is the host that was corrected. The first clock then carries the time of the run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pyarrow.compute as pc
from msgspec import structs

from rig.analysis.timing.timebase import Timebase, quick_reads
from rig.recording.columns import array_of, numbers
from rig.recording.events import Brackets, ChunkArrived, IdleWindow, Line
from rig.recording.reader import Run
from rig.types import ClockInfo, Floats

LEAST = 3
"""Readings of a clock along a run, at as many moments, that can lie off a line."""
RATE_PER_BEND = 4.0
"""How far the mean rate may be off, over the range of the residuals and the time that they span.

A step leaves at most half of this between the ends of its residuals, a rate that turns midway 0.9 of it.
"""
HOST_STAMPS = ("due_ns", "issued_ns", "completed_ns")


@dataclass(frozen=True)
class SteadyHost:
    """The run with the host's stamps as if its clock had run on, and notes; both unchanged if nobody corrected it.

    ``rate_sigma`` is the standard uncertainty of the rate at which it runs on.
    """

    run: Run
    notes: tuple[str, ...] = ()
    rate_sigma: float = 0.0

    def with_rate(self, timebase: Timebase) -> Timebase:
        """Return a map to seconds of the run with this uncertainty of its rate, which all clocks share."""
        return replace(timebase, rate_sigma=math.hypot(timebase.rate_sigma, self.rate_sigma))


def steady_host(run: Run) -> SteadyHost:
    """Return the run with the host's stamps on the time of a clock, if this and another show that it was corrected."""
    reads = {c.name: quick_reads(c, b, run.start.t0_ns) for c in run.start.clocks if len(b := run.brackets(c.name))}
    bent = {name: rows for name, rows in reads.items() if _bent(rows)}
    device = run.start.device.clock
    carrier = device.name if device and device.name in bent else next(iter(bent), "")
    others = {name: rows for name, rows in bent.items() if name != carrier}
    if not others:
        return SteadyHost(run)
    clock, carried = run.clocks()[carrier], bent[carrier]
    rate, rate_sigma = _rate(clock, carried)
    at_s, late_s = carried[:, 1], carried[:, 1] - rate * carried[:, 0]
    late_s -= late_s[0]
    alike = [name for name, rows in others.items() if not _bent(_moved(rows, at_s, late_s))]
    if not alike:
        return SteadyHost(run)
    size_s = float(np.ptp(_residual(carried)))
    note = (
        f"The clocks {', '.join([carrier, *alike])} leave a straight line alike, by {size_s:.2g} s: the clock of the "
        f"host was corrected during the run. Time is that of the clock {carrier}, and stamps of the host follow it"
    )
    return SteadyHost(_restamped(run, at_s, late_s), (note,), rate_sigma)


def _residual(rows: Floats) -> Floats:
    """Middles of round trips less a straight line over the ticks, in seconds."""
    return np.asarray(rows[:, 1] - np.polyval(np.polyfit(rows[:, 0], rows[:, 1], 1), rows[:, 0]))


def _bent(rows: Floats) -> bool:
    """Whether brackets, as ``quick_reads``, are farther from a line than a clock may be off within a round trip."""
    if len(rows) < LEAST or np.ptp(rows[:, 0]) <= 0.0:
        return False
    return bool(np.any(np.abs(_residual(rows)) > rows[:, 2]))


def _rate(clock: ClockInfo, rows: Floats) -> tuple[float, float]:
    """Seconds of the host to a nominal second of a clock, and the standard uncertainty of that."""
    doubt = RATE_PER_BEND * float(np.ptp(_residual(rows))) / float(np.ptp(rows[:, 0]))
    nominal = clock.tolerance / math.sqrt(3.0)
    return (1.0, nominal) if nominal < doubt else (float(np.polyfit(rows[:, 0], rows[:, 1], 1)[0]), doubt)


def _moved(rows: Floats, at_s: Floats, late_s: Floats) -> Floats:
    return np.column_stack([rows[:, 0], rows[:, 1] - np.interp(rows[:, 1], at_s, late_s), rows[:, 2]])


# ---- the run on the new time ------------------------------------------------------------------


def _restamped(run: Run, at_s: Floats, late_s: Floats) -> Run:
    """The run with every stamp of the host, in ns, earlier by what its clock was late at that moment."""
    at_ns, late_ns = at_s * 1e9 + run.start.t0_ns, late_s * 1e9

    def restamped(ns: int) -> int:
        return ns - round(float(np.interp(ns, at_ns, late_ns)))

    def line(event: Line) -> Line:
        match event:
            case Brackets():
                rows = [(restamped(before), tick, restamped(after)) for before, tick, after in event.rows]
                return structs.replace(event, rows=rows)
            case IdleWindow():
                return structs.replace(event, on_ns=restamped(event.on_ns), off_ns=restamped(event.off_ns))
            case ChunkArrived():
                return structs.replace(event, arrived_ns=restamped(event.arrived_ns))
        return event

    table = run.replies
    for name in HOST_STAMPS:
        by_ns = np.round(np.interp(array_of(table[name], 0), at_ns, late_ns)).astype(np.int64)
        field = table.schema.field(name)
        moved = pc.subtract(table[name], numbers(by_ns)).cast(field.type)
        table = table.set_column(table.schema.get_field_index(name), field, moved)
    return replace(run, events=tuple(map(line, run.events)), replies=table)
