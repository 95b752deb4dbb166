"""Fit each clock of a recording to one axis of seconds, and find clocks that contradict what is declared."""

import math
from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from rig.analysis.result.finding import Finding
from rig.analysis.timing.timebase import CERTAIN, SURE, Timebase, fit_brackets, host_timebase, off_line, quick_reads
from rig.errors import DataError
from rig.recording.reader import Run
from rig.types import Floats


def host_bend(run: Run) -> tuple[float, tuple[str, ...]]:
    """Return by how many seconds the host's clock was corrected in the run, or 0, and the clocks that show it.

    A time service steps the clock of a host, or changes its rate. Two other clocks then deviate from a straight line in
    the same way, when plotted against the host's clock.
    """
    reads = {c.name: quick_reads(c, b, run.start.t0_ns) for c in run.start.clocks if len(b := run.brackets(c.name))}
    bent = {name: rows for name, rows in reads.items() if np.any(off_line(rows))}
    for carrier, rows in bent.items():
        late_s = off_line(rows)
        others = {name: r - [[0.0, 1.0, 0.0]] * np.interp(r[:, 1:2], rows[:, 1], late_s) for name, r in bent.items()}
        alike = tuple(name for name, r in others.items() if name != carrier and not np.any(off_line(r)))
        if alike:
            return float(np.ptp(late_s)), (carrier, *alike)
    return 0.0, ()


def timebase_of(run: Run, clock: str, rail: str | None = None) -> Timebase:
    """Fit the brackets of one clock; ``rail`` names a trace whose arrivals may bound its rate.

    Raises ``DataError`` if the clock was never read, or if its rate is far from the declared one.
    """
    t0_ns = run.start.t0_ns
    if clock in ("host", ""):
        return host_timebase(t0_ns)
    clocks = run.clocks()
    brackets = run.brackets(clock)
    if clock not in clocks or not brackets:
        what = f"the recording holds no reading of the clock {clock!r}"
        remedy = "At least one bracket per clock is needed; see docs/reference/run-directory.md"
        raise DataError(what, field="brackets", value=clock, remedy=remedy)
    arrivals = arrivals_of(run, rail) if rail is not None and len(brackets) == 1 else None
    bend_s = host_bend(run)[0]
    found = fit_brackets(clocks[clock], brackets, t0_ns, arrivals, bend_s)
    off = abs(found.rate - 1.0)
    far = off > 10.0 * clocks[clock].tolerance + CERTAIN * found.rate_sigma  # a wrong declaration
    if far and arrivals is not None:  # another check reports a wrong rate of arrivals, and refuses only power
        return fit_brackets(clocks[clock], brackets, t0_ns, None, bend_s)
    if far:
        what = f"a tick of the clock {clock!r} lasts {found.rate:.6g} times as long as declared, by the host's clock"
        remedy = "Correct its tick_hz, see that nothing sets the clock during a run, or declare a wider tolerance"
        raise DataError(what, field="tick_hz", value=clocks[clock].tick_hz, remedy=remedy)
    if beyond_tolerance(found):  # nothing shows whether this clock or the host's is wrong
        return replace(found, rate_sigma=math.hypot(found.rate_sigma, off / math.sqrt(3.0)))
    return found


def arrivals_of(run: Run, rail: str) -> Floats:
    """Return the end of the last reading of each delivery, in ticks, and when the host received it, in run seconds.

    The shape is (k, 2). If several deliveries have the same time, only the last counts. An import has no arrivals.
    """
    rows, ticks = run.arrivals(rail)[: 0 if run.start.imported else None], run.traces[rail].end_tick
    last = np.append(rows[1:, 1] > rows[:-1, 1], True)[: len(rows)]
    number, at_ns = rows[last & (rows[:, 0] > 0) & (rows[:, 0] <= len(ticks))].T
    return np.column_stack([ticks[number - 1], (at_ns - run.start.t0_ns) * 1e-9])


def beyond_tolerance(found: Timebase) -> bool:
    """Return whether a clock's rate is beyond its declared tolerance."""
    return abs(found.rate - 1.0) > found.clock.tolerance + CERTAIN * found.rate_sigma


def rate_checks(run: Run) -> Iterator[Finding]:
    """Yield a failed check for each clock whose rate, by the host's clock, is beyond its declared tolerance."""
    for name, clock in run.clocks().items():
        brackets = run.brackets(name)
        if brackets and beyond_tolerance(found := fit_brackets(clock, brackets, run.start.t0_ns)):
            rule, off = f"rate of the clock {name} by that of the host", f"off by {1.0 / found.rate - 1.0:+.3g}"
            yield Finding(rule, off, f"within {clock.tolerance:.2g} of its own", False)


def off_line_checks(run: Run, timebase: Timebase) -> tuple[Timebase, tuple[Finding, ...]]:
    """Return the map of the device's clock; if its readings are not on a line, add uncertainty and a failed check.

    Such a clock may stop in sleep, so its rate within spans may be the declared one or the mean rate of its readings.
    If the host's clock was corrected, all clocks deviate alike, and there is no check.
    """
    clock, rows = timebase.clock, timebase.residuals(run.brackets(timebase.clock.name), run.start.t0_ns)
    beyond = np.abs(rows[:, 1]) > rows[:, 2] + SURE * timebase.sigma_s if len(rows) > 2 else np.zeros(0, bool)
    if not np.any(beyond) or host_bend(run)[1]:
        return timebase, ()
    doubt = 4.0 * float(np.ptp(rows[:, 1])) / float(np.ptp(rows[:, 0]))
    rule = f"readings of the clock {clock.name} off a straight line"
    check = Finding(rule, f"{np.max(np.abs(rows[beyond, 1])):.2g} s", "within their round trips", False)
    return replace(timebase, rate_sigma=math.hypot(timebase.rate_sigma, doubt / math.sqrt(3.0))), (check,)
