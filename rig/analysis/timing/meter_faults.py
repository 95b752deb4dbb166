"""Find errors that a meter, its driver or its host made in values and stamps, by a profile of the trace and rules.

A reading that was not measured counts as missing. Stamps of arrival or of polls are replaced by the steady pace of the
meter, which can be found because no reading arrives before it was taken. Readings whose noise is cut off are corrected,
with a bias. Every other error is a failed check, and the power of the rail is refused.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rig.analysis.result.finding import Finding
from rig.analysis.timing.activity_signal import inside, merged
from rig.analysis.timing.profile import CHANCE, FEW, LEAST, LOOKED_AT, MANY, SEVERAL, Profile
from rig.analysis.timing.timebase import CERTAIN, RECTANGLE, STRETCHES, Timebase, earliest
from rig.recording.traces.traces import AT_ONCE, COLUMNS, Trace
from rig.types import Bools, Floats

LOST, SLOWER = 0.2, 1.05
"""Power is refused above the share ``LOST`` of repeated readings.

If there are ``SLOWER`` or more polls for each conversion, the first poll of each conversion is kept.
"""
STEADY = 0.25
"""New values may scatter about a steady pace by 1 + ``STEADY`` polls.

Polling alone causes a sawtooth 1 poll high, which may range over 1.23 polls about a least-squares line. Readings
arrive one by one if nine in ten deliveries are late by at most the part ``STEADY`` of the time between deliveries.
"""
UNSURE = 0.25
"""Readings whose noise is cut off are lowered. How far depends on the shape of the noise, which is assumed Gaussian.

So this part of the correction is stated as bias.
"""


class Look(Struct, frozen=True):
    """The input of a rule: the trace as earlier rules left it, and the profile of the recorded trace.

    ``whole`` is True if the profile is of all readings; otherwise ``of`` says of how many. ``arrived_s`` has the end of
    the last reading of each delivery, and when the host received it, shape (k, 2).
    """

    trace: Trace
    profile: Profile
    whole: bool
    of: str
    clock: Timebase
    arrived_s: Floats


class Screened(Struct, frozen=True):
    """A trace as rules left it, with their notes and failed checks.

    All its readings may be late by ``late_ticks``. Idle may be wrong by ``bias``, in the unit of the readings, or in
    watts for a counter.
    """

    trace: Trace
    notes: tuple[str, ...] = ()
    checks: tuple[Finding, ...] = ()
    late_ticks: float = 0.0
    bias: float = 0.0


Rule = Callable[[Look], Screened | None]
"""A test that returns None if it finds nothing."""


# ---- values -------------------------------------------------------------------------------------


def _polled(look: Look) -> Screened | None:
    """Keep one reading for each conversion, at the pace of conversions, if the host polls faster than that."""
    trace = look.trace
    if not (look.whole and trace.uniform and trace.rail.rate_hz > 0.0 and look.profile.copies.any()):
        return None
    first = np.flatnonzero(np.diff(look.profile.value) != 0.0) + 1  # the very first value may have been new long before
    number = np.arange(len(first), dtype=np.float64)
    pace, begin = np.polyfit(number, first, 1) if len(first) > LEAST else (1.0, 0.0)
    if pace < SLOWER or float(np.ptp(first - pace * number)) > 1.0 + STEADY:
        return None
    declared = 1.0 if trace.rail.aperture_s is None else trace.rail.aperture_s * trace.rail.rate_hz
    # an aperture of one poll was derived from the rate, and adds no knowledge
    lasting = pace if abs(declared - 1.0) < FEW else min(pace, declared)
    ends = begin - 0.5 + pace * number  # a poll finds a conversion that ended since the previous poll
    period = float(trace.end_tick[-1] - trace.end_tick[0]) / (len(trace.end_tick) - 1)
    start, end = (trace.end_tick[0] + np.round(period * at).astype(np.int64) for at in (ends - lasting, ends))
    rail = dataclasses.replace(trace.rail, rate_hz=trace.rail.rate_hz / float(pace))
    value, over = np.asarray(trace.value[first]), np.asarray(trace.overload[first])
    kept = replace(trace, rail=rail, start_tick=start, end_tick=end, value=value, overload=over)
    told = f"the host asked {pace:.3g} times for each conversion of the meter. Each is used once, at a steady pace"
    return Screened(kept, (told,))


def _repeated(look: Look) -> Screened | None:
    p, trace = look.profile, look.trace
    if not p.copies.any() or (look.whole and len(trace.value) < len(p.value)):
        return None
    low, high = np.fmin.reduce(p.value), np.fmax.reduce(p.value)
    shared = p.value[(p.lag > 0) & ~p.copies]

    def again(value: Floats) -> Bools:
        if look.whole and len(value) == len(p.copies):
            return p.copies
        # in parts of a long trace, repeated blocks cannot be found, but equal successive values can
        same = np.concatenate([[False], value[1:] == value[:-1]])
        return np.asarray(same & (value > low) & (value < high) & ~np.isin(value, shared))

    count = int(np.count_nonzero(again(p.value)))
    if not count:
        return None
    note = (
        f"{count} readings{look.of} repeat earlier ones to the last digit, as when a link stalls or a buffer is read "
        "twice. They count as missing"
    )
    share, rule = count / len(p.value), f"readings of rail {trace.rail.name} that repeat earlier ones"
    checks = (Finding(rule, f"{share:.1%}", f"at most {LOST:.0%}"),) if share > LOST else ()
    return Screened(trace.changed(lambda value: np.where(again(value), np.nan, value)), (note,), checks)


def _chosen(look: Look) -> Screened | None:
    """Find a running median: values recur within a few readings, but not at once and hardly ever later."""
    p = look.profile
    back = np.where(p.copies, 0, p.lag)
    share = len(np.unique(p.code[(back > 1) & (back <= SEVERAL)])) / max(len(back), 1)
    if not share > CHANCE > np.count_nonzero(back > SEVERAL) / max(len(back), 1):
        return None
    rule = f"readings of rail {look.trace.rail.name} that a filter chose from their neighbours"
    found = f"{share:.1%}, as of a running median, which removes short changes: switch it off, or let the meter average"
    return Screened(look.trace, checks=(Finding(rule, found, "none"),))


def _swapped(look: Look) -> Screened | None:
    """Find readings, or halves of buffers, that are exchanged in pairs: values go on more smoothly in the other order.

    The first pair is taken to begin at the first half, then at the second. Exchanged halves show in only one of the two
    cases. Pulses that recur once in each pair show in both.
    """
    value, most = look.profile.value, AT_ONCE // 16
    value = value[max((len(value) - most) // 2, 0) :][:most]
    value = value / np.fmax.reduce(np.abs(value), initial=1e-300)  # squares of any values stay finite
    for half in range(1, min(LEAST, len(value) // LEAST) + 1):  # a search for longer ones would take long
        one, other = sorted(_smoother(value[first:], half) for first in (0, half))
        if other > CERTAIN and one < 1.0:
            what = "readings" if half == 1 else f"blocks of {half} readings"
            found = (
                f"{what} exchanged in pairs, as halves of a word or a buffer may be: exchange them in driver or file"
            )
            check = Finding(f"readings of rail {look.trace.rail.name} in order", found, "in order of time")
            return Screened(look.trace, checks=(check,))
    return None


def _smoother(value: Floats, half: int) -> float:
    """Return by how many standard errors values at the borders of halves are closer if the halves are exchanged."""
    until = len(value) // (2 * half) * 2 * half
    begin, end, then, last = (value[k : until : 2 * half] for k in (0, half - 1, half, 2 * half - 1))
    as_read = (end - then)[:-1] ** 2 * (half > 1) + (last[:-1] - begin[1:]) ** 2
    exchanged = (last - begin)[:-1] ** 2 * (half > 1) + (end[:-1] - then[1:]) ** 2
    nearer = as_read - exchanged
    if not math.isfinite(float(nearer.sum())):
        nearer = nearer[np.isfinite(nearer)]
    return float(nearer.sum()) / max(math.sqrt(float(nearer @ nearer)), 1e-300)


def _stuck(look: Look) -> Screened | None:
    """Find a bit of the converter that never changes: values fill bands of one width, and bands between are empty."""
    value = look.profile.value[:: max(1, len(look.profile.value) // LOOKED_AT)]
    value = value[np.isfinite(value)]
    levels = np.unique(value)
    apart = np.diff(levels)
    for at in np.argsort(apart)[: -MANY - 1 : -1]:
        period = 2.0 * (apart[at] - apart.min())
        if period < 2.0 * SEVERAL * apart.min():
            break
        band, place = np.divmod((value - levels[at + 1] + 0.5 * apart.min()) / period, 1.0)
        filled = np.count_nonzero(np.unique(band, return_counts=True)[1] >= MANY)
        evenly = np.histogram(place, SEVERAL, (0.0, 0.5))[0].min() > FEW * len(value)
        # by chance, few levels may fill only two bands, or only few places within the bands
        if filled > 2 and evenly and np.max(place) * period < 0.5 * period + apart.min():
            rule = f"readings of rail {look.trace.rail.name} in every band of their range"
            found = "in every second band, as if a bit were stuck: read the meter's own display, or use another meter"
            return Screened(look.trace, checks=(Finding(rule, found, "in every band"),))
    return None


def _cut_off(look: Look) -> Screened | None:
    if (cut := look.profile.cut_off) is None:
        return None
    low, by, share, count = cut
    trace = look.trace.changed(lambda value: np.where(value == low, low - by, value))
    note = (
        f"{count} readings{look.of} are at the low end of the meter's range, where noise is cut off. Each is lowered "
        f"by {by:.3g} {trace.rail.conversion.unit}, computed from their share at idle for Gaussian noise; {UNSURE:.0%} "
        "of this is stated as bias"
    )
    return Screened(trace, (note,), bias=UNSURE * share * by)


# ---- stamps and arrivals --------------------------------------------------------------------------


def _on_arrival(look: Look) -> Screened | None:
    """Move readings that were stamped on arrival to the grid of their meter, found from the earliest arrivals.

    The intervals of successive readings never overlap, so stamps that overlap are not the times of the readings.
    """
    trace, hz = look.trace, look.clock.clock.tick_hz
    period = hz / trace.rail.rate_hz if trace.rail.rate_hz > 0.0 else 0.0
    if trace.uniform or trace.rail.kind != "mean" or period <= 0.0 or len(trace.value) < LEAST:
        return None
    start, end = trace.start_tick[:AT_ONCE], trace.end_tick[:AT_ONCE]
    length = float(np.median(end - start))
    overlap = max(FEW * length, 2.0)  # rounded stamps may overlap by two ticks
    # stamps of arrival never go back: if a packet ends before an earlier one, the stamps are not of arrival
    swapped = (start[1:] > end[:-1] + overlap) & (end[:-1] < np.maximum.accumulate(end)[:-1])
    if swapped.any() or length > (1.0 + FEW) * period or np.count_nonzero(start[1:] < end[:-1] - overlap) < SEVERAL:
        return None
    trace = trace.part(0, len(trace.value))  # all stamps are needed, also of a long trace
    end, number = trace.end_tick, np.arange(len(trace.value), dtype=np.float64)
    line, first = earliest(number, end - end[0] - period * number)
    since = period * number + np.polyval(line, number)
    # a float cannot hold the ticks of a clock that has run for long
    grid = end[0] + (np.round(since).astype(end.dtype) if period > 100.0 else since)
    behind = end - grid
    late, packets = float(np.mean(np.abs(behind))), 1 + np.count_nonzero(np.abs(np.diff(behind)) > FEW * period)
    told = f"readings overlap, so they were stamped on arrival, on average {late / hz:.3g} s later than the earliest; "
    if np.max(np.abs(behind[first])) <= 0.5 * period + CERTAIN * late * len(first) / packets:
        trace = replace(trace, start_tick=grid - np.median(end - trace.start_tick).astype(grid.dtype), end_tick=grid)
        told += "the earliest of them show the grid of the meter, which is used. "
    else:
        told += "their irregular stamps are used, since readings are missing. "
        late += float(np.std(behind))
    late += period
    told += f"All may be late by about {late / hz:.3g} s, unless the activity shows where they were taken"
    return Screened(trace, (told,), late_ticks=late)


def _renewed(look: Look) -> Screened | None:
    """Put a counter's values at the pace of its renewals, if this more than halves the scatter of successive readings.

    The host finds a new value up to one poll later than it was made. The ends of intervals therefore scatter, and so do
    means over them. If a counter is polled several times for each value, its new values are kept where they were found.
    """
    if look.trace.rail.kind != "cumulative":
        return None
    trace = look.trace.part(0, len(look.trace.value))
    new = np.flatnonzero(np.diff(trace.value)) + 1
    apart = np.diff(new)
    often = len(apart) >= MANY and np.median(apart) >= 2.0 and not trace.overload.any()
    if often and np.mean(np.abs(apart - np.median(apart)) > 1.0) <= FEW:
        return Screened(replace(trace, uniform=False, **{name: getattr(trace, name)[new] for name in COLUMNS}))
    since, joules = np.diff(trace.end_tick).astype(np.float64), np.diff(trace.value)
    if not look.whole or len(trace.value) < LEAST or np.any(since <= 0.0):
        return None
    number = np.concatenate([[0.0], np.cumsum(np.rint(since / np.median(since)))])
    line, covariance = np.polyfit(number, (trace.end_tick - trace.end_tick[0]).astype(np.float64), 1, cov=True)
    at = np.polyval(line, number)
    # a value is found within one renewal after it was made
    if np.any(np.diff(number) < 1.0) or float(np.ptp(trace.end_tick - trace.end_tick[0] - at)) > float(line[0]):
        return None
    found, steady = (np.median(np.abs(np.diff(joules / over))) for over in (since, np.diff(at)))
    if not steady < 0.5 * found:  # this also returns if a value is not a number
        return None
    hz, end = look.clock.clock.tick_hz, trace.end_tick[0] + np.round(at).astype(trace.end_tick.dtype)
    # watts are joules over this pace, so its relative error is also that of the watts
    off_w = 2.0 * math.sqrt(covariance[0, 0]) / float(line[0]) * float(np.max(np.abs(joules / np.diff(at)))) * hz
    note = (
        f"the counter is renewed every {float(line[0]) / hz:.6g} s. Its values are placed at that pace, not when the "
        "host found them"
    )
    kept = replace(trace, start_tick=end - (trace.end_tick - trace.start_tick), end_tick=end)
    return Screened(kept, (note,), bias=off_w)


def _drifting(look: Look) -> Screened | None:
    """Find delays that change along the run by more than batches of readings and the clock's rate explain."""
    ended_s, at_s = look.arrived_s[:-1].T  # the last delivery holds the readings that were left when the meter stopped
    if len(at_s) < SEVERAL:
        return None
    line, _ = earliest(at_s, at_s - ended_s)
    behind_s, run_s = at_s - ended_s - np.polyval(line, at_s), float(np.ptp(at_s))
    batch_s, change_s = run_s / len(at_s), float(line[0]) * run_s
    # the last reading of a batch may be as old as a batch is long, unless each reading arrives as soon as it was taken
    period_s = float(np.ptp(ended_s)) / max(len(look.trace.value), 1)
    ages_s = batch_s if np.quantile(behind_s, 0.9) > STEADY * batch_s else 0.0
    # on a busy host, stretches without an early arrival lift the fitted line, so most arrivals lie below it
    off_s = abs(np.median(behind_s))
    of_line_s = float(np.std(behind_s)) * RECTANGLE / math.sqrt(len(at_s))
    allowed_s = 2.0 * (ages_s + period_s + off_s) + CERTAIN * math.hypot(look.clock.rate_sigma * run_s, of_line_s)
    if abs(change_s) <= allowed_s:
        return None
    found, allowed = f"{change_s:+.3g} s in {run_s:.3g} s", f"at most {allowed_s:.3g} s"
    check = Finding(f"change of the delay of rail {look.trace.rail.name} in the run", found, allowed)
    return Screened(look.trace, checks=(check,))


RULES: tuple[Rule, ...] = (
    _polled, _repeated, _chosen, _swapped, _stuck, _cut_off, _on_arrival, _renewed, _drifting,
)  # fmt: skip
"""The rules for every trace, in order: each rule sees the trace that earlier rules left."""


# ---- all rules --------------------------------------------------------------------------------------


def screened(trace: Trace, clock: Timebase, idle_s: Floats, arrived: Floats, rules: Sequence[Rule] = RULES) -> Screened:
    """Return a trace after all rules: wrong readings count as missing, and wrong stamps are replaced.

    ``idle_s`` are the idle windows, shape (k, 2). ``arrived`` has for each delivery the tick at which its last reading
    ended, and when the host had received it, in run seconds, shape (m, 2).
    """
    some, out = _some(trace), Screened(trace)
    valued = trace.rail.kind in ("mean", "point") and len(some.value) >= LEAST
    middle_s = clock.seconds(0.5 * (some.start_tick + some.end_tick)) if valued else np.zeros(0)
    value = np.where(np.isfinite(some.value), some.value, np.nan)[: len(middle_s)]
    profile = Profile(value, inside(merged(idle_s), middle_s, middle_s) >= 0)
    arrived_s = np.column_stack([clock.seconds(arrived[:, 0]), arrived[:, 1]])
    whole = len(some.value) == len(trace.value)
    look = Look(trace, profile, whole, "" if whole else f" of {len(value)} that were looked at", clock, arrived_s)
    for rule in rules:
        if (found := rule(replace(look, trace=out.trace))) is not None:
            out = Screened(
                found.trace,
                (*out.notes, *(f"Rail {trace.rail.name}: {text}" for text in found.notes)),
                (*out.checks, *found.checks),
                out.late_ticks + found.late_ticks,
                out.bias + found.bias,
            )
    return out


def _some(trace: Trace) -> Trace:
    """Return the trace in memory, or half of ``AT_ONCE`` readings in stretches evenly over it if it has more."""
    n, each = len(trace.value), AT_ONCE // (2 * STRETCHES)
    first = np.linspace(0, n - each, STRETCHES).astype(np.int64)
    return trace.part(0, n) if n <= AT_ONCE else trace.parts(np.column_stack([first, first + each]))
