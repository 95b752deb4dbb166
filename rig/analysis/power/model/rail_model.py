"""The model of one rail: which readings are in idle windows, gaps and spans, their noise, and the model of its trace.

A span is a time in which the device works, by its stamps, and a gap is the time between two spans.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rig.analysis.power.model.blocks import GAP, MOST, SPAN, Blocks, blocks_of, look_errors
from rig.analysis.power.model.noise import Noise, noise_of, variances
from rig.analysis.power.model.trace_model import SMOOTH, TraceModel, fit
from rig.analysis.timing.activity_signal import edges_of, inside, margin_s, mean_signal, means_by, merged, touches
from rig.analysis.timing.alignment.placement import AlignedRail
from rig.analysis.timing.counted_spans import Activity
from rig.analysis.timing.long_traces import in_pieces, moments_s, span_sigma_s
from rig.analysis.timing.readings import Readings, gap_of, idle_window_of
from rig.analysis.timing.timebase import SURE
from rig.types import Bools, Conversion, Floats, Indices, Rail

T = TypeVar("T")
MANY, BESIDE = 1 << 17, 128
"""Estimators get more steady readings than ``MANY`` as means over pieces, but the ``BESIDE`` next to a span singly."""
ROUNDED = 1e-9
"""Rounding alone may change power by this part."""
LEAST_PAIRS = 20
"""Gaps and spans swing alike only if at least this many pairs of them show it."""


class Single(Struct, frozen=True):
    """Single readings of a rail: which are in idle windows, touch a span, or lie wholly inside one, shapes (n,).

    ``beside`` marks the readings that follow the previous one without a pause, shape (n - 1,).
    """

    readings: Readings
    idle: Bools
    busy: Bools
    held: Bools
    beside: Bools


class RailModel(Struct, frozen=True, dict=True):
    """One rail with everything that the estimators share; arrays have the shape of the readings, (n,).

    ``sigma_s`` is the uncertainty of the ends of spans on the meter's clock, including the step of their stamps.
    ``rate_sigma`` is the relative uncertainty of the rate of the meter's clock against the device's clock. ``spans_s``
    are all spans, disjoint and sorted. ``idle`` marks the readings in idle windows, and ``gap`` the readings between
    spans. ``busy`` marks the readings that touch a span, and ``held`` the readings wholly inside a span. ``weight`` is
    the weight of a reading in a mean, or 0 if the reading is not a number.
    """

    readings: Readings
    clock: str
    sigma_s: float
    rate_sigma: float
    spans_s: Floats
    middle_s: Floats
    weight: Floats
    idle: Bools
    gap: Bools
    busy: Bools
    held: Bools
    noise: Noise
    trace: TraceModel
    single: Single
    at_looks: Floats | None = None
    """For a counter: how busy the device was at each read, 0 to 1, shape (n + 1,)."""

    @cached_property
    def _known(self) -> dict[Any, Any]:
        return {}

    def once(self, what: Callable[[RailModel], T]) -> T:
        """Return ``what(self)``, computed at the first call and then kept."""
        if what not in self._known:
            self._known[what] = what(self)
        found: T = self._known[what]
        return found

    @property
    def rail(self) -> Rail:
        """Return the rail as the meter declares it."""
        return self.readings.rail

    def variances(self, weight: Floats) -> dict[str, float]:
        """Return the variance of ``sum(weight * watts)`` from each source of noise; ``weight`` has shape (n,)."""
        r = self.readings
        looks = None if self.at_looks is None else (r.end_s - r.start_s, self.at_looks)
        return variances(self.noise, weight, self.middle_s, self.busy, None if r.pool is None else r.pool.many, looks)

    def means(self, watts: Floats, use: Bools, of: Indices, n: int) -> tuple[Floats, Floats]:
        """Return the mean of ``watts`` over the readings in use in each of ``n`` spans or gaps, and their number, (n,).

        ``of`` is the index of the span or gap of each reading; the mean is 0 for a span or gap without readings.
        """
        at = np.flatnonzero(use & self.readings.ok & (self.weight > 0.0) & (of >= 0) & (of < n))
        single = self.readings.pool is None and not self.readings.counter  # each reading then has the weight 1
        mean, total = means_by(of[at], n, None if single else self.weight[at], watts[at])
        return mean, total if single else np.bincount(of[at], self.readings.many[at], n).astype(float)

    def each_w(self, windows_s: Floats, unseen_w: float) -> Floats:
        """Return the mean of the readings wholly inside each of the sorted windows, or ``unseen_w`` without any."""
        r = self.readings
        mean_w, many = self.means(r.watts, r.ok, inside(windows_s, r.start_s, r.end_s), len(windows_s))
        return np.where(many > 0.0, mean_w, unseen_w)

    @cached_property
    def above_w(self) -> Floats:
        """Return the readings above idle, in watts, 0 where they are not numbers; shape (n,)."""
        return np.where(self.readings.ok, self.readings.watts - self.trace.idle_at(self.middle_s), 0.0)


def rail_model(rail: AlignedRail, activity: Activity) -> RailModel | None:
    """Return the model of an aligned rail, or None if fewer than two readings lie in idle windows.

    If the readings are means of several, the noise comes from the single readings, ``rail.single``.
    """
    one = rail.single or rail.readings
    spans = merged(np.concatenate([activity.busy_windows_s(), activity.excluded_s()]))
    sigma_s = span_sigma_s(one, activity, rail.sigma_s)
    of_one = idle_window_of(one, activity.idle_s, spans, sigma_s, rail.host_sigma_s)
    of_span = inside(spans, one.start_s, one.end_s)
    long = rail.single is None and len(one.watts) > MANY and one.steady and _linear(one, of_one >= 0, of_span >= 0)
    r = _in_pieces(rail, activity, spans, sigma_s) if long else rail.readings
    where = of_one if r is one else idle_window_of(r, activity.idle_s, spans, sigma_s, rail.host_sigma_s)
    held = of_span if r is one else inside(spans, r.start_s, r.end_s)
    if np.count_nonzero(where >= 0) < 2 or np.count_nonzero(of_one >= 0) < 2:
        return None
    gap = gap_of(r, spans, sigma_s, where) if len(spans) else np.full(len(where), -1)
    noise = noise_of(one, of_one, of_span)
    at_s = np.append(r.start_s[0], r.end_s)
    looks = np.clip(mean_signal(edges_of(spans), at_s, at_s, r.tau_s), 0.0, 1.0) if r.counter else None
    rest = _rests(r, gap, noise)
    blocks = blocks_of((r.start_s, r.end_s), r.watts, _weight(r), r.many, (where, rest, np.where(r.ok, held, -1)))
    trace = fit(blocks, _white(blocks, r, noise, looks) + _swings(blocks, r, (where, gap, held)))
    return RailModel(
        readings=r,
        clock=rail.timebase.clock.name,
        sigma_s=sigma_s,
        rate_sigma=rail.timebase.rate_sigma,
        spans_s=spans,
        middle_s=0.5 * (r.start_s + r.end_s),
        weight=_weight(r),
        idle=where >= 0,
        gap=gap >= 0,
        busy=touches(spans, r.start_s, r.end_s),
        held=held >= 0,
        noise=replace(
            noise, flicker_w2=trace.flicker_w2, wander_w2=trace.wander_w2, wander_s=SMOOTH * trace.lasts_s
        ),
        trace=trace,
        single=Single(
            one, of_one >= 0, touches(spans, one.start_s, one.end_s), of_span >= 0, one.adjacent()
        ),
        at_looks=looks,
    )  # fmt: skip


def _linear(r: Readings, idle: Bools, held: Bools) -> bool:
    """Return whether means of readings suffice: no loss in a shunt, and no clipped reading or overflow, is hidden."""
    overflows = float(np.min(r.watts[held], initial=0.0)) < min(float(np.min(r.watts[idle], initial=0.0)), 0.0)
    lossy = r.counter or r.supply is not None or r.rail.conversion.burden_ohm != 0.0
    return not (lossy or overflows or np.any(r.overload))


def _in_pieces(rail: AlignedRail, activity: Activity, spans: Floats, sigma_s: float) -> Readings:
    """Return means over pieces of successive readings, but the readings next to a span singly.

    The level beside a span is read from single readings, as many as its margin holds.
    """
    one = rail.readings
    reach_s = BESIDE * one.period_s + 2.0 * float(np.ptp(margin_s(sigma_s, one.tau_s)))
    near_s = merged(spans.reshape(-1, 1) + np.array([-reach_s, reach_s]))
    return in_pieces(one, moments_s(one, activity, sigma_s, rail.host_sigma_s), near_s, MANY // 16)


def sum_of(rails: Sequence[AlignedRail]) -> AlignedRail | None:
    """Return several rails as one rail of their sum, without a name.

    The result is None for fewer than two rails, for counters, and if readings of the rails have different times.

    The limits of the instruments are left out, because they do not apply to a sum.
    """
    singles = [r.single for r in rails if r.single is not None]
    if len(rails) < 2 or len(singles) not in (0, len(rails)):
        return None
    whole, single = _sum_of([r.readings for r in rails]), _sum_of(singles)
    if whole is None or (singles and single is None):
        return None
    return replace(rails[0], readings=whole, single=single)


def _sum_of(every: Sequence[Readings]) -> Readings | None:
    if not every or any(r.counter or not _same_times(every[0], r) for r in every):
        return None
    first = every[0]
    watts = np.sum([r.watts for r in every], axis=0)
    ok, over = np.all([r.ok for r in every], axis=0), np.any([r.overload for r in every], axis=0)
    rail = dataclasses.replace(first.rail, name="", conversion=Conversion("W"), accuracy=None, resolution=None)
    return replace(first, rail=rail, watts=watts, raw=watts, ok=ok, overload=over, supply=None, idle_bias_w=0.0)


def _same_times(a: Readings, b: Readings) -> bool:
    pairs = ((a.start_s, b.start_s), (a.end_s, b.end_s), (a.many, b.many))
    return a.tau_s == b.tau_s and all(np.array_equal(x, y) for x, y in pairs)


def _rests(r: Readings, gap: Indices, noise: Noise) -> Indices:
    """Return the gap of each reading, -1 in first halves of gaps if these are above second halves, shape (n,).

    Work then goes on after spans, and only the second halves of gaps show whether idle has changed.
    """
    at = np.flatnonzero((gap >= 0) & r.ok)
    first, many = np.searchsorted(gap[at], gap[at]), np.bincount(gap[at])[gap[at]]
    half = 2 * gap[at] + (late := np.arange(len(at)) - first >= many // 2)
    watts, count = means_by(half, 2 * int(gap.max(initial=-1) + 1), r.many[at].astype(float), r.watts[at])
    watts, count = watts.reshape(-1, 2), count.reshape(-1, 2)
    both = count.min(axis=1) > 0.0
    above_w, size_w = -np.diff(watts[both])[:, 0], float(np.max(np.abs(r.watts[at]), initial=0.0))
    u2 = noise.white_w**2 * (1.0 / count[both]).sum(axis=1) + max(ROUNDED * size_w, 1e-150) ** 2
    above = above_w / np.sqrt(u2)
    if len(above) < 2 or float(np.mean(above)) * math.sqrt(len(above)) <= SURE * max(float(np.std(above)), 1.0):
        return gap
    rest = gap.copy()
    rest[at[~late]] = -1
    return rest


def _white(blocks: Blocks, r: Readings, noise: Noise, looks: Floats | None) -> Floats:
    """Return the covariance of blocks from the noise of single readings and of counter values, shape (b, b)."""
    each = np.where(blocks.state == SPAN, noise.busy_w, noise.white_w) ** 2 / np.maximum(blocks.many, 1.0)
    if looks is None:
        return np.diag(each)
    return np.diag(each) + look_errors(blocks, r.end_s - r.start_s, noise.look_j2(looks), r.adjacent())


def _swings(blocks: Blocks, r: Readings, at: tuple[Indices, Indices, Indices]) -> Floats:
    """Return the covariance that slow swings of idle power add to blocks of the same idle window, shape (b, b).

    These swings last longer than an idle window. They are found from gaps and the spans beside them, because the swings
    change both alike.
    """
    where, gap, held = at
    number = np.where(r.ok & (gap >= 0), 2 * gap, np.where(r.ok & (held >= 0), 2 * held + 1, -1))
    used = number >= 0
    n = int(number.max(initial=0)) + 1
    level, total = means_by(number[used], n, _weight(r)[used], r.watts[used])
    pair = 2 * np.flatnonzero((total[:-1:2] > 0.0) & (total[1::2] > 0.0))
    groups = [level[g[:, None] + [0, 1]] for g in np.array_split(pair, MOST[GAP]) if len(g) > 1]
    if len(pair) < LEAST_PAIRS or not groups:
        return np.zeros(2 * (len(blocks.state),))
    product = np.concatenate([np.prod(g - g.mean(axis=0), axis=1) * len(g) / (len(g) - 1.0) for g in groups])
    shared_w2 = float(product.mean())
    if shared_w2 < SURE * float(product.std()) / math.sqrt(len(product)):
        return np.zeros(2 * (len(blocks.state),))
    window = np.full(len(blocks.state), -1)
    window[blocks.of[where >= 0]] = where[where >= 0]
    same = (window[:, None] == window) & (window >= 0)
    several = [w for k in np.unique(window[window >= 0]) if len(w := blocks.watts[window == k]) > 1]
    within_w2 = float(np.mean([np.var(w, ddof=1) for w in several])) if several else 0.0
    return np.asarray(same * max(shared_w2 - within_w2, 0.0))


def _weight(r: Readings) -> Floats:
    """Return the weight of each reading in a mean, shape (n,)."""
    if r.pool is not None:
        return r.pool.weight
    return np.where(r.ok, r.end_s - r.start_s if r.counter else 1.0, 0.0)
