"""What a slow meter misses of a loop that keeps step with its readings.

A span of many executions is periodic, and a meter with dead time looks at it now and then. If the loop and the readings
are in step, every reading sees the same part of an execution: readings agree with each other, and their mean is off by
whatever the rest draws. Stamps and apertures say which part that is, whatever the readings show. The more readings an
execution has, the less lies between two of them, and the more of its changes they show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rig.analysis.figure_key import Figures
from rig.analysis.power.rail_model import RailModel
from rig.analysis.timing.timeline import Phase
from rig.types import Bools, Floats

SEEN = 1e-3
"""Part of the time between readings that may be missed."""
PLACES = 512
"""Places of an execution that are told apart."""
DRAWN = 64
"""Readings that are looked at one by one, drawn at random, because a regular choice may be in step by itself."""
NOT_SEEN, BRIEFEST = 1e-6, 1e-6
"""The weight of a place below which no reading looks at it, and the executions that a reading lasts at least."""
GAIN = 2.0
"""How far a mean may be off, in what readings at other places of the loop show."""
ALIKE = 0.5
"""Part of what counts wrongly, below which readings that look apart show nothing of it."""
FEW = 3
"""Readings of a span from which its own level is taken from them, because spans may differ."""
TELL = 2.5e-3
"""Part of dynamic power above which a note is written."""


@dataclass(frozen=True)
class Looks:
    """How readings look at an execution: ``uneven`` is the part of the weight that lies at the wrong places.

    It is 0 if all places count alike, and near 1 if one is all that is seen. ``apart`` is the same of single readings
    against their mean: 0 if all look at the same places. ``hidden`` is the longest part of an execution at which no
    reading looks, and ``loop_s`` is its length. ``shown_w`` is how far the mean may be off by the changes along an
    execution that readings show.
    """

    uneven: float
    apart: float
    hidden: float
    shown_w: float
    loop_s: float

    def missed_w(self, dynamic_w: float) -> float:
        """How far dynamic power may be off: what readings show of the loop, and one part that none of them sees.

        This part draws nothing to twice the mean. So does all that counts wrongly, if readings look at places much
        less far apart than that, and so show nothing of other places.
        """
        if self.apart < ALIKE * self.uneven:
            return self.uneven * abs(dynamic_w)
        return self.hidden * abs(dynamic_w) + GAIN * self.shown_w / max(self.apart, NOT_SEEN)


def looks_at(model: RailModel, phase: Phase, times: NDArray[np.int64]) -> Looks | None:
    """How readings look at loops that each span of a phase holds so many ``times``, shape (k,).

    None where there are no loops, or no reading inside one.
    """
    one = model.single
    r = one.readings
    length = phase.windows_s[:, 1] - phase.windows_s[:, 0]
    used = np.flatnonzero(one.held & r.ok)
    owner = np.searchsorted(phase.windows_s[:, 0], r.start_s[used], side="right") - 1
    within = (owner >= 0) & (r.end_s[used] <= phase.windows_s[owner, 1]) & (times[owner] > 1)
    within &= length[owner] > 0.0
    used, owner = used[within], owner[within]
    if r.counter or r.period_s - r.aperture_s <= SEEN * r.period_s or len(used) < 2:
        return None
    each_s = length[owner] / times[owner]
    place = np.mod((r.start_s[used] - phase.windows_s[owner, 0]) / each_s, 1.0)
    lasting = np.maximum(r.aperture_s / each_s, BRIEFEST)
    mean = place_weights(place, lasting, np.full(len(used), 1.0 / len(used)))
    drawn = np.random.default_rng(0).choice(len(used), min(len(used), DRAWN), replace=False)[:, None]
    apart = [np.mean(np.abs(place_weights(place[k], lasting[k], np.ones(1)) - mean)) for k in drawn]
    count = np.bincount(owner)
    level = np.bincount(owner, weights=r.watts[used]) / np.maximum(count, 1)
    usual = np.where(count[owner] < FEW, np.mean(r.watts[used]), level[owner])
    seen_w = place_weights(place, lasting, (r.watts[used] - usual) / len(used))
    return Looks(
        uneven=0.5 * float(np.mean(np.abs(mean - 1.0))),
        apart=0.5 * float(np.mean(apart)),
        hidden=_longest(mean < NOT_SEEN),
        shown_w=_shown_w(mean, seen_w),
        loop_s=float(np.median(length / times)),
    )


def place_weights(place: Floats, lasting: Floats, by: Floats) -> Floats:
    """How much each place of an execution counts in the sum of readings times ``by``, ``sum(by)`` on average.

    A reading begins at ``place`` of an execution, and lasts for so many executions; all have shape (n,). The result has
    shape (places,).
    """
    whole, each = np.floor(lasting), by / lasting
    counted = PLACES * np.diff(_ramps(place, each) - _ramps(place + lasting - whole, each))
    return np.asarray(counted[:PLACES] + counted[PLACES:] + float(whole @ each))


def _ramps(at: Floats, slope: Floats) -> Floats:
    """The sum of ramps that begin ``at`` parts of an execution, over two executions, shape (2 * places + 1,)."""
    first = np.ceil(at * PLACES).astype(np.int64)
    steep, offset = (np.cumsum(np.bincount(first, x, 2 * PLACES + 1))[: 2 * PLACES + 1] for x in (slope, slope * at))
    return np.asarray(np.arange(2 * PLACES + 1) / PLACES * steep - offset)


def _longest(unseen: Bools) -> float:
    """The longest run of places, of all; the last is beside the first."""
    if unseen.all():
        return 1.0
    seen = np.flatnonzero(~unseen)
    return float(np.max(np.diff(np.append(seen, seen[0] + len(unseen)))) - 1) / len(unseen)


def _shown_w(mean: Floats, seen_w: Floats) -> float:
    """How far the mean of readings may be off by the changes of power from place to place that they show.

    ``mean`` is how much each place counts in the mean, and ``seen_w`` the same times watts, shapes (places,). The error
    of the mean is the sum of all changes, each times what places up to it count too much, so it falls as readings lie
    closer in an execution. Between places that are seen, power changes along a line.
    """
    seen = np.flatnonzero(mean >= NOT_SEEN)
    power = np.interp(
        np.arange(PLACES), np.concatenate([seen - PLACES, seen, seen + PLACES]), np.tile(seen_w[seen] / mean[seen], 3)
    )
    too_much = np.cumsum(mean - 1.0) / PLACES
    return float(np.abs(too_much - too_much.mean()) @ np.abs(np.roll(power, -1) - power))


def _most_missed(model: RailModel, phase: Phase, dynamic_w: float) -> Looks | None:
    """How readings look at the executions of a phase, or at the inferences within them, whichever hides more."""
    several = bool(np.any(phase.inferences != phase.executions))
    loops = (phase.executions, phase.inferences)[: 1 + several]
    looked = [looks for times in loops if (looks := looks_at(model, phase, times)) is not None]
    return max(looked, key=lambda looks: looks.missed_w(dynamic_w), default=None)


def with_loops_in_step(
    figures: Figures, model: RailModel, phases: Mapping[str, Phase], scope: str
) -> tuple[Figures, tuple[str, ...]]:
    """Return the figures of a phase, or of all under "", with what readings in step with a loop miss, and a note."""
    dynamic = [q.value for key, q in figures.items() if key.quantity == "dynamic_power_w" and not key.method]
    if not dynamic:
        return figures, ()
    looked = [(p.busy_s, _most_missed(model, p, dynamic[0])) for name, p in phases.items() if scope in ("", name)]
    busy_s = sum(seconds for seconds, _ in looked)
    seen = [(seconds / busy_s, looks) for seconds, looks in looked if looks is not None]
    if not seen:
        return figures, ()
    missed_w = sum(share * looks.missed_w(dynamic[0]) for share, looks in seen)
    changed = {k: replace(q, bias=q.bias + missed_w) for k, q in figures.items() if k.quantity != "idle_power_w"}
    if missed_w < TELL * abs(dynamic[0]):
        return figures | Figures(changed), ()
    worst = max((looks for _, looks in seen), key=lambda looks: looks.uneven)
    r = model.readings
    note = (
        f"Rail {model.rail.name}: executions or inferences of {worst.loop_s:.4g} s are in step with readings that "
        f"look for {r.aperture_s:.4g} s every {r.period_s:.4g} s, so {worst.uneven:.0%} of one counts too much or too "
        f"little. What it may draw, {missed_w:.3g} W, is stated as bias. Change the rate of the meter a little, or use "
        "a faster one"
    )
    return figures | Figures(changed), (note,)
