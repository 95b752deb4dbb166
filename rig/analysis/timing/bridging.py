"""Readings whose own grid contradicts the spans get the times that the spans prove, or none.

A uniform trace says when each reading was taken by its number alone. If a driver loses a block of readings, delivers
each twice or declares a wrong rate, every later reading has a wrong time. The spans then show which number of readings
is lost, and where, or at which rate the readings were taken.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.timing.consistency import allowed_after_end_s
from rig.analysis.timing.lost_readings import FEWEST, MOST_UNLIKE, Piece, breaks_in, longer
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.spans_in_trace import LEAST_SPANS, NOWHERE, Seen, most_unlike, seen_in
from rig.analysis.verdict import Check
from rig.recording.traces import Trace
from rig.types import Floats

MOST_SPANS = 20_000
MOST_PACES, SPANS_LOOKED_AT = 40_000, 200
FARTHEST = 0.1
"""How far the true rate may be from the declared one, as a part of it."""
STEP = 0.25
"""Readings by which all spans are moved at a time."""
COPIES = (2, 3, 4)
LEAST_CHANGES = 20


@dataclass(frozen=True)
class Bridged:
    """A trace with the times that the spans prove. Its time scale is uncertain by ``sigma_s`` and ``rate_sigma``."""

    trace: Trace
    check: Check
    note: str
    unlike: float = 0.0
    """How far the spans are from their new places, on average; see ``Seen.unlike``."""
    sigma_s: float = 0.0
    rate_sigma: float = 0.0
    certain: bool = True
    """Whether the spans prove it alone, without stretches that are known to be at another time."""


def bridged(
    trace: Trace, r: Readings, windows_s: Floats, reach_s: float, end_s: float, displaced: bool, *, breaks: bool = True
) -> Bridged | None:
    """Return the trace with the times that the spans prove, or None if it fits as it is or proves no other times.

    ``r`` are its readings by the brackets of its clock. ``windows_s`` are the disjoint spans, shape (k, 2). ``reach_s``
    is how far the brackets may be off. The recording ended at ``end_s``, so no reading is much later. ``displaced``
    says that stretches of spans are known to be at another time. Without ``breaks``, they may have another rate alone.
    """
    if not trace.uniform or not LEAST_SPANS <= len(windows_s) <= MOST_SPANS or r.period_s <= 0.0 or r.counter:
        return None
    spare_s = end_s + allowed_after_end_s(r, end_s) - float(r.end_s[-1])
    if spare_s < 0.0 and (copies := copies_of(trace.value)) > 1:
        return _thinned(trace, copies)
    seen = seen_in(r, windows_s)
    if seen is None:
        return None
    if (apart := _apart(trace, seen, r, reach_s)) is not None:
        return apart
    found = [_paced(trace, seen, r, end_s)]
    if breaks:
        found.append(_joined(trace, seen, reach_s / r.period_s, spare_s / r.period_s))
    proven = [f for f in found if f is not None and (displaced or f.certain)]
    return min(proven, key=lambda f: f.unlike, default=None)


# ---- readings that arrived several times ----------------------------------------------------


def copies_of(value: Floats) -> int:
    """Return how often each reading stands in a trace: more than once if readings change at every so many places."""
    change = np.flatnonzero(np.diff(value) != 0.0) + 1
    for copies in reversed(COPIES):
        if len(change) >= LEAST_CHANGES and not np.any(change % copies):
            return copies
    return 1


def _thinned(trace: Trace, copies: int) -> Bridged:
    n = -(-len(trace.value) // copies)
    mended = replace(
        trace,
        start_tick=trace.start_tick[:n],
        end_tick=trace.end_tick[:n],
        value=trace.value[::copies],
        overload=trace.overload[::copies],
    )
    return Bridged(mended, *delivered(trace.rail.name, copies))


def delivered(name: str, copies: int) -> tuple[Check, str]:
    """Return the failed check and the note for a rail whose readings were delivered several times."""
    check = Check(f"deliveries of each reading of rail {name}", str(copies), "1", False)
    return check, (
        f"Rail {name}: every reading was delivered {copies} times, and its readings reach beyond the end of the "
        "recording. One of each is used, on the declared grid"
    )


# ---- clocks that are apart ------------------------------------------------------------------


def _apart(trace: Trace, seen: Seen, r: Readings, reach_s: float) -> Bridged | None:
    """Move the readings by one time so that all spans fit, if they do within half of the time from one to the next."""
    spans, cycle = seen.spans, float(np.median(np.diff(seen.spans.on)))
    lags = STEP * np.arange(-int(0.5 * cycle / STEP), int(0.5 * cycle / STEP) + 1)
    if len(lags) > MOST_PACES:
        return None
    some = seen.some(np.unique(np.linspace(0, len(spans) - 1, min(len(spans), SPANS_LOOKED_AT)).astype(int)))
    misfit = np.concatenate([some.unlike(p).mean(axis=0) for p in np.array_split(lags, len(lags) // 250 + 1)])
    lag = float(lags[np.argmin(misfit)])
    unlike = seen.unlike(np.array([lag]))[:, 0]
    gain = float(np.sum(np.minimum(seen.unlike(NOWHERE)[:, 0], 1.0) - unlike))
    fits = gain >= FEWEST and not np.any(unlike > most_unlike(unlike))
    if abs(lag) * r.period_s <= reach_s or not fits or longer(Piece(0, len(spans) - 1, lag), seen):
        return None
    ticks = lag * float(trace.start_tick[1] - trace.start_tick[0])
    mended = replace(trace, start_tick=trace.start_tick + ticks, end_tick=trace.end_tick + ticks)
    name, by_s = trace.rail.name, lag * r.period_s
    check = Check(f"spans of rail {name} against its readings", f"{by_s:+.3g} s", f"within {reach_s:.2g} s", False)
    lost = ", or readings before the first span are missing" if lag > 0.0 else ""
    note = (
        f"Rail {name}: all spans stand {abs(by_s):.3g} s {'earlier' if lag > 0.0 else 'later'} in the trace than was "
        f"recorded, so its clock is off by as much against that of the spans (sync_s of an import){lost}. The readings "
        "are moved"
    )
    return Bridged(mended, check, note, sigma_s=STEP * r.period_s)


# ---- a rate other than the declared one -------------------------------------------------------


def _paced(trace: Trace, seen: Seen, r: Readings, end_s: float) -> Bridged | None:
    """Stretch the grid of the readings so that the spans fit, if they fit at one rate alone."""
    k, last, width = len(seen.spans), float(seen.spans.off[-1]), seen.spans.width
    some = seen.some(np.unique(np.linspace(0, k - 1, min(k, SPANS_LOOKED_AT)).astype(int)))
    step = 0.1 * width / last
    count = int(FARTHEST / step)
    if not 1 <= count <= MOST_PACES:
        return None
    paces = 1.0 + step * np.arange(-count, count + 1)
    misfit = np.concatenate([some.unlike(NOWHERE, p).mean(axis=0) for p in np.array_split(paces, count // 250 + 1)])
    best = int(np.argmin(misfit))
    rival = float(np.min(misfit[np.abs(paces - paces[best]) * last > 0.5 * width], initial=np.inf))
    if len(some.spans) * (rival - misfit[best]) < FEWEST:
        return None
    fine = paces[best] + 0.05 * step * np.arange(-40, 41)
    pace = float(fine[np.argmin(some.unlike(NOWHERE, fine).sum(axis=0))])
    unlike = seen.unlike(NOWHERE, np.array([pace]))[:, 0]
    too_late = float(r.start_s[0] + pace * (r.end_s[-1] - r.start_s[0])) > end_s + allowed_after_end_s(r, end_s)
    most = most_unlike(unlike)
    if float(np.mean(unlike > most)) > MOST_UNLIKE or too_late:
        return None
    first = float(trace.start_tick[0])
    rail = replace(trace.rail, rate_hz=trace.rail.rate_hz / pace)
    start, end = (first + pace * (t - first) for t in (trace.start_tick, trace.end_tick))
    name = trace.rail.name
    check = Check(f"true rate of rail {name} over the declared one", f"{1.0 / pace:.6f}", "1", False)
    note = (
        f"Rail {name}: the spans fit the trace at {1.0 / pace:.6f} of the declared rate of readings, and at no other "
        f"rate within {FARTHEST:.0%}. The times of the readings are taken from this rate"
    )
    mended = replace(trace, rail=rail, start_tick=start, end_tick=end)
    drifts = abs(pace - 1.0) * (last - float(seen.spans.on[0])) > 0.5 * width
    return Bridged(mended, check, note, float(np.minimum(unlike / most, 1.0).mean()), 0.0, step, drifts)


# ---- readings that were lost ------------------------------------------------------------------


def _joined(trace: Trace, seen: Seen, reach: float, most: float) -> Bridged | None:
    """Give the readings after each break the times that the spans show, and leave out those next to it."""
    broken, spans = breaks_in(seen, reach, most), seen.spans
    if broken is None:
        return None
    number = np.arange(len(trace.value))
    moved, keep = np.zeros(len(number)), np.ones(len(number), bool)
    period = float(trace.start_tick[1] - trace.start_tick[0])
    places = []
    for a, b in itertools.pairwise(broken.pieces):
        lost = round(b.lag - a.lag)
        # the break is somewhere between two spans that fit, or before the first; the spans beside it may be cut
        since = min(spans.begin[max(a.last, 0)] - a.lag, spans.begin[b.first] - b.lag)
        until = spans.end[b.first] - b.lag
        keep[(number >= since - 1.0) & (number < until)] = False
        moved[number >= until] += lost
        hz = trace.rail.rate_hz
        places.append(f"{lost:+d} at {since / hz:.6g} to {until / hz:.6g} s of the trace")
    if broken.left_at_end:
        last = broken.pieces[-1]
        keep[number >= spans.begin[last.last] - last.lag] = False
        places.append(f"an unknown number before the last {broken.left_at_end} spans")
    start, end = ((t + moved * period)[keep] for t in (trace.start_tick, trace.end_tick))
    if np.any(np.diff(start) <= 0.0):
        return None
    mended = replace(
        trace, start_tick=start, end_tick=end, value=trace.value[keep], overload=trace.overload[keep], uniform=False
    )
    return Bridged(mended, *_missing(trace.rail.name, places), broken.unlike, certain=broken.certain)


def _missing(name: str, places: list[str]) -> tuple[Check, str]:
    """The failed check and the note for a rail of which readings are missing."""
    check = Check(f"readings missing from the grid of rail {name}", "; ".join(places), "none", False)
    return check, (
        f"Rail {name}: from a break on, spans fit the trace only if readings are missing from its grid: "
        f"{'; '.join(places)}. Later readings are moved by as many; the spans next to a break do not count"
    )
