"""Noise that exists only under load is stated; differences between spans or steps of power are not noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.signal import lfilter

from fixtures.worlds.lab_recording import plain_lab
from rig.analysis.result.quantity import Quantity
from rig.types import Floats
from tests.support.labs import POWER, evaluated, measured

SOURCE = "noise under load"


def u_of(q: Quantity) -> float:
    return next((c.u for c in q.components if c.source == SOURCE), 0.0)


@pytest.mark.parametrize("tau", [0.5, 3.0, 20.0])
def test_noise_of_neighbouring_readings_under_load_is_stated(tau: float, tmp_path: Path) -> None:
    lab = plain_lab(5, "load noise")
    before, keep = lab.sense, float(np.exp(-1.0 / tau))

    def sense(w: Floats) -> Floats:
        noise = lfilter([1.0], [1.0, -keep], lab.rng.normal(0.0, 1.0, len(w)))
        return np.asarray(before(w) + 0.1 * (w - lab.idle_w) * noise / float(np.std(noise)))

    lab.sense = sense
    found = measured(lab, tmp_path).quantities[POWER]
    above_w = float(lab.span_w[0]) - lab.idle_w
    readings = lab.busy_s * lab.rate_hz
    expected_w = 0.1 * above_w * np.sqrt((1.0 + keep) / (1.0 - keep) / readings)
    assert expected_w / 2.5 < np.hypot(u_of(found), found.components[0].u) < 2.5 * expected_w


@pytest.mark.parametrize("kind", ["plain", "class_of_powers", "first_spans_hot", "bursts", "heads_and_tails"])
def test_spans_that_differ_are_not_noise(kind: str, tmp_path: Path) -> None:
    assert u_of(evaluated(kind, 1_000_003, tmp_path)[1].quantities[POWER]) == 0.0
