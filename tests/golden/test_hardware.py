"""Recordings of a real H200: the figures agree with what its own counter says, by arithmetic that shares no code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from rig.recording.reader import Run, open_run
from tests.golden.test_golden import computed, unpacked


def spans_s(run: Run) -> NDArray[np.float64]:
    """Return begins and ends of spans without the warm-up, shape (n, 2), in seconds."""
    return np.asarray(1e-9 * run.replies.to_pandas().query("not warmup")[["on_tick", "off_tick"]].to_numpy())


def test_energy_is_that_of_the_counter_less_idle_over_the_rest_of_the_time(tmp_path: Path) -> None:
    path, _ = unpacked("h200-counter", tmp_path)
    run, figures = open_run(path / "power"), computed(path)["power"]["quantities"]
    trace, spans = run.traces["gpu0"], spans_s(run)
    at_s, joules = 1e-9 * np.asarray(trace.end_tick), np.asarray(trace.value)
    first, last = np.searchsorted(at_s, spans[0, 0]) - 1, np.searchsorted(at_s, spans[-1, 1] + 0.15)
    before = (joules[first] - joules[0]) / (at_s[first] - at_s[0])
    rest_s = at_s[last] - at_s[first] - np.sum(spans[:, 1] - spans[:, 0])
    spent_j = (joules[last] - joules[first] - before * rest_s) / 20_000

    low, high = figures["energy_per_inference_integrated_j"]["interval_95"]
    assert figures["energy_per_inference_integrated_j"]["value"] == pytest.approx(spent_j, rel=0.005)
    assert low < spent_j < high
    assert figures["idle_power_w"]["value"] == pytest.approx(before, rel=0.02)


def test_energy_at_another_operating_point_is_uncertain_by_the_difference(tmp_path: Path) -> None:
    path, _ = unpacked("h200-sensor", tmp_path)
    figures = computed(path)
    drawn_j = figures["power"]["quantities"]["energy_per_inference_integrated_j"]["value"]
    own_s, said_s = (figures[run]["quantities"]["execution_time_s"]["value"] for run in ("power", "performance"))
    low, high = figures["."]["quantities"]["energy_per_inference_j"]["interval_95"]

    assert own_s > 1.2 * said_s  # the host was slower
    assert low < drawn_j < high
