"""What is not known of stamps is not how long samples take, but what the stamps of the host do not explain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fixtures.worlds.lab_recording import Lab, plain_lab, write
from rig.analysis.evaluate import evaluate
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.quantity import Quantity
from rig.recording.reader import open_run

TIME = FigureKey("execution_time_s")


def _lab(seed: int) -> tuple[Lab, np.ndarray]:
    """Sixty samples that take 20 to 200 ms, and their true lengths."""
    lab, length = plain_lab(seed, "jitter"), np.random.default_rng(seed).uniform(0.02, 0.2, 60)
    on = 4.0 + np.cumsum(0.1 + np.append(0.0, length[:-1]))
    lab.spans_s, lab.label = np.column_stack([on, on + length]), np.zeros(60, np.int64)
    lab.span_w, lab.end_s, lab.idle_s = np.full(60, 2.0), on[-1] + 4.0, [(0.1, 3.9)]
    lab.pieces, lab.steps_w = [], []
    return lab, length


def _time(lab: Lab, folder: Path) -> Quantity:
    """The mean execution time of a run without a trace."""
    write(lab, folder / "run")
    return evaluate(replace(open_run(folder / "run"), traces={})).quantities[TIME]


def test_samples_of_different_length_are_not_jitter_where_no_meter_ran(tmp_path: Path) -> None:
    lab, length = _lab(1)
    found = _time(lab, tmp_path)
    assert found.half_width() < 1e-3 * found.value
    assert abs(found.value - length.mean()) <= found.half_width()


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_stamps_that_jitter_against_the_host_are_uncertain_by_it(tmp_path: Path, seed: int) -> None:
    lab, length = _lab(seed)
    at, late = lab.spans_s.ravel(), np.random.default_rng(seed + 100).normal(0.0, 2e-3, 120)

    def shows(t: np.ndarray) -> np.ndarray:
        k = np.clip(np.searchsorted(at, np.asarray(t, float)), 0, len(at) - 1)
        return np.where(at[k] == t, at[k] + late[k], t)

    lab.device_shows = shows
    found = _time(lab, tmp_path)
    jitter_s = 2e-3 * np.sqrt(2.0 / 60.0)
    assert {c.source: c.u for c in found.components}["stamp jitter"] == pytest.approx(jitter_s, rel=0.3)
    assert abs(found.value - length.mean()) <= 1.5 * found.half_width()
