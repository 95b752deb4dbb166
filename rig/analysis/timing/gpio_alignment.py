"""Edges of a pin against the spans that a device stamped: the shift and rate that lay one onto the other.

The pin says when, to a tick of the meter; the device's stamps say which. Edges may be missing, there may be others,
they may bounce, and the brackets may leave several spans in doubt: then irregular spacing decides, or the train of
marks. What a shift of a whole period explains about as well is not decided, and nothing is guessed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.timing.activity_signal import merged
from rig.types import Bools, Floats, Indices, Pin

LEAST = 6
"""Edges that must match, and half of those expected while the meter watched."""
LEAD = 8
"""Edges by which the best shift must beat every other; a shift by one period loses two spans, four edges, at least."""
QUIET = 0.25
"""Of the usual shortest distance of two edges: closer ones are one that bounced."""
BLOCK = 64
CANDIDATES = 24
OUTLIER = 6.0
"""Standard deviations, by the median, beyond which an edge is another one's."""
NEIGHBOURS = 9
STRETCHES = 8
HARMONICS = 64


@dataclass(frozen=True)
class Train:
    """Edges in order: seconds, the level after each (-1: either), and whether it ends a span; shapes (n,)."""

    at_s: Floats
    level: Indices
    ends: Bools

    def __len__(self) -> int:
        return len(self.at_s)


@dataclass(frozen=True)
class Input:
    """How a logic input sees: ``step_s`` between looks, and the limit of what the pin lags or leads, ``lag_s``.

    ``tick_s`` is that of the device's stamps.
    """

    step_s: float
    lag_s: float = 0.0
    tick_s: float = 0.0


@dataclass(frozen=True)
class Match:
    """Add ``shift_s + rate * (t - ref_s)`` to the meter's seconds. Sigmas are against the device's stamps.

    ``missing`` edges were expected while the meter watched and not seen, ``extra`` ones seen and not expected.
    """

    shift_s: float
    rate: float
    ref_s: float
    sigma_s: float
    rate_sigma: float
    matched: int
    missing: int
    extra: int


def expected(windows_s: Floats, pin: Pin) -> Train:
    """What the pin must have done for spans, shape (k, 2), on the device's clock."""
    spans = merged(windows_s) if pin == "level" else windows_s
    at = spans.reshape(-1)
    ends = np.tile([False, True], len(spans))
    level = np.where(ends, 0, 1) if pin == "level" else np.full(len(at), 0 if pin == "stamp" else -1)
    order = np.argsort(at, kind="stable")
    return Train(at[order], level[order].astype(np.int64), ends[order])


def observed(at_s: Floats, level: Floats, pin: Pin, step_s: float, quiet_s: float) -> Train:
    """What the pin did, in the meter's seconds, without what bounced: the first of edges closer than ``quiet_s``,

    or none where the pin ended as it began. An edge is seen half a look late on average.
    """
    use = level == 0 if pin == "stamp" else np.ones(len(level), bool)
    at, after = at_s[use] - 0.5 * step_s, level[use].astype(np.int64)
    first = np.flatnonzero(np.diff(at, prepend=-math.inf) >= quiet_s)
    last = np.append(first[1:], len(at)) - 1
    moved = np.ones(len(first), bool) if pin == "stamp" else (last - first) % 2 == 0
    after = np.full(len(first), -1) if pin == "toggle" else after[last]
    return Train(at[first][moved], after[moved], np.zeros(np.count_nonzero(moved), bool))


def quiet_s(train: Train) -> float:
    """How close two edges must be to be one that bounced."""
    gaps = np.diff(train.at_s)
    return QUIET * float(np.quantile(gaps[gaps > 0], 0.05)) if np.any(gaps > 0) else 0.0


def match(wanted: Train, found: Train, reach_s: float, rate_reach: float, sees: Input) -> Match | str:
    """Fit within +-``reach_s`` in the middle of the spans, the rate within about +-``rate_reach`` (two sigmas); or why

    the edges do not decide.
    """
    if min(len(wanted), len(found)) < LEAST:
        return f"{len(found)} edges for {len(wanted)} expected are too few"
    middle = float(np.median(wanted.at_s))
    widest = max(quiet_s(wanted), sees.step_s)
    starts = list(_coarse(wanted, found, middle, reach_s, rate_reach, widest))
    grown = [_grown(wanted, found, s, middle, rate_reach, widest, sees) for s in starts]
    fits = [f for f in grown if f is not None and abs(f.shift) <= reach_s and abs(f.rate) <= 2.0 * rate_reach + 1e-12]
    if not fits:
        return "no shift that the brackets allow lays the edges onto the spans"
    most = max(f.matched for f in fits)
    tolerance = min(f.tolerance for f in fits if 2 * f.matched >= most)
    best = max((_counted(wanted, found, f, middle, tolerance) for f in fits), key=lambda f: (f.matched, -abs(f.shift)))
    seen_s = found.at_s[[0, -1]] + best.shift + best.rate * (found.at_s[[0, -1]] - middle)
    due = np.count_nonzero((wanted.at_s >= seen_s[0] - tolerance) & (wanted.at_s <= seen_s[1] + tolerance))
    if best.matched < max(LEAST, 0.5 * due):
        return f"only {best.matched} of {due} edges fit the spans"
    near = [_Fit(middle, best.shift + by, best.rate) for by in _periods(wanted)]
    for rival in [*fits, *near]:
        if abs(rival.shift - best.shift) > 2.0 * tolerance:
            other = _counted(wanted, found, _refined(wanted, found, rival, middle, tolerance), middle, tolerance)
            # beyond what the brackets allow, only one that is better contradicts
            lead = LEAD if abs(other.shift) <= reach_s else 1 - LEAD // 2
            if abs(other.shift - best.shift) > 2.0 * tolerance and best.matched - other.matched < lead:
                by_s = other.shift - best.shift
                return f"a shift by {by_s:.6g} s more fits {other.matched} edges where the best fits {best.matched}"
    return _judged(wanted, found, best, rate_reach, widest, sees)


@dataclass(frozen=True)
class _Fit:
    """Observed edges stand at ``t + shift + rate * (t - at)``."""

    at: float
    shift: float
    rate: float
    tolerance: float = math.inf
    matched: int = 0

    def moved(self, t: Floats) -> Floats:
        return t + self.shift + self.rate * (t - self.at)

    def seen_from(self, at: float) -> _Fit:
        return _Fit(at, self.shift + self.rate * (at - self.at), self.rate, self.tolerance, self.matched)


def _coarse(e: Train, o: Train, middle: float, reach_s: float, rate_reach: float, wide_s: float) -> Iterator[_Fit]:
    """Shifts that bring many edges of a block together: of the first ones, where the marks are, the last, and the

    middle. The likeliest of each block, and every one half as likely.
    """
    n = len(e)
    for begin in dict.fromkeys((0, max(n - BLOCK, 0), max((n - BLOCK) // 2, 0))):
        at, level = e.at_s[begin : begin + BLOCK], e.level[begin : begin + BLOCK]
        centre = float(at[len(at) // 2])
        within = reach_s + rate_reach * abs(centre - middle) + wide_s
        width = wide_s + rate_reach * float(np.ptp(at))
        apart = []
        for value in np.unique(level):
            seen, due = o.at_s[o.level == value], at[level == value]
            low, high = np.searchsorted(seen, due - within), np.searchsorted(seen, due + within)
            apart += [d - seen[a:b] for d, a, b in zip(due, low, high, strict=True)]
        delta = np.sort(np.concatenate(apart)) if apart else np.zeros(0)
        if not len(delta):
            continue
        votes = np.searchsorted(delta, delta + width, side="right") - np.arange(len(delta))
        order = np.lexsort((np.abs(delta), -votes))
        top, chosen = votes[order[0]], list[float]()
        for k in order:
            if 2 * votes[k] < top or len(chosen) == CANDIDATES:
                break
            centred = float(np.median(delta[k : k + votes[k]]))
            if all(abs(centred - c) > width for c in chosen):
                chosen.append(centred)
                yield _Fit(centre, centred, 0.0)


def _residuals(e: Train, o: Train, fit: _Fit, tolerance: float) -> tuple[Indices, Indices, Floats]:
    """Expected and observed edges that lie within the tolerance of each other, each once, and the seconds between."""
    moved = fit.moved(o.at_s)
    rows: list[tuple[Indices, Indices, Floats]] = []
    for value in np.unique(e.level):
        due, seen = np.flatnonzero(e.level == value), np.flatnonzero(o.level == value)
        if not len(seen):
            continue
        right = np.clip(np.searchsorted(moved[seen], e.at_s[due]), 1, max(len(seen) - 1, 1))
        left, right = right - 1, np.minimum(right, len(seen) - 1)
        nearer = np.abs(moved[seen[left]] - e.at_s[due]) <= np.abs(moved[seen[right]] - e.at_s[due])
        which = seen[np.where(nearer, left, right)]
        off = e.at_s[due] - moved[which]
        order = np.argsort(np.abs(off), kind="stable")
        order = order[np.abs(off[order]) <= tolerance]
        _, first = np.unique(which[order], return_index=True)
        keep = np.sort(order[first])
        rows.append((due[keep], which[keep], off[keep]))
    if not rows:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
    due, which, off = (np.concatenate(part) for part in zip(*rows, strict=True))
    order = np.argsort(due)
    return due[order], which[order], off[order]


def _grown(e: Train, o: Train, fit: _Fit, middle: float, rate_reach: float, wide_s: float, sees: Input) -> _Fit | None:
    """Follow a shift from its block outwards until it holds all edges, with rate and tolerance found on the way."""
    begin = max(int(np.searchsorted(e.at_s, fit.at)) - BLOCK // 2, 0)
    end, tolerance, whole = begin + BLOCK, wide_s, 0
    least = 2.0 * sees.step_s + 2.0 * sees.tick_s + 1e-9
    while whole < 4:
        part = Train(e.at_s[begin:end], e.level[begin:end], e.ends[begin:end])
        due, _, off = _residuals(part, o, fit, tolerance)
        if len(due) < LEAST:
            return None
        fit, scale = _stepped(fit, part.at_s[due], off, rate_reach, least)
        tolerance = min(max(OUTLIER * scale, least), wide_s)
        whole += begin == 0 and end >= len(e)
        begin, end = max(begin - (end - begin) // 2, 0), end + (end - begin) // 2
    return _counted(e, o, _Fit(fit.at, fit.shift, fit.rate, tolerance).seen_from(middle), middle, tolerance)


def _stepped(fit: _Fit, at_s: Floats, off: Floats, rate_reach: float, least: float) -> tuple[_Fit, float]:
    """One least-squares step in shift and rate, the rate known to half its reach; and the scatter by the median."""
    lever = at_s - fit.at
    scale = max(1.4826 * float(np.median(np.abs(off - np.median(off)))), least / OUTLIER)
    known = 2.0 * scale / rate_reach if rate_reach > 0 else 1e12
    design = np.vstack([np.column_stack([np.ones(len(off)), lever]), [0.0, known]])
    by, rate = np.linalg.lstsq(design, np.append(off, -known * fit.rate), rcond=None)[0]
    left = off - by - rate * lever
    scale = 1.4826 * float(np.median(np.abs(left)))
    return _Fit(fit.at, fit.shift + float(by), fit.rate + float(rate)), scale


def _refined(e: Train, o: Train, fit: _Fit, middle: float, tolerance: float) -> _Fit:
    """A rival given its best shift nearby."""
    _, _, off = _residuals(e, o, fit, 4.0 * tolerance)
    return _Fit(middle, fit.shift + (float(np.median(off)) if len(off) else 0.0), fit.rate)


def _counted(e: Train, o: Train, fit: _Fit, middle: float, tolerance: float) -> _Fit:
    count = len(_residuals(e, o, fit, tolerance)[0])
    return _Fit(middle, fit.shift, fit.rate, tolerance, count)


def _periods(e: Train) -> list[float]:
    """By how much a nearly regular train can be shifted and look alike: one to three usual distances."""
    out = []
    for k in range(1, min(7, len(e))):
        period = float(np.median(e.at_s[k:] - e.at_s[:-k]))
        out += [period, -period]
    return out


def _followed(e: Train, o: Train, fit: _Fit, widest: float) -> tuple[Indices, Indices, Floats]:
    """Edges that match although the clocks wander: within the tolerance of their neighbours, not of the line."""
    from scipy.ndimage import median_filter

    due, which, off = _residuals(e, o, fit, widest)
    near = np.abs(off - median_filter(off, min(NEIGHBOURS, len(off)), mode="nearest")) <= fit.tolerance
    return due[near], which[near], off[near]


def _judged(e: Train, o: Train, fit: _Fit, rate_reach: float, widest: float, sees: Input) -> Match:
    """The fit with its sigmas: scatter, looks, the disagreement of begins and ends, what wanders, and the lag."""
    middle, tolerance = fit.at, fit.tolerance
    for _ in range(2):
        due, _, off = _followed(e, o, fit, widest)
        fit = replace(_stepped(fit, e.at_s[due], off, rate_reach, tolerance)[0], tolerance=tolerance)
    due, which, off = _followed(e, o, fit, widest)
    n, at = len(off), o.at_s[which]
    ref = float(at.mean())
    step = max(sees.step_s, 1e-12)
    scatter = max(float(np.std(off, ddof=2)) if n > 3 else tolerance, step / math.sqrt(12.0))
    random = max(scatter**2 - step**2 / 12.0, 0.0) / n
    looks = _looks(e.at_s[due] - fit.shift - fit.rate * (at - middle), step)
    ends = e.ends[due]
    split = 0.5 * abs(float(off[ends].mean() - off[~ends].mean())) if np.any(ends) and not np.all(ends) else 0.0
    shape = max(split**2 - scatter**2 / n, 0.0)
    lag, tick = sees.lag_s**2 / 3.0, sees.tick_s**2 / 12.0
    sigma = math.sqrt(random + looks**2 + shape + _wander(off, scatter) + lag + tick)
    spread = float(np.sum((at - ref) ** 2))
    rate_sigma = min(scatter / math.sqrt(spread), 0.5 * rate_reach) if spread > 0 else 0.5 * rate_reach
    moved = fit.moved(o.at_s)
    watched = int(np.count_nonzero((e.at_s >= moved[0] - tolerance) & (e.at_s <= moved[-1] + tolerance)))
    inside = int(np.count_nonzero((moved >= e.at_s[0] - tolerance) & (moved <= e.at_s[-1] + tolerance)))
    shift = fit.shift + fit.rate * (ref - middle)
    return Match(shift, fit.rate, ref, sigma, rate_sigma, n, watched - n, inside - len(np.unique(which)))


def _looks(at_s: Floats, step_s: float) -> float:
    """What looking now and then leaves in the mean of edges: the sawtooth of each, averaged over where the edges

    stand between the looks. All at one place: step / sqrt(12); all over: that over root n. Root mean square over the
    unknown offset, by its Fourier series: step^2 / 2 pi^2 sum |C_k|^2 / k^2, C_k the mean of exp(2 pi i k phase).
    """
    phase = 2.0 * np.pi * np.mod(at_s / step_s, 1.0)
    turn = np.exp(1j * phase)
    power, total = np.ones_like(turn), 0.0
    for k in range(1, HARMONICS + 1):
        power = power * turn
        total += abs(complex(power.mean())) ** 2 / k**2
    rest = (math.pi**2 / 6.0 - sum(1.0 / k**2 for k in range(1, HARMONICS + 1))) / len(at_s)
    return step_s * math.sqrt((total + rest) / (2.0 * math.pi**2))


def _wander(off: Floats, scatter: float) -> float:
    """Variance that a straight line leaves between the clocks, beyond what scatter explains, over eight stretches."""
    if len(off) < 3 * STRETCHES:
        return 0.0
    parts = np.array_split(off, STRETCHES)
    return max(float(np.mean([p.mean() ** 2 - scatter**2 / len(p) for p in parts])), 0.0)
