"""Stamps of arrival become the grid of the meter; stamps that are the times of readings stay as they are."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from rig.analysis.timing.stamped_on_arrival import on_grid
from rig.recording.traces import Trace
from rig.types import Floats, Rail

TICK_HZ, RATE_HZ, N = 1e7, 1e3, 4000
PERIOD = round(TICK_HZ / RATE_HZ)
LONG_AGO = 10**17 + 1
TAKEN = LONG_AGO + PERIOD * np.arange(1, N + 1)


def trace(end: np.ndarray, length: int = PERIOD, kind: Literal["mean", "point"] = "mean") -> Trace:
    rail = Rail("core", kind=kind, rate_hz=RATE_HZ, aperture_s=length / TICK_HZ)
    return Trace(rail, "meter", "host", end - length, end, np.zeros(len(end)), np.zeros(len(end), bool), False)


def late(seed: int = 2) -> Floats:
    """Delays of arrivals that keep their order, in ticks; some readings are held up by the host."""
    rng = np.random.default_rng(seed)
    delay = PERIOD * (rng.exponential(0.3, N) + 12.0 * (rng.random(N) < 2e-3))
    at = PERIOD * np.arange(N)
    return np.asarray(np.maximum.accumulate(at + delay) - at)


def test_arrivals_show_the_grid_of_the_meter() -> None:
    found = on_grid(trace(TAKEN + late().astype(np.int64)), TICK_HZ)
    mended = found.trace
    assert np.max(np.abs(mended.end_tick - TAKEN)) < 0.05 * PERIOD
    assert np.all(mended.end_tick - mended.start_tick == PERIOD)
    assert PERIOD < found.late_ticks < 3 * PERIOD
    assert "stamped on arrival" in found.notes[0]


@pytest.mark.parametrize(("width", "seed"), [(16, 1), (128, 1), (250, 1), (250, 2), (250, 3)])
def test_packets_show_the_grid_too(width: int, seed: int) -> None:
    """A packet is stamped when it arrives, and its readings are counted back, so few of them overlap."""
    delay = np.random.default_rng(seed).exponential(0.7 * PERIOD, 4 * N // width + 1)
    taken = LONG_AGO + PERIOD * np.arange(1, 4 * N + 1)
    found = on_grid(trace(taken + np.repeat(delay, width)[: 4 * N].astype(np.int64)), TICK_HZ)
    mended = found.trace
    assert np.all(mended.end_tick - mended.start_tick == PERIOD)
    assert np.ptp(np.diff(mended.end_tick)) <= 1


def test_arrivals_of_which_some_are_missing_stay_and_are_less_certain() -> None:
    came = np.delete(TAKEN + late().astype(np.int64), slice(1000, 1040))
    found = on_grid(trace(came), TICK_HZ)
    assert np.array_equal(found.trace.end_tick, came)
    assert found.late_ticks > 3 * PERIOD
    assert "missing" in found.notes[0]


@pytest.mark.parametrize(
    "own",
    [
        trace(TAKEN),
        trace(TAKEN + late().astype(np.int64), kind="point"),
        trace(TAKEN, 4 * PERIOD),
        trace(np.delete(TAKEN, slice(7, None, 9))),
        trace(TAKEN + np.random.default_rng(1).integers(0, 2, N)),
    ],
    ids=["a grid", "points at any time", "a moving mean", "readings missing", "rounded"],
)
def test_other_stamps_stay(own: Trace) -> None:
    found = on_grid(own, TICK_HZ)
    assert found.trace == own
    assert found.late_ticks == 0.0
    assert not found.notes
