"""Find which readings show idle, and which show the gaps between spans."""

from __future__ import annotations

import numpy as np

from rig.analysis.timing.activity_signal import SETTLE_TAU, count_before, inside, margin_s, merged, touches
from rig.analysis.timing.readings import Readings
from rig.types import Floats, Indices


def idle_window_of(r: Readings, idle_s: Floats, busy_s: Floats, sigma_s: float, host_sigma_s: float) -> Indices:
    """Return the idle window that wholly holds each reading, or -1 if none does or activity may reach the reading."""
    quiet = idle_s + np.array([2.0 * host_sigma_s + SETTLE_TAU * r.tau_s, -2.0 * host_sigma_s])
    quiet = merged(quiet[quiet[:, 1] > quiet[:, 0]])
    where = inside(quiet, r.start_s, r.end_s)
    guard = merged(busy_s + margin_s(sigma_s, r.tau_s))
    where[~r.ok | touches(guard, r.start_s, r.end_s)] = -1
    return where


def gap_of(r: Readings, spans_s: Floats, sigma_s: float, where: Indices) -> Indices:
    """Return which gap of disjoint sorted spans holds each reading, or -1; ``where`` is from ``idle_window_of``."""
    guard = merged(spans_s + margin_s(sigma_s, r.tau_s))
    between = (r.start_s > spans_s[0, 0]) & (r.end_s < spans_s[-1, 1]) & r.ok & (where < 0)
    between &= ~touches(guard, r.start_s, r.end_s)
    return np.where(between, count_before(spans_s[:, 0], r.start_s), -1)
