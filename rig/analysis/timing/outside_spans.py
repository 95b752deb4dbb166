"""Find what readings contain outside spans: work that no span covers, such as a repeated try, and unsteady idle."""

import math
from dataclasses import replace

import numpy as np

from rig.analysis.result.finding import Finding, note
from rig.analysis.timing.activity_signal import SETTLE_TAU, inside, means_by, merged, touches
from rig.analysis.timing.alignment.misplaced_spans import OFTEN, Levels, levels_of
from rig.analysis.timing.alignment.placement import AlignedRail
from rig.analysis.timing.counted_spans import Activity, Phase
from rig.analysis.timing.profile import FAR, FEW, LEAST, MANY, SEVERAL
from rig.analysis.timing.readings import EVEN, idle_window_of
from rig.analysis.timing.timebase import SURE
from rig.types import Bools, Floats

LEAST_READINGS = 4
"""Work outside spans must last half as long as a span, rise half as much, and last this many readings.

It must also last longer than the uncertainty of the place of spans.
"""
ALIKE = 0.1
"""Readings grow in proportion if the slope differs from 1 by at most this, or by chance."""


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
SORTED = 32
"""By chance, noise does not make a row of so many readings without a fall."""


def restless(rail: AlignedRail, activity: Activity) -> list[Finding]:
    """Return a failed check if readings at idle are not just noise about one level that all idle windows share.

    Causes are a changed unit, a lost sign, a switched probe or a meter that averages since the start. A pulse now and
    then does not fail the check, nor does a device that settles or wakes.
    """
    r, spans_s = rail.single or rail.readings, activity.active_s()
    if r.counter or not len(spans_s):
        return []
    inner_s = spans_s + np.array([2.0 * rail.sigma_s + SETTLE_TAU * r.tau_s, -2.0 * rail.sigma_s])
    inner_s = merged(inner_s[inner_s[:, 1] > inner_s[:, 0]])
    window = idle_window_of(r, activity.idle_s, spans_s, rail.sigma_s, rail.host_sigma_s)
    windows = [r.watts[window == k] for k in np.unique(window[window >= 0])]
    at_work = r.ok & (inside(inner_s, r.start_s, r.end_s) >= 0)
    step_w, many = (r.rail.resolution or 0.0) * r.watts_per_raw, sum(map(len, windows)) >= LEAST and at_work.any()
    how = _how(windows, r.watts[at_work], step_w) if many else ""
    how = how or _grows(r.watts[window >= 0], (r.end_s - r.start_s)[window >= 0])
    if how or not many:
        return [Finding(f"readings of rail {r.rail.name} at idle", how, "noise about one level")] if how else []
    found = _spoiled(r.watts, window >= 0, at_work, step_w)
    return [Finding(f"readings of rail {r.rail.name} as measured", found, "none")] if found else []


def _spoiled(watts: Floats, idle: Bools, work: Bools, step_w: float) -> str:
    """Describe readings that neither the device nor the noise of its meter makes; "" without any.

    Readings of a device follow its state: a pulse adds to the level of idle or of work. They have the noise that idle
    shows, and noise is not in order of its size.
    """
    steps, exact_w = np.diff(watts), max(1e-9 * float(np.max(np.abs(watts))), step_w)
    off_w, state = np.abs(steps), np.where(idle, 1, 2 * work)
    same = state[1:] == state[:-1]
    noise_w = float(np.median(np.append(off_w[same & idle[1:]], exact_w)))
    rest_w = float(np.median(watts[idle]))
    rise_w = abs(float(np.median(watts[work])) - rest_w)
    lone = same[1:] & same[:-1] & (steps[1:] * steps[:-1] < 0.0)
    lone &= np.minimum(off_w[1:], off_w[:-1]) > 2.0 * SURE * max(noise_w, exact_w)
    at_idle, at_work = (watts[1:-1][lone & (state[1:-1] == k)] for k in (1, 2))
    if min(len(at_idle), len(at_work)) >= SEVERAL and abs(np.median(at_work) - np.median(at_idle)) < ALIKE * rise_w:
        found = f"{len(at_idle) + len(at_work)} single ones are the same at idle and at work"
        return f"{found}: leave out what is of another input or quantity"
    for rise in (steps, -steps):
        small = (rise > 0.0) & (rise < 0.25 * noise_w) & (np.abs(np.diff(rise, prepend=0.0)) > ALIKE * rise)
        if (row := np.bincount(np.cumsum(rise < 0.0), small).max()) >= SORTED:
            return f"{row:.0f} in a row are in order of their size: put them in order of time"
    pair = same & work[1:] & (np.maximum(watts[1:], watts[:-1]) < rest_w)
    quiet = np.count_nonzero(pair & (off_w > exact_w) & (off_w < FEW * noise_w))
    if quiet >= MANY and 2 * quiet > np.count_nonzero(pair):
        return f"{quiet} in spans are below idle with hardly any noise: look for a lost comma or prefix"
    return ""


def _grows(watts: Floats, length_s: Floats) -> str:
    """Describe how readings grow with the time since the reading before; "" if they do not grow in proportion."""
    if len(watts) < LEAST or not min(watts.mean(), length_s.mean()) > 0.0:
        return ""
    longer, more = length_s / length_s.mean() - 1.0, watts / watts.mean() - 1.0
    if np.std(longer) < EVEN:
        return ""
    slope = float(longer @ more / (longer @ longer))
    u = float(np.std(more - slope * longer)) / math.sqrt(float(longer @ longer))
    if slope < FAR * u or abs(slope - 1.0) > max(ALIKE, 3.0 * u):
        return ""
    return "in proportion to the time since the reading before, as joules divided by one interval"


def _how(windows: list[Floats], work: Floats, step_w: float) -> str:
    """Describe how readings of idle windows are restless compared with those at work; "" if they are not.

    ``step_w`` is the meter's step, or 0.
    """
    quiet, middle = np.concatenate(windows), [float(np.median(w)) for w in windows]
    level, rest = float(np.median(work)), float(np.quantile(quiet, FEWER))
    off = np.concatenate([w - m for w, m in zip(windows, middle, strict=True)])
    exact = max(1e-9 * max(abs(level), float(np.max(np.abs(quiet)))), step_w)  # smaller differences are rounding
    steps = np.abs(np.diff(quiet))
    typical = np.median(steps[steps > 0.0]) if steps.any() else 0.0
    far = FAR * max(float(np.median(np.abs(off))), float(typical), exact)
    if all(len(w) > 1 and w[-1] > w[0] and np.all(np.diff(w) >= 0.0) for w in (*windows, work)):
        return "that never fall, like those at work"
    most_w = max(rest, float(np.quantile(work, 1.0 - FEWER)))
    over, at_work = (float(np.mean(np.maximum(w - most_w, 0.0))) for w in (quiet, work))  # rare pulses occur in both
    if over - at_work > 0.5 * abs(level - rest):
        return "so far above readings at work that their mean excess is over half of dynamic power"
    above, below = int(np.count_nonzero(off > far)), off < -far
    lone, most = int(np.count_nonzero(below[1:-1] & ~below[:-2] & ~below[2:])), int(2.0 * FEWER * len(off))
    if lone >= SEVERAL and lone > 4 * above and np.count_nonzero(below) < min(2 * lone, most):
        return f"{lone} single ones that are far below those beside them"
    return ""
