"""If the grid of readings contradicts the spans, give the readings the times that the spans prove, or none.

In a uniform trace, only the number of a reading says when it was taken. If a driver loses a block of readings, delivers
each twice or declares a wrong rate, every later reading has a wrong time. The path of the spans then jumps, or turns
steadily, and shows how many readings were lost and where, or at which rate they were taken. All this is
rare, so a fault must explain more spans than it costs. Of two equally good explanations, the one without it is taken.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.result.finding import Finding, note
from rig.analysis.timing.lag_path import COARSE_SPANS, GROUPS, PER_SPAN, STANDS_OUT, far_places
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.shown import AT_ONCE, Cells, Shown
from rig.recording.traces import Trace
from rig.types import Bools, Floats, Indices

BREAK = 3.0
"""A break, a wrong rate or clocks that are apart must explain more than this many spans: these faults are rare."""
UNSEEN = 0.7
"""Cost of a span that no reading covers; a span without its rise costs 1."""
LEAST_UNLIKE, USUAL, MOST_UNLIKE = 0.05, 4.0, 0.6
"""A span is not at a place if levels leave at least LEAST_UNLIKE + USUAL * usual, or MOST_UNLIKE, of its variance."""
LAST = 2
"""If readings before the last spans are lost, at least this many of these spans show no rise, and all others do."""
CLEAR = 0.25
"""Single spans prove nothing if levels usually leave more than this share of their variance."""
MOST = 0.5
"""A trace that shows more than this share of the spans at other times is refused, even if no break explains it."""
STRAYS = 0.05
"""At most this share of the spans may disagree with the explanation that was found."""
FARTHEST = 0.1
"""Largest deviation of the true rate from the declared one, as a part of it."""
LEAST_CHANGES = 20
"""At least this many changes of value show that each reading was delivered two to four times."""
AFTER_END_S, AFTER_END_SHARE = 0.5, 0.01
"""The last readings of a meter may end this long after the host's last stamp: a time plus a share of the run."""
REMEDY = (
    "Check that the driver delivers every reading once and at the declared rate (rate_hz, tick_hz), and measure again"
)
"""The remedy if a check fails."""


@dataclass(frozen=True)
class Bridged:
    """A trace with the times that the spans prove. Its time scale is uncertain by ``sigma_s`` and ``rate_sigma``."""

    trace: Trace
    check: Finding
    note: Finding
    sigma_s: float = 0.0
    rate_sigma: float = 0.0


def after_end(r: Readings, end_s: float) -> tuple[Finding, ...]:
    """Return a failed check if readings were taken after the recording had ended, on the run's time."""
    late_s, allowed_s = float(r.end_s[-1]) - end_s, AFTER_END_S + AFTER_END_SHARE * (end_s - float(r.start_s[0]))
    if late_s <= allowed_s:
        return ()
    rule = f"readings of rail {r.rail.name} after the end of the recording"
    return (Finding(rule, f"{late_s:.3g} s", f"at most {allowed_s:.3g} s", False),)


def spare_s(r: Readings, end_s: float) -> float:
    """Return how much later a meter's last reading could end, if the recording ended at ``end_s``."""
    return end_s + AFTER_END_S + AFTER_END_SHARE * (end_s - float(r.start_s[0])) - float(r.end_s[-1])


def unlike(s: Shown, late_s: Floats, usual: float) -> Floats:
    """Return the cost of each span at each place, from 0 to 1 (the span is not there), shape (k, m).

    It is the share of variance that levels leave, divided by the most that they may leave. A span that no reading
    covers costs ``UNSEEN``.
    """
    most = min(LEAST_UNLIKE + USUAL * usual, MOST_UNLIKE)
    return np.where(s.covered(late_s), np.minimum(s.left(late_s) / most, 1.0), UNSEEN)


def strays(s: Shown, late_s: Floats | float = 0.0) -> Bools:
    """Return which spans are not at their stated place, though most others are, shape (k,)."""
    at = np.broadcast_to(late_s, (len(s.cells),))[:, None]
    return np.asarray(unlike(s, at, float(np.median(s.left(at))))[:, 0] >= 1.0)


def bridged(trace: Trace, s: Shown, wandered: Shown | None, reach_s: float, end_s: float) -> Bridged | Finding | None:
    """Return the trace with the times that the spans prove, a failed check where they prove none, or None if it fits.

    ``s`` has times as they were aligned; clocks may be off by ``reach_s``. ``wandered`` has times along a path that
    may explain the spans as well as a break. The recording ended at ``end_s``, so no reading is much later.
    """
    looked = _looked(s, reach_s, end_s) if trace.uniform else None
    if looked is None:
        return None
    chosen, total = _cheapest(looked.cost, s.cells, looked.lates, BREAK * looked.far)
    pace, paced = _pace(s, looked.usual)
    least = looked.none if wandered is None else float(unlike(wandered, np.zeros(1), looked.usual).sum())
    rule = f"stretches of spans that rail {s.readings.rail.name} shows at another time"
    astray = Finding(rule, f"{np.count_nonzero(looked.absent)} of {len(s.cells)} spans", "0", False)
    none = astray if np.mean(looked.absent) > MOST else None
    if min(total, paced + BREAK) >= looked.none or min(total, paced) >= least:
        return none if wandered is None or least > MOST * len(s.cells) else None
    if paced + BREAK < total:
        found = _paced(trace, s, pace, end_s)
    elif _proven(s, looked, chosen):
        found = _moved(trace, s, chosen, looked.lates, reach_s)
    else:
        return none
    return found or astray


@dataclass(frozen=True)
class _Looked:
    """Costs of spans at each lateness, shapes (k, m) and (m,), and where they were aligned, shape (k,).

    ``far`` marks latenesses beyond the brackets, and ``absent`` spans that are not where they were aligned. ``none`` is
    the cost of all spans without a break, and ``usual`` the share of variance that levels usually leave.
    """

    lates: Floats
    far: Bools
    cost: Floats
    here: Floats
    absent: Bools
    none: float
    usual: float


def _looked(s: Shown, reach_s: float, end_s: float) -> _Looked | None:
    """Compute the costs of spans at all possible places; None if single spans prove nothing, or too few are absent."""
    places = _places(s, reach_s, max(spare_s(s.readings, end_s), 0.0))
    if float(np.median(s.left(np.array([0.0, *(at for _, at in places)])).min(axis=1))) > 2.0 * CLEAR:
        return None  # finer places would not make spans clear
    closely = np.array([_closely(s, which, at) for which, at in places])
    lates = np.append(0.0, np.unique(np.round(4.0 * closely / s.period_s)) * (s.period_s / 4.0))
    usual = float(np.median(s.left(lates).min(axis=1)))
    if usual > CLEAR or s.tau_s > CLEAR * s.cells.width_s:
        return None
    # a core that sleeps while others work shows spans that draw less than what is beside them
    falls = replace(s, sums=s.sums * np.array([[1.0], [-1.0], [1.0]]))
    here = min((unlike(x, np.zeros(1), usual)[:, 0] for x in (s, falls)), key=lambda x: float(x.sum()))
    cost, far = unlike(s, lates, usual), np.abs(lates) > reach_s
    absent = (here >= 1.0) & (s.left(np.zeros(1))[:, 0] > STANDS_OUT)
    none = min(float(here.sum()), *cost[:, ~far].sum(axis=0))
    return None if np.count_nonzero(absent) < LAST else _Looked(lates, far, cost, here, absent, none, usual)


def _proven(s: Shown, looked: _Looked, chosen: Indices) -> bool:
    """Return whether the spans along a path prove its breaks; a span without a place proves nothing."""
    held = np.flatnonzero(chosen >= 0)
    own, late_s, far = looked.cost[held, chosen[held]], looked.lates[chosen[held]], looked.far[chosen[held]]
    if np.count_nonzero(own >= 1.0) > STRAYS * len(held):
        return False
    if jumps := np.count_nonzero(np.abs(np.diff(late_s)) > 2.0 * s.period_s) + int(far[0]):
        gained = bool(np.sum(looked.here[held] - own) > BREAK * jumps)
        return gained and not any(_longer(s, piece) for piece in _pieces(s, chosen, looked.lates))
    # readings after a break may match the next spans by chance, but after the last spans there are none
    whole = np.all(own < 1.0) and len(held) == held[-1] + 1 <= len(chosen) - LAST
    return bool(whole and looked.absent[-LAST:].all())


# ---- readings that arrived several times ----------------------------------------------------


def copies_of(value: Floats) -> int:
    """Return how often each reading is repeated: n if values change only at every n-th place."""
    change = np.flatnonzero(np.diff(value) != 0.0) + 1
    for copies in (4, 3, 2):
        if len(change) >= LEAST_CHANGES and not np.any(change % copies):
            return copies
    return 1


def delivered_once(trace: Trace, copies: int) -> Bridged:
    """Return a trace whose readings were each delivered ``copies`` times, with one of each on the declared grid."""
    n = -(-len(trace.value) // copies)
    start, end, value, over = trace.start_tick[:n], trace.end_tick[:n], trace.value[::copies], trace.overload[::copies]
    once = replace(trace, start_tick=start, end_tick=end, value=value, overload=over)
    return Bridged(once, *delivered(trace.rail.name, copies))


def delivered(name: str, copies: int) -> tuple[Finding, Finding]:
    """Return the failed check and the note for a rail whose readings were delivered several times."""
    check = Finding(f"deliveries of each reading of rail {name}", str(copies), "1", False)
    return check, note(
        f"Rail {name}: every reading was delivered {copies} times, and its readings reach beyond the end of the "
        "recording. One of each is used, on the declared grid"
    )


# ---- a rate other than the declared one -------------------------------------------------------


def _pace(s: Shown, usual: float) -> tuple[float, float]:
    """Return the ratio of true to declared time between readings that fits best, and the cost of all spans with it."""
    since = s.cells.on_s - s.at_s[0]
    step = 0.1 * s.cells.width_s / float(since[-1])
    count, best = int(FARTHEST / max(step, 1e-12)), 1.0
    if not 1 <= count <= AT_ONCE or not s.readings.period_s:
        return 1.0, np.inf
    some = s.some(s.cells.evenly(COARSE_SPANS))
    paces = 1.0 + step * np.arange(-count, count + 1)
    for tries, of in ((paces, some), (step * np.linspace(-2.0, 2.0, 4 * GROUPS + 1), s)):
        at = tries if of is some else best + tries
        late = (of.cells.on_s - s.at_s[0])[:, None] * (1.0 / at - 1.0)
        left = unlike(of, late, usual).sum(axis=0)
        best = float(at[np.argmin(left)])
    drifts = abs(1.0 / best - 1.0) * float(since[-1] - since[0]) > 0.5 * s.cells.width_s
    return best, float(left.min()) if drifts else np.inf


def _paced(trace: Trace, s: Shown, pace: float, end_s: float) -> Bridged | None:
    """Return the trace on the grid of this pace; None if spans still stray or readings would be taken after the end."""
    r, c = s.readings, s.cells
    if (pace - 1.0) * float(r.end_s[-1] - r.start_s[0]) > spare_s(r, end_s):
        return None
    if float(np.mean(strays(s, (c.on_s - s.at_s[0]) * (1.0 / pace - 1.0)))) > STRAYS:
        return None
    first, name = float(trace.start_tick[0]), trace.rail.name
    start, end = (first + pace * (t - first) for t in (trace.start_tick, trace.end_tick))
    rail = replace(trace.rail, rate_hz=trace.rail.rate_hz / pace)
    check = Finding(f"true rate of rail {name} over the declared one", f"{1.0 / pace:.6f}", "1", False)
    told = note(
        f"Rail {name}: the spans fit the trace at {1.0 / pace:.6f} of the declared rate of readings, and at no other "
        f"rate within {FARTHEST:.0%}. The times of the readings are taken from this rate"
    )
    rate_sigma = 0.1 * c.width_s / float(c.off_s[-1] - s.at_s[0])
    return Bridged(replace(trace, rail=rail, start_tick=start, end_tick=end), check, told, 0.0, rate_sigma)


# ---- readings that were lost, and clocks that are apart ---------------------------------------


@dataclass(frozen=True)
class _Piece:
    """Successive spans that are equally late in the trace."""

    first: int
    last: int
    late_s: float


def _places(s: Shown, reach_s: float, most_s: float) -> list[tuple[Indices, float]]:
    """Return groups of spans with about how late each may be; groups are all spans, parts of the run, and its ends."""
    k, half_s = len(s.cells), 0.5 * float(np.median(np.diff(s.cells.on_s)))
    number, upto = np.arange(k), max(reach_s, half_s) + s.period_s
    groups = [g for g in np.array_split(number, min(GROUPS, max(k // 4, 1))) if len(g) > 1]
    count = 4.0
    while count < k:
        groups.append(number[-int(count) :])
        count *= 2.0
    ranges = ((-(most_s + upto), upto, 4), (-reach_s - s.period_s, reach_s + s.period_s, 1))
    return [(g, p) for g in (number, *groups) for a, b, n in ranges for p in far_places(s.some(g), a, b, each=n)]


def _cheapest(cost: Floats, c: Cells, lates: Floats, begins: Floats) -> tuple[Indices, float]:
    """Return the place of each span along the cheapest path (Viterbi, 1967), -1 without one, and the cost of the path.

    ``cost`` has shape (k, m), and ``begins`` is the cost of each place for the first span. A change of place costs
    ``BREAK``. Readings are only ever lost, so places only get earlier, and spans among lost readings have no place.
    """
    k, m = cost.shape
    # the last span at one place (row) that may precede each span at another (column)
    starts, place = c.on_s[:, None] + lates, np.arange(m)
    before = np.array([np.searchsorted(c.off_s + a, starts, side="right") for a in lates]) - 1
    earlier = lates < lates[:, None]
    total, rested = np.empty((k, m)), np.empty((k, m))
    origin, since = np.full((k, m, 2), -1, dtype=np.int64), np.zeros((k, m), dtype=np.int64)
    for i in range(k):
        arrive, best = UNSEEN * i + begins, np.full((m, 2), -1, dtype=np.int64)
        if i:
            p = np.minimum(before[:, i], i - 1)
            through = np.where(earlier & (p >= 0), rested[p, place[:, None]] + UNSEEN * (i - 1 - p) + BREAK, np.inf)
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
    path, i, least = np.full(k, -1, dtype=np.int64), int(since[-1, at]), float(rested[-1].min())
    while i >= 0:
        path[i] = at
        i, at = origin[i, at]
    return path, least


def _pieces(s: Shown, chosen: Indices, lates: Floats) -> list[_Piece]:
    """Return runs of spans that are equally late along a path."""
    held = np.flatnonzero(chosen >= 0)
    cut = np.flatnonzero(np.abs(np.diff(lates[chosen[held]])) > 2.0 * s.period_s) + 1
    return [_Piece(int(p[0]), int(p[-1]), float(np.median(lates[chosen[p]]))) for p in np.split(held, cut)]


def _moved(trace: Trace, s: Shown, chosen: Indices, lates: Floats, reach_s: float) -> Bridged | None:
    """Return the trace with readings moved by the lateness of the pieces of the path, or None if they do not fit."""
    pieces = [
        replace(p, late_s=_closely(s, np.arange(p.first, p.last + 1), p.late_s)) for p in _pieces(s, chosen, lates)
    ]
    left_at_end = len(s.cells) - 1 - pieces[-1].last
    if len(pieces) == 1 and not left_at_end and pieces[0].first < BREAK:
        return _apart(trace, s, pieces[0].late_s) if abs(pieces[0].late_s) > reach_s else None
    return _joined(trace, s, pieces, left_at_end)


def _closely(s: Shown, which: Indices, late_s: float) -> float:
    """Return how late these spans are, to a quarter of a reading."""
    some, step_s = s.some(which), max(s.cells.width_s / PER_SPAN, s.period_s)
    while step_s > s.period_s / 4.0:
        tries = late_s + step_s * np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
        late_s, step_s = float(tries[np.argmin(some.left(tries).sum(axis=0))]), 0.5 * step_s
    return late_s


def _longer(s: Shown, piece: _Piece) -> bool:
    """Return whether spans that are longer at one end fit as well as moved spans, as when a device wakes early."""
    some = s.some(slice(piece.first, piece.last + 1))
    if not s.period_s < abs(piece.late_s) <= 0.5 * float(np.median(np.diff(s.cells.on_s))):
        return False
    moved, c = float(some.left(np.array([piece.late_s])).sum()), some.cells
    for part_s in piece.late_s * np.arange(3.0, 13.0) / 4.0:
        on, off = (c.on_s + part_s, c.off_s) if part_s < 0.0 else (c.on_s, c.off_s + part_s)
        cells = Cells(on, off, np.minimum(c.begin_s, on - s.period_s), np.maximum(c.end_s, off + s.period_s))
        if float(replace(some, cells=cells).left(np.zeros(1)).sum()) < 2.0 * moved:
            return True
    return False


def _apart(trace: Trace, s: Shown, late_s: float) -> Bridged:
    """Move the readings so that all spans fit."""
    ticks = -late_s / s.period_s * float(trace.start_tick[1] - trace.start_tick[0])
    moved = replace(trace, start_tick=trace.start_tick + ticks, end_tick=trace.end_tick + ticks)
    name, earlier = trace.rail.name, late_s < 0.0
    check = Finding(f"spans of rail {name} against its readings", f"{-late_s:+.3g} s", "within the brackets", False)
    lost = ", or readings before the first span are missing" if earlier else ""
    told = note(
        f"Rail {name}: all spans are {abs(late_s):.3g} s {'earlier' if earlier else 'later'} in the trace than was "
        f"recorded, so its clock and that of the spans differ by this (sync_s of an import){lost}. The readings "
        "are moved"
    )
    return Bridged(moved, check, told, sigma_s=s.period_s / 4.0)


def _joined(trace: Trace, s: Shown, pieces: list[_Piece], left_at_end: int) -> Bridged | None:
    """Give the readings after each break the times that the spans show, and leave out readings next to a break."""
    c, r, hz = s.cells, s.readings, trace.rail.rate_hz
    numbers = np.arange(len(trace.value))
    moved, keep = np.zeros(len(numbers)), np.ones(len(numbers), bool)
    places = []

    def number(t_s: float) -> float:
        return float(t_s - r.start_s[0]) / r.period_s

    if abs(pieces[0].late_s) > BREAK * s.period_s:
        pieces = [_Piece(-1, -1, 0.0), *pieces]
    for a, b in itertools.pairwise(pieces):
        lost = round((a.late_s - b.late_s) / r.period_s)
        # the break is somewhere between two spans that fit, or before the first; the spans beside it may be incomplete
        until = number(c.end_s[b.first] + b.late_s)
        since = min(number(c.begin_s[max(a.last, 0)] + a.late_s), number(c.begin_s[b.first] + b.late_s))
        keep[(numbers >= since - 1.0) & (numbers < until)] = False
        moved[numbers >= until] += lost
        places.append(f"{lost:+d} at {since / hz:.6g} to {until / hz:.6g} s of the trace")
    if left_at_end:
        last = pieces[-1]
        keep[numbers >= number(c.begin_s[last.last] + last.late_s)] = False
        places.append(f"an unknown number before the last {left_at_end} spans")
    by = moved * float(trace.start_tick[1] - trace.start_tick[0])
    start, end = ((t + by)[keep] for t in (trace.start_tick, trace.end_tick))
    if np.any(np.diff(start) <= 0.0):
        return None
    value, over = trace.value[keep], trace.overload[keep]
    joined = replace(trace, start_tick=start, end_tick=end, value=value, overload=over, uniform=False)
    check = Finding(f"readings missing from the grid of rail {trace.rail.name}", "; ".join(places), "none", False)
    return Bridged(joined, check, note(
        f"Rail {trace.rail.name}: from a break on, spans fit the trace only if readings are missing from its grid: "
        f"{'; '.join(places)}. Later readings are moved by as many; the spans next to a break do not count"
    ))  # fmt: skip
