"""Find where a recording contradicts itself: host stamps, spans, counts of readings, and the host's own heartbeat.

Each contradiction is a failed check with a name. A recording without contradictions yields none.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from rig.analysis.result.finding import Finding
from rig.analysis.timing.timebase import Timebase
from rig.recording.columns.buffers import array_of
from rig.recording.events import HostGap
from rig.recording.reader import Run
from rig.types import Bools, Floats

FAR = 6.0
"""A span contradicts its host stamps if it is outside them by more than this many sigmas of the synchronisation."""
ROUNDING_S = 1e-6
ONE_TICK = 0.5
"""The clock does not resolve the spans if more than this share of them is one tick or less."""


def contradictions_of(run: Run, device: Timebase) -> tuple[Finding, ...]:
    """Return a failed check for each contradiction; ``device`` is the clock of the spans."""
    return (*_lost(run), *_misplaced(run, device))


def _lost(run: Run) -> Iterator[Finding]:
    """Find unusable values, gaps in the host's time, incomplete files, and doubled or missing readings."""
    if run.left_out:
        more = f" and {len(run.left_out) - 1} more" if len(run.left_out) > 1 else ""
        yield Finding("values that cannot be used", f"{run.left_out[0]}{more}", "none", False)
    gaps_s = [(gap.off_ns - gap.on_ns) * 1e-9 for gap in run.of_type(HostGap)]
    if gaps_s:
        found = f"{len(gaps_s)}, the longest {max(gaps_s):.3g} s"
        yield Finding("gaps in the host's heartbeat", found, "none", False)
    # a run that ended as planned has written all files and chunks
    if run.complete and run.truncated:
        yield Finding("files that were written to their end", f"all but {', '.join(run.truncated)}", "all", False)
    for name, trace in run.traces.items() if run.complete and not (run.truncated or run.left_out) else ():
        table = run.arrivals(name)
        arrived = int(table[-1, 0]) if len(table) else len(trace.value)
        if arrived != len(trace.value):
            yield Finding(f"readings of rail {name} on disk", str(len(trace.value)), f"{arrived} that arrived", False)


def _misplaced(run: Run, device: Timebase) -> Iterator[Finding]:
    if run.start.imported is not None or run.start.device.spans_on_pin:
        return
    table = run.replies
    table = table.filter(pc.and_(table["on_tick"].is_valid(), table["completed_ns"].is_valid()))
    if not len(table):
        return
    ticks = np.column_stack([array_of(table[c]) for c in ("on_tick", "off_tick")])
    on_s, off_s = device.seconds(ticks[:, 0]), device.seconds(ticks[:, 1])
    issued_s, answered_s = ((array_of(table[c]) - run.start.t0_ns) * 1e-9 for c in ("issued_ns", "completed_ns"))
    sigma_s = np.hypot(device.sigma_s, device.rate_sigma * (on_s - device.ref_s))
    allowed_s = FAR * sigma_s + 2.0 * device.step_s + ROUNDING_S
    yield from _count("spans that begin before they were issued", on_s < issued_s - allowed_s, issued_s - on_s)
    yield from _count("spans that end after their answer arrived", off_s > answered_s + allowed_s, off_s - answered_s)
    short = ticks[:, 1] - ticks[:, 0] <= 1
    if np.mean(short) > ONE_TICK:
        yield Finding("spans of one tick or less", f"{short.sum()} of {len(short)}", "at most half of them", False)
    if run.start.device.holds_one:
        yield from _overlapping(array_of(table["issue"]), on_s, off_s, 2.0 * device.step_s)


def _overlapping(issue: NDArray[np.int64], on_s: Floats, off_s: Floats, step_s: float) -> Iterator[Finding]:
    """Find overlapping spans of different samples on a device that holds one sample at a time."""
    order = np.argsort(issue, kind="stable")
    first = np.flatnonzero(np.diff(issue[order], prepend=-1))
    begin_s = np.minimum.reduceat(on_s[order], first)
    end_s = np.maximum.reduceat(off_s[order], first)
    by_time = np.argsort(begin_s, kind="stable")
    into_s = np.maximum.accumulate(end_s[by_time])[:-1] - begin_s[by_time][1:]
    yield from _count("spans that overlap on a device that holds one sample", into_s > step_s + ROUNDING_S, into_s)


def _count(rule: str, bad: Bools, by_s: Floats) -> Iterator[Finding]:
    if bad.any():
        yield Finding(rule, f"{bad.sum()} of {len(bad)}, by up to {by_s[bad].max():.3g} s", "none", False)
