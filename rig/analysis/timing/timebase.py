"""Map a clock's ticks to seconds of the run, with an uncertainty, by a fit to readings of the clock (brackets)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from rig.types import Bracket, ClockInfo, Floats

SURE, CERTAIN = 3.0, 5.0
"""Chance is ruled out for one value beyond ``SURE`` sigmas, and for the worst of many beyond ``CERTAIN`` sigmas."""
RECTANGLE = math.sqrt(12.0)
"""A rectangular distribution is this many standard deviations wide."""
ERAS = 24
"""Quick round trips are chosen in each of this many parts of the run, so that the slope is fitted over the whole
run."""
RATE_PER_BEND = 4.0
"""If the host's clock deviates from a line, the mean rate is off by at most this times the range of the deviations,
divided by the duration.

A step causes at most half of this error. A change of rate in the middle half of the run causes at most all of it.
"""
STRETCHES = 12
"""A trace is cut into this many stretches. The earliest arrival in each bounds when readings were taken."""


class Timebase(Struct, frozen=True):
    """The map ``seconds = ref_s + rate * (tick - ref_tick) / tick_hz``, in seconds since the run's start.

    ``sigma_s`` is the standard uncertainty of the offset at ``ref_s``, ``rate_sigma`` that of ``rate``. The
    map of a meter has sigmas against the device's clock once it is aligned. If spans are marked on a pin,
    ``look_s`` is the sampling interval of the pin, and ``lag_s`` the most that the pin lags or leads.
    """

    clock: ClockInfo
    ref_tick: int
    ref_s: float
    rate: float
    sigma_s: float
    rate_sigma: float
    method: str
    brackets: int = 0
    considered: Mapping[str, float] = field(default_factory=dict)
    look_s: float = 0.0
    lag_s: float = 0.0

    @property
    def step_s(self) -> float:
        """Return the shortest time between two stamps that the clock can resolve."""
        return self.look_s or 1.0 / self.clock.tick_hz

    def seconds(self, ticks: Floats | NDArray[np.int64]) -> Floats:
        """Return run seconds of ticks as float64 of the same shape, without rounding of integer ticks."""
        since: Floats = np.asarray(ticks - self.ref_tick, dtype=np.float64)
        return self.ref_s + since * (self.rate / self.clock.tick_hz)

    def residuals(self, brackets: Sequence[Bracket], t0_ns: int) -> Floats:
        """Return for each reading of the clock its time, its difference from this map, and half its round trip.

        The shape is (k, 3), all in seconds.
        """
        middle_s, half_s = _round_trips(brackets, t0_ns)
        ticks = np.array([b.tick for b in brackets], dtype=np.int64)
        return np.column_stack([middle_s, middle_s - self.seconds(ticks), half_s])

    def sigma_at(self, t_s: float) -> float:
        """Return the standard uncertainty of the map at a moment of the run."""
        return math.hypot(self.sigma_s, self.rate_sigma * (t_s - self.ref_s))

    def most_sigma(self, t_s: Floats) -> float:
        """Return the largest standard uncertainty of the map from the first of these moments to the last."""
        return max(self.sigma_at(float(t)) for t in ((t_s.min(), t_s.max()) if t_s.size else (self.ref_s,)))

    def adjusted(self, by_s: float, rate_by: float, sigma_s: float, rate_sigma: float, method: str) -> Timebase:
        """Return the same map, moved by ``by_s`` at ``ref_s`` and stretched by ``1 + rate_by``."""
        ref_s, rate = self.ref_s + by_s, self.rate * (1.0 + rate_by)
        return replace(self, ref_s=ref_s, rate=rate, sigma_s=sigma_s, rate_sigma=rate_sigma, method=method)


def host_timebase(t0_ns: int) -> Timebase:
    """Return the timebase of the host's own clock, which is exact by definition."""
    return Timebase(ClockInfo("host", 1e9, 0.0), t0_ns, 0.0, 1.0, 0.0, 0.0, "host clock")


def fit_brackets(
    clock: ClockInfo, brackets: Sequence[Bracket], t0_ns: int, arrivals: Floats | None = None, bend_s: float = 0.0
) -> Timebase:
    """Fit the middles of the quickest round trips to the ticks by regression.

    The clock may have been read at any moment of its round trip. So half of the shortest round trip, as a rectangular
    distribution, is part of sigma: an asymmetric link shifts every middle by the same time, and no repetition shows
    this. ``arrivals``, shape (k, 2), hold the tick of the latest reading, and when the host had received it, in run
    seconds. They bound the rate of a clock that was read only once. ``bend_s`` is the correction of the host's clock
    during the run.

    Raises ``ValueError`` if there is no bracket.
    """
    if not brackets:
        raise ValueError(f"clock {clock.name} was never read")
    base_tick = brackets[0].tick
    x, y, h = quick_reads(clock, brackets, t0_ns).T
    floor = float(h.min()) / math.sqrt(3.0)
    resolution = 0.5 / clock.tick_hz
    rate, rate_sigma, scatter = _slope(x, y, h, clock, bend_s)
    if len(brackets) == 1 and arrivals is not None and len(arrivals) >= 3:
        rate, rate_sigma = _rate_of_arrivals(arrivals, base_tick, clock)
    weight = 1.0 / np.maximum(h, 1e-12) ** 2
    x_mean, y_mean = float(np.average(x, weights=weight)), float(np.average(y, weights=weight))
    ref = round(x_mean * clock.tick_hz)
    sigma = math.sqrt(floor**2 + scatter**2 / len(x) + resolution**2)
    return Timebase(
        clock=clock,
        ref_tick=base_tick + ref,
        ref_s=y_mean + rate * (ref / clock.tick_hz - x_mean),
        rate=rate,
        sigma_s=sigma,
        rate_sigma=rate_sigma,
        method="brackets",
        brackets=len(brackets),
        considered={"brackets": sigma},
    )


def quick_reads(clock: ClockInfo, brackets: Sequence[Bracket], t0_ns: int) -> Floats:
    """Return each quick reading's seconds since the clock's first reading, and middle and half of its round trip.

    The shape is (k, 3), in order of the middles. Seconds of the clock are nominal; round trips are in run seconds.
    """
    middle, half = _round_trips(brackets, t0_ns)
    seconds = np.array([b.tick - brackets[0].tick for b in brackets], dtype=float) / clock.tick_hz
    quick = _quickest(middle, half)
    return np.column_stack([seconds, middle, half])[quick[np.argsort(middle[quick], kind="stable")]]


def off_line(reads: Floats) -> Floats:
    """Return the middles of ``quick_reads`` minus a straight line over the ticks, in seconds, shape (k,).

    All are 0 if each is as close to the line as its round trip allows.
    """
    if len(reads) < 3 or np.ptp(reads[:, 0]) <= 0.0:
        return np.zeros(len(reads))
    off = reads[:, 1] - np.polyval(np.polyfit(reads[:, 0], reads[:, 1], 1), reads[:, 0])
    return np.asarray(off if np.any(np.abs(off) > reads[:, 2]) else 0.0 * off)


def _round_trips(brackets: Sequence[Bracket], t0_ns: int) -> tuple[Floats, Floats]:
    """Return middles and halves of the round trips, in seconds of the run, shapes (k,)."""
    rows = np.array([(b.before_ns - t0_ns, b.after_ns - t0_ns) for b in brackets], dtype=float).reshape(-1, 2) * 1e-9
    return rows.mean(axis=1), 0.5 * (rows[:, 1] - rows[:, 0])


def _quickest(middle: Floats, half: Floats) -> NDArray[np.int64]:
    """Return indices of the quickest tenth of round trips in each part of the run.

    If more than two are chosen, those longer than three times the shortest are left out.
    """
    span = middle.max() - middle.min()
    era = np.zeros(len(middle), int) if span <= 0 else ((middle - middle.min()) / span * (ERAS - 1e-9)).astype(int)
    chosen: list[int] = []
    for number in np.unique(era):
        members = np.flatnonzero(era == number)
        keep = max(1, round(0.1 * len(members)))
        chosen.extend(members[np.argsort(half[members], kind="stable")[:keep]].tolist())
    picked = np.array(sorted(chosen))
    return picked[half[picked] <= 3.0 * half.min() + 1e-9] if len(picked) > 2 else picked


def _slope(x: Floats, y: Floats, half: Floats, clock: ClockInfo, bend_s: float) -> tuple[float, float, float]:
    """Return the weighted slope, its sigma, and the scatter about the line.

    The slope is nominal, with the clock's tolerance as its limit, if the readings do not determine it better.
    """
    nominal_sigma = clock.tolerance / math.sqrt(3.0)
    if len(x) < 2 or np.ptp(x) <= 0:
        return 1.0, nominal_sigma, 0.0
    weight = 1.0 / np.maximum(half, 1e-9) ** 2
    mean = np.average(x, weights=weight)
    sxx = float(np.sum(weight * (x - mean) ** 2))
    rate = float(np.sum(weight * (x - mean) * (y - np.average(y, weights=weight))) / sxx)
    residual = y - np.average(y, weights=weight) - rate * (x - mean)
    # the excess of a round trip over the shortest may all lie on one side
    spare = (half - half.min()) / math.sqrt(3.0)
    excess = np.hypot(spare, 1e-9)
    if len(x) > 2:
        scatter = math.sqrt(float(np.sum(weight * residual**2) / np.sum(weight)) * len(x) / (len(x) - 2))
    else:
        # two readings do not show at which moments of their round trips the clock was read
        scatter, excess = float(excess.max()), half / math.sqrt(3.0)
    sigma = math.sqrt(float(np.sum((weight * (x - mean)) ** 2 * np.maximum(excess, scatter) ** 2))) / sxx
    # readings at one moment have the same rounding to a tick, which is rectangular at each end of the run
    ends_s = math.sqrt(2.0) / RECTANGLE / clock.tick_hz
    sigma = max(sigma, max(RATE_PER_BEND * bend_s, ends_s) / float(np.ptp(x)))
    if sigma > nominal_sigma:
        return 1.0, nominal_sigma, scatter
    return rate, sigma, scatter


def _rate_of_arrivals(arrivals: Floats, base_tick: int, clock: ClockInfo) -> tuple[float, float]:
    """Return rate and sigma from the earliest arrivals relative to nominal times; no reading arrives before it ends."""
    nominal = (arrivals[:, 0] - base_tick) / clock.tick_hz
    lag = arrivals[:, 1] - nominal
    fallback = clock.tolerance / math.sqrt(3.0)
    if len(lag) < 4 or np.ptp(nominal) <= 0:
        return 1.0, fallback
    line, best = earliest(nominal, lag)
    x, residual = nominal[best], lag[best] - np.polyval(line, nominal[best])
    sigma = float(np.sqrt(np.mean(residual**2)) / (np.std(x) * math.sqrt(len(x) - 2)))
    return (1.0, fallback) if sigma > fallback else (1.0 + float(line[0]), 2.0 * sigma)


def earliest(at: Floats, late: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Return the straight line, slope first, through the earliest arrivals, and the indices of these arrivals.

    No reading arrives before it was taken. So the earliest arrival of each stretch shows when readings were taken,
    except for a delay common to all. ``at`` and ``late`` have the shape (n,), and ``at`` rises.
    """
    stretches = np.array_split(np.arange(len(late)), min(STRETCHES, len(late)))
    first = np.array([part[np.argmin(late[part])] for part in stretches])
    return np.polyfit(at[first], late[first], 1), first
