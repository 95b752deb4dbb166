"""Where readings were lost, from the places of the spans in the trace."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.timing.activity_signal import correlated, edges_of, mean_signal
from rig.analysis.timing.spans_in_trace import NOWHERE, Seen, Spans, most_unlike
from rig.types import Floats, Indices

UNSEEN = 0.7
"""What a span counts that no place shows; one that shows no rise counts about 1."""
FEWEST = 2.0
"""Spans that must fit a new place better before a break is assumed there."""
MOST_UNLIKE = 0.05
"""Share of the spans that may fit no place, apart from those in a break."""
GROUPS, PEAKS, LONGER = 12, 4, 1.5
COARSE_POINTS = 1 << 18
HALF = 0.5
"""Part of the usual rise below which a span shows none."""
ABSENT = 2
"""Last spans that show no rise, though all up to the break do, from which readings are known to be lost."""
LONGER_BY = np.array([0.75, 1.0, 1.5, 2.0, 3.0])


@dataclass(frozen=True)
class Piece:
    """Successive spans that lie earlier in the trace by the same number of readings."""

    first: int
    last: int
    lag: float


@dataclass(frozen=True)
class Breaks:
    """The spans in two pieces or more, or in one with ``left_at_end`` spans after it that the trace does not show."""

    pieces: list[Piece]
    left_at_end: int
    unlike: float
    """How far the spans are from their places, on average; see ``Seen.unlike``."""
    certain: bool
    """Whether spans rise in the pieces and nowhere else."""


def breaks_in(seen: Seen, reach: float, most: float) -> Breaks | None:
    """Return where the spans are in the trace, or None if they prove no break.

    ``reach`` is how far the brackets may be off, ``most`` how many readings may be missing, as numbers of readings.
    """
    spans = seen.spans
    lags = np.unique(np.round([0.0, *_candidates(seen.watts, spans, -reach - 1.0, most)]))
    cost = seen.unlike(lags)
    cost = np.minimum(cost / most_unlike(cost.min(axis=1)), 1.0)
    chosen = _cheapest(cost, spans, lags)
    pieces = [_placed(p, seen) for p in _pieces(chosen, lags)]
    if not pieces:
        return None
    if abs(pieces[0].lag) > reach + 1.0:
        if longer(pieces[0], seen):
            return None
        pieces.insert(0, Piece(-1, _leading(cost[:, lags == 0.0][:, 0], spans, pieces[0]) - 1, 0.0))
    held = chosen >= 0
    unlike = np.where(held, cost[np.arange(len(spans)), chosen], UNSEEN)
    left_at_end = len(spans) - 1 - int(np.flatnonzero(held)[-1])
    if np.count_nonzero(unlike[held] >= 1.0) > MOST_UNLIKE * np.count_nonzero(held):
        return None
    if len(pieces) < 2 and (not left_at_end or np.any(unlike[held] >= 1.0)):
        return None
    shown, last = seen.rise(pieces[-1].lag) >= HALF, pieces[-1].last
    # readings from after the break may stand at the next spans by chance, but nothing stands at the very last
    whole = bool(shown[: last + 1].all() and not shown[max(last + 1, len(spans) - ABSENT) :].any())
    return Breaks(pieces, left_at_end, float(unlike.mean()), whole if left_at_end else len(pieces) > 1)


def _leading(cost: Floats, spans: Spans, piece: Piece) -> int:
    """How many spans from the first stand where they were recorded, before the first piece that is elsewhere.

    The cheapest path may leave out a few that cost as much to hold as the break.
    """
    before = (cost < 1.0) & (spans.end <= spans.begin[piece.first] - piece.lag)
    return int(np.argmin(np.append(before, False)))


def _candidates(watts: Floats, spans: Spans, least: float, most: float) -> Iterator[float]:
    """Lags at which stretches of spans correlate best with the trace: groups, and all after a moment."""
    joined = max(1, int(spans.width / 16.0)) if len(watts) > COARSE_POINTS else 1
    n = len(watts) // joined
    values = watts[: n * joined].reshape(n, joined).mean(axis=1)
    number = np.arange(len(spans))
    groups = np.array_split(number, min(GROUPS, len(spans) // 4))
    after = [number[-int(k) :] for k in 4.0 * LONGER ** np.arange(math.log(len(spans) / 4.0, LONGER))]
    for group in (*groups, *after):
        some = spans.some(group)
        first, last = np.clip(np.array([some.begin[0], some.end[-1]]) / joined, 0, None).astype(int)
        if last - first >= n:
            continue
        grid = np.arange(first, last + 1, dtype=float)
        train = mean_signal(edges_of(np.column_stack([some.on, some.off]) / joined), grid, grid + 1.0)
        score = correlated(values, train - train.mean())
        lag = float(joined) * (first - np.arange(len(score)))
        score[(lag > most) | (lag < least)] = -np.inf
        apart = max(1, int(0.5 * spans.width / joined))
        for _ in range(PEAKS):
            best = int(np.argmax(score))
            if not np.isfinite(score[best]):
                break
            yield float(lag[best])
            score[max(0, best - apart) : best + apart + 1] = -np.inf


def _cheapest(cost: Floats, spans: Spans, lags: Floats) -> Indices:
    """The place of each span along the cheapest path (Viterbi, 1967), or -1 for a span that no place shows.

    ``cost`` has shape (k, m). A change of place costs ``FEWEST`` spans. Readings are only ever lost, so the lag grows,
    and spans that were lost between two places have none.
    """
    k, m = cost.shape
    # the last span of one place (row) that may come before each span of another (column)
    starts = spans.begin[:, None] - lags + 1.0
    before = np.array([np.searchsorted(spans.end - a, starts, side="right") for a in lags]) - 1
    later, place = lags > lags[:, None], np.arange(m)
    total = np.empty((k, m))
    rested = np.empty((k, m))
    origin = np.full((k, m, 2), -1, dtype=np.int64)
    since = np.zeros((k, m), dtype=np.int64)
    for i in range(k):
        arrive = np.full(m, UNSEEN * i)  # no span before it was seen
        best = np.full((m, 2), -1, dtype=np.int64)
        if i:
            p = np.minimum(before[:, i], i - 1)
            through = np.where(later & (p >= 0), rested[p, place[:, None]] + UNSEEN * (i - 1 - p) + FEWEST, np.inf)
            a = through.argmin(axis=0)
            better = through[a, place] < arrive
            arrive = np.where(better, through[a, place], arrive)
            best[better] = np.column_stack([since[p[a, place], a], a])[better]
            stay = total[i - 1] <= arrive
            arrive = np.where(stay, total[i - 1], arrive)
            best[stay, 0], best[stay, 1] = i - 1, np.flatnonzero(stay)
        total[i], origin[i] = arrive + cost[i], best
        waited = rested[i - 1] + UNSEEN if i else np.full(m, np.inf)
        rested[i] = np.minimum(total[i], waited)
        since[i] = np.where(total[i] <= waited, i, since[i - 1] if i else i)
    at = int(np.argmin(rested[-1]))
    path, i = np.full(k, -1, dtype=np.int64), int(since[-1, at])
    while i >= 0:
        path[i] = at
        i, at = origin[i, at]
    return path


def _pieces(chosen: Indices, lags: Floats) -> Iterator[Piece]:
    """Runs of spans at one lag."""
    held = np.flatnonzero(chosen >= 0)
    breaks = np.flatnonzero(np.abs(np.diff(lags[chosen[held]])) > 1.5)
    for run in np.split(held, breaks + 1):
        yield Piece(int(run[0]), int(run[-1]), float(np.median(lags[chosen[run]])))


def _placed(piece: Piece, seen: Seen) -> Piece:
    """The piece with its lag to a part of a reading."""
    lags = piece.lag + 0.25 * np.arange(-10, 11)
    total = seen.some(slice(piece.first, piece.last + 1)).unlike(lags).sum(axis=0)
    return replace(piece, lag=float(lags[np.argmin(total)]))


def longer(piece: Piece, seen: Seen) -> bool:
    """Return whether spans that are longer at one end fit as well as at another place, as if a device wakes early."""
    some = seen.some(slice(piece.first, piece.last + 1))
    moved = float(some.unlike(np.array([piece.lag])).sum())
    s = some.spans
    for part in LONGER_BY * abs(piece.lag):
        on, off = (s.on - part, s.off) if piece.lag > 0.0 else (s.on, s.off + part)
        longer = Spans(on, off, np.minimum(s.begin, on), np.maximum(s.end, off))
        if float(replace(some, spans=longer).unlike(NOWHERE).sum()) < 2.0 * moved:
            return True
    return False
