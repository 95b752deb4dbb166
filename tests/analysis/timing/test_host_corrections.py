"""A host's clock that was corrected during a run does not change the time that the device took."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fixtures.worlds.lab_recording import Lab, plain_lab, write
from rig.analysis.evaluate import evaluate
from rig.analysis.figure_key import FigureKey
from rig.analysis.timing.host_corrections import steady_host
from rig.recording.reader import open_run

STEP_S = 0.01


def lab_with_brackets(seed: int = 3) -> Lab:
    lab = plain_lab(seed, "host corrected")
    lab.brackets_at = lab.meter_brackets_at = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    lab.bracket_s = 1e-4
    return lab


@pytest.mark.parametrize("step_s", [STEP_S, -STEP_S])
def test_a_step_of_the_hosts_clock_does_not_stretch_the_spans(step_s: float, tmp_path: Path) -> None:
    lab = lab_with_brackets()
    middle_s = float(lab.spans_s.mean())
    lab.host_s = lambda t: t + step_s * (t > middle_s)
    write(lab, tmp_path / "run")
    found = evaluate(open_run(tmp_path / "run"))
    energy_j = found.quantities[FigureKey("energy_per_inference_j")]
    assert abs(energy_j.value - lab.truth()["energy_per_inference_j"]) < energy_j.half_width()
    time_s = found.quantities[FigureKey("execution_time_s")]
    assert time_s.value == pytest.approx(float(np.mean(np.diff(lab.spans_s))), rel=2e-4)
    assert any("the clock of the host was corrected" in note for note in found.notes)


def test_a_small_correction_leaves_the_rate_that_the_brackets_show(tmp_path: Path) -> None:
    lab = lab_with_brackets()
    lab.bracket_s, middle_s = 1e-6, float(lab.spans_s.mean())
    lab.host_s = lambda t: t + 1e-5 * max(t - middle_s, 0.0)
    write(lab, tmp_path / "run")
    steady = steady_host(open_run(tmp_path / "run"))
    assert len(steady.notes) == 1
    assert 0.25e-5 < steady.rate_sigma < 2e-5


def test_a_clock_that_bends_alone_is_not_the_hosts_fault(tmp_path: Path) -> None:
    lab = lab_with_brackets()
    lab.warming, lab.warming_s = 3e-3, 1.0
    write(lab, tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert steady_host(run).run is run


def test_clocks_that_bend_each_in_its_own_way_leave_the_host_alone(tmp_path: Path) -> None:
    lab = lab_with_brackets()
    lab.wander = 2e-3
    write(lab, tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert steady_host(run).run is run
