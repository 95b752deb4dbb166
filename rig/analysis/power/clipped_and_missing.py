"""Compute how wrong the power of a rail may be because readings are clipped or missing.

A span is a time in which the device works, by its stamps; an aperture is the time over which one reading averages.
Readings may be missing or at the end of the meter's range. Spans may lie outside the trace. Between two apertures, the
meter sees nothing. An error that varies from span to span becomes a component of the uncertainty. An error that is the
same in all spans becomes a bias.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rig.analysis.power.estimators import PLACES, Estimate, Margin, covered
from rig.analysis.power.model.noise import SHOWN
from rig.analysis.power.model.rail_model import ROUNDED, RailModel
from rig.analysis.result.finding import Finding, note, refusal
from rig.analysis.result.quantity import Component
from rig.analysis.timing import activity_signal as signal
from rig.analysis.timing.counted_spans import Phase
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.timebase import CERTAIN, SURE
from rig.types import Bools, Floats, Indices

UNSEEN = 2.0
"""The bias for clipped or missing power is this multiple of a difference between readings."""
GAP_PERIODS, STEADY = 1.5, 1.2
"""Readings are missing in a pause above ``GAP_PERIODS`` periods if nine in ten pauses are below ``STEADY`` periods."""
LEAST = 6
"""Scatter is computed only from at least this many spans or readings."""
MAX_CLIPPED = 0.1
"""Power is refused if more than this share of the busy readings is at the end of the range."""
MAX_HIDDEN = 0.01
"""Power is refused if clipped readings that noise does not explain may hide more than this part of dynamic power."""
MAX_MISSING = 0.25
"""Power is refused if more than this share of the readings in spans is missing, and fewer are missing elsewhere."""
BLOCK = 1 << 12
"""Arrays over readings and places are computed for about this many readings at a time, to save memory."""


def hidden_w(model: RailModel) -> tuple[Floats, Bools]:
    """Return the largest error of each clipped reading in watts, and which errors are of the third case below.

    Both have the shape (n,). A clipped reading, at the end of the meter's range, is a lower bound of the power. There
    are three cases. The readings beside a row of clipped readings may be so close that noise explains the row; then the
    error is about one width of the noise. If the reading beside is clearly higher, the meter changed its range too
    late, and the error is ``UNSEEN`` times the distance to that reading. Otherwise, as in an inrush current, the trace
    has no upper bound, and the error is as large as the reading itself.
    """
    r = model.readings
    width = model.noise.reading_w()
    # no device delivers power while it works, so a clearly negative value comes from an integer that overflowed
    rest_w = min(float(np.min(r.watts[model.idle], initial=0.0)), 0.0)
    flagged = (r.overload | model.held & (r.watts < rest_w - CERTAIN * width)) & r.ok
    hidden, unexplained = np.zeros(len(r.watts)), np.zeros(len(r.watts), dtype=bool)
    if not np.any(flagged):
        return hidden, unexplained
    first, last = np.flatnonzero(np.diff(np.concatenate([[False], flagged, [False]]).astype(np.int8))).reshape(-1, 2).T
    padded = np.concatenate([[-np.inf], r.watts, [-np.inf]])
    beside = np.maximum(padded[first], padded[last + 1])
    top = np.maximum.reduceat(np.where(flagged, r.watts, -np.inf), first)
    above = np.where(beside > top + CERTAIN * width, UNSEEN * (beside - top), 0.0)
    noise = (beside >= top - CERTAIN * width) | (above > 0.0)
    run = np.repeat(np.arange(len(first)), last - first)
    unexplained[flagged] = ~noise[run]
    hidden[flagged] = np.where(unexplained[flagged], np.abs(r.watts[flagged]), np.maximum(above, width)[run])
    return hidden, unexplained


def beyond_range(model: RailModel, e: Estimate) -> Finding | None:
    """Return a refusal if too many readings are clipped, or if clipped readings may hide too much dynamic power."""
    r = model.readings
    clipped = r.count(r.overload & model.busy) / max(r.count(model.busy), 1)
    hidden, unexplained = model.once(hidden_w)
    lost = float(np.abs(e.dynamic[unexplained]) @ hidden[unexplained]) / max(abs(e.value_w), 1e-300)
    if clipped <= MAX_CLIPPED and lost <= MAX_HIDDEN:
        return None
    reason = f"{clipped:.1%} of the readings while busy are at the end of the meter's range"
    if lost > MAX_HIDDEN:
        reason += f"; noise does not explain them, and they may hide {lost:.1%} of dynamic power"
    return refusal(f"power on rail {model.rail.name}", reason, "Choose a higher range and measure again")


def missing_while_busy(r: Readings, windows_s: Floats) -> float:
    """Return which share of the readings in the windows is missing, if more are missing there than elsewhere.

    The share is 0 if chance explains the difference, if all readings are equally long and one period apart, and for a
    counter, which loses no energy between two reads. Readings that are missing by chance do not change the mean.
    Readings that are lost because the device works change it. A span is left out if it and the nearer halves of gaps
    beside it have no reading, because the meter lost a whole block there.
    """
    if r.steady:
        return 0.0
    spans = signal.merged(windows_s)
    spans = spans[covered(r, spans)]
    spans = spans[(spans[:, 1] > spans[:, 0]) & ~lost_in_a_block(r, spans)]
    if r.counter or not len(spans) or r.period_s <= 0.0:
        return 0.0
    many, start_s, end_s = _stands_for(r)
    held = float(many @ signal.mean_signal(signal.edges_of(spans), start_s, end_s))
    due = float(np.sum(spans[:, 1] - spans[:, 0])) / r.period_s
    due_elsewhere = max(float(r.end_s[-1] - r.start_s[0]) / r.period_s - due, 1.0)
    elsewhere = max(1.0 - (float(many.sum()) - held) / due_elsewhere, 0.0)
    missing = 1.0 - held / due
    sigma = np.sqrt(max(elsewhere, 1.0 / due) / due) + np.sqrt(len(spans) / 6.0) / due
    more = missing - elsewhere > SURE * sigma
    return max(missing, 0.0) if more or _lost_at(r, spans) else 0.0


def _stands_for(r: Readings) -> tuple[Floats, Floats, Floats]:
    """Return how many periods each reading stands for, 0 if it is no number, and from when to when, shapes (n,)."""
    # a device that delays a logger makes the logger's readings fewer and longer
    lengths = np.where(r.ok, (r.end_s - r.start_s) / r.aperture_s if r.aperture_s > 0.0 else 1.0, 0.0)
    many = lengths if r.pool is None else r.many * r.ok
    middle_s, half_s = 0.5 * (r.start_s + r.end_s), 0.5 * r.period_s * many
    return many, middle_s - half_s, middle_s + half_s


def _shown_s(r: Readings, spans: Floats) -> Floats:
    """Return the time that readings show of each of the sorted spans, shape (k,)."""
    _, on, off = _stands_for(r)
    off = np.clip(np.append(on[1:], np.inf), on, off)
    upto = np.cumsum(off - on)
    at, total = np.column_stack([on, off]).ravel(), np.column_stack([upto - (off - on), upto]).ravel()
    return np.asarray(np.diff(np.interp(spans, at, total))[:, 0])


def _lost_at(r: Readings, spans: Floats) -> bool:
    """Return whether more of the pauses between readings touch spans than by chance.

    The share of missing readings is too coarse a measure if each span lacks a few readings at its begin.
    """
    at, lost_s = _pauses(r)
    if not len(at):
        return False
    reach_s = float(np.sum(spans[:, 1] - spans[:, 0])) + len(spans) * float(np.mean(lost_s))
    part = min(reach_s / float(r.end_s[-1] - r.start_s[0]), 1.0)
    beyond = np.count_nonzero(signal.touches(spans, r.end_s[at], r.start_s[at + 1])) - len(at) * part
    return bool(beyond > SURE * math.sqrt(len(at) * part * (1.0 - part)) + 1.0)


def _pauses(r: Readings) -> tuple[Indices, Floats]:
    """Return after which readings others are missing, and for how many seconds; none if readings have no fixed pace."""
    pace = r.pace() if r.period_s > 0 else np.zeros(0)
    at = np.flatnonzero(pace > GAP_PERIODS)
    at = at if len(at) and float(np.quantile(pace, 0.9)) < STEADY else at[:0]
    return at, (pace[at] - 1.0) * r.period_s


def lost_in_a_block(r: Readings, spans: Floats) -> Bools:
    """Return which of the sorted spans lack all readings, in the span and in the nearer half of the gaps beside it."""
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
    beyond = model.readings.count(used & model.once(hidden_w)[1])
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
    gaps, lost_s = _pauses(r)
    if len(gaps):
        busy = signal.merged(windows_s)
        within = int(np.count_nonzero(signal.touches(busy, r.end_s[gaps], r.start_s[gaps + 1]))) if len(busy) else 0
        places = f"places: {len(gaps)}, of which {within} while busy"
        yield note(f"Rail {rail}: readings are missing ({places}), {lost_s.sum():.3g} s in all")
    outside = int(np.count_nonzero(~covered(r, windows_s)))
    if outside:
        yield note(f"Rail {rail}: {outside} of {len(windows_s)} spans lie wholly or partly outside the trace")


# ---- even and odd readings ----------------------------------------------------------------


def in_turn(model: RailModel) -> Margin:
    """Return a bias if the difference of even and odd readings changes between idle and work: half of this change.

    Means of even and odd readings agree, unless a meter alternates between maximum and minimum, or between two
    converters.
    """
    one = model.single
    r = one.readings
    turn = np.where(np.arange(len(r.watts) - 1) % 2, -1.0, 1.0) * np.diff(r.watts)
    beside = one.beside & r.ok[1:] & r.ok[:-1]
    apart_w, u2 = 0.0, 0.0
    for sign, use in ((1.0, one.held), (-1.0, one.idle)):
        found = turn[beside & use[1:] & use[:-1]]
        if len(found) < LEAST:
            return Margin()
        apart_w += sign * float(np.mean(found))
        u2 += float(np.var(found)) / len(found)
    return Margin(0.0, 0.5 * abs(apart_w)) if abs(apart_w) > 2.0 * SHOWN * math.sqrt(u2) else Margin()


# ---- by place in a loop -------------------------------------------------------------------


def in_step_with(model: RailModel, phases: Sequence[Phase], dynamic_w: float) -> Margin:
    """Return the bias of a slow meter whose readings are in step with the executions or inferences in a long span.

    Every reading then sees the same part of an execution. The readings agree with each other, but their mean is wrong,
    because no reading sees the rest of the execution.
    """
    busy_s, r = sum(p.busy_s for p in phases), model.readings
    loops = [{n.tobytes(): n for n in (p.executions, p.inferences)}.values() for p in phases]
    missed = [max(_missed_w(model, p, n, dynamic_w) for n in of) for p, of in zip(phases, loops, strict=True)]
    told = (
        f"executions or inferences are in step with readings that last {r.aperture_s:.4g} s and come every "
        f"{r.period_s:.4g} s, so each reading may miss the same part of them. Change the rate of the meter a little, "
        "or use a faster meter"
    )
    bias_w = sum(p.busy_s * w for p, w in zip(phases, missed, strict=True)) / busy_s
    return Margin(bias_w=bias_w, told=told)


def _missed_w(model: RailModel, phase: Phase, times: NDArray[np.int64], dynamic_w: float) -> float:
    """Return the largest error of the mean in watts if readings sample a loop unevenly.

    ``times`` is the number of passes through the loop in each span, shape (k,). In a part of the loop without readings,
    power may be from zero to twice the mean. In the other parts, power is assumed to rise and fall once per pass, but
    readings do not see all places equally. The error is the height of the rise times the largest excess of weight on
    adjacent places. The height is dynamic power, or less if readings at different places differ less.
    """
    one, windows_s = model.single, phase.windows_s
    r = one.readings
    if r.counter or r.period_s - r.aperture_s <= 1e-3 * r.period_s:  # the meter sees all
        return 0.0
    used = np.flatnonzero(one.held & r.ok)
    owner = signal.count_before(windows_s[:, 0], r.start_s[used], "right") - 1
    within = (owner >= 0) & (r.end_s[used] <= windows_s[owner, 1]) & (times[owner] > 1)
    used, owner = used[within], owner[within]
    if len(used) < 2:
        return 0.0
    loop_s = (windows_s[owner, 1] - windows_s[owner, 0]) / times[owner]
    begin = np.mod((r.start_s[used] - windows_s[owner, 0]) / loop_s, 1.0)
    lasting = np.maximum(r.aperture_s / loop_s, 1.0 / PLACES)
    n, mean = len(used), np.zeros(PLACES)
    for part in np.array_split(np.arange(n), 1 + n // BLOCK):
        mean += _looks(begin[part], lasting[part]).sum(axis=0) / n
    drawn = np.random.default_rng(0).choice(n, min(n, PLACES), replace=False)  # at random: no step with the loop
    apart = 0.5 * float(np.mean(np.abs(_looks(begin[drawn], lasting[drawn]) - mean)))
    shown_w = float(np.std(r.watts[used])) / max(apart, 1e-9)
    uneven = float(np.ptp(np.append(0.0, np.cumsum(mean - 1.0)))) / PLACES
    seen = np.flatnonzero(mean > 0.0)
    hidden = float(np.max(np.diff(np.append(seen, seen[0] + PLACES))) - 1) / PLACES
    return hidden * abs(dynamic_w) + uneven * min(abs(dynamic_w), SHOWN * shown_w)


def _looks(begin: Floats, lasting: Floats) -> Floats:
    """Return how much each place of a loop counts in each reading, 1 on average, shape (n, places)."""
    border = np.arange(PLACES + 1.0) / PLACES
    before, until = (
        np.floor(x) * border + np.minimum(np.mod(x, 1.0), border) for x in (begin[:, None], (begin + lasting)[:, None])
    )
    return np.asarray(PLACES * np.diff(until - before, axis=1) / lasting[:, None])


# ---- by span ------------------------------------------------------------------------------


def unseen(model: RailModel, inner: Estimate, windows_s: Floats, missing: float) -> Margin:
    """Return the margin for the power in parts of spans without readings.

    ``missing`` is the share of missing readings in spans, from ``missing_while_busy``. In the true mean, a span counts
    by its length. In the figure, it counts by the time that readings show of it.
    """
    spans, r = signal.merged(windows_s), model.readings
    length = spans[:, 1] - spans[:, 0]
    of = signal.inside(spans, model.middle_s, model.middle_s)
    watts, many = model.means(model.above_w, model.busy, of, len(spans))
    seen = many > 0.0
    if not seen.any():
        return Margin()
    mean_w = float(np.average(watts[seen], weights=length[seen]))
    spread_w = float(np.std(watts[seen], ddof=1)) if np.count_nonzero(seen) > 1 else abs(mean_w)
    parts, bias_w = [], 0.0
    outside = ~covered(r, spans)
    bias_w += UNSEEN * float(length[outside].sum() / length.sum()) * spread_w
    shown_s = np.where(outside, 0.0, _shown_s(r, spans))
    u_w = spread_w * float(np.linalg.norm(shown_s / max(shown_s.sum(), 1e-300) - length / length.sum()))
    parts.append(Component("parts of spans without readings", u_w, max(float(np.count_nonzero(seen)) - 1.0, 1.0)))
    if missing:
        none = float(length[~seen & ~outside].sum() / length.sum())
        whole = min(none, missing)
        farthest_w = float(np.max(np.abs(watts[seen] - mean_w)))
        bias_w += UNSEEN * (missing - whole) * abs(inner.value_w) + whole * max(abs(inner.value_w), farthest_w)
    parts += _between_apertures(model, inner, spans[seen], watts[seen])
    return Margin(0.0, bias_w, tuple(parts))


def _between_apertures(model: RailModel, inner: Estimate, spans: Floats, watts: Floats) -> list[Component]:
    """Return components for power that a meter misses between apertures, and for noise at work that readings share.

    Let a meter miss the part u of each period. A step of h watts at a random moment then causes an error of
    h * u / sqrt(12) in one reading. The error is sqrt(2) times this if a step back always follows after the same time.
    If all spans begin at the same place between two readings, steps may recur at the same places of all spans, and have
    the same error in each. If power pulses in step with the readings, each reading misses the same part of a pulse, and
    this error differs from span to span.
    """
    r, noise = model.readings, model.noise
    n = r.count((inner.level != 0.0) & model.held)
    if r.counter or n < 3 or r.period_s <= 0.0:  # a counter misses nothing between two reads
        return []
    blind, steps, alike = max(1.0 - r.aperture_s / r.period_s, 0.0), *model.once(_steps_at_work)
    found = [Component("unseen between apertures", blind * math.sqrt(steps * max(alike, 1.0) / 6.0 / n))]
    of_spans, dof = scatter_of_mean(watts, spans, noise.busy_w**2 * len(spans) / n)
    if steps > noise.busy_w**2:
        found.append(Component("spans that differ, seen in part", blind * of_spans, dof))
    elif noise.busy_w > max(noise.white_w, ROUNDED * float(np.max(np.abs(r.watts)))):
        found.append(Component("noise under load", of_spans, dof))
    return found


def _steps_at_work(model: RailModel) -> tuple[float, float]:
    """Return the mean square of power steps beyond noise in W**2, and how many spans may have steps at the same place.

    A step is the difference of two readings within a span, one after the other without a pause.
    """
    one = model.single
    seen = one.held & one.readings.ok
    step_w = np.diff(one.readings.watts)[seen[1:] & seen[:-1] & one.beside]
    square = float(np.mean(step_w**2)) if len(step_w) else 0.0
    alike = signal.in_step(model.spans_s[:, 0], model.readings.period_s) * len(model.spans_s)
    return max(square - 2.0 * model.noise.busy_w**2, 0.0), alike


def scatter_of_mean(watts: Floats, spans: Floats, known_w2: float) -> tuple[float, float]:
    """Return the standard uncertainty of the mean over spans from their scatter, in watts, and its degrees of freedom.

    ``known_w2`` is the part of the variance of one span that other components already include.
    """
    length = spans[:, 1] - spans[:, 0]
    off, n = (watts - np.average(watts, weights=length)) * length / length.mean(), len(watts)
    if n < LEAST:
        return 0.0, math.inf
    return math.sqrt(max(float(off @ off) / (n - 1.0) - known_w2, 0.0) / n), n - 1.0
