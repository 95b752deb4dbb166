"""Correct the times of readings whose uniform grid contradicts the spans, if the spans prove other times.

In a uniform trace, the time of a reading follows only from its number. If a driver loses a block of readings, delivers
each twice or declares a wrong rate, every later reading has a wrong time. The lateness of spans in the trace then
jumps, or grows steadily. From this follows how many readings were lost and where, or the true rate. Such faults are
rare, so assuming one has a cost in spans, and it must explain more spans than its cost. Of two equally good
explanations, the one without a fault is taken. Readings with stamps of their own may be late as a whole.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.result.finding import Finding, note
from rig.analysis.timing.activity_signal import inside, touches
from rig.analysis.timing.alignment.lag_path import GROUPS, PER_SPAN, STANDS_OUT, Line, cheapest, far_places, line
from rig.analysis.timing.alignment.shown import Cells, Shown
from rig.analysis.timing.long_traces import in_means
from rig.analysis.timing.profile import MANY
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.timebase import Timebase, latest_s
from rig.recording.traces.traces import Trace
from rig.types import Bools, Floats, Indices

BREAK = 3.0
"""A break, a wrong rate or a wrong shift of clocks must explain more than this many spans, because such faults are
rare."""
UNSEEN = 0.7
"""Cost of a span that no reading covers; a span without its rise costs 1."""
LEAST_UNLIKE, USUAL, MOST_UNLIKE = 0.05, 4.0, 0.6
"""Levels that fit a span leave less of its variance than ``LEAST_UNLIKE + USUAL * usual``, and than ``MOST_UNLIKE``.

``usual`` is the share of variance that levels leave in the median span.
"""
LAST = 2
"""At least this many spans without a rise are needed for a fault.

If readings before the last spans were lost, at least this many last spans have no rise, and all others have one.
"""
CLEAR = 0.25
"""If levels leave more than this share of the variance in the median span, single spans are no proof.

Nor are they if a filter's time constant is above this part of a span.
"""
STRAYS = 0.05
"""At most this share of the spans may disagree with the explanation, and this share of the work may lie elsewhere."""
FARTHEST = 0.1
"""Largest deviation of the true rate from the declared one, as a part of it."""
REMEDY = (
    "Check that the driver delivers every reading once and at the declared rate (rate_hz, tick_hz), and measure again. "
    "Of an import, check stamp, sync_s and rate_hz"
)
"""The remedy if the power of a rail is refused because its recording contradicts itself."""


@dataclass(frozen=True)
class Bridged:
    """A failed check; if spans prove other times, also a note, and the trace with these times or the line of spans."""

    trace: Trace
    check: Finding
    note: Finding | None = None
    line: Line | None = None


def after_end(r: Readings, end_s: float) -> tuple[Finding, ...]:
    """Return a failed check if readings were taken after the recording had ended, on the run's time."""
    last_s, latest = float(r.end_s[-1]), latest_s(float(r.start_s[0]), end_s)
    if last_s <= latest:
        return ()
    rule = f"readings of rail {r.rail.name} after the end of the recording"
    return (Finding(rule, f"{last_s - end_s:.3g} s", f"at most {latest - end_s:.3g} s", False),)


def unlike(s: Shown, late_s: Floats, usual: float) -> Floats:
    """Return the cost of each span at each place, from 0 to 1 (the span is not there), shape (k, m).

    It is the share of variance that levels leave, divided by the most that they may leave. A span that no reading
    covers costs ``UNSEEN``.
    """
    most = min(LEAST_UNLIKE + USUAL * usual, MOST_UNLIKE)
    return np.where(s.covered(late_s), np.minimum(s.left(late_s) / most, 1.0), UNSEEN)


def strays(s: Shown, late_s: Floats | float = 0.0) -> Bools:
    """Return at which spans the trace has no rise where the stamps place them, shape (k,)."""
    at = np.broadcast_to(late_s, (len(s.cells),))[:, None]
    return np.asarray(unlike(s, at, float(np.median(s.left(at))))[:, 0] >= 1.0)


def bridged(trace: Trace, s: Shown, wandered: Shown | None, reach_s: float, end_s: float) -> Bridged | None:
    """Return a trace with the times that spans prove, only a failed check if they prove none, or None without a fault.

    ``s`` has times as they were aligned; clocks may be off by ``reach_s``. ``wandered`` has times along a path that
    may explain the spans as well as a break. The recording ended at ``end_s``, so no reading is much later.
    """
    c, r = s.cells, s.readings
    lates = _places(s, reach_s, max(latest_s(float(r.start_s[0]), end_s) - float(r.end_s[-1]), 0.0))
    usual = float(np.median(s.left(lates).min(axis=1)))
    if usual > CLEAR or s.tau_s > CLEAR * c.width_s:
        return None
    # if a core sleeps while others work, spans draw less than the time beside them
    falls = replace(s, sums=s.sums * np.array([[1.0], [-1.0], [1.0]]))
    here = min((unlike(x, np.zeros(1), usual)[:, 0] for x in (s, falls)), key=lambda x: float(x.sum()))
    absent = (here >= 1.0) & (s.left(np.zeros(1))[:, 0] > STANDS_OUT)
    if np.count_nonzero(absent) < LAST:
        return None
    cost, far = unlike(s, lates, usual), np.abs(lates) > reach_s
    none = float(min(here.sum(), *cost[:, ~far].sum(axis=0)))
    path, total = _path(cost, lates, far)
    tried = [(BREAK + float(unlike(s, x.at(c.on_s)[:, None], usual).sum()), x) for x in _lines(s, reach_s)]
    # the stamps of a trace without a grid are its own, so all of them may be late, by no less than a reading
    tried = [x for x in tried if trace.uniform or x[1].slope or abs(x[1].late_s) >= s.period_s]
    straight, at = min(tried, key=lambda x: x[0], default=(np.inf, None))
    rule = f"stretches of spans that rail {r.rail.name} shows at another time"
    astray = Bridged(trace, Finding(rule, f"{np.count_nonzero(absent)} of {len(c)} spans", "0", False))
    unproven = astray if np.mean(absent) > 0.5 or _elsewhere(s) else None  # even if no break explains it
    least = none if wandered is None else float(unlike(wandered, np.zeros(1), usual).sum())
    # a fault must explain the spans better than no fault; a line, which is as rare as a wander, may cost BREAK more
    if min(total, straight) >= none or min(total, straight - BREAK) >= least:
        return unproven if wandered is None or least > 0.5 * len(c) else None
    if at is not None and straight < min(total + 1.0, none):  # a line is simpler than a path
        return _straight(trace, s, at, end_s) or astray
    pieces = _proven(s, path, lates, cost, here, absent, reach_s) if trace.uniform else []
    return (_joined(trace, s, pieces, len(c) - 1 - pieces[-1].last) or astray) if pieces else unproven


def _elsewhere(s: Shown) -> bool:
    """Return whether work is missing in spans and found outside of them.

    Only two successive readings count as found or missing, because a single one may be noise.
    """
    r = s.readings
    within, beside = inside(s.windows_s, r.start_s, r.end_s) >= 0, ~touches(s.windows_s, r.start_s, r.end_s)
    if not all(np.any(r.ok & use) for use in (within, beside)):
        return False
    high_w, low_w = (float(np.median(r.watts[r.ok & use])) for use in (within, beside))
    works = (r.watts > 0.5 * (high_w + low_w)) == (high_w > low_w)
    lacks, found = (x[:-1] & x[1:] for x in (r.ok & within & ~works, r.ok & beside & works))
    least = STRAYS * np.count_nonzero(within)
    return bool(min(np.count_nonzero(lacks), np.count_nonzero(found)) > least)


@dataclass(frozen=True)
class _Piece:
    """Successive spans that are equally late in the trace."""

    first: int
    last: int
    late_s: float


def _places(s: Shown, reach_s: float, most_s: float) -> Floats:
    """Return 0 and every lateness at which all spans, or the spans of a part of the run, may fit, shape (m,)."""
    k, half_s = len(s.cells), 0.5 * float(np.median(np.diff(s.cells.on_s)))
    number, upto = np.arange(k), max(reach_s, half_s) + s.period_s
    groups = [g for g in (number, *np.array_split(number, min(GROUPS, max(k // 4, 1)))) if len(g) > 1]
    places = [(g, late_s) for g in groups for late_s in far_places(s.some(g), -(most_s + upto), upto)]
    found = _closely(s, places) if places else np.zeros(0)
    return np.append(0.0, np.unique(np.round(4.0 * found / s.period_s)) * (s.period_s / 4.0))


def _path(cost: Floats, lates: Floats, far: Bools) -> tuple[Indices, float]:
    """Return the place of each span along the cheapest path (-1: the span has no place), and the cost of the path.

    ``cost`` is that of each span at each lateness, shape (k, m); ``far`` tells which latenesses are beyond the
    brackets. A new place costs ``BREAK``. Readings are only ever lost, so places only get earlier, and spans among lost
    readings have no place.
    """
    k, m = cost.shape
    change = np.full((m + 1, m + 1), BREAK)
    change[:m, :m][lates >= lates[:, None]] = np.inf
    change[:, m] = 0.0
    np.fill_diagonal(change, 0.0)
    cost = np.column_stack([cost, np.full(k, UNSEEN)])
    cost[0, :m] += BREAK * far
    path = cheapest(cost, change)
    total = float(cost[np.arange(k), path].sum() + change[path[:-1], path[1:]].sum())
    return np.where(path == m, -1, path), total


def _proven(
    s: Shown, path: Indices, lates: Floats, cost: Floats, here: Floats, absent: Bools, reach_s: float
) -> list[_Piece]:
    """Return the pieces of a path, or none if its spans do not prove its breaks; a span without a place is no proof."""
    held = np.flatnonzero(path >= 0)
    own, late_s = cost[held, path[held]], lates[path[held]]
    if not len(held) or np.count_nonzero(own >= 1.0) > STRAYS * len(held) or np.any(np.diff(late_s) > 0.0):
        return []
    cut = np.flatnonzero(np.abs(np.diff(late_s)) > 2.0 * s.period_s) + 1
    pieces = [_Piece(int(p[0]), int(p[-1]), float(np.median(lates[path[p]]))) for p in np.split(held, cut)]
    if jumps := len(cut) + int(abs(late_s[0]) > reach_s):
        gained = float(np.sum(here[held] - own)) > BREAK * jumps
        return [] if not gained or any(_longer(s, p) for p in pieces) else pieces
    # readings after a break may match the next spans by chance, but after the last spans there are none
    whole = np.all(own < 1.0) and len(path) < 2 * len(held) and len(held) == held[-1] + 1 <= len(path) - LAST
    return pieces if whole and absent[-LAST:].all() else []


def _closely(s: Shown, places: Sequence[tuple[Indices, float]]) -> Floats:
    """Return how late each group of spans is, to a quarter of a reading; all groups are looked at together."""
    count = np.array([len(which) for which, _ in places])
    first, some = np.cumsum(count) - count, s.some(np.concatenate([which for which, _ in places]))
    late_s = np.array([late for _, late in places])
    step_s = np.array([max(s.some(which).cells.width_s / PER_SPAN, s.period_s) for which, _ in places])
    while np.any(step_s):
        tries = late_s[:, None] + step_s[:, None] * np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
        left = np.add.reduceat(some.left(np.repeat(tries, count, axis=0)), first)
        late_s = tries[np.arange(len(tries)), left.argmin(axis=1)]
        step_s = np.where(step_s > s.period_s / 2.0, 0.5 * step_s, 0.0)
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


# ---- readings that arrived several times ----------------------------------------------------


def once(trace: Trace, clock: Timebase, end_s: float, at_once: int) -> tuple[Trace, tuple[Finding, ...]]:
    """Return one copy of each reading on the declared grid if each was delivered several times, and findings.

    This is so only if readings reach beyond the end of the recording. At most ``at_once`` are left, as means.
    """
    first_s, last_s = (float(clock.seconds(x)[0]) for x in (trace.start_tick[:1], trace.end_tick[-1:]))
    if not trace.uniform or last_s <= latest_s(first_s, end_s):
        return trace, ()
    change = np.flatnonzero(np.diff(trace.part(0, at_once).value) != 0.0) + 1
    copies = next((n for n in (4, 3, 2) if len(change) >= MANY and not np.any(change % n)), 1)
    if copies == 1:
        return trace, ()
    name = trace.rail.name
    check = Finding(f"deliveries of each reading of rail {name}", str(copies), "1", False)
    told = note(
        f"Rail {name}: every reading was delivered {copies} times, and its readings reach beyond the end of the "
        "recording. One copy of each is used, on the declared grid"
    )
    return in_means(trace, at_once, copies), (check, told)


# ---- a rate other than the declared one, and clocks that are apart -----------------------------


def _lines(s: Shown, reach_s: float) -> list[Line]:
    """Return the lines that place all spans beyond the brackets, by a shift or by a rate."""
    half_s, run_s = 0.5 * float(np.median(np.diff(s.cells.on_s))), float(np.ptp(s.cells.on_s))
    apart, paced = line(s, half_s, 0.0), line(s, 0.0, FARTHEST, s.at_s[0])
    whole = apart is not None and abs(apart.late_s) > reach_s and not _longer(s, _Piece(0, len(s.cells), apart.late_s))
    drifts = paced is not None and abs(paced.slope) * run_s > 0.5 * s.cells.width_s
    return [x for x, holds in ((apart, whole), (paced, drifts)) if x is not None and holds]


def _straight(trace: Trace, s: Shown, at: Line, end_s: float) -> Bridged | None:
    """Return the line of spans on the clock of the readings; None if spans stray or readings would be after the end."""
    r, c, name = s.readings, s.cells, trace.rail.name
    last_s = float((r.end_s[-1:] - at.at(r.end_s[-1:]))[0])
    if last_s > latest_s(float(r.start_s[0]), end_s) or np.mean(strays(s, at.at(c.on_s))) > STRAYS:
        return None
    if at.slope:
        check = Finding(f"true rate of rail {name} over the declared one", f"{1.0 + at.slope:.6f}", "1", False)
        told = (
            f"the spans fit the trace at {1.0 + at.slope:.6f} of the declared rate of readings, and at no other rate "
            f"within {FARTHEST:.0%}. The times of the readings are taken from this rate"
        )
    else:
        where = "earlier" if at.late_s < 0.0 else "later"
        check = Finding(
            f"spans of rail {name} against its readings", f"{-at.late_s:+.3g} s", "within the brackets", False
        )
        lost = ", or readings before the first span are missing" if at.late_s < 0.0 else ""
        told = (
            f"all spans are {abs(at.late_s):.3g} s {where} in the trace than was recorded, so the clocks of trace "
            f"and spans differ by this (sync_s of an import){lost}. The readings are moved"
        )
    near_s = max(c.width_s / PER_SPAN, s.period_s) / 4.0
    slope_sigma = near_s / float(np.ptp(c.on_s)) if at.slope else 0.0
    by_reading = Line(at.late_s, at.slope / (1.0 + at.slope), at.ref_s + at.late_s, near_s, slope_sigma)
    return Bridged(trace, check, note(f"Rail {name}: {told}"), by_reading)


# ---- readings that were lost -------------------------------------------------------------------


def _joined(trace: Trace, s: Shown, pieces: list[_Piece], left_at_end: int) -> Bridged | None:
    """Give the readings after each break the times that follow from the spans, and leave out readings next to a break.

    Return None if there is no break, or if readings would then go back in time.
    """
    c, r, hz = s.cells, s.readings, trace.rail.rate_hz
    at = _closely(s, [(np.arange(p.first, p.last + 1), p.late_s) for p in pieces])
    pieces = [replace(p, late_s=float(late)) for p, late in zip(pieces, at, strict=True)]
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
    if not places or np.any(np.diff(start) <= 0.0):
        return None
    value, over = trace.value[keep], trace.overload[keep]
    joined = replace(trace, start_tick=start, end_tick=end, value=value, overload=over, uniform=False)
    check = Finding(f"readings missing from the grid of rail {trace.rail.name}", "; ".join(places), "none", False)
    return Bridged(joined, check, note(
        f"Rail {trace.rail.name}: from a break on, spans fit the trace only if readings are missing from its grid: "
        f"{'; '.join(places)}. Later readings are moved by as many; the spans next to a break do not count"
    ))  # fmt: skip
