"""Whether the times of the readings fit the times at which they reached the host.

A reading arrives after it was taken, and its delay does not change steadily during a run. If a meter delivers readings
twice, loses some of a uniform grid, or samples at another rate than declared, the times of its readings run away from
the host's clock: they arrive before they were taken, or ever later.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rig.analysis.timing.timebase import Timebase
from rig.analysis.timing.timeline import timebase_of
from rig.analysis.verdict import Check
from rig.recording.reader import Run
from rig.recording.traces import Trace
from rig.types import Floats

LEAST = 9
"""Arrivals from which a change of the delay is judged."""
CERTAINTY = 5.0
"""Standard uncertainties of the meter's clock by which a delay may be off."""
FOLLOWS = 0.2
"""Readings come one by one if the delay varies less than this part of what the time between arrivals varies."""
USUAL = 0.9
"""Share of the arrivals for which this must hold: a host may be late at times."""


def arrival_checks(run: Run) -> dict[str, tuple[Check, ...]]:
    """Return failed checks by the name of the rail, for rails of power whose readings do not fit their arrivals.

    A rail of volts counts for each rail that it supplies. An imported recording does not hold the arrivals.
    """
    found: dict[str, tuple[Check, ...]] = {}
    if run.start.imported is not None:
        return found
    for name, trace in run.traces.items():
        traces = [run.traces.get(n) for n in (name, trace.rail.conversion.supply_rail) if n is not None]
        if checks := tuple(check for t in traces if t is not None for check in _misfit(run, t)):
            found[name] = checks
    return found


def _misfit(run: Run, trace: Trace) -> Iterator[Check]:
    arrivals = run.arrivals(trace.rail.name)
    last = np.append(arrivals[1:, 1] > arrivals[:-1, 1], True)[: len(arrivals)]  # of those that arrived together
    held = arrivals[last & (arrivals[:, 0] > 0) & (arrivals[:, 0] <= len(trace.value))]
    if trace.rail.kind == "edges" or len(trace.value) < 2 or not len(held):
        return
    clock = timebase_of(run, trace.clock, trace.rail.name)
    at_s = (held[:, 1] - run.start.t0_ns) * 1e-9
    delay_s = at_s - clock.seconds(trace.end_tick[held[:, 0] - 1])
    ends_s = clock.seconds(trace.end_tick[[0, -1]])
    period_s = float(ends_s[1] - ends_s[0]) / (len(trace.value) - 1)
    early_s = CERTAINTY * max(clock.sigma_at(t) for t in (at_s[0], at_s[-1])) + 2.0 * period_s
    batch_s = period_s * float(np.median(np.diff(arrivals[:, 0], prepend=0)))
    change_s, allowed_s = _change_s(at_s, delay_s, batch_s, clock)
    allowed_s += 2.0 * period_s
    if float(delay_s.min()) < -early_s:
        found = f"{delay_s.min():.3g} s after they were taken"
        yield Check(f"readings of rail {trace.rail.name} arrive", found, f"at least {-early_s:.3g} s", False)
    elif abs(change_s) > allowed_s:
        rule = f"change of the delay of readings of rail {trace.rail.name} during the run"
        yield Check(rule, f"{change_s:+.3g} s in {at_s[-1] - at_s[0]:.3g} s", f"at most {allowed_s:.3g} s", False)


def _change_s(at_s: Floats, delay_s: Floats, batch_s: float, clock: Timebase) -> tuple[float, float]:
    """By how much delays in the last third of the run all differ from the usual one in the first, and what may be.

    The delay includes the age of the last reading of a batch, which may grow from nothing to the length of a batch.
    """
    if len(at_s) < LEAST:
        return 0.0, np.inf
    third = len(at_s) // 3
    first, last = delay_s[:third], delay_s[-third:]
    later = float(last.min() - np.median(first))
    sooner = float(first.min() - np.median(last))
    age_s, apart_s = (_spread_s(np.diff(t)) for t in (delay_s, at_s))
    if age_s > FOLLOWS * apart_s:  # the next readings come when a batch is full, whenever the host asks
        age_s = max(age_s, batch_s)
    allowed_s = 2.0 * age_s + CERTAINTY * clock.rate_sigma * float(at_s[-1] - at_s[0])
    return max(later, 0.0) - max(sooner, 0.0), allowed_s


def _spread_s(steps_s: Floats) -> float:
    return float(np.quantile(np.abs(steps_s - np.median(steps_s)), USUAL))
