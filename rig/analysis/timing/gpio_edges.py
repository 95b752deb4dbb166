"""GPIO edges: those that a device's spans must cause, and those that a meter's logic input saw."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rig.analysis.timing.activity_signal import merged
from rig.types import Bools, Floats, Indices, Pin

BOUNCE_SHARE = 0.25
"""Edges closer than this part of the usual shortest distance are bounces of one edge."""


@dataclass(frozen=True)
class Train:
    """Edges in order of time, with arrays of shape (n,).

    The arrays are seconds, the level after each edge (-1: either), and whether the edge ends a span.
    """

    at_s: Floats
    level: Indices
    ends: Bools

    def __len__(self) -> int:
        return len(self.at_s)


@dataclass(frozen=True)
class GpioInput:
    """A logic input, with ``step_s`` between its samples, and the largest lag or lead of the pin, ``lag_s``.

    ``tick_s`` is the tick of the device's stamps.
    """

    step_s: float
    lag_s: float = 0.0
    tick_s: float = 0.0


def expected(windows_s: Floats, pin: Pin) -> Train:
    """Return the edges that spans, shape (k, 2) on the device's clock, must have caused on the pin."""
    spans = merged(windows_s) if pin == "level" else windows_s
    at = spans.reshape(-1)
    ends = np.tile([False, True], len(spans))
    level = np.where(ends, 0, 1) if pin == "level" else np.full(len(at), 0 if pin == "stamp" else -1)
    order = np.argsort(at, kind="stable")
    return Train(at[order], level[order].astype(np.int64), ends[order])


def observed(at_s: Floats, level: Floats, pin: Pin, step_s: float, quiet_s: float) -> Train:
    """Return the edges that the meter saw, in the meter's seconds and without bounces.

    Of edges closer than ``quiet_s``, only the first counts, or none if the pin ended at the level where it began. An
    edge is seen half a sampling interval late on average.
    """
    use = level == 0 if pin == "stamp" else np.ones(len(level), bool)
    at, after = at_s[use] - 0.5 * step_s, level[use].astype(np.int64)
    first = np.flatnonzero(np.diff(at, prepend=-math.inf) >= quiet_s)
    last = np.append(first[1:], len(at)) - 1
    moved = np.ones(len(first), bool) if pin == "stamp" else (last - first) % 2 == 0
    after = np.full(len(first), -1) if pin == "toggle" else after[last]
    return Train(at[first][moved], after[moved], np.zeros(np.count_nonzero(moved), bool))


def quiet_s(train: Train) -> float:
    """Return the distance in seconds below which two edges are bounces of one edge."""
    gaps = np.diff(train.at_s)
    return BOUNCE_SHARE * float(np.quantile(gaps[gaps > 0], 0.05)) if np.any(gaps > 0) else 0.0
