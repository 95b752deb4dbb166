"""GPIO alignment: the shift and rate that fit the edges on a pin to the spans that the device stamped.

The pin shows when a span began or ended, to a tick of the meter. The device's stamps show which span it was. Edges may
be missing, extra or bouncing, and the brackets may be uncertain by several spans. Irregular spacing or the train of
marks then decides. If a shift by a whole period fits about as well, the edges are not used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.timing.gpio_edges import GpioInput, Train, quiet_s
from rig.types import Floats, Indices

LEAST = 6
"""Edges that must match; at least half of those expected while the meter recorded must match too."""
LEAD = 8
"""The best shift must beat any other by this many edges; a shift by a period loses at least four (of two spans)."""
BLOCK = 64
CANDIDATES = 24
OUTLIER = 6.0
"""An edge that is farther away than this many standard deviations (by the median) belongs to another span."""
NEIGHBOURS = 9
STRETCHES = 8
HARMONICS = 64


@dataclass(frozen=True)
class Match:
    """The correction ``shift_s + rate * (t - ref_s)`` to add to the meter's seconds.

    Sigmas are against the device's stamps. ``missing`` is the number of edges that were expected while the meter
    recorded but not seen. ``extra`` is the number of edges that were seen but not expected.
    """

    shift_s: float
    rate: float
    ref_s: float
    sigma_s: float
    rate_sigma: float
    matched: int
    missing: int
    extra: int


def match(wanted: Train, found: Train, reach_s: float, rate_reach: float, input_: GpioInput) -> Match | str:
    """Fit the observed edges to the expected ones, or return why the edges do not decide.

    The shift is within +-``reach_s`` in the middle of the spans, the rate within about +-``rate_reach`` (two sigmas).
    """
    if min(len(wanted), len(found)) < LEAST:
        return f"{len(found)} edges are too few for {len(wanted)} expected"
    middle = float(np.median(wanted.at_s))
    widest = max(quiet_s(wanted), input_.step_s)
    starts = list(_coarse(wanted, found, middle, reach_s, rate_reach, widest))
    grown = [_grown(wanted, found, s, middle, rate_reach, widest, input_) for s in starts]
    fits = [f for f in grown if f is not None and abs(f.shift) <= reach_s and abs(f.rate) <= 2.0 * rate_reach + 1e-12]
    if not fits:
        return "no shift that the brackets allow fits the edges to the spans"
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
            # a rival shift beyond the brackets counts only if it fits better
            lead = LEAD if abs(other.shift) <= reach_s else 1 - LEAD // 2
            if abs(other.shift - best.shift) > 2.0 * tolerance and best.matched - other.matched < lead:
                by_s = other.shift - best.shift
                return f"a shift {by_s:.6g} s away fits {other.matched} edges, and the best shift fits {best.matched}"
    return _judged(wanted, found, best, rate_reach, widest, input_)


@dataclass(frozen=True)
class _Fit:
    """Observed edges are at ``t + shift + rate * (t - at)``."""

    at: float
    shift: float
    rate: float
    tolerance: float = math.inf
    matched: int = 0

    def moved(self, t: Floats) -> Floats:
        return t + self.shift + self.rate * (t - self.at)


def _coarse(e: Train, o: Train, middle: float, reach_s: float, rate_reach: float, wide_s: float) -> Iterator[_Fit]:
    """Yield shifts that bring many edges of a block together.

    The blocks are the first edges, which hold the marks, the last edges and the middle ones. For each block, the
    likeliest shift and every shift at least half as likely are yielded.
    """
    n = len(e)
    for begin in dict.fromkeys((0, max(n - BLOCK, 0), max((n - BLOCK) // 2, 0))):
        at, level = e.at_s[begin : begin + BLOCK], e.level[begin : begin + BLOCK]
        centre = float(at[len(at) // 2])
        within = reach_s + rate_reach * abs(centre - middle) + wide_s
        width = wide_s + rate_reach * float(np.ptp(at))
        offsets = []
        for value in np.unique(level):
            seen, due = o.at_s[o.level == value], at[level == value]
            low, high = np.searchsorted(seen, due - within), np.searchsorted(seen, due + within)
            offsets += [d - seen[a:b] for d, a, b in zip(due, low, high, strict=True)]
        delta = np.sort(np.concatenate(offsets)) if offsets else np.zeros(0)
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
    """Return pairs of expected and observed edges within the tolerance, each edge once, and the seconds between."""
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


def _grown(
    e: Train, o: Train, fit: _Fit, middle: float, rate_reach: float, wide_s: float, input_: GpioInput
) -> _Fit | None:
    """Grow a fit from its block to all edges; rate and tolerance are found on the way."""
    begin = max(int(np.searchsorted(e.at_s, fit.at)) - BLOCK // 2, 0)
    end, tolerance, whole = begin + BLOCK, wide_s, 0
    least = 2.0 * input_.step_s + 2.0 * input_.tick_s + 1e-9
    while whole < 4:
        part = Train(e.at_s[begin:end], e.level[begin:end], e.ends[begin:end])
        due, _, off = _residuals(part, o, fit, tolerance)
        if len(due) < LEAST:
            return None
        fit, scale = _stepped(fit, part.at_s[due], off, rate_reach, least)
        tolerance = min(max(OUTLIER * scale, least), wide_s)
        whole += begin == 0 and end >= len(e)
        begin, end = max(begin - (end - begin) // 2, 0), end + (end - begin) // 2
    return _counted(e, o, _Fit(middle, fit.shift + fit.rate * (middle - fit.at), fit.rate), middle, tolerance)


def _stepped(fit: _Fit, at_s: Floats, off: Floats, rate_reach: float, least: float) -> tuple[_Fit, float]:
    """Return the fit after one least-squares step, with the rate known to half its reach, and the median scatter."""
    lever = at_s - fit.at
    scale = max(1.4826 * float(np.median(np.abs(off - np.median(off)))), least / OUTLIER)
    known = 2.0 * scale / rate_reach if rate_reach > 0 else 1e12
    design = np.vstack([np.column_stack([np.ones(len(off)), lever]), [0.0, known]])
    by, rate = np.linalg.lstsq(design, np.append(off, -known * fit.rate), rcond=None)[0]
    left = off - by - rate * lever
    scale = 1.4826 * float(np.median(np.abs(left)))
    return _Fit(fit.at, fit.shift + float(by), fit.rate + float(rate)), scale


def _refined(e: Train, o: Train, fit: _Fit, middle: float, tolerance: float) -> _Fit:
    """Return a rival fit moved to its best shift nearby."""
    _, _, off = _residuals(e, o, fit, 4.0 * tolerance)
    return _Fit(middle, fit.shift + (float(np.median(off)) if len(off) else 0.0), fit.rate)


def _counted(e: Train, o: Train, fit: _Fit, middle: float, tolerance: float) -> _Fit:
    count = len(_residuals(e, o, fit, tolerance)[0])
    return _Fit(middle, fit.shift, fit.rate, tolerance, count)


def _periods(e: Train) -> list[float]:
    """Return shifts after which a nearly regular train looks the same: one to three usual distances."""
    out = []
    for k in range(1, min(7, len(e))):
        period = float(np.median(e.at_s[k:] - e.at_s[:-k]))
        out += [period, -period]
    return out


def _followed(e: Train, o: Train, fit: _Fit, widest: float) -> tuple[Indices, Indices, Floats]:
    """Return pairs of edges that match within the tolerance of their neighbours, since clocks wander."""
    from scipy.ndimage import median_filter

    due, which, off = _residuals(e, o, fit, widest)
    near = np.abs(off - median_filter(off, min(NEIGHBOURS, len(off)), mode="nearest")) <= fit.tolerance
    return due[near], which[near], off[near]


def _judged(e: Train, o: Train, fit: _Fit, rate_reach: float, widest: float, input_: GpioInput) -> Match:
    """Return the fit with its sigmas: scatter, sampling, difference of begins and ends, wander, and lag of the pin."""
    middle, tolerance = fit.at, fit.tolerance
    for _ in range(2):
        due, _, off = _followed(e, o, fit, widest)
        fit = replace(_stepped(fit, e.at_s[due], off, rate_reach, tolerance)[0], tolerance=tolerance)
    due, which, off = _followed(e, o, fit, widest)
    n, at = len(off), o.at_s[which]
    ref = float(at.mean())
    step = max(input_.step_s, 1e-12)
    scatter = max(float(np.std(off, ddof=2)) if n > 3 else tolerance, step / math.sqrt(12.0))
    random = max(scatter**2 - step**2 / 12.0, 0.0) / n
    looks = _looks(e.at_s[due] - fit.shift - fit.rate * (at - middle), step)
    ends = e.ends[due]
    split = 0.5 * abs(float(off[ends].mean() - off[~ends].mean())) if np.any(ends) and not np.all(ends) else 0.0
    shape = max(split**2 - scatter**2 / n, 0.0)
    lag, tick = input_.lag_s**2 / 3.0, input_.tick_s**2 / 12.0
    sigma = math.sqrt(random + looks**2 + shape + _wander(off, scatter) + lag + tick)
    spread = float(np.sum((at - ref) ** 2))
    rate_sigma = min(scatter / math.sqrt(spread), 0.5 * rate_reach) if spread > 0 else 0.5 * rate_reach
    moved = fit.moved(o.at_s)
    watched = int(np.count_nonzero((e.at_s >= moved[0] - tolerance) & (e.at_s <= moved[-1] + tolerance)))
    inside = int(np.count_nonzero((moved >= e.at_s[0] - tolerance) & (moved <= e.at_s[-1] + tolerance)))
    shift = fit.shift + fit.rate * (ref - middle)
    return Match(shift, fit.rate, ref, sigma, rate_sigma, n, watched - n, inside - len(np.unique(which)))


def _looks(at_s: Floats, step_s: float) -> float:
    """Return the standard uncertainty of the mean of edges, because the input is sampled at intervals of ``step_s``.

    The error of an edge is a sawtooth of its position between two samples. It is step / sqrt(12) if all edges are at
    the same position, and smaller by root n if they are spread evenly. The result is the root mean square over the
    unknown offset, by its Fourier series: step^2 / 2 pi^2 sum |C_k|^2 / k^2, with C_k the mean of exp(2 pi i k phase).
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
    """Return the variance that a straight line leaves between the clocks over eight stretches, beyond scatter."""
    if len(off) < 3 * STRETCHES:
        return 0.0
    parts = np.array_split(off, STRETCHES)
    return max(float(np.mean([p.mean() ** 2 - scatter**2 / len(p) for p in parts])), 0.0)
