"""Find what readings contain outside spans: work that no span covers, such as a repeated try, and unsteady idle."""

import math
from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from rig.analysis.result.finding import Finding, note
from rig.analysis.timing.activity_signal import SETTLE_TAU, inside, means_by, merged, touches
from rig.analysis.timing.alignment.misplaced_spans import OFTEN, Levels, levels_of
from rig.analysis.timing.alignment.placement import AlignedRail
from rig.analysis.timing.counted_spans import Activity, Phase
from rig.analysis.timing.profile import FAR, FEW, LEAST, LEAST_ABOVE, MANY, NOISY, SEVERAL
from rig.analysis.timing.readings import EVEN, Readings, idle_window_of
from rig.analysis.timing.timebase import SURE
from rig.types import Bools, Floats, Indices

LEAST_READINGS = 4
"""Work outside spans must last half as long as a span, rise half as much, and last this many readings.

It must also last longer than the uncertainty of the place of spans.
"""
ALIKE = 0.1
"""Levels, slopes and steps that differ by at most this part count as equal."""


def with_work_outside(activity: Activity, rails: list[AlignedRail]) -> tuple[Activity, list[AlignedRail]]:
    """Return the activity with the work that no span covers, and the rails with a note if there is any.

    This work is looked for in the rail with the highest contrast of spans to noise. Work that occurs three times in one
    idle window, or in every idle window, recurs all the time and is part of idle. If work goes on after most spans, the
    activity stays unchanged.
    """
    spans_s = activity.active_s()
    seen = [(r, of) for r in rails if (of := levels_of(r.readings, spans_s, _among(r, spans_s))) is not None]
    if not seen:
        return activity, rails
    rail, best = max(seen, key=lambda pair: pair[1].contrast)
    every_s = _stretches(rail, best, spans_s, activity.idle_s)
    found_s = every_s[np.diff(every_s)[:, 0] >= 0.5 * np.median(np.diff(spans_s))]
    at_idle = [int(np.count_nonzero(touches(window, *found_s.T))) for window in activity.idle_s.reshape(-1, 1, 2)]
    if not len(found_s) or max(at_idle, default=0) >= OFTEN or min(at_idle, default=0) > 0:
        return activity, rails
    near_s = SURE * rail.sigma_s + 2.0 * rail.readings.period_s + SETTLE_TAU * rail.readings.tau_s
    goes_on = touches(found_s, spans_s[:, 1], spans_s[:, 1] + near_s)
    name = rail.readings.rail.name
    if np.mean(goes_on) > 0.5:
        longer = float(np.median(np.diff(found_s)) / np.median(np.diff(spans_s)))
        told = note(
            f"Rail {name}: after most spans power stays near their level, for {longer:.2g} times their length. Either "
            "the device works on, or ends are stamped early. Time and energy are by the stamps"
        )
        return activity, [r.found(told) if r.readings.rail.name == name else r for r in rails]
    if _beside_more_w(rail, spans_s, found_s) > 0.5 * (best.high_w - best.low_w):  # something else works all the time
        return activity, rails
    often = "once" if len(found_s) == 1 else f"{len(found_s)} times"
    where = f" ({sum(at_idle)} in idle windows)" * any(at_idle)
    after = " Some of it follows ends of spans directly, and intervals of time and energy include it."
    told = note(
        f"Rail {name}: the device was busy {often} where no span is{where}, for "
        f"{float(np.sum(np.diff(found_s))):.3g} s in all.{after * bool(np.any(goes_on))} Spans beside this work, gaps "
        "with it, and this part of idle are left out of power. Mark warm-up samples as warm-up, and do not repeat a "
        "try within a span"
    )
    activity = replace(activity, outside_s=found_s, phases=_longer(activity, every_s, near_s))
    return activity, [r.found(told) if r.readings.rail.name == name else r for r in rails]


def _longer(activity: Activity, found_s: Floats, near_s: float) -> dict[str, Phase]:
    """Return the phases with the time of work that begins within ``near_s`` of the end of a span.

    The time is 0 if such work follows most spans.
    """
    out = {}
    for name, phase in activity.phases.items():
        ends_s = phase.windows_s[:, 1]
        some = touches(found_s, ends_s, ends_s + near_s)
        until_s = found_s[np.searchsorted(found_s[:, 1], ends_s[some]), 1]
        out[name] = replace(phase, goes_on_s=float(np.sum(until_s - ends_s[some]) * (np.mean(some) <= 0.5)))
    return out


def _beside_more_w(rail: AlignedRail, spans_s: Floats, found_s: Floats) -> float:
    """Return how many watts more the spans beside the stretches ``found_s`` have than other spans."""
    r = rail.readings
    of = inside(spans_s, r.start_s, r.end_s)
    use = np.flatnonzero(r.ok & (of >= 0))
    watts, count = means_by(of[use], len(spans_s), np.ones(len(use)), r.watts[use])
    pitch_s = float(np.median(np.diff(spans_s[:, 0])))
    near_s = found_s + np.array([-pitch_s, pitch_s])
    beside = touches(merged(near_s), *spans_s.T)
    some = [watts[(count > 0) & which] for which in (beside, ~beside)]
    return float(np.median(some[0]) - np.median(some[1])) if min(map(len, some)) >= OFTEN else 0.0


def _among(rail: AlignedRail, spans_s: Floats) -> Bools:
    """Return which readings are between the begin of the first span and the end of the last span."""
    r = rail.readings
    return r.ok & (r.start_s >= spans_s[0, 0]) & (r.end_s <= spans_s[-1, 1]) if len(spans_s) else r.ok


def _stretches(rail: AlignedRail, levels: Levels, spans_s: Floats, idle_s: Floats) -> Floats:
    """Return the stretches of successive readings outside spans that are nearer to work than to idle, shape (k, 2)."""
    r = rail.readings
    at_idle = r.watts[r.ok & touches(merged(idle_s), r.start_s, r.end_s)]
    # a device that sleeps between its spans draws more in idle windows, and does no work there
    low = max(levels.low_w, float(np.median(at_idle))) if len(at_idle) else levels.low_w
    if low >= levels.high_w:
        return np.zeros((0, 2))
    settled_s = spans_s + np.array([0.0, SETTLE_TAU * r.tau_s])
    busy = r.ok & (r.watts > low + 0.5 * (levels.high_w - low)) & ~touches(settled_s, r.start_s, r.end_s)
    turns = np.flatnonzero(np.diff(busy, prepend=False, append=False))
    first, last = turns[::2], turns[1::2] - 1
    found_s = np.column_stack([r.start_s[first], r.end_s[last]])
    least_s = max(LEAST_READINGS * r.period_s, SURE * math.hypot(rail.sigma_s, r.aperture_s))
    return found_s[found_s[:, 1] - found_s[:, 0] >= least_s]


# ---- idle that is no rest --------------------------------------------------------------------


FEWER = 0.1
"""This part of the readings at idle, or at work, may differ from most of them."""


def restless(rail: AlignedRail, activity: Activity) -> list[Finding]:
    """Return a failed check if neither the device nor the noise of its meter makes some of the readings.

    Causes are a changed unit, a lost sign, a switched probe, sorted rows or a meter that averages since the start. A
    pulse now and then does not fail the check, nor does a device that settles or wakes.
    """
    r, spans_s = rail.single or rail.readings, activity.active_s()
    if r.counter or not len(spans_s):
        return []
    idle = idle_window_of(r, activity.idle_s, spans_s, rail.sigma_s, rail.host_sigma_s) >= 0
    state = np.where(idle, 1, 2 * (r.ok & (inside(spans_s, r.start_s, r.end_s) >= 0)))
    how = next(_faults(r, state), "") if np.count_nonzero(idle) >= LEAST else ""
    return [Finding(f"readings of rail {r.rail.name} as measured", how, "noise about levels")] if how else []


def _faults(r: Readings, state: Indices) -> Iterator[str]:
    """Describe readings that are no power of a device; ``state`` is 1 at idle, 2 at work and 0 elsewhere, shape (n,).

    Readings of a device follow its state: a pulse adds to the level of idle or of work. They have the noise that idle
    shows, and noise is not in order of its size.
    """
    watts, steps, at_rest, at_work = r.watts, np.diff(r.watts), r.watts[state == 1], r.watts[state == 2]
    off_w, same = np.abs(steps), (state[1:] == state[:-1]) & (state[1:] > 0)
    length_s = (r.end_s - r.start_s)[state == 1]
    if min(at_rest.mean(), length_s.mean()) > 0.0 and np.std(length_s) >= EVEN * length_s.mean():
        longer, more = (x / x.mean() - 1.0 for x in (length_s, at_rest))
        slope = float(longer @ more / (longer @ longer))
        u = float(np.std(more - slope * longer) / np.linalg.norm(longer))
        if slope >= FAR * u and abs(slope - 1.0) <= max(ALIKE, 3.0 * u):
            yield "in proportion to the time since the reading before, as joules divided by one interval"
    if not len(at_work):
        return
    # smaller differences are rounding
    exact_w = max(1e-9 * float(np.max(np.abs(watts))), (r.rail.resolution or 0.0) * r.watts_per_raw)
    noise_w = float(np.median(np.append(off_w[same & (state[1:] == 1) & (off_w > 0.0)], exact_w)))
    rest_w, level_w, low_w = float(np.median(at_rest)), float(np.median(at_work)), float(np.quantile(at_rest, FEWER))
    if np.all(steps[same] >= 0.0) and np.mean(steps[same] > 0.0) > 0.5:
        yield "that never fall, at idle or at work"
    flat, differ = float(np.mean(at_rest == at_rest.min())), len(np.unique(at_work))
    if flat > 1.0 - LEAST_ABOVE and at_rest.min() != 0.0 and differ > max(MANY, (1.0 - NOISY) * len(at_work)):
        yield f"{flat:.0%} of idle that are equal and the lowest, though those at work differ: their range ends there"
    most_w = max(low_w, float(np.quantile(at_work, 1.0 - FEWER)))
    over_w = [float(np.mean(np.maximum(w - most_w, 0.0))) for w in (at_work, at_rest)]  # rare pulses occur in both
    if np.diff(over_w)[0] > 0.5 * abs(level_w - low_w):
        yield "so far above readings at work that their mean excess is over half of dynamic power"
    least_w = np.minimum(off_w[1:], off_w[:-1])
    lone = same[1:] & same[:-1] & (steps[1:] * steps[:-1] < 0.0) & (np.abs(watts[2:] - watts[:-2]) < 0.5 * least_w)
    far_w = FAR * max(noise_w, exact_w, float(np.median(np.abs(at_rest - rest_w))))
    far = lone & (state[1:-1] == 1) & (least_w > far_w)
    below, above = (int(np.count_nonzero(far & (turn > 0.0))) for turn in (steps[1:], -steps[1:]))
    if below >= SEVERAL and below > 4 * above and np.count_nonzero(at_rest < rest_w - far_w) < 2 * below:
        yield f"{below} single ones that are far below those beside them"
    lone &= least_w > 2.0 * SURE * max(noise_w, exact_w)
    single = [np.flatnonzero(lone & (state[1:-1] == k)) for k in (1, 2)]
    if min(map(len, single)) >= SEVERAL and abs(np.mean(np.sign(steps[single[0]]))) > 0.5:  # noise has both signs
        idle_w, work_w = (float(np.median(watts[1 + at])) for at in single)
        if abs(idle_w - work_w) < ALIKE * abs(level_w - rest_w):
            yield f"{sum(map(len, single))} single ones that are the same at idle and at work, as of another input"
    for rise in (steps, -steps):
        small = (rise > 0.0) & (rise < 0.25 * noise_w) & (np.abs(np.diff(rise, prepend=0.0)) > ALIKE * rise)
        if (row := np.bincount(np.cumsum(rise < 0.0), small).max()) >= 2 * MANY:
            yield f"{row:.0f} in a row that are in order of their size, not of time"
    pair = same & (state[1:] == 2) & (np.maximum(watts[1:], watts[:-1]) < at_rest.min())
    still = np.count_nonzero(pair & (off_w > exact_w) & (off_w < FEW * noise_w))
    if still >= MANY and 2 * still > np.count_nonzero(pair):
        yield f"{still} in spans that are below all of idle with hardly any noise, as if a comma or prefix were lost"
