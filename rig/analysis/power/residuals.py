"""Fold the residuals of readings from their levels by span and by place, and find their effect on dynamic power.

By place, residuals show what happens at the ends of spans: a burst or a late begin, work that goes on, energy that a
filter or a capacitor moves into the gaps. By span, they show how far spans differ, and so how far parts of spans may be
off that no reading shows. A margin that varies from span to span is a component; one that does not is a bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rig.analysis.power.coverage import UNSEEN, covered
from rig.analysis.power.estimators import Estimate, Touched
from rig.analysis.power.rail_model import RailModel
from rig.analysis.result.quantity import Component
from rig.analysis.timing.activity_signal import in_step, inside, margin_s, merged, touches
from rig.analysis.timing.timeline import Phase
from rig.types import Bools, Floats

LEAST = 6
"""Scatter is computed only from at least this many spans, or groups of neighbouring spans."""
SHOWN = 2.0
"""A margin by place is taken to be real from this many standard errors."""
PLACES = 64
"""A span or a gap is divided into at most this many places."""
ROUNDED = 1e-9
"""Readings without noise may differ by this part, from rounding."""
GOES_ON = 0.9
"""Work goes on after spans if gaps begin with more than this part of the power at the end of spans."""
ALL = 1e-3
"""Readings that miss at most this part of the time between them miss nothing."""
BLOCK = 1 << 12
"""Places in a loop are computed for about this many readings at a time."""
LATER = 1.25
"""A moving mean delays energy by this many time constants of the filter that is most like it."""
ALIKE = 1e6
"""Above this condition number, all ends fill their readings alike."""


@dataclass(frozen=True)
class Margin:
    """A shift of dynamic power, a bound for its error, and components, in watts."""

    shift_w: float = 0.0
    bias_w: float = 0.0
    components: tuple[Component, ...] = ()

    def __add__(self, other: Margin) -> Margin:
        return Margin(
            self.shift_w + other.shift_w, self.bias_w + other.bias_w, (*self.components, *other.components)
        )  # fmt: skip


@dataclass(frozen=True)
class Outside:
    """Power drawn outside of spans and its standard error, as mean power over spans, in watts."""

    value: float
    u: float


# ---- by place -----------------------------------------------------------------------------


def ends(model: RailModel, windows_s: Floats, of: Touched, full: Estimate, inner: Estimate) -> Margin:
    """Return the margin from power at the ends of spans that neither their core nor the level beside explains.

    Power drawn inside spans grows with the part of a reading that the span fills; power drawn outside grows with the
    other part. A burst within one reading of the end looks like both, and nothing shows whether spans draw it. Where
    ends fill readings too evenly to decide, such a burst is assumed.
    """
    apart_w = full.value_w - inner.value_w
    noise_w = model.noise_u_w(full.level - inner.level)
    more_w2 = max(apart_w**2 - noise_w**2, 0.0)
    found = _inside_and_outside(model, windows_s, of, inner)
    low_w, high_w = sorted((0.0, apart_w))
    seen_w = min(max(found.value, low_w), high_w)
    # power that is neither inside nor outside comes from a filter or a lagging clock, which the ends do not show
    share = more_w2 / (more_w2 + 12.0 * found.u**2) if more_w2 and abs(found.value - seen_w) <= SHOWN * found.u else 0.0
    outside_w = share * seen_w + (1.0 - share) * 0.5 * math.copysign(math.sqrt(more_w2), apart_w)
    either_w = min(abs(outside_w), abs(apart_w - outside_w))
    length_s = float(np.mean(windows_s[:, 1] - windows_s[:, 0]))
    step_w = float(np.mean(of.beside_w[1::2]) - np.mean(of.beside_w[0::2]))
    return Margin(
        -outside_w,
        either_w,
        (
            Component("ends of spans", share * found.u),
            Component("place of spans beside other levels", model.sigma_s * step_w / length_s),
        ),
    )


def _inside_and_outside(model: RailModel, windows_s: Floats, of: Touched, inner: Estimate) -> Outside:
    """Return the power drawn outside that readings at the ends of spans show, and its error, as means over spans."""
    r, spans = model.readings, merged(windows_s)
    at = of.at[inner.level[of.at] == 0.0]
    use = inner.level[of.at] == 0.0
    span = np.clip(np.searchsorted(0.5 * (spans[1:, 0] + spans[:-1, 1]), model.middle_s[at]), 0, len(spans) - 1)
    held = np.flatnonzero(inner.level)
    owner = np.clip(np.searchsorted(spans[:, 0], model.middle_s[held]) - 1, 0, len(spans) - 1)
    weight = np.bincount(owner, model.weight[held], len(spans))
    core_w = np.bincount(owner, model.weight[held] * r.watts[held], len(spans)) / np.where(weight > 0.0, weight, 1.0)
    core_w = np.where(weight > 0.0, core_w, float(inner.level @ r.watts))[span]
    f = of.fill[at]
    left = r.watts[at] - f * core_w - (1.0 - f) * of.beside_w[of.side[use]]
    design, z = np.column_stack([f, 1.0 - f]), of.z[at]
    gram = design.T @ (z[:, None] * design)
    if len(at) < LEAST or np.linalg.cond(gram) > ALIKE:
        return Outside(0.0, 1e6 * abs(float(inner.level @ r.watts)))
    inverse = np.linalg.inv(gram)
    found = inverse @ (design.T @ (z * left))
    scatter = z * (left - design @ found)
    u = math.sqrt(float((inverse @ (design.T @ (scatter[:, None] ** 2 * design)) @ inverse)[1, 1]))
    part = float(np.sum(z * (1.0 - f))) / of.busy
    return Outside(float(found[1]) * part, u * part)


def moved(model: RailModel, windows_s: Floats) -> Margin:
    """Return the margin for energy that spans lack at their begin and gaps have at theirs, or the reverse.

    A filter may have moved it: a linear system that keeps energy, such as a filter or a capacitor, responds alike to a
    fall and to a rise. The device may also do the same by itself, so the figure is the middle of both cases.
    """
    r, spans = model.readings, merged(windows_s)
    if r.counter or len(spans) < 2 or not np.any(model.gap):
        return Margin()
    busy_s = float(np.mean(spans[:, 1] - spans[:, 0]))
    # a filter that was found in the readings may be the device itself, so no time to settle is left out
    near = touches(merged(model.spans_s + margin_s(model.sigma_s, 0.0)), r.start_s, r.end_s)
    between = r.ok & ~near & ~model.idle & (model.middle_s > spans[0, 1]) & (model.middle_s < spans[-1, 0])
    rise = _curve(model, spans[:, 0], spans[:, 1], model.held & r.ok)
    fall = _curve(model, spans[:-1, 1], spans[1:, 0], between)
    if rise is None or fall is None:
        return Margin()
    noise_w = max(model.noise.reading_w(True), ROUNDED * abs(float(rise.level_w[-1])))
    if fall.level_w[0] > GOES_ON * rise.level_w[-1] > 2.0 * fall.level_w[-1]:  # a limit pays back, or work ends late
        half_w = 0.5 * _beyond_rest_j(model, fall)[0] / busy_s
        return Margin(half_w, abs(half_w))
    if not (rise.rests(noise_w) or fall.rests(noise_w)):  # all energy of gaps above idle may belong to spans
        half_w = 0.5 * float(fall.level_w.mean()) * float(np.mean(spans[1:, 0] - spans[:-1, 1])) / busy_s
        return Margin(half_w, abs(half_w))
    (lacks_j, u_j), (more_j, v_j) = (_beyond_rest_j(model, x) for x in (rise, fall))
    if lacks_j * more_j >= 0.0 or abs(lacks_j) < SHOWN * u_j or abs(more_j) < SHOWN * v_j:
        return Margin()
    less_j, most_j = sorted((abs(lacks_j), abs(more_j)))
    half_w = 0.5 * min(most_j, 2.0 * less_j) / busy_s
    return Margin(math.copysign(half_w, more_j), half_w)


def smoothed(model: RailModel, windows_s: Floats, dynamic_w: float) -> Margin:
    """Return the margin for a filter that nobody declared: the device may begin and end its work as smoothly itself."""
    if not model.readings.inferred:
        return Margin()
    moved_s = LATER * model.readings.tau_s
    half_w = 0.5 * dynamic_w * min(moved_s / float(np.mean(windows_s[:, 1] - windows_s[:, 0])), 1.0)
    return Margin(-half_w, abs(half_w))


def unrested_w(model: RailModel, windows_s: Floats) -> float:
    """Return the mean power of idle windows between spans above the level at their end, in watts; 0 if no higher."""
    spans = merged(windows_s)
    if model.readings.counter or len(spans) < 2 or np.count_nonzero(model.gap) > np.count_nonzero(model.idle):
        return 0.0
    fall = _curve(model, spans[:-1, 1], spans[1:, 0], model.idle)
    more_j, u_j = _beyond_rest_j(model, fall) if fall else (0.0, 0.0)
    return more_j / float(np.mean(spans[1:, 0] - spans[:-1, 1])) if abs(more_j) > SHOWN * u_j else 0.0


@dataclass(frozen=True)
class Curve:
    """Mean power of stretches by place, and how many readings each has; places are ``step_s`` apart from ``first``."""

    level_w: Floats
    count: Floats
    first: int
    step_s: float

    def rests(self, noise_w: float) -> bool:
        """Return whether the curve hardly changes towards its end; ``noise_w`` is the noise of one reading."""
        quarter = max(len(self.level_w) // 4, 1)
        moves_w = abs(float(self.level_w[-quarter:].mean() - self.level_w[-2 * quarter : -quarter].mean()))
        return moves_w < 0.2 * float(np.ptp(self.level_w)) or moves_w < 2.0 * SHOWN * noise_w / math.sqrt(
            float(self.count[-2 * quarter :].sum()) / 2.0
        )


def _curve(model: RailModel, since_s: Floats, until_s: Floats, use: Bools) -> Curve | None:
    """Return the mean power of the readings in use by their place in stretches; None for fewer than four places."""
    r, at = model.readings, np.flatnonzero(use)
    of = np.searchsorted(since_s, model.middle_s[at]) - 1
    within = (of >= 0) & (model.middle_s[at] < until_s[np.maximum(of, 0)])
    at, of = at[within], of[within]
    lasts_s = float(np.median(until_s - since_s))
    places = min(int(lasts_s / r.period_s), PLACES)
    if not len(at) or places < 4:
        return None
    step_s = lasts_s / places
    place = np.minimum(((model.middle_s[at] - since_s[of]) / step_s).astype(np.int64), places)
    count = np.bincount(place, r.many[at], places + 1)[:places].astype(np.float64)
    level_w = np.bincount(place, r.many[at] * model.above_w[at], places + 1)[:places] / np.maximum(count, 1e-9)
    seen = np.flatnonzero(count[: places - 1] > 0.25 * count.max())  # the last place may be partly beyond the end
    return Curve(level_w[seen], count[seen], int(seen[0]), step_s) if len(seen) > 3 else None


def _beyond_rest_j(model: RailModel, of: Curve) -> tuple[float, float]:
    """Return the mean energy of stretches above the level at which they rest, and its standard error, in joules.

    If the thirds of the mean stretch approach this level, it is extrapolated from them as from an exponential (Aitken,
    1926). Readings at the ends are not whole, so the first whole place stands for the begin of the stretch.
    """
    n, thirds = len(of.level_w), [float(x.mean()) for x in np.array_split(of.level_w, 3)]
    rest_w, (early_w, late_w) = thirds[2], np.diff(thirds)
    if early_w * late_w > 0.0 and abs(late_w) < 0.8 * abs(early_w):
        rest_w += float(late_w * late_w / (early_w - late_w))
    found_j = float((of.level_w - rest_w).sum()) * of.step_s + float(of.level_w[0] - rest_w) * of.first * of.step_s
    noise_w = model.noise.reading_w(True) / math.sqrt(float(np.median(of.count)))
    return found_j, noise_w * of.step_s * (math.sqrt(n) + n / math.sqrt(max(n // 3, 1)))


def in_turn(model: RailModel) -> Margin:
    """Return half of the difference of alternate readings at work that is not there at idle, as bias.

    Means of alternate readings should agree, unless a meter delivers highest and lowest, or has two converters.
    """
    one = model.single
    r = one.readings
    turn = np.where(np.arange(len(r.watts) - 1) % 2, -1.0, 1.0) * np.diff(r.watts)
    beside = one.beside & r.ok[1:] & r.ok[:-1]
    apart_w, u2 = 0.0, 0.0
    for sign, use in ((1.0, one.held), (-1.0, one.idle)):
        found = turn[beside & use[1:] & use[:-1]]
        if len(found) < LEAST:
            return Margin()
        apart_w += sign * float(np.mean(found))
        u2 += float(np.var(found)) / len(found)
    return Margin(0.0, 0.5 * abs(apart_w)) if abs(apart_w) > 2.0 * SHOWN * math.sqrt(u2) else Margin()


# ---- by place in a loop -------------------------------------------------------------------


def in_step_with(model: RailModel, phases: Sequence[Phase], dynamic_w: float) -> Margin:
    """Return what a slow meter misses of executions, or inferences, that are in step with its readings in long spans.

    If the loop and the readings are in step, every reading sees the same part of an execution. The readings then agree
    with each other, and their mean is off by what the rest of the execution draws.
    """
    busy_s = sum(p.busy_s for p in phases)
    missed = [max(_missed_w(model, p, times, dynamic_w) for times in (p.executions, p.inferences)) for p in phases]
    return Margin(0.0, sum(p.busy_s * w for p, w in zip(phases, missed, strict=True)) / busy_s)


def _missed_w(model: RailModel, phase: Phase, times: NDArray[np.int64], dynamic_w: float) -> float:
    """Return the largest error of the mean if readings sample a loop unevenly; spans hold ``times`` loops, (k,).

    Where no reading samples, a loop draws between nothing and twice the mean. If a loop rises and falls once, its mean
    is also off by its height times the largest sum of wrong weights at adjacent places. The height is dynamic power, or
    less if the readings, as far as they sample different places, show less.
    """
    one, windows_s = model.single, phase.windows_s
    r, used = one.readings, np.flatnonzero(one.held & one.readings.ok)
    owner = np.searchsorted(windows_s[:, 0], r.start_s[used], side="right") - 1
    within = (owner >= 0) & (r.end_s[used] <= windows_s[owner, 1]) & (times[owner] > 1)
    used, owner = used[within], owner[within]
    if r.counter or len(used) < 2 or r.period_s - r.aperture_s <= ALL * r.period_s:
        return 0.0
    loop_s = (windows_s[owner, 1] - windows_s[owner, 0]) / times[owner]
    begin = np.mod((r.start_s[used] - windows_s[owner, 0]) / loop_s, 1.0)
    lasting = np.maximum(r.aperture_s / loop_s, 1.0 / PLACES)
    n, mean = len(used), np.zeros(PLACES)
    for part in np.array_split(np.arange(n), 1 + n // BLOCK):
        mean += _looks(begin[part], lasting[part]).sum(axis=0) / n
    drawn = np.random.default_rng(0).choice(n, min(n, PLACES), replace=False)  # a regular choice may be in step itself
    apart = 0.5 * float(np.mean(np.abs(_looks(begin[drawn], lasting[drawn]) - mean)))
    shown_w = float(np.std(r.watts[used])) / max(apart, 1e-9)
    uneven = float(np.ptp(np.append(0.0, np.cumsum(mean - 1.0)))) / PLACES
    seen = np.flatnonzero(mean > 0.0)
    hidden = float(np.max(np.diff(np.append(seen, seen[0] + PLACES))) - 1) / PLACES
    return hidden * abs(dynamic_w) + uneven * min(abs(dynamic_w), SHOWN * shown_w)


def _looks(begin: Floats, lasting: Floats) -> Floats:
    """Return the weight of each place of a loop in each reading, 1 on average, shape (n, places)."""
    border = np.arange(PLACES + 1.0) / PLACES
    before, until = (
        np.floor(x) * border + np.minimum(np.mod(x, 1.0), border) for x in (begin[:, None], (begin + lasting)[:, None])
    )
    return np.asarray(PLACES * np.diff(until - before, axis=1) / lasting[:, None])


# ---- by span ------------------------------------------------------------------------------


def unseen(model: RailModel, inner: Estimate, windows_s: Floats, missing: float) -> Margin:
    """Return the margin for what parts of spans that no reading shows may draw.

    ``missing`` is the share of readings that are missing while the device works, beyond what is missing elsewhere.
    """
    spans, r = merged(windows_s), model.readings
    length = spans[:, 1] - spans[:, 0]
    watts, seen = _span_watts(model, spans)
    if not seen.any():
        return Margin()
    mean_w = float(np.average(watts[seen], weights=length[seen]))
    spread_w = float(np.std(watts[seen], ddof=1)) if np.count_nonzero(seen) > 1 else abs(mean_w)
    parts, bias_w = [], 0.0
    outside = ~covered(r, spans)
    if outside.any():
        part = float(length[outside].sum() / length.sum())
        few = max(int(np.count_nonzero(seen)) // 3, 1)
        sides = [watts[seen][:few]] * bool(outside[0]) + [watts[seen][-few:]] * bool(outside[-1])
        bias_w += UNSEEN * part * max([abs(float(np.mean(side)) - mean_w) for side in sides], default=0.0)
        u_w = part * spread_w * math.sqrt(1.0 / np.count_nonzero(seen) + 1.0 / np.count_nonzero(outside))
        parts.append(Component("spans outside the trace", u_w, max(float(np.count_nonzero(seen)) - 1.0, 1.0)))
    if missing:
        none = float(length[~seen & ~outside].sum() / length.sum())
        whole = min(none, missing)
        farthest_w = float(np.max(np.abs(watts[seen] - mean_w)))
        bias_w += UNSEEN * (missing - whole) * abs(inner.value_w) + whole * max(abs(inner.value_w), farthest_w)
    parts += _between_apertures(model, inner, spans[seen], watts[seen])
    return Margin(0.0, bias_w, tuple(parts))


def _span_watts(model: RailModel, spans: Floats) -> tuple[Floats, Bools]:
    """Return the mean power above idle of the readings in the middle of each span, and which spans have any."""
    r = model.readings
    at = np.flatnonzero(r.ok & (model.weight > 0.0) & model.busy)
    of = inside(spans, model.middle_s[at], model.middle_s[at])
    at, of = at[of >= 0], of[of >= 0]
    weight = model.weight[at]
    total = np.bincount(of, weight, len(spans))
    return np.bincount(of, weight * model.above_w[at], len(spans)) / np.where(total > 0.0, total, 1.0), total > 0.0


def _between_apertures(model: RailModel, inner: Estimate, spans: Floats, watts: Floats) -> list[Component]:
    """Return components for what a meter misses between apertures, and for noise that readings share at work.

    Between two apertures, a step of height h at a random moment causes an error of h * unseen / sqrt(12) readings, and
    sqrt(2) times this if a step back always follows after the same time. Steps at the same place of all spans have the
    same error, as far as spans begin at the same place between two readings. If power pulses in step with the readings,
    each reading misses the same part of a pulse, and spans scatter by what is missed.
    """
    r, one, noise = model.readings, model.single, model.noise
    used = (inner.level != 0.0) & model.held
    n = r.count(used)
    if r.counter or n < 3 or r.period_s <= 0.0:  # a counter misses nothing between two reads
        return []
    seen = one.held & one.readings.ok
    pair = seen[1:] & seen[:-1] & one.beside
    blind = max(1.0 - r.aperture_s / r.period_s, 0.0)
    alike = in_step(model.spans_s[:, 0], r.period_s)
    square = float(np.mean(np.diff(one.readings.watts)[pair] ** 2)) if np.any(pair) else 0.0
    steps = max(square - 2.0 * noise.busy_w**2, 0.0)
    common = _at_the_same_place(model, pair) * max(alike * len(model.spans_s) - 1.0, 0.0)
    missing = float(np.sum(np.round(r.pace()) - 1.0))
    lost = max(missing / (missing + float(r.many.sum())), 0.0)
    scatter = max(float(np.var(one.readings.watts[seen])) - noise.busy_w**2, 0.0) if np.any(seen) else 0.0
    u_w = math.sqrt(((steps + common) * blind**2 / 6.0 + scatter * lost) / n)
    found = [Component("unseen between apertures", u_w)]
    of_spans, dof = scatter_of_mean(watts, spans, noise.busy_w**2 * len(spans) / n)
    if steps > noise.busy_w**2:
        found.append(Component("spans that differ, seen in part", blind * of_spans * math.sqrt(1.0 - alike), dof))
    elif noise.busy_w > noise.white_w:
        found.append(Component("noise under load", of_spans, dof))
    return found


def _at_the_same_place(model: RailModel, pair: Bools) -> float:
    """Return the mean square of the steps between neighbouring readings that recur at the same place of all spans."""
    r, first = model.single.readings, np.flatnonzero(pair)
    if not len(first):
        return 0.0
    middle_s = 0.5 * (r.start_s[first] + r.end_s[first])
    on_s = model.spans_s[np.searchsorted(model.spans_s[:, 0], middle_s) - 1, 0]
    place = np.maximum((r.start_s[first] - on_s) / r.period_s, 0.0).astype(np.int64)
    step_w = r.watts[first + 1] - r.watts[first]
    count = np.bincount(place)
    mean_w = np.bincount(place, weights=step_w) / np.maximum(count, 1)
    several = count > 1
    # the mean of n steps keeps 1/n of the variance of steps that do not recur at the same place
    square = np.bincount(place, weights=step_w**2)[several] / count[several]
    alike = (count[several] * mean_w[several] ** 2 - square) / (count[several] - 1.0)
    return max(float(count[several] @ alike) / max(float(count.sum()), 1.0), 0.0)


def scatter_of_mean(watts: Floats, spans: Floats, known_w2: float) -> tuple[float, float]:
    """Return the standard uncertainty of the mean over spans as they scatter, in watts, and its degrees of freedom.

    ``known_w2`` is the part of the variance of one span that other components hold. The result is the largest by groups
    of 1, 2, 4, ... neighbours, because neighbours may have the same error.
    """
    length = spans[:, 1] - spans[:, 0]
    off = (watts - np.average(watts, weights=length)) * length / length.mean()
    best, dof, group = 0.0, math.inf, 1
    while len(off) // group >= LEAST:
        n = len(off) // group
        means = off[: n * group].reshape(n, group).mean(axis=1)
        u2 = max(float(np.mean(means**2)) * n / (n - 1.0) - known_w2 / group, 0.0) / n
        if u2 > best:
            best, dof = u2, n - 1.0
        group *= 2
    return math.sqrt(best), dof
