"""Coverage of a trace: readings at the end of the range, missing readings, and spans outside the trace."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rig.analysis.power.rail_model import RailModel
from rig.analysis.result.finding import Finding, note
from rig.analysis.timing.activity_signal import inside, merged, touches
from rig.analysis.timing.readings import Readings
from rig.types import Bools, Floats

NOISE_RUN = 3
"""At most this many successive readings may be lifted to the end of the range by noise alone."""
NOISE_WIDTHS = 6.0
"""The neighbouring reading may then be at most this many widths of noise below the end of the range."""
UNSEEN = 2.0
"""Power that no reading shows may differ from a known level by up to this multiple of the known difference."""
CHANCE = 4.0
"""The excess of missing readings in spans must be above this many standard deviations."""
LEAST_MISSING = 2e-3
"""If less than this share of readings is missing, it does not matter which."""
GAP_PERIODS, STEADY = 1.5, 1.2
"""After a pause of this many periods readings are missing, if nine in ten pauses are below the second number."""


def hidden_w(model: RailModel) -> tuple[Floats, Bools]:
    """Return the largest error of each clipped reading in watts, and which of these errors noise does not explain.

    Both have the shape (n,). A reading at the end of the range is a lower bound. If a short run of such readings is
    beside readings that noise could have lifted as high, the error is about one width of the noise. If the reading
    beside is clearly higher, the meter was late to change its range, and the error is taken to be up to ``UNSEEN``
    times the distance to that reading. Otherwise, as in an inrush current, the trace gives no upper bound, and the
    error is taken to be as large as the reading itself.
    """
    r = model.readings
    width = model.noise.reading_w(True)
    # no device gives power back at work, so a value too high for its integer wrapped around to a negative one
    rest_w = min(float(np.min(r.watts[model.idle], initial=0.0)), 0.0)
    flagged = (r.overload | model.held & (r.watts < rest_w - NOISE_WIDTHS * width)) & r.ok
    hidden, unexplained = np.zeros(len(r.watts)), np.zeros(len(r.watts), dtype=bool)
    if not np.any(flagged):
        return hidden, unexplained
    first, last = np.flatnonzero(np.diff(np.concatenate([[False], flagged, [False]]).astype(np.int8))).reshape(-1, 2).T
    padded = np.concatenate([[-np.inf], r.watts, [-np.inf]])
    beside = np.maximum(padded[first], padded[last + 1])
    top = np.maximum.reduceat(np.where(flagged, r.watts, -np.inf), first)
    above = np.where(beside > top + NOISE_WIDTHS * width, UNSEEN * (beside - top), 0.0)
    long = np.add.reduceat(np.where(flagged, r.many, 0.0), first)
    noise = (long <= NOISE_RUN) & (beside >= top - NOISE_WIDTHS * width) | (above > 0.0)
    begins = np.zeros(len(r.watts), dtype=np.int64)
    begins[first] = 1
    run = np.cumsum(begins) - 1
    unexplained[flagged] = ~noise[run[flagged]]
    hidden[flagged] = np.where(unexplained[flagged], np.abs(r.watts[flagged]), np.maximum(above, width)[run[flagged]])
    return hidden, unexplained


def missing_while_busy(r: Readings, windows_s: Floats) -> float:
    """Return the share of the readings of the windows that is missing, if more are missing there than elsewhere.

    It is 0 where chance explains the difference, and for a counter, which loses no energy between two looks. Readings
    that are missing by chance do not change the mean, but readings that are missing because the device works do. Spans
    that were lost together with the gaps beside them are left out: a block of readings is missing there.
    """
    spans = merged(windows_s)
    spans = spans[(spans[:, 0] >= r.start_s[0]) & (spans[:, 1] <= r.end_s[-1])]
    spans = spans[(spans[:, 1] > spans[:, 0]) & ~lost_in_a_block(r, spans)]
    if r.counter or not len(spans) or r.period_s <= 0.0:
        return 0.0
    # a logger that the device delays takes fewer readings, and longer ones
    many = r.many * r.ok if r.uneven else np.where(r.ok, (r.end_s - r.start_s) / max(r.aperture_s, 1e-300), 0.0)
    held = float(many[inside(spans, middle := 0.5 * (r.start_s + r.end_s), middle) >= 0].sum())
    due = float(np.sum(spans[:, 1] - spans[:, 0])) / r.period_s
    due_elsewhere = float(r.end_s[-1] - r.start_s[0]) / r.period_s - due
    if due_elsewhere <= 0.0:
        return 0.0
    elsewhere = max(1.0 - (float(many.sum()) - held) / due_elsewhere, 0.0)
    missing = 1.0 - held / due
    sigma = np.sqrt(max(elsewhere, 1.0 / due) / due) + np.sqrt(len(spans) / 6.0) / due
    share = missing if missing - elsewhere > CHANCE * sigma + LEAST_MISSING else 0.0
    return max(share, _lost_at(r, spans) / due)


def _lost_at(r: Readings, spans: Floats) -> float:
    """Return the number of readings missing at places that touch the spans, if there are more places than by chance.

    Otherwise it is 0. A few readings at the begin of each span are few of all, so their share alone does not show them,
    and they may lie before the span where clocks are uncertain.
    """
    pace = r.pace()
    at = np.flatnonzero(pace > GAP_PERIODS)
    lost = pace[at] - 1.0
    late = float(pace.sum() - len(pace)) < 0.5 * float(lost.sum())
    if not len(at) or late or float(np.quantile(pace, 0.9)) > STEADY:
        return 0.0
    reach_s = float(np.sum(spans[:, 1] - spans[:, 0])) + len(spans) * float(np.mean(lost)) * r.period_s
    part = min(reach_s / float(r.end_s[-1] - r.start_s[0]), 1.0)
    here = touches(spans, r.end_s[at], r.start_s[at + 1])
    beyond = np.count_nonzero(here) - len(at) * part
    return float(np.sum(lost[here])) if beyond > CHANCE * math.sqrt(len(at) * part * (1.0 - part)) + 1.0 else 0.0


def lost_in_a_block(r: Readings, spans: Floats) -> Bools:
    """Return which of the sorted spans have no reading in them or in the halves of gaps beside them, shape (k,)."""
    if len(spans) < 2:
        return np.zeros(len(spans), bool)
    middle = 0.5 * (spans[1:, 0] + spans[:-1, 1])
    begin, end = np.append(spans[0, 0], middle), np.append(middle, spans[-1, 1])
    at = 0.5 * (r.start_s + r.end_s)
    return np.asarray(np.searchsorted(at, begin) == np.searchsorted(at, end))


def overload_notes(rail: str, model: RailModel) -> Iterator[Finding]:
    """Yield a note if readings were at the end of the range during spans or idle windows."""
    used = (model.busy | model.idle) & model.readings.overload
    count = model.readings.count(used)
    if not count:
        return
    share = count / max(model.readings.count(model.busy | model.idle), 1)
    beyond = model.readings.count(used & hidden_w(model)[1])
    more = (
        f"; noise does not explain {beyond} of them, and the true value of each may be up to twice as high"
        if beyond
        else ""
    )
    yield note(f"Rail {rail}: {count} readings ({share:.1%} of those used) are at the end of the meter's range{more}")


def missing_notes(rail: str, r: Readings, windows_s: Floats) -> Iterator[Finding]:
    """Yield notes on readings that are not numbers, on missing readings, and on windows outside the trace."""
    of = len(r.ok) if r.pool is None else round(float(r.pool.of.sum()))
    bad = of - r.count(r.ok)
    if bad:
        yield note(f"Rail {rail}: {bad} of {of} readings are not numbers and are left out")
    pace = r.pace() if r.period_s > 0 else np.zeros(0)
    gaps = np.flatnonzero(pace > GAP_PERIODS)
    if len(gaps) and float(np.quantile(pace, 0.9)) < STEADY:
        lost_s = float(np.sum(pace[gaps] - 1.0)) * r.period_s
        busy = merged(windows_s)
        within = int(np.count_nonzero(touches(busy, r.end_s[gaps], r.start_s[gaps + 1]))) if len(busy) else 0
        places = f"{len(gaps)} places, {within} of them while busy"
        yield note(f"Rail {rail}: readings are missing in {places}, {lost_s:.3g} s in all")
    outside = int(np.count_nonzero(~covered(r, windows_s)))
    if outside:
        yield note(f"Rail {rail}: {outside} of {len(windows_s)} spans lie outside the trace and have no power figure")


def covered_share(r: Readings, windows_s: Floats) -> float:
    """Return the share of the windows that lie wholly within the trace."""
    return float(np.mean(covered(r, windows_s))) if len(windows_s) else 1.0


def covered(r: Readings, windows_s: Floats) -> Bools:
    """Return which of the windows lie wholly within the trace, shape (k,)."""
    return np.asarray((windows_s[:, 0] >= r.start_s[0]) & (windows_s[:, 1] <= r.end_s[-1]))
