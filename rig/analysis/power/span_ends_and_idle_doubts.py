"""Compute margins and doubts from how spans and the gaps between them differ, at their ends and from one to the next.

A span is a time in which the device works, by its stamps, and a gap is the time between two spans. At the ends there
may be an inrush, a late begin, late work, or energy that a filter delays. Readings from all spans are averaged by their
place in the span; the same is done for gaps. If the readings allow a range of power, the figure is the middle of this
range, and its bias is half of the range. If spans change together with the gaps beside them, the cause is a changing
gain or a swing of power. ``estimators.core`` leaves the ends of spans out.
"""

import math
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from rig.analysis.power.clipped_and_missing import LEAST
from rig.analysis.power.estimators import PLACES, Estimate, Margin, Touched
from rig.analysis.power.model.noise import SHOWN
from rig.analysis.power.model.rail_model import ROUNDED, RailModel
from rig.analysis.result.quantity import Component
from rig.analysis.timing.activity_signal import count_before, inside, merged
from rig.analysis.timing.profile import FAR
from rig.analysis.timing.timebase import CERTAIN, SURE
from rig.types import Bools, Floats

GOES_ON = 0.9
"""Work goes on after spans if gaps begin with more than this part of the power at the end of spans."""
LACKS = 0.1
"""If ends of spans lack energy, and more than this share of the missing energy is outside spans, the meter lost it.

The device cannot have drawn less than the level beside the spans.
"""
LATER = 1.25
"""A moving mean delays energy by this many time constants of the most similar one-pole filter."""
BEYOND_CORE = (
    "readings at the ends of spans differ from those within, and nothing shows whether that power is drawn just inside "
    "or just outside of the spans, so the figure is the middle of both"
)
MOVED = (
    "gaps begin with energy that spans lack at their begin. This may be a filter that is not declared (filter_tau_s) "
    "or a capacitor behind the meter, or the device itself, so the figure is the middle of both"
)
ALIKE = 0.25
"""The power of spans above gaps is proportional to that of gaps if slope and ratio agree to this part, or in noise."""
FEW = 4.0
"""The first window after the last span lasts at least this many periods of the readings."""


# ---- by place -----------------------------------------------------------------------------


def ends(model: RailModel, windows_s: Floats, of: Touched, full: Estimate, inner: Estimate) -> Margin:
    """Return the margin for power at ends of spans that differs from both their core and the level beside.

    Power drawn inside the span raises a reading at an end in proportion to the part that the span fills. Power drawn
    outside raises it in proportion to the other part. A burst shorter than one reading may be inside or outside, and no
    reading shows which. If the spans fill all readings at ends equally, the code assumes such a burst.
    """
    apart_w = full.value_w - inner.value_w
    noise_w = math.sqrt(sum(model.variances(full.level - inner.level).values()))
    more_w2 = max(apart_w**2 - noise_w**2, 0.0)
    found_w, found_u_w = _outside_w(model, windows_s, of, inner)
    low_w, high_w = sorted((0.0, apart_w))
    seen_w = min(max(found_w, low_w), high_w)
    # a filter or a late clock may move power beyond these bounds; then half of the difference is subtracted
    sure = bool(more_w2) and abs(found_w - seen_w) <= SHOWN * found_u_w
    share = more_w2 / (more_w2 + 12.0 * found_u_w**2) if sure else 0.0
    outside_w = share * seen_w + (1.0 - share) * 0.5 * math.copysign(math.sqrt(more_w2), apart_w)
    either_w = min(abs(outside_w), abs(apart_w - outside_w))
    beyond_noise = apart_w < -2.0 * SHOWN * noise_w
    if beyond_noise and found_w + SHOWN * found_u_w < LACKS * apart_w:  # the device cannot have drawn so little
        either_w = max(abs(outside_w), abs(apart_w - outside_w))
    length_s = float(np.mean(windows_s[:, 1] - windows_s[:, 0]))
    step_w = float(np.mean(of.beside_w[1::2]) - np.mean(of.beside_w[0::2]))
    place = Component("place of spans beside other levels", model.sigma_s * step_w / length_s)
    return Margin(-outside_w, either_w, (Component("ends of spans", share * found_u_w), place), BEYOND_CORE)


def _outside_w(model: RailModel, windows_s: Floats, of: Touched, inner: Estimate) -> tuple[float, float]:
    """Return the energy outside spans, fitted to readings at their ends, and its standard error.

    Both are divided by the time of the spans, so they are in watts.
    """
    r, spans = model.readings, merged(windows_s)
    at = of.at[inner.level[of.at] == 0.0]
    use = inner.level[of.at] == 0.0
    span = np.clip(count_before(0.5 * (spans[1:, 0] + spans[:-1, 1]), model.middle_s[at]), 0, len(spans) - 1)
    core_w, many = model.means(r.watts, inner.level != 0.0, count_before(spans[:, 0], model.middle_s) - 1, len(spans))
    core_w = np.where(many > 0.0, core_w, float(inner.level @ r.watts))[span]
    f = of.fill[at]
    left = r.watts[at] - f * core_w - (1.0 - f) * of.beside_w[of.side[use]]
    design, z = np.column_stack([f, 1.0 - f]), of.z[at]
    gram = design.T @ (z[:, None] * design)
    if len(at) < LEAST or np.linalg.matrix_rank(gram) < 2:
        return 0.0, 1e6 * abs(float(inner.level @ r.watts))
    inverse = np.linalg.inv(gram)
    found = inverse @ (design.T @ (z * left))
    scatter = z * (left - design @ found)
    u = float(np.linalg.norm(scatter * (design @ inverse[:, 1])))  # as a sum of squares, never below zero by rounding
    part = float(np.sum(z * (1.0 - f))) / of.busy
    return float(found[1]) * part, u * part


def moved(model: RailModel, windows_s: Floats) -> Margin:
    """Return the margin for energy that spans lack at their begin and gaps have in excess at theirs, or the reverse.

    A filter or capacitor may have moved the energy: it conserves energy and responds equally to a rise and to a fall.
    The device may also draw such power itself, so the figure is the middle of both cases.
    """
    spans = merged(windows_s)
    if len(spans) < 2 or not np.any(model.gap):
        return Margin()
    busy_s = float(np.mean(spans[:, 1] - spans[:, 0]))
    rise = _curve(model, spans[:, 0], spans[:, 1], model.held & model.readings.ok)
    fall = _curve(model, spans[:-1, 1], spans[1:, 0], model.gap & model.readings.ok)
    if rise is None or fall is None:
        return Margin()
    noise_w = _noise_w(model, rise)
    if fall.level_w[0] > GOES_ON * rise.level_w[-1] > 2.0 * fall.level_w[-1]:  # a capacitor refills, or work ends late
        half_w = 0.5 * _beyond_rest_j(model, fall)[0] / busy_s
        return Margin(half_w, abs(half_w), told=MOVED)
    if not (rise.rests(noise_w) or fall.rests(noise_w)):  # all energy of gaps above idle may belong to spans
        half_w = 0.5 * float(fall.level_w.mean()) * float(np.mean(spans[1:, 0] - spans[:-1, 1])) / busy_s
        return Margin(half_w, abs(half_w), told=MOVED)
    (lacks_j, u_j), (more_j, v_j) = (_beyond_rest_j(model, x) for x in (rise, fall))
    if lacks_j * more_j >= 0.0 or abs(lacks_j) < SHOWN * u_j or abs(more_j) < SHOWN * v_j:
        return Margin()
    less_j, most_j = sorted((abs(lacks_j), abs(more_j)))
    half_w = 0.5 * min(most_j, 2.0 * less_j) / busy_s
    return Margin(math.copysign(half_w, more_j), half_w, told=MOVED)


def smoothed(model: RailModel, windows_s: Floats, dynamic_w: float) -> Margin:
    """Return the margin for an inferred filter, because the device itself may begin and end its work smoothly."""
    if not model.readings.inferred:
        return Margin()
    moved_s = LATER * model.readings.tau_s
    half_w = 0.5 * dynamic_w * min(moved_s / float(np.mean(windows_s[:, 1] - windows_s[:, 0])), 1.0)
    return Margin(-half_w, abs(half_w))


def unrested_w(model: RailModel, windows_s: Floats) -> float:
    """Return by how many watts idle windows between spans are on average above the level at their own ends.

    The result is 0 if noise explains it.
    """
    spans = merged(windows_s)
    fall = _curve(model, spans[:-1, 1], spans[1:, 0], model.idle) if len(spans) > 1 else None
    more_j, u_j = _beyond_rest_j(model, fall) if fall else (0.0, 0.0)
    return more_j / float(np.mean(spans[1:, 0] - spans[:-1, 1])) if abs(more_j) > SHOWN * u_j else 0.0


def rests_for(model: RailModel, spans_s: Floats) -> float:
    """Return for how many seconds the device is at rest at the end of a span.

    The result is 0 if noise might explain the low power, or if it lasts at most the part ``LACKS`` of the span.
    ``spans_s`` has the shape (k, 2).
    """
    rise = _curve(model, spans_s[:, 0], spans_s[:, 1], model.busy & model.readings.ok)
    top_w = float(rise.level_w.max()) if rise is not None else 0.0
    if rise is None or top_w <= 0.0:
        return 0.0
    rest_w = rise.level_w[int(np.flatnonzero(rise.level_w >= 0.5 * top_w)[-1]) + 1 :]
    noise_w = _noise_w(model, rise) / math.sqrt(float(np.median(rise.count)) * max(len(rest_w), 1))
    low = len(rest_w) > 1 and float(rest_w.mean()) + SHOWN * noise_w < LACKS * top_w
    return len(rest_w) * rise.step_s if low and len(rest_w) > LACKS * len(rise.level_w) else 0.0


class Curve(Struct, frozen=True):
    """Mean power and number of readings at each place of spans, or of gaps.

    A span or gap is divided into places of ``step_s`` seconds; the first place with readings has the number ``first``.
    """

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
    """Return the mean power of the readings in use, by their place since ``since_s``; None for fewer than 4 places."""
    r, at = model.readings, np.flatnonzero(use)
    middle_s = model.middle_s[at]
    of = count_before(since_s, middle_s) - 1
    within = (of >= 0) & (middle_s < until_s[np.maximum(of, 0)])
    at, of, middle_s = at[within], of[within], middle_s[within]
    lasts_s = float(np.median(until_s - since_s))
    places = min(int(lasts_s / r.period_s), PLACES)
    if not len(at) or places < 4:
        return None
    step_s = lasts_s / places
    place = np.minimum(((middle_s - since_s[of]) / step_s).astype(np.int64), places)
    many, above_w = None if r.pool is None else r.pool.many[at], model.above_w[at]
    count = np.bincount(place, many, places + 1)[:places].astype(np.float64)
    total_w = np.bincount(place, above_w if many is None else many * above_w, places + 1)[:places]
    level_w = total_w / np.maximum(count, 1e-9)
    seen = np.flatnonzero(count[: places - 1] > 0.25 * count.max())  # the last place may be partly beyond the end
    return Curve(level_w[seen], count[seen], int(seen[0]), step_s) if len(seen) > 3 else None


def _noise_w(model: RailModel, of: Curve) -> float:
    """Return the noise of one reading at work, which is no less than rounding."""
    return max(model.noise.reading_w(), ROUNDED * float(np.max(np.abs(of.level_w))))


def _beyond_rest_j(model: RailModel, of: Curve) -> tuple[float, float]:
    """Return the mean energy of a span or gap above its resting level, and its standard error, in joules.

    The resting level is the mean of the last third. If the means of the three thirds approach a limit, the resting
    level is extrapolated from them as from an exponential (Aitken, 1926). Readings at the ends are not whole, so the
    first whole place also replaces the places before it.
    """
    n, thirds = len(of.level_w), [float(x.mean()) for x in np.array_split(of.level_w, 3)]
    rest_w, (early_w, late_w) = thirds[2], np.diff(thirds)
    if early_w * late_w > 0.0 and abs(late_w) < 0.8 * abs(early_w):
        rest_w += float(late_w * late_w / (early_w - late_w))
    found_j = float((of.level_w - rest_w).sum()) * of.step_s + float(of.level_w[0] - rest_w) * of.first * of.step_s
    noise_w = _noise_w(model, of) / math.sqrt(float(np.median(of.count)))
    return found_j, noise_w * of.step_s * (math.sqrt(n) + n / math.sqrt(max(n // 3, 1)))


# ---- what spans share with gaps ------------------------------------------------------------------


def gain_change(model: RailModel) -> float:
    """Return the largest relative difference of the gain from its mean, or 0 if levels do not change by one factor.

    If only idle power changes, the power of spans above gaps stays the same. If the meter's gain changes, this power
    and the level of gaps change by the same factor. Nothing shows which gain is right. A change within the declared
    accuracy counts as 0.
    """
    r, spans = model.readings, model.spans_s
    if len(spans) < LEAST:
        return 0.0
    span_w, seen = model.means(r.watts, model.held, inside(spans, r.start_s, r.end_s), len(spans))
    gap_w, many = model.means(r.watts, model.gap, count_before(spans[:, 0], r.start_s) - 1, len(spans))
    beside, count = (np.array([np.append(0.0, x[:-1]), x]) for x in (gap_w, many))
    near_w = beside.sum(axis=0) / np.maximum(np.count_nonzero(count, axis=0), 1)
    use = (seen > 0.0) & (count.sum(axis=0) > 0.0)
    if np.count_nonzero(use) < LEAST:
        return 0.0
    at, level = span_w[use], near_w[use]
    noise_w2 = float(np.mean(model.noise.white_w**2 / count[:, use].sum(axis=0)))
    above, off = at - level, level - level.mean()
    spread = float(np.sum(off**2)) - len(off) * noise_w2
    if spread <= 0.0 or level.mean() <= 0.0:
        return 0.0
    slope = (float(off @ above) + len(off) * noise_w2) / spread
    u = float(np.std(above - slope * off)) * math.sqrt(float(np.sum(off**2))) / spread
    proportion = float(above.mean() / level.mean())
    if slope < CERTAIN * u or abs(slope - proportion) > max(ALIKE * proportion, 2.0 * u):
        return 0.0
    gain = (at + level) / float(np.mean(at + level))
    change = float(np.max(np.abs(gain - 1.0)))
    return change if model.rail.accuracy is None or change > model.rail.accuracy.of_reading else 0.0


def doubts_of_idle(model: RailModel, windows_s: Floats, *, late: bool) -> Iterator[tuple[float, str]]:
    """Yield by how many watts idle under the spans may differ from idle windows, and why, or "" if a margin says why.

    Spans may include power that swings, power at the begin of gaps (``late``), or power that settles after the work.
    """
    if awake_w := unrested_w(model, windows_s):
        more = "mean power of idle windows between spans is above that at their ends, so the device may not be at rest"
        yield awake_w, f"{more} there. Begin these windows later"
    if pulses_w := model.once(idle_pulses_w):
        yield pulses_w, "pulses raise the mean of idle windows, and spans have fewer of them, so they may stop at work"
    if model.once(swings):
        beside = "power changes within spans as it does between the gaps beside them, so a fan or another task may draw"
        yield abs(gaps_above_w(model)), f"{beside} it"
    elif late:
        yield max(gaps_above_w(model), 0.0), ""
    elif slow_w := model.once(settles_w):
        slowly = "after the last span, power stays near the level of gaps or falls slowly, so work may have raised idle"
        yield slow_w, slowly


def idle_pulses_w(model: RailModel) -> float:
    """Return by how many watts pulses raise the mean of idle windows more than that of spans.

    The result is 0 if spans have about as many pulses for their time, or are too short in total to show pulses.
    """
    r = model.single.readings
    at_idle = _off_median(r.watts, model.single.idle & r.ok)
    if r.counter or not len(at_idle) or at_idle.max() <= FAR * np.median(np.abs(at_idle)):  # no pulse
        return 0.0
    off = [at_idle, _off_median(r.watts, model.single.held & r.ok)]
    if not len(off[1]):
        return 0.0
    far_w = FAR * max(float(np.median(np.abs(x))) for x in off)
    high = [x > far_w for x in off]
    idle_w, work_w = (float(np.mean(np.where(pulse, x, 0.0))) for x, pulse in zip(off, high, strict=True))
    count, at_work = (int(np.count_nonzero(pulse[1:] & ~pulse[:-1])) for pulse in high)
    due = count * len(off[1]) / len(off[0])
    return max(idle_w - work_w, 0.0) if due - at_work > SURE * math.sqrt(due) else 0.0


def _off_median(watts: Floats, use: Bools) -> Floats:
    """Return readings in use minus the median of their unbroken row, without short rows and with some of many."""
    at = np.flatnonzero(use)
    cuts = np.concatenate([[0], np.flatnonzero(np.diff(at) > 1) + 1, [len(at)]])
    rows = np.column_stack([cuts[:-1], cuts[1:]])[np.diff(cuts) >= LEAST]
    rows = rows[:: max(len(rows) // (LEAST * PLACES), 1)]
    return np.concatenate([np.zeros(0), *(watts[at[a:b]] - np.median(watts[at[a:b]]) for a, b in rows.tolist())])


def gaps_above_w(model: RailModel) -> float:
    """Return by how many watts the mean of the first halves of gaps is above idle."""
    above_w = model.once(_halves)[1][:, 0]
    return float(np.mean(above_w[np.isfinite(above_w)])) if np.isfinite(above_w).any() else 0.0


def settles_w(model: RailModel) -> float:
    """Return the distance of gaps from idle in watts, or 0 if power settles soon after the last span.

    If power settles slowly, the work may have raised idle itself, as heat does. The level after the last span is
    averaged over windows of 1, 2, 4, ... lengths of a gap. If the device switches power off instead, at most one
    window has a level between gaps and idle, and the last one is at idle. An idle window after work also shows that
    power settles.
    """
    if len(model.spans_s) < 2:
        return 0.0
    unit_s = max(float(np.median(model.spans_s[1:, 0] - model.spans_s[:-1, 1])), FEW * model.readings.period_s)
    since = (model.middle_s - model.spans_s[-1, 1]) / unit_s
    use = model.readings.ok & ~model.busy & (since > 0.0)
    rests = np.any(model.idle & (model.middle_s > model.spans_s[0, 1]))
    if not np.any(use):
        return 0.0 if rests else abs(gaps_above_w(model))
    place = np.log2(1.0 + since[use]).astype(np.int64)
    total = np.bincount(place, model.weight[use])
    level_w = np.bincount(place, model.weight[use] * model.above_w[use]) / np.maximum(total, 1e-300)
    noise_w = max(model.noise.white_w, ROUNDED * float(np.max(np.abs(model.readings.watts[use]))))
    u_w = noise_w / np.sqrt(np.maximum(np.bincount(place, model.readings.many[use]), 1))
    part = np.abs(level_w) / max(abs(float(level_w[0])), 1e-300)
    apart = (np.abs(level_w) > CERTAIN * u_w) & (part > 0.1)
    settled = rests or not apart[-1]
    if abs(level_w[0]) <= CERTAIN * u_w[0] or (np.count_nonzero(apart & (part < 0.9)) < 2 and settled):
        return 0.0
    return min(abs(float(level_w[0])), abs(gaps_above_w(model)) or math.inf)


def swings(model: RailModel) -> bool:
    """Return whether power changes within spans in the same way as between the gaps beside them.

    If so, the change is no part of the work, and idle power under the spans may be as high as in gaps.
    """
    in_span, in_gap = model.once(_halves)
    pair = np.array([in_gap[1:, 0] - in_gap[:-1, 1], in_span[1:, 1] - in_span[1:, 0]])
    beside, within = pair = pair[:, np.isfinite(pair).all(axis=0)]
    if len(beside) < LEAST or np.any(np.ptp(pair, axis=1) == 0.0):
        return False
    alike = float(np.corrcoef(beside, within)[0, 1])
    return alike > SURE * math.sqrt((1.0 - alike**2) / (len(beside) - 2))


def _halves(model: RailModel) -> list[Floats]:
    """Return mean power above idle in the first and second half of k spans, and of the gaps after them, (k, 2) each."""
    spans, at_s = model.spans_s, model.middle_s
    of = count_before(spans[:, 0], at_s) - 1
    gaps, found = np.column_stack([spans[:, 1], np.append(spans[1:, 0], at_s[-1])]), []
    idle_w = model.trace.idle_at(np.mean(spans, axis=1))[:, None]
    for use, each in ((model.held, spans), (model.gap, gaps)):
        later = at_s > np.mean(each, axis=1)[of]
        mean_w, many = model.means(model.readings.watts, use & (of >= 0), 2 * of + later, 2 * len(spans))
        found.append(np.where(many > 0.0, mean_w, np.nan).reshape(-1, 2) - idle_w)
    return found
