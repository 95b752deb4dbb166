"""Estimate by one likelihood the path of spans, which is how late they are along a trace.

The path is a straight line, by the shift and the rate of a clock. The likelihood of a place comes from levels fitted to
each span (``contrast``), and the brackets of the clock are its prior.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rig.analysis.timing.activity_signal import correlated, edges_of, mean_signal
from rig.analysis.timing.alignment.contrast import AT_ONCE, Edges, Shown, edges_of_spans, modelled, readings_near
from rig.analysis.timing.timebase import CERTAIN
from rig.types import Floats

STANDS_OUT = 0.5
"""Single spans stand out if the median share of variance unexplained by levels is below this."""
PER_SPAN = 8.0
"""Number of places per length of a span in a first search."""
COARSE_SPANS = 64
"""At most this many spans are used in a first search."""
RIVALS = 6
"""At most this many places are examined closely."""
GROUPS = 16
"""If single spans show no edges, they are placed in at most this many groups."""
STRETCHES = 8
"""The scatter among this many stretches of the run measures what a straight line does not explain."""
APART = 2.5
"""If placements of the same spans differ by more than this many deviations, the stated uncertainty covers both."""
NEAR = 4.0
"""Levels near an edge are means over readings up to this many guards from it (see ``contrast.GUARD``)."""
HIDDEN = 0.4
"""An edge between two apertures may seem misplaced by this part of the time between them."""
LEAST_SHIFT = 0.1
"""A shift of less than this many readings is not followed."""


class Line(Struct, frozen=True):
    """Spans are late by ``late_s + slope * (t - ref_s)``; sigmas are standard uncertainties."""

    late_s: float
    slope: float
    ref_s: float
    sigma_s: float = 0.0
    slope_sigma: float = 0.0

    def at(self, t_s: Floats) -> Floats:
        """Return how late spans are at these moments, in the same shape."""
        return np.asarray(self.late_s + self.slope * (t_s - self.ref_s))


# ---- a line ---------------------------------------------------------------------------------


def line(s: Shown, reach_s: float, rate_reach: float) -> Line | None:
    """Return the line within about +-``reach_s`` and +-``rate_reach`` along which the spans are, or None.

    A periodic train fits almost as well when it is a period off. So the ``RIVALS`` likeliest places are looked at, and
    the best must be better than any other by more than chance.
    """
    c, rough = s.cells, s.some(s.cells.evenly(COARSE_SPANS))
    ref_s = float(np.mean(c.on_s + c.off_s)) / 2.0
    half_s = max(float(np.max(np.abs(c.on_s - ref_s))), 1e-12)
    steps = min(math.ceil(4.0 * rate_reach * half_s / c.width_s), 2 * GROUPS)
    steps = steps if rate_reach * half_s > c.width_s / 4.0 else 0
    slopes = np.linspace(-rate_reach, rate_reach, 2 * steps + 1) if steps else np.zeros(1)
    # farther away, no span would lie within the readings
    reach_s = min(max(reach_s, c.width_s), max(s.at_s[-1] - c.on_s[0], c.off_s[-1] - s.at_s[0], 0.0))
    step_s = max(c.width_s / PER_SPAN, 0.5 * s.period_s)
    count = math.ceil(reach_s / step_s)
    if (2 * count + 1) * len(slopes) <= AT_ONCE // GROUPS:
        steps_late = np.arange(-count, count + 1.0)
    else:
        steps_late = np.unique(np.round(np.append(far_places(s, -reach_s, reach_s), 0.0) / step_s))
    lates = step_s * steps_late
    late, slope = (x.ravel() for x in np.meshgrid(lates, slopes))
    places = _refined(s, late, slope, rough.doubt(late + slope * (rough.cells.on_s[:, None] - ref_s)), ref_s, step_s)
    best, rivals = places[0], [p[2] for p in places if abs(p[0] - places[0][0]) > 0.5 * c.width_s]
    found = Line(best[0], best[1], ref_s)
    if min([*rivals, 0.0]) - best[2] < CERTAIN**2 or not stands_out(s, found.at(c.on_s)):
        return None
    return None if _by_one_end(s, found, reach_s) else found


def _by_one_end(s: Shown, found: Line, reach_s: float) -> bool:
    """Return whether only readings beyond the first or last span make a place likelier than one that is a period off.

    The first or the last span then fits badly. Work that no span covers, beyond the ends, may cause this.
    """
    c, left = s.cells, s.left(found.at(s.cells.on_s)[:, None])[:, 0]
    pitch_s = float(np.median(np.diff(c.on_s))) if len(c) > 1 else np.inf
    late_s = np.append(found.late_s, found.late_s + np.array([-pitch_s, pitch_s]))
    late_s = late_s[np.abs(late_s) <= reach_s]
    if len(late_s) < 2 or max(left[0], left[-1]) < 0.5 * STANDS_OUT + float(np.median(left)):
        return False
    begin_s, end_s = c.begin_s.copy(), c.end_s.copy()
    begin_s[0] = max(begin_s[0], c.on_s[0] - float(np.median(c.on_s - begin_s)))
    end_s[-1] = min(end_s[-1], c.off_s[-1] + float(np.median(end_s - c.off_s)))
    near, same = replace(s, cells=replace(c, begin_s=begin_s, end_s=end_s)), np.zeros(len(late_s))
    places = _refined(near, late_s, same + found.slope, same, found.ref_s, s.period_s)
    own, *others = sorted(places, key=lambda p: abs(p[0] - found.late_s))
    return min((p[2] for p in others), default=np.inf) - own[2] < CERTAIN**2


def stands_out(s: Shown, late_s: Floats) -> bool:
    """Return whether spans show more power than their surroundings, singly or together; ``late_s`` has shape (k,)."""
    if float(np.median(s.left(late_s[:, None]))) < STANDS_OUT:
        return True
    inside, cell = (sums[:, :, 0] for sums in s.sums_of(late_s[:, None]))
    beside = cell - inside
    seen = (inside[0] > 0.0) & (beside[0] > 0.0)
    rise = inside[1, seen] / inside[0, seen] - beside[1, seen] / beside[0, seen]
    return len(rise) > 2 and float(np.mean(rise)) > CERTAIN * float(np.std(rise)) / math.sqrt(len(rise) - 1)


def _refined(
    s: Shown, late: Floats, slope: Floats, doubt: Floats, ref_s: float, step_s: float
) -> list[tuple[float, float, float]]:
    """Return the likeliest places (lateness, slope, doubt), best first, each refined to the best fit nearby."""
    lever, width_s = s.cells.on_s[:, None] - ref_s, s.cells.width_s
    half_s = max(float(np.max(np.abs(lever))), 1e-12)
    chosen = list[tuple[float, float]]()
    for k in np.argsort(doubt, kind="stable"):
        if len(chosen) == RIVALS:
            break
        far = [abs(late[k] - a) + half_s * abs(slope[k] - b) for a, b in chosen]
        if min(far, default=np.inf) > width_s:
            chosen.append((float(late[k]), float(slope[k])))
    places = []
    for start in chosen:
        best, by_s, turn = start, step_s, 0.5 * width_s / half_s if np.ptp(slope) else 0.0
        while by_s > 1e-3 * s.period_s:
            tries = (by_s * np.array([-1.0, -0.5, 0.0, 0.5, 1.0]), turn * np.array([-0.5, 0.0, 0.5] if turn else [0.0]))
            a, b = (x.ravel() for x in np.meshgrid(*tries))
            each = s.doubt(best[0] + a + (best[1] + b) * lever)
            k = int(np.argmin(each))
            best, by_s, turn = (best[0] + float(a[k]), best[1] + float(b[k])), 0.5 * by_s, 0.5 * turn
            if np.ptp(each) < 1.0:  # chance alone changes the doubt by this much
                break
        places.append((*best, float(each[k])))
    return sorted(places, key=lambda p: p[2])


def far_places(s: Shown, least_s: float, most_s: float) -> Floats:
    """Return, unsorted, the latenesses within limits at which the trace is most like the spans, by one FFT of each."""
    c = s.cells
    begin_s, end_s = max(c.begin_s[0] + least_s, s.at_s[0]), min(c.end_s[-1] + most_s, s.at_s[-1])
    step_s = max(0.5 * s.period_s, c.width_s / PER_SPAN, (end_s - begin_s) / AT_ONCE)
    grid = np.arange(begin_s, end_s, step_s)
    train_s = np.arange(c.begin_s[0], c.end_s[-1], step_s)
    if len(grid) < 2 or len(train_s) < 2:
        return np.zeros(0)
    values = s.between(grid[:-1] + s.tau_s, grid[1:] + s.tau_s)[1]
    edges, level = np.column_stack([c.on_s, c.off_s]).ravel(), np.tile([0.0, 1.0], len(c))
    area = np.append(0.0, np.cumsum(np.diff(edges) * (1.0 - level[:-1])))
    filled = np.diff(np.interp(train_s, edges, area))
    filled -= filled.mean()
    # a train that begins before the trace or ends after it is compared with the part in the trace
    pad = np.zeros(len(filled))
    score = correlated(np.concatenate([pad, values, pad]), filled)
    late = grid[0] - train_s[0] + step_s * (np.arange(len(score)) - len(pad))
    score[(late < least_s) | (late > most_s)] = -np.inf
    apart, found = max(int(0.5 * c.width_s / step_s), 1), list[float]()
    while len(found) < RIVALS and np.isfinite(score[best := int(np.argmax(score))]):
        found.append(float(late[best]))
        score[max(best - apart, 0) : best + apart + 1] = -np.inf
    return np.array(found)


# ---- edges along it -------------------------------------------------------------------------


def along(s: Shown, late_s: Floats, rate_sigma: float) -> Seen | None:
    """Return the edges found near lateness ``late_s``, shape (k,), and their line; None for fewer than three edges.

    Levels beside an edge may be taken from near it or from its whole cell: the less uncertain result is used. Where
    spans show no edges, groups of them are placed together.
    """
    whole = _unbiased(s, late_s, np.inf, 1)
    mid = 0.5 * (whole.begin_s + whole.end_s)
    near = _unbiased(s, np.where(np.isfinite(mid), mid, late_s), NEAR, len(late_s))
    turns = ((e, e.in_turn(s.cells)) for e in (whole, near))
    found = [
        Seen(*turn, through(*turn, e.doubt_s, rate_sigma), e, whole) for e, turn in turns if len(turn[0]) >= len(late_s)
    ]
    # levels from a whole cell and from near an edge should place the edge alike
    apart_s = abs(found[0].line.late_s - found[-1].line.late_s) if found else 0.0
    if apart_s > APART * math.hypot(*(f.line.sigma_s for f in found), 0.0):
        found = [replace(f, line=replace(f.line, sigma_s=math.hypot(f.line.sigma_s, apart_s))) for f in found]
    if not found and len(late_s) > 2:
        groups = _in_groups(s, late_s)
        found = [Seen(*groups, through(*groups, 0.0, rate_sigma))]
    return min((f for f in found if len(f.at_s) > 2), key=lambda f: f.line.sigma_s, default=None)


class Seen(Struct, frozen=True):
    """Stamps of edges in order, how late they are in the trace, shapes (n,), and the line through them."""

    at_s: Floats
    late_s: Floats
    line: Line
    edges: Edges | None = None
    """The edges of each span; None if only groups of spans could be placed."""
    whole: Edges | None = None
    """The edges with levels from whole cells."""


def _unbiased(s: Shown, late_s: Floats, levels: float, least: int) -> Edges:
    """Return the edges, minus the error that the same method has for modelled readings of spans of constant power.

    Fewer than ``least`` edges are of no use, and are returned uncorrected.
    """
    e = edges_of_spans(s, late_s, levels)
    if len(e.in_turn(s.cells)[0]) < least:
        return e
    begin, end = (np.where(np.isfinite(x), x, late_s) for x in (e.begin_s, e.end_s))
    would = edges_of_spans(modelled(s, begin, end, levels), late_s, levels)
    by = would.begin_s - begin, would.end_s - end
    both = np.concatenate(by)[np.isfinite(np.concatenate(by))]
    amiss_s = float(np.mean(both)) if len(both) else 0.0
    # if an edge lies between two apertures, readings do not show how sharp it is
    hidden_s = HIDDEN * max(s.period_s - s.readings.aperture_s, 0.0)
    blur_s = max(e.blur_s - would.blur_s - hidden_s, 0.0)
    return replace(e, begin_s=e.begin_s - by[0], end_s=e.end_s - by[1], amiss_s=amiss_s, blur_s=blur_s)


def _in_groups(s: Shown, late_s: Floats) -> tuple[Floats, Floats]:
    """Return the middles of groups of spans, and how late each group is by least squares, with separate levels."""
    c, r, groups = s.cells, s.readings, min(GROUPS, max(len(late_s) // 4, 3))
    of, middle_s = np.arange(len(late_s)) * groups // len(late_s), 0.5 * (c.on_s + c.off_s)
    by_s, most_s = s.period_s / 4.0, max(c.width_s, s.period_s) / 4.0
    for _ in range(4):
        (near, cell), spans_s = readings_near(s, late_s), s.moved(late_s, late_s)
        group, watts = of[cell], r.watts[near] - r.watts[near].sum() / max(len(near), 1)
        shifted = (edges_of(spans_s + b) for b in (0.0, -by_s, by_s))
        fill, early, later = (mean_signal(e, r.start_s[near], r.end_s[near], s.tau_s) for e in shifted)
        columns, gram = [None, fill, (later - early) / (2.0 * by_s), watts], np.empty((groups, 4, 4))
        for (i, a), (j, b) in itertools.combinations_with_replacement(enumerate(columns), 2):
            if i < 3:  # the first column is ones
                gram[:, i, j] = gram[:, j, i] = np.bincount(group, b if a is None or b is None else a * b, groups)
        normal, right = gram[:, :3, :3], gram[:, :3, 3:]
        _, rise_w, moved = (np.linalg.pinv(normal, rcond=1e-9, hermitian=True) @ right)[:, :, 0].T
        late_s = late_s + np.clip(moved / np.where(rise_w > 0.0, rise_w, np.inf), -most_s, most_s)[of]
    count = np.bincount(of, minlength=groups)
    return np.bincount(of, middle_s) / count, np.bincount(of, late_s) / count


def through(at_s: Floats, late_s: Floats, doubt_s: float, rate_sigma: float) -> Line:
    """Return the line through the lateness of edges; its slope has the prior 0 with the sigma ``rate_sigma``.

    ``doubt_s`` is the uncertainty that all edges share.
    """
    use = np.ones(len(at_s), bool)
    for _ in range(3):
        ref_s = float(at_s[use].mean())
        lever, n = at_s - ref_s, int(np.count_nonzero(use))
        spread = float(lever[use] @ lever[use])
        slope = float(lever[use] @ late_s[use]) / spread if spread > 0.0 else 0.0
        mean_s = float(late_s[use].mean())
        left = late_s - mean_s - slope * lever
        scale = max(float(np.sqrt(np.sum(left[use] ** 2) / max(n - 2, 1))), 1e-12)
        known = (scale / rate_sigma) ** 2 if rate_sigma > 0.0 else np.inf  # brackets bound the slope
        slope *= spread / (spread + known) if np.isfinite(known) else 0.0
        left = late_s - mean_s - slope * lever
        use = np.abs(left) <= CERTAIN * max(1.4826 * float(np.median(np.abs(left))), 1e-12)
    slope_sigma = scale / math.sqrt(spread + known) if np.isfinite(known) else 0.0
    parts = [p for p in np.array_split(left[use], STRETCHES) if len(p)]
    beyond = max(float(np.mean([p.mean() ** 2 - scale**2 / len(p) for p in parts])), 0.0)
    sigma_s = math.sqrt(scale**2 / n + beyond + doubt_s**2)
    return Line(mean_s, slope, ref_s, sigma_s, slope_sigma)
