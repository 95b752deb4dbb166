"""Convert a trace to readings: watts on the run's time axis, with validity and length of each.

If a rail of amperes names a rail of volts (``Conversion.supply_rail``), its power is ``i * v - i**2 * r``, reading by
reading. The volts are taken as constant over an aperture and as a straight line between readings.
"""

import math
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rig.analysis.result.quantity import coverage_factor
from rig.analysis.timing.activity_signal import SETTLE_TAU, count_before, inside, margin_s, merged, touches
from rig.analysis.timing.profile import ends_of
from rig.analysis.timing.timebase import Timebase
from rig.errors import DataError
from rig.recording.traces.conversion import PLAUSIBLE, to_watts
from rig.recording.traces.traces import Trace
from rig.types import Bools, Floats, Indices, Rail

EVEN = 5e-4
"""Readings are steady if times between them, and their lengths, vary by at most this part."""
FARTHEST = 2.5
"""Volts are known if one of their readings begins at most this many periods before, and one ends as soon after."""


class Volts(Struct, frozen=True):
    """The readings of a rail of volts on the run's axis, shapes (n,)."""

    rail: Rail
    start_s: Floats
    end_s: Floats
    value: Floats
    ok: Bools
    overload: Bools


class Sag(Struct, frozen=True):
    """The resistance of a supply with its standard uncertainty, in ohms, fitted to readings of volts and amperes.

    ``lever`` is watts per ohm in each reading, shape (n,).
    """

    ohm: float
    ohm_u: float
    lever: Floats


class Supply(Struct, frozen=True):
    """Amperes and volts of a rail of amperes, reading by reading, shapes (n,); ``rail`` is the rail of the volts.

    ``window_s`` is the length of one reading of the volts. ``burden_ohm`` is the shunt between volts and device.
    ``sag`` says how the volts follow the amperes inside a volts reading that is as long as several ampere readings.
    """

    rail: Rail
    amperes: Floats
    volts: Floats
    window_s: float
    burden_ohm: float
    sag: Sag | None = None

    def slope(self) -> Floats:
        """Return watts per ampere, shape (n,)."""
        return np.asarray(self.volts - 2.0 * self.amperes * self.burden_ohm)


class Pool(Struct, frozen=True):
    """The single readings behind each reading of a long trace, which is their mean; shapes (n,).

    ``of`` is the number of single readings, and ``many`` the number of valid ones among them. ``weight`` is the length
    of these valid ones divided by ``aperture_s``, the length of one reading.
    """

    of: Floats
    many: Floats
    weight: Floats
    aperture_s: float


class Readings(Struct, frozen=True, dict=True):
    """One rail in watts on the run's axis, shapes (n,).

    ``ok`` is False where a reading is not a number. ``overload`` is True where a reading is only a lower bound. A
    reading of a long trace is the mean of successive ones (``pool``); ``period_s`` and ``aperture_s`` are always those
    of single readings.
    """

    rail: Rail
    start_s: Floats
    end_s: Floats
    watts: Floats
    raw: Floats
    ok: Bools
    overload: Bools
    period_s: float
    tau_s: float
    counter: bool = False
    """Whether each reading is the mean between two values of a counter.

    The errors of these values are then shared with the neighbouring readings.
    """
    step_j: float = 0.0
    """The step of a counter in joules; 0 if it is not stated."""
    supply: Supply | None = None
    """For a rail of amperes: the volts that were measured beside it."""
    idle_bias_w: float = 0.0
    """Possible error of idle power in watts, because the meter cuts off noise at the low end of its range."""
    pool: Pool | None = None
    """For a long trace: the single readings behind each; None if each is a single reading."""

    @cached_property
    def aperture_s(self) -> float:
        """Return the median length of a single reading, 0 without readings."""
        if self.pool is not None:
            return self.pool.aperture_s
        return float(np.median(self.end_s - self.start_s)) if len(self.end_s) else 0.0

    @property
    def watts_per_raw(self) -> float:
        """Return the watts per unit of a reading, by mean volts, without the drop of a shunt."""
        if self.supply is not None:
            return abs(float(np.mean(self.supply.volts[self.ok])))
        conversion = self.rail.conversion
        return conversion.supply_v if conversion.unit == "A" and conversion.supply_v else 1.0

    @property
    def inferred(self) -> bool:
        """Return whether the filter was found in the readings and is not declared."""
        return self.tau_s > self.rail.filter_tau_s

    @property
    def many(self) -> Floats:
        """Return the number of valid single readings behind each reading, shape (n,)."""
        return np.ones(len(self.watts)) if self.pool is None else self.pool.many

    def count(self, which: Bools) -> int:
        """Return the number of single readings behind the readings marked by ``which``, shape (n,)."""
        return int(np.count_nonzero(which)) if self.pool is None else round(float(self.pool.many[which].sum()))

    def pace(self) -> Floats:
        """Return the number of periods from each reading to the next: 1 if none is missing, even if lengths differ."""
        dead_s = self.period_s - self.aperture_s
        return np.asarray(1.0 + (self.start_s[1:] - self.end_s[:-1] - dead_s) / self.period_s)

    @cached_property
    def steady(self) -> bool:
        """Return whether readings are single, all numbers, and equally long and one period apart within ``EVEN``."""
        parts = (np.diff(self.start_s), self.period_s), (self.end_s - self.start_s, self.aperture_s)
        even = all(np.all(np.abs(x - of) <= EVEN * of) for x, of in parts)
        return even and self.pool is None and bool(self.ok.all())

    def adjacent(self) -> Bools:
        """Return which readings follow the one before without a pause, shape (n - 1,)."""
        return np.asarray(self.pace() < 1.5)


def volts_of(trace: Trace, timebase: Timebase) -> Volts:
    """Return a trace on the run's axis, in its own unit; a trace of volts needs no further conversion."""
    start, end = timebase.seconds(trace.start_tick), timebase.seconds(trace.end_tick)
    start = end if trace.rail.kind == "point" else start
    over = trace.overload | (trace.value >= trace.rail.range_max if trace.rail.range_max is not None else False)
    return Volts(trace.rail, start, end, trace.value, numbers(trace.value), over)


def readings_of(trace: Trace, timebase: Timebase, volts: Volts | None = None) -> Readings:
    """Return a trace in watts on the run's axis; a cumulative counter becomes the means between its readings.

    ``volts`` are from the rail that its conversion names as ``supply_rail``. Raises ``DataError`` for a counter
    that wrapped or was reset, for readings that are not in order of time, and for a supply without volts.
    """
    rail, c = trace.rail, trace.rail.conversion
    own = volts_of(trace, timebase)
    start, end, raw, ok, overload = own.start_s, own.end_s, own.value, own.ok, own.overload
    counter = rail.kind == "cumulative"
    if counter:
        start, end = end[:-1], end[1:]
        raw, ok, overload = _rate_of(trace, ok, end - start), ok[1:] & ok[:-1], overload[1:]
    elif ends := ends_of(raw):
        overload = overload | np.isin(raw, ends)
    in_order(rail.name, start)
    if not np.all(lasting := end > start) and np.any(lasting):
        ok = ok & lasting  # a reading of no length has no mean
    supply, v = None, None
    if volts is not None:
        v, known, over = mean_volts(volts, start, end)
        ok, overload = ok & known, overload | over
        v, sag = sagging(volts, v, Volts(rail, start, end, raw, ok, overload))
        window_s = float(np.median(volts.end_s - volts.start_s))
        supply = Supply(volts.rail, np.where(ok, raw, 0.0), np.where(ok, v, 0.0), window_s, c.burden_ohm, sag)
    return Readings(
        rail=rail,
        start_s=start,
        end_s=end,
        watts=to_watts(raw if ok.all() else np.where(ok, raw, 0.0), c, v),
        raw=raw,
        ok=ok,
        overload=overload,
        period_s=_period_s(rail, start, timebase),
        tau_s=rail.filter_tau_s,
        counter=counter,
        step_j=(rail.resolution or 0.0) if counter else 0.0,
        supply=supply,
    )


def _period_s(rail: Rail, start_s: Floats, timebase: Timebase) -> float:
    """Return the time between readings; a counter that is polled has no fixed rate."""
    if rail.rate_hz > 0 and rail.kind != "cumulative":
        return timebase.rate / rail.rate_hz
    return float(np.median(np.diff(start_s))) if len(start_s) > 1 else 0.0


def numbers(values: Floats) -> Bools:
    """Return which readings are numbers that an instrument can deliver; shape (n,)."""
    return np.asarray(np.abs(values) <= PLAUSIBLE)


def _rate_of(trace: Trace, ok: Bools, length_s: Floats) -> Floats:
    """Return the mean rate of a counter between its readings, shape (n - 1,)."""
    held = trace.value[ok]
    if len(held) > 1 and float(np.max(-np.diff(held))) > 0.5 * float(np.ptp(held)) > 0.0:
        what = f"the counter of rail {trace.rail.name} falls back: it wrapped or was reset"
        remedy = "Unwrap it before it is written, or record it as means"
        raise DataError(what, field="value", value=trace.rail.name, remedy=remedy)
    rise = np.diff(np.where(ok, trace.value, 0.0))
    return np.asarray(rise / np.where(length_s > 0, length_s, np.inf))


def in_order(rail: str, start_s: Floats, before_s: float = -np.inf) -> None:
    """Raise ``DataError`` unless successive readings begin one after another, and after ``before_s``."""
    if len(start_s) and (start_s[0] <= before_s or np.any(np.diff(start_s) <= 0.0)):
        what = f"the readings of rail {rail} do not move forward in time"
        remedy = "Check the trace for wrapped or repeated time stamps"
        raise DataError(what, field="start_tick", value=rail, remedy=remedy)


# ---- which readings show idle, and which the gaps between spans ------------------------------


def idle_window_of(r: Readings, idle_s: Floats, busy_s: Floats, sigma_s: float, host_sigma_s: float) -> Indices:
    """Return the index of the idle window that wholly holds each reading.

    It is -1 if none does, if activity may reach the reading, or if the reading is not a number.
    """
    quiet = idle_s + np.array([2.0 * host_sigma_s + SETTLE_TAU * r.tau_s, -2.0 * host_sigma_s])
    quiet = merged(quiet[quiet[:, 1] > quiet[:, 0]])
    where = inside(quiet, r.start_s, r.end_s)
    guard = merged(busy_s + margin_s(sigma_s, r.tau_s))
    where[~r.ok | touches(guard, r.start_s, r.end_s)] = -1
    return where


def gap_of(r: Readings, spans_s: Floats, sigma_s: float, where: Indices) -> Indices:
    """Return the gap between sorted spans that holds each reading, or -1; ``where`` is from ``idle_window_of``."""
    guard = merged(spans_s + margin_s(sigma_s, r.tau_s))
    between = (r.start_s > spans_s[0, 0]) & (r.end_s < spans_s[-1, 1]) & r.ok & (where < 0)
    between &= ~touches(guard, r.start_s, r.end_s)
    return np.where(between, count_before(spans_s[:, 0], r.start_s), -1)


# ---- the volts of a supply at each reading of its amperes ------------------------------------


def mean_volts(v: Volts, start_s: Floats, end_s: Floats) -> tuple[Floats, Bools, Bools]:
    """Return for each interval the mean volts, whether they are known, and whether any of them is an overload.

    The results have the shape of ``start_s``. Raises ``DataError`` if there is no reading of the volts.
    """
    good = np.flatnonzero(v.ok & (v.value != 0.0))  # a volt meter that reads exactly zero did not read
    if not len(good):
        remedy = "Check the meter on the supply, or state the voltage (supply_v)"
        raise DataError(f"rail {v.rail.name} holds no volts", field="supply_rail", value=v.rail.name, remedy=remedy)
    on, off, value = v.start_s[good], v.end_s[good], v.value[good]
    at = np.column_stack([on, off]).ravel()
    level = np.repeat(value, 2)
    sums = np.concatenate([[0.0], np.cumsum(0.5 * (level[1:] + level[:-1]) * np.diff(at))])

    def area(t: Floats) -> Floats:
        """Return the integral of the line through the knots; beyond its ends the line stays level."""
        k = np.clip(np.searchsorted(at, t, side="right") - 1, 0, None)
        return np.asarray(sums[k] + 0.5 * (t - at[k]) * (level[k] + np.interp(t, at, level)))

    length = end_s - start_s
    mean = (area(end_s) - area(start_s)) / np.where(length > 0, length, 1.0)
    volts = np.where(length > 0, mean, np.interp(start_s, at, level))
    period_s = float(np.median(np.diff(off))) if len(off) > 1 else 0.0
    reach_s = max(FARTHEST * period_s, float(np.max(off - on)))
    before = np.clip(np.searchsorted(on, start_s, side="right") - 1, 0, len(on) - 1)
    after = np.clip(np.searchsorted(off, end_s, side="left"), 0, len(off) - 1)
    near = (np.abs(on[before] - start_s) <= reach_s) & (np.abs(off[after] - end_s) <= reach_s)
    over = np.concatenate([[0], np.cumsum(v.overload)])
    first = np.searchsorted(v.end_s, start_s, side="right")
    last = np.maximum(np.searchsorted(v.start_s, end_s, side="left"), first)
    return volts, near, over[last] > over[first]


def sagging(v: Volts, volts: Floats, amperes: Volts, known: Sag | None = None) -> tuple[Floats, Sag | None]:
    """Return volts that follow the amperes within each reading of the volts.

    ``volts`` are from ``mean_volts``, shape (n,), and ``amperes`` the readings of the current. The resistance of
    the supply is the ``known`` one, or else the slope of volts over the mean current of the same aperture, fitted
    together with a straight line over time.
    """
    length_s = float(np.median(amperes.end_s - amperes.start_s)) if len(volts) else 0.0
    if length_s <= 0.0 or np.array_equal(v.start_s, amperes.start_s):
        return volts, None
    seen, shown, _ = mean_volts(amperes, v.start_s, v.end_s)
    sag = known if known is not None else _sag(v, amperes, seen, shown)
    if sag is None:
        return volts, None
    over, _, _ = mean_volts(replace(v, value=seen, ok=v.ok & shown), amperes.start_s, amperes.end_s)
    above = np.where(amperes.ok, amperes.value - over, 0.0)
    return volts - sag.ohm * above, replace(sag, lever=-above * amperes.value)


def _sag(v: Volts, amperes: Volts, seen: Floats, shown: Bools) -> Sag | None:
    """Return the resistance that volts show, or None; ``seen`` are mean amperes in each reading, where ``shown``."""
    use = shown & v.ok & (v.start_s >= amperes.start_s[0]) & (v.end_s <= amperes.end_s[-1])
    count = int(np.count_nonzero(use))
    if count < 2 or not np.ptp(seen[use]) > 0.0:
        return None
    t = v.start_s[use] - v.start_s[use].mean()
    design = np.column_stack([seen[use] - seen[use].mean(), np.ones(count), t / max(float(np.ptp(t)), 1e-300)])
    design = design[:, : 3 if count > 3 else 2]
    inverse = np.linalg.pinv(design)
    solution = inverse @ v.value[use]
    left, dof = v.value[use] - design @ solution, count - design.shape[1]
    u = abs(float(solution[0])) / math.sqrt(3.0)  # the difference of two readings may also be a drift
    if dof:
        scatter = float(np.linalg.norm(left) * np.linalg.norm(inverse[0])) / math.sqrt(dof)
        u = scatter * coverage_factor(dof) / coverage_factor(math.inf)
    return Sag(-float(solution[0]), u, np.zeros(0))
