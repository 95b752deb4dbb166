"""Shift readings on the device's time to where spans are clearest, and find the windows to sum."""

from typing import Any

import numpy as np

from reports.audit.clocks import line
from reports.audit.figures import Table, batches, device_line, issues, length_s, requested, windows_of
from reports.audit.folder.reading import Run
from reports.audit.power.windows import TINY, Facts, sums
from rig.recording.traces.traces import Trace
from rig.types import Bools, Floats

SEARCHED, SHIFTS = 300, 4000
"""The number of spans and of idle windows that place the readings, and the largest number of shifts that are tried.

With a coarser step, a place one whole span away could look better than the true place.
"""
SETTLED = 5.0
"""After this many time constants a filter has settled within 1 %."""
PAD = 2.0
"""A span is widened by this many readings on each side, so that its edges are inside."""
BESIDE_S, SEEN_S = 5e-3, 0.1
"""Spans shifted by over ``BESIDE_S`` more than the clocks allow are elsewhere. Shifts are tried up to ``SEEN_S`` more
than the clocks allow."""
NOTHING, ALL = 0.4, 0.72
"""Shares of a span's power in a shifted trace. Where only the stamps have a span, the power is below ``NOTHING``, or
below half of ``NOTHING`` if no shifted span overlaps a stamped one. Where only the readings have a span, the share
is larger by over ``ALL``. With a meter that is merely late, both places have some power."""
SURE, MORE, MOST = 4.0, 2e-3, 1.1
"""Another place of the spans is better if its power is higher by over ``SURE`` deviations of noise and over ``MORE`` of
itself, but by less than ``MOST`` of itself. Beyond that, spans are below idle, so the place is wrong."""
PIECES, UNLIKE = 5, 0.4
"""In a moved trace, the first and last of ``PIECES`` pieces differ by at most ``UNLIKE`` of the power. If they differ
by more, readings were lost or doubled: these move each span further than the span before it."""
ENDS = 2.0
"""Two places of the spans are equally good if their power differs by at most this many sigmas of the readings at the
ends of spans."""
PARTS = np.linspace(0.0, 1.0, 9)


def _few(rows: Any) -> Any:
    """Return at most ``SEARCHED`` of the rows, evenly from the first to the last."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, SEARCHED).astype(int))]


def open_s(run: Run, clock: str) -> float:
    """Return how far (s) readings may be shifted on the device's time by the uncertainty of both clocks."""
    same = (run.start["device"].get("clock") or {}).get("name", "host") == clock
    return 0.0 if same else device_line(run).bound_s + line(run, clock).bound_s


def clearest(run: Run, trace: Trace, stamped: Table, idle: Floats, facts: Facts) -> tuple[float, float]:
    """Return how clear the spans are in a rail's readings, and the shift (s) of the spans at which they are clearest.

    If noise leaves several places equally clear, the place nearest to that of the clocks is taken.
    """
    window, most = windows_of(_few(stamped)), open_s(run, trace.clock)
    step = max(facts.period_s / 4, 2 * most / SHIFTS)
    tried = np.arange(-most - step, most + 2 * step, step)
    (level, _), (rest, _) = _seen(run, trace, tried, window, _few(idle))
    level = np.nan_to_num(level)
    upwards = -1.0 if level.mean() < rest[len(tried) // 2] else 1.0
    clear = float(np.ptp(level) / (facts.noise_w + 1e-3 * abs(float(level.mean())) + TINY))
    count = max(length_s(window) / max(facts.period_s, TINY), 1.0)
    ends = facts.noise_w * np.sqrt(2.0 * len(window)) / count  # a phase at idle level hides an edge of the spans
    best = np.flatnonzero(upwards * level >= np.max(upwards * level) - ENDS * ends)
    return clear, float(tried[best[np.argmin(np.abs(tried[best]))]])


def drift_s(run: Run, trace: Trace, window: Floats, shift: float, period: float) -> float:
    """Return the difference (s) between the shifts of the first and the last third of the spans in the trace.

    Shifts are searched within the uncertainty of the clocks' rates.
    """
    rates = device_line(run).rate_bound + line(run, trace.clock).rate_bound
    slack = rates * float(np.ptp(window))
    if slack <= period or len(window) < 6:
        return 0.0
    tried = shift + np.arange(-slack, slack, max(period / 2, slack / SEARCHED))
    ends = (window[: len(window) // 3], window[-(len(window) // 3) :])
    level = [np.nan_to_num(_seen(run, trace, tried, end)[0][0]) for end in ends]
    sign = 1.0 if level[0].mean() + level[1].mean() <= level[0].max() + level[1].max() else -1.0
    return float(abs(tried[np.argmax(sign * level[0])] - tried[np.argmax(sign * level[1])]))


def misplaced_s(run: Run, trace: Trace, stamped: Table, idle: Floats, facts: Facts) -> float:
    """Return how much later (s) than stamped the spans are in a trace; 0 if they are not clearly elsewhere.

    Another place must be clearer than every place that clocks, readings and filter allow. Besides, there must be
    little power where only the stamps have a span, and most of the power where only the readings have one.
    """
    every, period = batches(stamped)[0], facts.period_s
    open_by = open_s(run, trace.clock) + 3 * period + SETTLED * trace.rail.filter_tau_s + (trace.rail.aperture_s or 0.0)
    far, few = open_by + SEEN_S, _few(every)
    tried = np.arange(-far, far, max(period / 2, far / SEARCHED))
    (inside, seen_s), (rest, rest_s) = _seen(run, trace, tried, few, _few(idle))
    clear = (inside - rest) * np.sign(np.nansum(inside - rest))
    if np.isnan(clear).all():
        return 0.0
    best = int(np.nanargmax(clear))
    shift, gain = float(tried[best]), clear[best] - np.nanmax(clear[np.abs(tried) <= open_by], initial=-np.inf)
    noise = facts.noise_w * np.sqrt(period / max(seen_s.mean(), TINY) + period / max(rest_s.mean(), TINY))
    better = max(SURE * noise, MORE * clear[best]) < gain < MOST * clear[best]
    if abs(shift) < open_by + BESIDE_S or not better:
        return 0.0
    apart = {"claimed": _without(every, every + shift), "beside": _without(every + shift, every)}
    pieces = np.array_split(apart["claimed"], PIECES)
    step_w, found = inside[best] - rest[best], sums(run, trace, apart | {"first": pieces[0], "last": pieces[-1]})
    claimed, beside, *ends = ((one.mean_w - rest[best]) / step_w for one in found.values())
    empty = NOTHING / (1.0 + length_s(apart["claimed"]) / length_s(every))
    moved = abs(claimed) < empty and beside - claimed > ALL and not abs(ends[0] - ends[1]) > UNLIKE
    short_s = float(idle[:, 1].max(initial=-np.inf)) - facts.last_s  # positive if a block of readings was lost
    return shift if moved and short_s < abs(shift) / 2 else 0.0


def _without(window: Floats, other: Floats) -> Floats:
    """Return the parts of ``window`` that are not in ``other``. Both are in order, without overlap."""
    knots = np.unique([*window.ravel(), *other.ravel()])
    middle = (knots[:-1] + knots[1:]) / 2
    held, taken = (middle < np.append(-np.inf, w[:, 1])[np.searchsorted(w[:, 0], middle)] for w in (window, other))
    return np.asarray(np.stack([knots[:-1], knots[1:]], axis=1)[held & ~taken])


def _seen(run: Run, trace: Trace, tried: Floats, *windows: Floats) -> list[tuple[Floats, Floats]]:
    """Return for each kind of windows the mean power (NaN without readings) and the seconds seen, at each shift."""
    moved = {str(k): (own[None] + tried[:, None, None]).reshape(-1, 2) for k, own in enumerate(windows)}
    found = []
    for own in sums(run, trace, moved).values():
        energy, seen = (total.reshape(len(tried), -1).sum(axis=1) for total in (own.energy_j, own.seen_s))
        found.append((np.where(seen > 0, energy / np.maximum(seen, TINY), np.nan), seen))
    return found


def looked_at(
    run: Run, trace: Trace, stamped: Table, idle: Floats, shift: float, facts: Facts
) -> tuple[dict[str, Floats], int]:
    """Return the windows of each kind (s), float64 of shape (k, 2), and how many ends of spans meet other activity.

    ``spans`` are the spans within the trace, ``unplaced`` these spans without the shift, ``region`` the spans with
    their edges, ``wide`` the region widened by the uncertainty of the clocks. ``inner`` are spans and ``gap`` the gaps
    between spans, both shortened by that uncertainty (at most a reading) and by the time in which the filter settles.
    ``middle`` are the middle thirds of gaps, ``eighth`` the eighths of idle windows, ``asked`` the time from the first
    request to the last answer.
    """
    period, settle = facts.period_s, SETTLED * trace.rail.filter_tau_s
    bound = line(run, trace.clock).bound_s
    window = batches(stamped[~stamped.warmup])[0] + shift
    other = _other(run, stamped) + shift
    seen = (window[:, 0] - PAD * period > facts.first_s) & (window[:, 1] + PAD * period + settle < facts.last_s)
    if seen.any():
        window, other = window[seen], np.concatenate([other, window[~seen]])
    other = other[np.argsort(other[:, 0])]
    region, met = _regions(window, other, PAD * period, PAD * period + settle)
    reach = PAD * period + device_line(run).bound_s + bound
    wide, _ = _regions(window, other, reach, reach + settle)
    quiet = shortened(idle, bound + period + settle, bound + period)
    knots = quiet[:, :1] + (quiet[:, 1:] - quiet[:, :1]) * PARTS
    eighth = np.stack([knots[:, :-1].ravel(), knots[:, 1:].ravel()], axis=1)
    slack = min(open_s(run, trace.clock), period)  # at most this part of a reading may lie beyond an edge
    gaps = shortened(np.stack([window[:-1, 1], window[1:, 0]], axis=1), slack + settle, slack)
    free, inner = ~touch(gaps, other), shortened(window, slack + settle, slack)
    found = {"spans": window, "unplaced": window - shift, "region": region, "wide": wide, "eighth": eighth}
    found |= {"middle": (gaps + np.diff(gaps) * [1 / 3, -1 / 3])[free], "inner": inner, "gap": gaps[free]}
    return found | {"asked": requested(run) + shift}, met


def _other(run: Run, stamped: Table) -> Floats:
    """Return the windows of all activity other than counted spans: warm-up, marks, and work without stamps.

    Work without stamps is unanswered issues, and all time after the last span of a broken-off run.
    """
    every, last = issues(run), float(stamped.off.max())
    begins = every.issued_s[np.isnan(every.answered_s) & ~np.isnan(every.issued_s)]
    warmup, lost = windows_of(stamped[stamped.warmup]), np.stack([begins, begins + 1.0], axis=1)
    after = np.array([[last, last + 1e9]] * (not run.ended)).reshape(-1, 2)
    return np.concatenate([warmup, device_line(run).seconds(run.whole.marks()), lost, after])


def shortened(window: Floats, head: float, tail: float) -> Floats:
    """Return the windows without ``head`` and ``tail``; windows that then have no length are left out."""
    cut: Floats = window + np.array([head, -tail])
    return cut[cut[:, 1] > cut[:, 0]]


def touch(window: Floats, other: Floats) -> Bools:
    """Return whether each window overlaps one of ``other``, which are sorted by begin."""
    before = np.searchsorted(other[:, 0], window[:, 1])
    ends = np.concatenate([[-np.inf], np.maximum.accumulate(other[:, 1])])
    return np.asarray(ends[before] > window[:, 0], dtype=bool)


def _regions(window: Floats, other: Floats, head: float, tail: float) -> tuple[Floats, int]:
    """Widen windows and unite those that meet. Towards other activity, widen at most half of the distance.

    Also return how many ends met other activity: readings there may contain some of its power.
    """
    on, off = window[:, 0] - head, window[:, 1] + tail
    ends, begins = np.sort([-np.inf, *other[:, 1]]), np.append(other[:, 0], np.inf)
    earliest = (ends[np.searchsorted(ends, window[:, 0], "right") - 1] + window[:, 0]) / 2
    latest = (begins[np.searchsorted(begins, window[:, 1])] + window[:, 1]) / 2
    met = int(np.sum(on < earliest) + np.sum(off > latest))
    on, off = np.maximum(on, earliest), np.minimum(off, latest)
    first = np.flatnonzero(np.concatenate([[True], on[1:] > np.maximum.accumulate(off)[:-1]]))
    return np.stack([on[first], np.maximum.reduceat(off, first)], axis=1), met
