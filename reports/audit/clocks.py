"""Fit each clock as a straight line through two points: the means of the quickest readings in each half of the run.

If the points do not determine the rate, the line has the declared rate.
"""

from dataclasses import dataclass

import numpy as np

from reports.audit.folder.reading import REMEDY, Run, refuse
from rig.types import Floats, Indices

QUICKEST = 0.1
BROKEN_OFF = "The run was broken off before; `rig report` says why. Measure again"


@dataclass(frozen=True)
class Line:
    """Converts ticks to seconds of the run: ``at_s + s_per_tick * (tick - origin)``."""

    origin: int
    at_s: float
    s_per_tick: float
    bound_s: float
    """The largest shift of the whole line: half of the longest of the quickest round trips."""
    rate_bound: float
    """The largest relative error of the rate."""
    tolerance: float
    read_s: Floats
    """The moments at which the clock was read, float64 of shape (k,), in order."""

    def seconds(self, tick: Indices) -> Floats:
        """Return the seconds of the run (float64) at whole ticks (int64)."""
        return self.at_s + self.s_per_tick * np.asarray(tick - self.origin, dtype=np.float64)

    def wander_s(self, at_s: Floats) -> Floats:
        """Return how far the tolerance of the clock lets it wander between two readings of it, at these moments."""
        if not self.tolerance:
            return np.zeros_like(at_s)
        after, last = np.searchsorted(self.read_s, at_s), len(self.read_s) - 1
        apart_s = [np.abs(at_s - self.read_s[np.clip(after - k, 0, last)]) for k in (0, 1)]
        return np.asarray(self.tolerance * np.minimum(*apart_s))


def line(run: Run, name: str | None) -> Line:
    """Fit the line of a clock. ``None`` and ``host`` name the clock of the host, which counts ns.

    Raises ``StoreError`` if the clock is not declared, was never read, or has a bracket that ends before it begins.
    """
    t0 = int(run.start["t0_ns"])
    if name in (None, "host"):
        return Line(t0, 0.0, 1e-9, 0.0, 0.0, 0.0, np.empty(0))
    declared = next((c for c in run.start["clocks"] if c["name"] == name), None)
    rows = run.brackets.get(str(name))
    if declared is None:
        refuse(f"the clock {name!r}", "is not declared")
    if rows is None or not len(rows):
        refuse(f"the clock {name!r}", "was never read", remedy=REMEDY if run.ended else BROKEN_OFF)
    rows = rows[np.argsort(rows[:, 1], kind="stable")]
    trip = (rows[:, 2] - rows[:, 0]).astype(np.float64) * 1e-9 + 1e-9  # stamps are whole ns: a trip may last 1 ns more
    if np.any(trip <= 0):
        refuse(f"the clock {name!r}", "was read in a bracket that ends before it begins")
    middle = ((rows[:, 0] - t0) + (rows[:, 2] - t0)).astype(np.float64) * 0.5e-9
    origin = int(rows[0, 1])
    tick = (rows[:, 1] - origin).astype(np.float64)
    early = tick <= (tick[0] + tick[-1]) / 2
    ends = [_quickest(trip, middle, tick, half) for half in (early, ~early) if half.any()]
    nominal, tolerance = 1.0 / declared["tick_hz"], declared.get("tolerance", 1e-3)
    bound = max(e[2] for e in ends) / 2
    if len(ends) == 2:
        (t1, m1, trip1), (t2, m2, trip2) = ends
        rate_bound = ((trip1 + trip2) / 2 + nominal) / (m2 - m1) if m2 > m1 else np.inf
        if rate_bound <= tolerance and t2 > t1:
            slope = (m2 - m1) / (t2 - t1)
            return Line(origin, m1 - slope * t1, slope, bound, rate_bound, tolerance, np.sort(middle))
    t, m, _ = (np.mean([e[k] for e in ends]) for k in range(3))
    return Line(origin, float(m - nominal * t), nominal, bound, tolerance, tolerance, np.sort(middle))


def _quickest(trip: Floats, middle: Floats, tick: Floats, half: Floats) -> tuple[float, float, float]:
    """Return mean tick, mean middle and longest round trip of the quickest tenth of the readings in one half."""
    places = np.flatnonzero(half)
    places = places[np.argsort(trip[places], kind="stable")][: max(1, round(QUICKEST * len(places)))]
    return float(tick[places].mean()), float(middle[places].mean()), float(trip[places].max())
