"""Noise that is there only at idle counts where it is, and not inside spans that are quiet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.signal import lfilter

from benchmarks.kinds import KINDS
from fixtures.worlds.lab_recording import Lab, plain_lab, write
from rig.analysis.evaluate import evaluate
from rig.analysis.figure_key import FigureKey
from rig.analysis.power.idle_noise import quieter
from rig.analysis.quantity import Quantity
from rig.recording.reader import open_run
from rig.types import Floats

SOURCE = "scatter of spans"


def power(lab: Lab, folder: Path) -> Quantity:
    write(lab, folder / "run")
    return evaluate(open_run(folder / "run")).quantities[FigureKey("dynamic_power_w")]


def noisy(lab: Lab, at_idle: Callable[[int], Floats], everywhere: Callable[[int], Floats]) -> Lab:
    """A bench with noise of so many readings at idle, and some everywhere, in units of dynamic power."""
    before, above_w = lab.sense, float(lab.span_w[0]) - lab.idle_w

    def sense(w: Floats) -> Floats:
        idle = np.where(w < lab.idle_w + 0.5 * above_w, at_idle(len(w)), 0.0)
        return np.asarray(before(w) + above_w * (idle + everywhere(len(w))))

    lab.sense = sense
    return lab


@pytest.mark.parametrize("seed", [1000009, 1000020, 1000035])
def test_packets_that_a_regulator_draws_at_idle_are_not_counted_inside_spans(seed: int, tmp_path: Path) -> None:
    lab = plain_lab(seed, "regulator_in_burst_mode")
    KINDS["regulator_in_burst_mode"](lab)
    found = power(lab, tmp_path)
    one_reading_w = float(np.std(lab.sense(np.full(10_000, lab.idle_w))))

    assert abs(found.value - lab.truth()["dynamic_power_w"]) <= found.half_width()
    assert found.half_width() <= 0.75 * one_reading_w / np.sqrt(lab.busy_s * lab.rate_hz)


def test_noise_that_neighbours_share_inside_quiet_spans_is_in_their_scatter(tmp_path: Path) -> None:
    """Differences of neighbours do not show it, and noise of idle is far larger."""
    keep, share = np.exp(-1.0 / 20.0), 0.1

    lab = plain_lab(5, "idle noise")

    def shared(n: int) -> Floats:
        return np.asarray(share * lfilter([np.sqrt(1.0 - keep**2)], [1.0, -keep], lab.rng.normal(0.0, 1.0, n)))

    found = power(noisy(lab, lambda n: lab.rng.normal(0.0, 2.0, n), shared), tmp_path)
    expected = share * np.sqrt((1.0 + keep) / (1.0 - keep) / (lab.busy_s * lab.rate_hz))
    u = next(c.u for c in found.components if c.source == SOURCE)

    assert u > 0.5 * expected * found.value


def test_noise_of_idle_in_step_with_spans_does_not_show_in_their_scatter(tmp_path: Path) -> None:
    lab = plain_lab(7, "idle noise")
    on, off = lab.spans_s.T
    cycle_s = float(np.mean(np.diff(on)))
    on = on[0] + cycle_s * np.arange(len(on))
    lab.spans_s = np.column_stack([on, on + off[0] - lab.spans_s[0, 0]])

    def pulses(n: int) -> Floats:
        turn = np.arange(n) / lab.rate_hz / cycle_s % 1.0
        return np.where(turn < 0.05, 1.0, 0.0) - 0.05

    found = power(noisy(lab, pulses, np.zeros), tmp_path)

    assert SOURCE not in [c.source for c in found.components]


@pytest.mark.parametrize("seed", range(20))
def test_spans_that_missed_rare_pulses_by_chance_are_not_quieter_than_idle(seed: int) -> None:
    variances = np.random.default_rng(seed).random(2000) < 0.2
    assert not quieter(np.zeros(20), variances.astype(float))
    assert quieter(np.zeros(2000), variances.astype(float))
