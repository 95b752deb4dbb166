"""Figures of a device that answers with spikes, from recordings whose every figure is known by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rig.analysis.evaluate import evaluate
from rig.analysis.result.figure_key import FigureKey, Figures
from rig.analysis.result.quantity import Component, Quantity
from rig.analysis.scores.answers import answers_of
from rig.analysis.scores.spiking import spiking_figures
from rig.engine.acquisition import Bench
from rig.engine.blocking_device import blocking
from rig.engine.clock import HostClock
from rig.engine.record import record
from rig.recording.reader import Run, open_run
from rig.types import DeviceInfo, Issue, Sample
from tests.support.serving import Blank

SECONDS = 1.25


def answer(first_output_ms: float | None, operations: int) -> dict[str, Any]:
    return {
        "label": "3", "first_input_ms": 1, "first_output_ms": first_output_ms, "synaptic_operations": operations,
        "synaptic_operations_ne15": 3 * operations,
    }  # fmt: skip


def recorded(path: Path, outputs: list[Any], rounds: int = 1) -> Run:
    given, info = iter(outputs * rounds), DeviceInfo("toy", "hardware", phases=("inference",))
    samples = [Sample(f"s{k}", np.zeros(1), "3", duration_s=SECONDS) for k in range(len(outputs))]
    steps = [Issue([sample]) for sample in samples * rounds]
    bench = Bench(blocking(lambda sample: next(given), info), (), HostClock())
    record(path, bench, Blank(), steps, scenario={"name": "by hand"})
    return open_run(path)


def test_rounds_of_the_same_samples_show_no_more_of_other_samples(tmp_path: Path) -> None:
    said = [answer(11.0, 1000), answer(21.0, 2000), answer(31.0, 3000), answer(None, 2000)]
    once, often = (evaluate(recorded(tmp_path / f"{k}", said, k)).quantities for k in (1, 9))
    for key in ("response_latency_mean_s", "synaptic_operations_hz", "silent_share"):
        assert often[key].interval() == pytest.approx(once[key].interval())


def test_every_figure_by_hand(tmp_path: Path) -> None:
    """One of four samples stays silent; its operations are included, and it has no latency."""
    run = recorded(tmp_path / "run", [answer(11.0, 1000), answer(21.0, 2000), answer(31.0, 3000), answer(None, 2000)])
    figures = evaluate(run).quantities
    latency = figures["response_latency_mean_s"]
    assert latency.value == pytest.approx(0.020)
    assert latency.u == pytest.approx(0.010 / np.sqrt(3))
    assert latency.n == 3
    assert figures["silent_share"].value == 0.25
    assert figures["synaptic_operations_hz"].value == pytest.approx(2000 / SECONDS)
    assert figures["synaptic_operations_ne15_hz"].value == pytest.approx(6000 / SECONDS)
    assert figures["real_time_factor"].value == pytest.approx(SECONDS / figures["execution_time_s"].value)
    assert "energy_per_synaptic_operation_j" not in figures


def figures_at(energy_j: float, run: Run) -> Figures:
    """Return the figures if an inference takes this energy above idle, to a tenth."""
    energy = Quantity(energy_j, "J", (Component("noise", 0.1 * abs(energy_j)),))
    return spiking_figures(
        run, answers_of(run), Figures({FigureKey("dynamic_energy_per_inference_j", "inference"): energy})
    )


def test_the_energy_of_an_operation_times_operations_per_joule_is_one(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", [answer(11.0, 1000), answer(21.0, 3000)])
    figures = figures_at(6.0, run)
    each, per_joule = figures["energy_per_synaptic_operation_j"], figures["synaptic_operations_per_j"]
    assert each.value == pytest.approx(6.0 / 2000)
    assert each.u / each.value == pytest.approx(np.hypot(0.1, 1000 / 2000))
    assert each.value * per_joule.value == pytest.approx(1.0)
    below_idle = figures_at(-6.0, run)
    assert below_idle["energy_per_synaptic_operation_j"].value < 0
    assert "synaptic_operations_per_j" not in below_idle


@pytest.mark.parametrize("output", ["3", {"label": "3"}, {**answer(1.0, 5), "synaptic_operations": "5"}])
def test_an_answer_without_spikes_has_none_of_these_figures(tmp_path: Path, output: Any) -> None:
    run = recorded(tmp_path / "run", [output])
    assert not spiking_figures(run, answers_of(run), Figures())
