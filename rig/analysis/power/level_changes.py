"""The ways in which the level of idle may change: steps, times at another level, decays, heat, late and early rest."""

from __future__ import annotations

import numpy as np

from rig.analysis.power.blocks import GAP, IDLE
from rig.types import Bools, Floats, Indices

RARE = 0.1
"""Prior probability that a level changes during a recording."""
DECAYS = (0.05, 0.15, 0.5, 2.0)
"""Time constants of levels that settle, in lengths of the trace."""
SETTLES = tuple(0.01 * 2.0**k for k in range(7))
"""Time constants of levels that settle after a step, in lengths of the trace."""
HEATS = tuple(0.01 * 2.0 ** (0.5 * k) for k in range(13))
"""Time constants of leakage that follows the heat of the work, in lengths of the trace."""
BEYOND = 2.0
"""A moment after the trace, in lengths of the trace."""


def means(shapes: Floats, start: Floats, end: Floats) -> Floats:
    """Return the mean over stretches of each way in which a level may change, shape (stretches, c).

    A row of ``shapes`` has a begin, an end and a time constant, in lengths of the trace. It is a step or a time at
    another level, a level that settles (without an end), or heat, which rises from the begin to the end and then falls.
    """
    since, until, tau = shapes.T
    settles, heats = np.isfinite(tau), np.isfinite(tau) & np.isfinite(until)
    slow = np.where(settles, tau, 1.0)
    level = np.maximum(np.minimum(end[:, None], until) - np.maximum(start[:, None], since), 0.0)

    def fading(at: Floats) -> Floats:
        first, last = np.maximum(start[:, None], at), np.maximum(end[:, None], at)
        return np.asarray(slow * (np.exp((at - first) / slow) - np.exp((at - last) / slow)))

    falls = fading(np.where(heats, until, since))
    most = np.where(heats, 1.0 - np.exp(np.where(heats, since - until, -1.0) / slow), 1.0)
    rises = (level - fading(since) + falls) / most
    return np.asarray(np.where(heats, rises, np.where(settles, falls, level)) / (end - start)[:, None])


def simple_changes(state: Indices, start: Floats, end: Floats) -> tuple[Floats, Floats]:
    """Return shapes, (c, 3), and columns, (b, c), of the changes that show in idle windows or gaps."""
    borders = np.unique(np.concatenate([start, 0.5 * (start + end)]))[1:]
    simple = np.array([
        *((at, np.inf, np.inf) for at in borders), *((0.0, np.inf, tau) for tau in DECAYS), *_awake(state, start, end),
        *_heats(*activity_of(state, start, end)),
    ])  # fmt: skip
    late, columns = _late(state, start), means(simple, start, end)
    use = shown(columns, state)
    beyond = np.tile([BEYOND, np.inf, np.inf], (late.shape[1], 1))
    return np.vstack([simple[use], beyond]), np.column_stack([columns[:, use], late])


def compound_changes(state: Indices, start: Floats, end: Floats) -> tuple[Floats, Floats]:
    """Return shapes, (c, 3), and columns, (b, c), of times at another level, and of steps that settle."""
    borders = np.unique(start)[1:]
    # a change that lasts as long as all activity is the level of gaps and spans themselves
    first, last = activity_of(state, start, end)
    pairs = [(a, b, np.inf) for k, a in enumerate(borders) for b in borders[k + 1 :] if a > first or b < last]
    every = np.array(pairs + [(a, np.inf, tau) for a in borders for tau in SETTLES]).reshape(-1, 3)
    columns = means(every, start, end)
    use = shown(columns, state)
    return every[use], columns[:, use]


def _heats(first: float, last: float) -> list[tuple[float, float, float]]:
    """Return the ways in which the heat of work between two moments may show, none without work."""
    return [(first, last, tau) for tau in HEATS if first < last]


def activity_of(state: Indices, start: Floats, end: Floats) -> tuple[float, float]:
    """Return when the first gap or span begins and the last ends, in lengths of the trace."""
    busy = state != IDLE
    return float(start[busy].min(initial=np.inf)), float(end[busy].max(initial=-np.inf))


def shown(columns: Floats, state: Indices) -> Bools:
    """Return which changes, (b, c), show in idle windows or in gaps; one in spans alone is a difference of spans."""
    shown = np.zeros(columns.shape[1], bool)
    for some in (columns[state == k] for k in (IDLE, GAP)):
        if len(some):
            shown |= np.ptp(some, axis=0) > 0.5
    return shown


def _windows(state: Indices, start: Floats) -> list[Indices]:
    """Return the blocks of each idle window, in order."""
    order = np.argsort(start)
    idle = np.flatnonzero(state[order] == IDLE)
    return [order[window] for window in np.split(idle, np.flatnonzero(np.diff(idle) > 1) + 1)]


def _awake(state: Indices, start: Floats, end: Floats) -> list[tuple[float, float, float]]:
    """Return the times at either end of an idle window in which a device may wake early or rest late."""
    found = []
    for window in _windows(state, start):
        begin, until = float(start[window[0]]), float(end[window[-1]])
        for at in start[window[1:]].tolist():
            found += [(at, until, np.inf), (begin, at, np.inf)]
    return found


def _late(state: Indices, start: Floats) -> Floats:
    """Mark the first blocks of idle windows, where a device may not yet rest; one column for each length, (b, c)."""
    after = [window for window in _windows(state, start) if start[window[0]] > 0.0]
    most = min(map(len, after), default=0) - 2 if len(after) > 1 else 0
    marks = np.zeros((len(state), max(most, 0)))
    for k in range(most):
        marks[np.concatenate([window[: k + 1] for window in after]), k] = 1.0
    return marks
