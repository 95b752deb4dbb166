"""What a slow meter misses of a loop that keeps step with its readings.

A span of many executions is periodic, and a meter with dead time looks at it now and then. If the loop and the readings
are in step, every reading sees the same part of an execution: readings agree with each other, and their mean is off by
whatever the rest draws. Stamps and apertures say which part that is, whatever the readings show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.figure_key import Figures
from rig.analysis.power.rail_model import RailModel
from rig.analysis.timing.timeline import Phase
from rig.types import Floats

SEEN = 1e-3
"""Part of the time between readings that may be missed."""
FOLLOWS = 8.0
"""Readings in an execution from which a meter follows it."""
PLACES = 128
"""Places of an execution that are told apart."""
MOST = 2048
"""Readings that are looked at; more are drawn at random, because a regular choice may be in step by itself."""
NOT_SEEN = 1e-9
"""The weight of a place below which no reading looks at it."""
GAIN = 2.0
"""How far a mean may be off, in what readings at other places of the loop show."""
TELL = 1e-3
"""Part of dynamic power above which a note is written."""


@dataclass(frozen=True)
class Looks:
    """How readings look at an execution: ``uneven`` is the part of the weight that lies at the wrong places.

    It is 0 if all places count alike, and near 1 if one is all that is seen. ``apart`` is the same of single readings
    against their mean: 0 if all look at the same places. ``unseen`` is the part of an execution at which no reading
    looks, and ``loop_s`` is its length.
    """

    uneven: float
    apart: float
    unseen: float
    scatter_w: float
    loop_s: float

    def missed_w(self, dynamic_w: float) -> float:
        """How far dynamic power may be off: what is not seen draws nothing to twice the mean.

        Readings that look at places farther apart than that show how much the places that they see differ.
        """
        any_w, unseen_w = self.uneven * abs(dynamic_w), self.unseen * abs(dynamic_w)
        shown_w = GAIN * self.scatter_w * self.uneven / max(self.apart, 1e-12)
        return float(max(min(any_w, shown_w), unseen_w)) if self.apart >= self.uneven else any_w


def looks_at(model: RailModel, phase: Phase) -> Looks | None:
    """How readings look at the executions of a phase; None for loops that a meter follows, and where there are none."""
    one = model.single
    r = one.readings
    length = phase.windows_s[:, 1] - phase.windows_s[:, 0]
    loop_s = float(np.median(length / phase.executions))
    blind_s = r.period_s - r.aperture_s
    used = np.flatnonzero(one.held & r.ok)
    owner = np.searchsorted(phase.windows_s[:, 0], r.start_s[used], side="right") - 1
    within = (owner >= 0) & (r.end_s[used] <= phase.windows_s[owner, 1]) & (phase.executions[owner] > 1)
    used, owner = used[within], owner[within]
    if r.counter or blind_s <= SEEN * r.period_s or r.period_s * FOLLOWS < loop_s or len(used) < 2:
        return None
    if len(used) > MOST:
        drawn = np.sort(np.random.default_rng(0).choice(len(used), MOST, replace=False))
        used, owner = used[drawn], owner[drawn]
    each_s = length[owner] / phase.executions[owner]
    weights = place_weights(np.mod((r.start_s[used] - phase.windows_s[owner, 0]) / each_s, 1.0), r.aperture_s / each_s)
    mean = weights.mean(axis=0)
    count = np.bincount(owner)
    level = np.bincount(owner, weights=r.watts[used]) / np.maximum(count, 1)
    noise = model.noise.busy_w**2
    seen = float(np.mean((r.watts[used] - level[owner]) ** 2)) - noise
    scatter_w = float(np.sqrt(max(seen, 0.0) + noise * np.sqrt(2.0 / len(used))))
    uneven, apart = 0.5 * np.mean(np.abs(mean - 1.0)), 0.5 * np.mean(np.abs(weights - mean))
    return Looks(float(uneven), float(apart), float(np.mean(mean < NOT_SEEN)), scatter_w, loop_s)


def place_weights(place: Floats, lasting: Floats) -> Floats:
    """How much each place of an execution counts in each reading, shape (n, places), 1 on average.

    A reading begins at ``place`` of an execution, and lasts for so many executions.
    """
    grid = (np.arange(PLACES) + 0.5) / PLACES
    whole = np.floor(lasting)
    counted = whole[:, None] + (np.mod(grid - place[:, None], 1.0) < (lasting - whole)[:, None])
    return np.asarray(counted / np.maximum(counted.mean(axis=1, keepdims=True), 1e-12))


def with_loops_in_step(
    figures: Figures, model: RailModel, phases: Mapping[str, Phase], scope: str
) -> tuple[Figures, tuple[str, ...]]:
    """Return the figures of a phase, or of all under "", with what readings in step with a loop miss, and a note."""
    looked = [(p.busy_s, looks_at(model, p)) for name, p in phases.items() if scope in ("", name)]
    busy_s = sum(seconds for seconds, _ in looked)
    seen = [(seconds / busy_s, looks) for seconds, looks in looked if looks is not None]
    dynamic = [q.value for key, q in figures.items() if key.quantity == "dynamic_power_w" and not key.method]
    if not seen or not dynamic:
        return figures, ()
    missed_w = sum(share * looks.missed_w(dynamic[0]) for share, looks in seen)
    changed = {k: replace(q, bias=q.bias + missed_w) for k, q in figures.items() if k.quantity != "idle_power_w"}
    if missed_w < TELL * abs(dynamic[0]):
        return figures | Figures(changed), ()
    worst = max((looks for _, looks in seen), key=lambda looks: looks.uneven)
    r = model.readings
    note = (
        f"Rail {model.rail.name}: executions of {worst.loop_s:.4g} s are in step with readings that look for "
        f"{r.aperture_s:.4g} s every {r.period_s:.4g} s, so {worst.uneven:.0%} of an execution counts too much or too "
        f"little. What it may draw, {missed_w:.3g} W, is stated as bias. Change the rate of the meter a little, or use "
        "a faster one"
    )
    return figures | Figures(changed), (note,)
