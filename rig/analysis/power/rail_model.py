"""What the estimators share about one rail: its idle, its noise, and how far its idle may be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.power.counter import Counted, Jitter
from rig.analysis.power.counter import estimate as estimate_counter
from rig.analysis.power.counter import variances as counter_variances
from rig.analysis.power.noise import Noise, variances
from rig.analysis.power.noise import estimate as estimate_noise
from rig.analysis.timing.activity_signal import SETTLE_TAU, edges_of, inside, merged, reach, seen, touches
from rig.analysis.timing.timeline import Activity, Readings
from rig.types import Bools, Floats, Indices

BEND_PRIOR = 0.12


@dataclass(frozen=True)
class View:
    """One rail with everything the estimators share. Arrays have the shape of the readings, (n,).

    ``sigma_s`` is the doubt between the meter's and the device's clock, ``idle`` marks the readings of
    the idle windows, ``other_s`` the windows of activity that does not count, ``noise`` the meter's.
    """

    readings: Readings
    clock: str
    sigma_s: float
    idle: Bools
    middle_s: Floats
    weight: Floats
    all_busy_s: Floats
    busy: Bools
    held: Bools
    noise: Noise
    drift_w: float
    drift_u_w: float
    bend_w: float
    """What a bent instead of a straight drift of idle may add to dynamic power; see ``_bend``."""
    jitter: Jitter | None = None
    """Of a counter's readings; None for a rail that is not cumulative."""
    at_looks: Floats | None = None
    """Of a counter: how busy the device was when it was read, 0 to 1, shape (n + 1,)."""

    def variances(self, weight: Floats) -> dict[str, float]:
        """Variance of ``sum(weight * watts)`` by source; ``weight`` has shape (n,)."""
        found = variances(self.noise, weight, self.middle_s, self.busy)
        if self.jitter is None or self.at_looks is None:
            return found
        length = self.readings.end_s - self.readings.start_s
        return found | counter_variances(self.jitter, weight, length, self.at_looks)

    def reading_u_w(self, busy: bool) -> float:
        """Standard deviation of one reading by noise, in watts."""
        own = self.noise.busy_w if busy else self.noise.white_w
        return own if self.jitter is None else math.hypot(own, self.jitter.watts(self.noise.period_s, busy))

    def idle_weights(self, at_s: float) -> Floats:
        """Weights whose sum with the readings is the idle level at a moment: a straight line fit."""
        g = np.where(self.idle, self.weight, 0.0)
        total = g.sum()
        mean = float(np.sum(g * self.middle_s) / total)
        lever = self.middle_s - mean
        square = lever**2
        square *= g
        sxx = float(np.sum(square))
        if self.drift_u_w == math.inf or sxx <= 0:
            return np.asarray(g / total)
        # g / total + g * lever * ((at_s - mean) / sxx), without five arrays more
        lever *= g
        lever *= (at_s - mean) / sxx
        g /= total
        g += lever
        return g


def view_of(readings: Readings, activity: Activity, clock: str, sigma_s: float, idle_sigma_s: float) -> View | None:
    """Prepare a rail, or None when no reading lies in an idle window.

    ``clock`` names the meter's; ``idle_sigma_s`` is the doubt between it and the host's clock, which placed
    the idle windows.
    """
    r = readings
    settle = SETTLE_TAU * r.tau_s
    everything = np.concatenate([activity.busy_windows_s(), activity.excluded_s()])
    busy_s = merged(everything)
    guard = merged(everything + reach(sigma_s, r.tau_s))
    quiet = activity.idle_s + np.array([2.0 * idle_sigma_s + settle, -2.0 * idle_sigma_s])
    quiet = merged(quiet[quiet[:, 1] > quiet[:, 0]])
    where = inside(quiet, r.start_s, r.end_s)
    idle = (where >= 0) & r.ok & ~touches(guard, r.start_s, r.end_s)
    if np.count_nonzero(idle) < 2:
        return None
    length = r.end_s - r.start_s
    # between two readings of a counter, what it counted is what counts
    uneven = r.counter or (len(length) > 1 and float(length.max()) > 1.5 * float(length.min()))
    # the same number for all is not written down for each
    even = not uneven and bool(r.ok.all())
    weight = np.broadcast_to(1.0, len(length)) if even else np.where(r.ok, length if uneven else 1.0, 0.0)
    del length
    middle = 0.5 * (r.start_s + r.end_s)
    drift, drift_u = _counted_drift(r, idle, where) if r.counter else _drift(r.watts, idle, where, middle)
    held = inside(busy_s, r.start_s, r.end_s)
    residual = r.watts - idle_line(r, middle, idle, drift_u)
    fill = seen(edges_of(busy_s), r.start_s, r.end_s, r.tau_s)
    level = _level(residual, fill, weight if r.counter else r.ok.astype(float))
    slow = _slow(r, _left(r, residual, fill, level), busy_s)
    noise, jitter = _noise(r, residual, idle, where, held, slow)
    steady = held >= 0
    del held
    view = View(
        readings=r,
        clock=clock,
        sigma_s=sigma_s,
        idle=idle,
        middle_s=middle,
        weight=weight,
        all_busy_s=busy_s,
        busy=touches(busy_s, r.start_s, r.end_s),
        held=steady,
        noise=noise,
        drift_w=drift,
        drift_u_w=drift_u,
        bend_w=0.0,
        jitter=jitter,
        at_looks=_at_looks(r, busy_s) if r.counter else None,
    )
    bend_w = _bend(view, _left(r, residual, fill, level), fill)
    del fill
    return replace(view, bend_w=math.hypot(bend_w, _unsettled(view, residual, where)))


def _left(r: Readings, residual: Floats, fill: Floats, level: float) -> Floats:
    """What the fitted levels leave; computed twice rather than kept."""
    left = fill * level
    np.subtract(residual, left, out=left)
    left[~r.ok] = 0.0
    return left


def idle_line(r: Readings, middle: Floats, idle: Bools, drift_u: float) -> Floats:
    """The idle level over time."""
    watts, weight = r.watts, (r.end_s - r.start_s)[idle] if r.counter else None
    if not math.isfinite(drift_u):
        return np.full(len(watts), float(np.average(watts[idle], weights=weight)))
    root = None if weight is None else np.sqrt(weight)
    return np.asarray(np.polyval(np.polyfit(middle[idle], watts[idle], 1, w=root), middle))


def _level(residual: Floats, fill: Floats, weight: Floats) -> float:
    used = (weight > 0) & (fill > 0)
    total = float((weight * fill)[used].sum())
    return float((weight * residual)[used].sum()) / total if total > 0 else 0.0


def _drift(watts: Floats, idle: Bools, where: Indices, middle: Floats) -> tuple[float, float]:
    """Change of the idle level from the first window to the last; inf as sigma when there is one."""
    numbers = np.unique(where[idle])
    if len(numbers) < 2:
        return 0.0, math.inf
    parts = [watts[idle & (where == k)] for k in (numbers[0], numbers[-1])]
    u = math.sqrt(sum(float(np.var(p)) / max(len(p), 1) for p in parts))
    return float(parts[1].mean() - parts[0].mean()), u


def _counted_drift(r: Readings, idle: Bools, where: Indices) -> tuple[float, float]:
    """The same for a counter, whose mean over a window is known by the two readings at its ends."""
    numbers = np.unique(where[idle])
    if len(numbers) < 2:
        return 0.0, math.inf
    level, u2 = [], 0.0
    length = r.end_s - r.start_s
    for k in (numbers[0], numbers[-1]):
        at = idle & (where == k)
        total_s = float(length[at].sum())
        level.append(float(r.watts[at] @ length[at]) / total_s)
        u2 += float(np.var(r.watts[at] * length[at])) / total_s**2
    return level[1] - level[0], math.sqrt(u2)


def _slow(r: Readings, left: Floats, busy_s: Floats) -> tuple[Floats, float]:
    """What the fitted levels leave, averaged over at least two spans and the gaps after them.

    Between two readings of a counter nothing is lost at the ends of spans, so that one is enough.
    """
    if len(busy_s) < 2:
        return np.zeros(0), 0.0
    cycle_s = (1.0 if r.counter else 2.0) * float(np.median(np.diff(busy_s[:, 0])))
    bins = int((r.end_s[-1] - r.start_s[0]) / max(cycle_s, 8.0 * r.period_s))
    if bins < 12:
        return np.zeros(0), 0.0
    step_s = (r.end_s[-1] - r.start_s[0]) / bins
    slot = np.clip(((r.start_s - r.start_s[0]) / step_s).astype(np.int64), 0, bins - 1)
    if r.counter:
        share_s = np.where(r.ok, r.end_s - r.start_s, 0.0)
        total_s = np.bincount(slot, weights=share_s, minlength=bins)
        return np.bincount(slot, weights=left * share_s, minlength=bins) / np.maximum(total_s, 1e-300), float(step_s)
    count = np.bincount(slot, minlength=bins)
    return np.bincount(slot, weights=left, minlength=bins) / np.maximum(count, 1), float(step_s)


def _bend(view: View, left: Floats, fill: Floats) -> float:
    """Doubt of dynamic power because idle need not drift along the straight line between its windows.

    If it bends, so does the level of the spans: a parabola through what the fit leaves, vanishing at
    both idle ends, is measured over twelve stretches of the busy time. It is not subtracted (a device
    may really have worked harder in the middle); its size is the standard uncertainty. Where noise hides
    it, 12 % of the drift stands in (an exponential leaves 8 % over its time constant, 20 % over three).
    """
    if not math.isfinite(view.drift_u_w):
        return 0.0
    prior = BEND_PRIOR * max(abs(view.drift_w) - view.drift_u_w, 0.0)
    used = np.flatnonzero((fill > 0.01) & view.readings.ok)  # a filter leaves endless tails
    if prior == 0.0 or len(used) < 24:
        return prior
    t = view.middle_s
    first, last = float(t[view.idle].min()), float(t[view.idle].max())
    t = (t - first) / (last - first)
    parts = np.array_split(used, 12)
    length = view.weight if view.readings.counter else np.ones(len(fill))
    weight = np.array([float((length * fill)[p].sum()) for p in parts])
    level = np.array([float((length * left)[p].sum()) for p in parts]) / weight
    bow = np.array([float(np.mean(t[p] * (t[p] - 1.0))) for p in parts])
    lever = np.array([float(np.mean(t[p])) for p in parts])
    design = np.column_stack([np.ones(12), lever - lever.mean(), bow])
    solution, *_ = np.linalg.lstsq(design, level, rcond=None)
    scatter = float(np.sum((level - design @ solution) ** 2)) / 9.0
    doubt = math.sqrt(max(scatter * float(np.linalg.pinv(design.T @ design)[2, 2]), 0.0))
    mean_bow = abs(float(np.average(bow, weights=weight)))
    seen_w, doubt_w = float(solution[2]) * mean_bow, doubt * mean_bow
    share = prior**2 / (prior**2 + doubt_w**2)
    return math.sqrt((share * seen_w) ** 2 + share * doubt_w**2)


def _unsettled(view: View, residual: Floats, where: Indices) -> float:
    """How far idle next to the activity is from the line, where it is so by more than noise explains."""
    numbers = np.unique(where[view.idle])
    if len(numbers) < 2:
        return 0.0
    first = np.flatnonzero(view.idle & (where == numbers[0]))
    last = np.flatnonzero(view.idle & (where == numbers[-1]))
    near = np.concatenate([first[-max(len(first) // 4, 1) :], last[: max(len(last) // 4, 1)]])
    weight = np.zeros(len(residual))
    weight[near] = view.weight[near] / view.weight[near].sum() if view.readings.counter else 1.0 / len(near)
    off = float(weight @ residual)
    weight = weight - view.idle_weights(float(view.middle_s[near].mean()))
    doubt = math.sqrt(sum(view.variances(weight).values()))
    return abs(off) if abs(off) > 2.5 * doubt else 0.0


def _noise(
    r: Readings, residual: Floats, idle: Bools, where: Indices, held: Indices, slow: tuple[Floats, float]
) -> tuple[Noise, Jitter | None]:
    pair = (held[1:] >= 0) & (held[1:] == held[:-1]) & r.ok[1:] & r.ok[:-1]
    if r.counter:
        return _counted(r, residual, idle, where, pair, slow)
    stretches = []
    for k in np.unique(where[idle]):
        use = idle & (where == k)
        slot = np.round((r.start_s[use] - r.start_s[use][0]) / r.period_s).astype(np.int64)
        grid = np.zeros(slot[-1] + 1)
        grid[slot] = residual[use] - residual[use].mean()
        stretches.append(grid)
    return estimate_noise(stretches, r.period_s, np.diff(r.watts)[pair], *slow), None


def _at_looks(r: Readings, busy_s: Floats) -> Floats:
    at = np.append(r.start_s[0], r.end_s)
    return np.clip(seen(edges_of(busy_s), at, at, r.tau_s), 0.0, 1.0)


def _counted(
    r: Readings, residual: Floats, idle: Bools, where: Indices, pair: Bools, slow: tuple[Floats, float]
) -> tuple[Noise, Jitter]:
    """Noise of a counter. Its intervals are uneven, and its errors are even in joules, so joules are looked at."""
    share = (r.end_s - r.start_s) / r.period_s
    stretches = []
    for k in np.unique(where[idle]):
        at = np.flatnonzero(idle & (where == k))
        grid = np.zeros(at[-1] - at[0] + 1)
        grid[at - at[0]] = residual[at] * share[at]
        stretches.append(np.where(grid != 0.0, grid - grid[at - at[0]].mean(), 0.0))
    quiet_w, busy_w = float(np.mean(r.watts[idle])), 0.0
    loud = np.append(pair, False) | np.append(False, pair)
    if np.any(loud):
        busy_w = float(np.median(r.watts[loud]))
    ratio = abs(busy_w) / max(abs(quiet_w), 1e-12 * abs(busy_w), 1e-300)
    # what differs within a pair, at the power of that pair: lengths are not even
    joules = r.watts * share
    drop = np.diff(joules) - 0.5 * (r.watts[1:] + r.watts[:-1]) * np.diff(share)
    # a filter slower than the looks is no age of a counter
    age_j = abs(quiet_w) * r.tau_s if 2.0 * r.tau_s < 1.01 * r.period_s else 0.0
    return estimate_counter(Counted(stretches, drop[pair], r.period_s, ratio, r.step_j, slow, age_j))
