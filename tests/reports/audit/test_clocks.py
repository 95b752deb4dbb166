"""The auditor's clocks are straight lines through the quickest readings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reports.audit.clocks import line
from reports.audit.folder.reading import Run
from rig.errors import StoreError
from rig.recording.events import Stop
from rig.types import Indices

TICK_HZ, COUNT = 1e6, 40


def run_of(late_ns: Indices) -> Run:
    """Return a clock that is read each second; ``late_ns`` passes after the tick, and 1000 ns before it."""
    tick = np.arange(COUNT, dtype=np.int64) * 1_000_000
    brackets = {"device": np.column_stack([tick * 1000 - 1000, tick, tick * 1000 + late_ns])}
    start = {"t0_ns": 0, "clocks": [{"name": "device", "tick_hz": TICK_HZ, "tolerance": 1e-3}]}
    return Run(Path("run"), start, brackets)


def test_slow_readings_do_not_move_the_line() -> None:
    late = np.full(COUNT, 1000)
    late[1::2] = 10_000_000
    found = line(run_of(late), "device")

    assert found.seconds(np.array([20_000_000]))[0] == pytest.approx(20.0, abs=1e-8)
    assert found.bound_s == pytest.approx(1e-6, rel=0.01)


def test_a_rate_that_the_readings_cannot_tell_is_the_declared_one() -> None:
    found = line(run_of(np.full(COUNT, 200_000_000)), "device")

    assert found.s_per_tick == 1.0 / TICK_HZ
    assert found.rate_bound == 1e-3


def test_a_clock_that_was_never_read_is_refused() -> None:
    run = run_of(np.full(COUNT, 1000))
    run.start["clocks"].append({**run.start["clocks"][0], "name": "meter"})

    with pytest.raises(StoreError, match=r"never read\. The run was broken off before"):
        line(run, "meter")
    with pytest.raises(StoreError, match=r"never read\. No recording of the rig is like this"):
        line(replace(run, stop=Stop(files={})), "meter")
    with pytest.raises(StoreError, match=r"not declared\. No recording of the rig is like this"):
        line(run, "chip")
