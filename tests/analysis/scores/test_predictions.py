"""Forecasts are judged by NeuroBench's sMAPE (0 to 200), regressions by R2, boxes by COCO's mean average precision,
and answers of spikes by response latency and operations."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from rig.analysis.evaluate import evaluate
from rig.analysis.result.quantity import Component, FigureKey, Figures, Quantity
from rig.analysis.result.result import Result
from rig.analysis.scores.answers import answers_of
from rig.analysis.scores.predictions import coco_map, r2, smape
from rig.analysis.scores.spiking import spiking_figures
from rig.engine.acquisition import Bench
from rig.engine.blocking_device import blocking
from rig.engine.clock import HostClock
from rig.engine.record import record
from rig.network.description import Connection, Layer, NetworkInfo
from rig.recording.reader import Run, open_run
from rig.types import DeviceInfo, Issue, Sample
from tests.support.drive import has
from tests.support.predicted import recorded
from tests.support.serving import Blank

LAW = settings(max_examples=100)
FLOATS = st.floats(allow_nan=True, allow_infinity=True, width=64)
SERIES = np.array([9.0, 9.0, 1.0, 2.0, 4.0])
"""A series; its last three points are forecast."""


@LAW
@given(st.lists(st.tuples(st.floats(-1e300, 1e300), FLOATS), min_size=1))
def test_smape_is_bounded(points: list[tuple[float, float]]) -> None:
    wanted, forecast = (np.array(column) for column in zip(*points, strict=True))
    assert 0.0 <= smape(wanted, forecast) <= 200.0


@pytest.mark.parametrize(("wanted", "forecast", "error"), [
    ([1.0, 2.0], [1.0, 2.0], 0.0), ([1.0, 1.0], [3.0, 1.0], 200 * 0.5 / 2), ([1.0], [-1.0], 200.0),
    ([1.0], [np.nan], 200.0), ([1.0, 1.0], [np.inf, 1.0], 100.0), ([0.0, 1.0], [0.0, 1.0], 0.0),
])  # fmt: skip
def test_smape_is_exact(wanted: list[float], forecast: list[float], error: float) -> None:
    assert smape(np.array(wanted), np.array(forecast)) == pytest.approx(error)


def forecast(path: Path, answers: Sequence[tuple[str, Any]], kept: Any = SERIES) -> Result:
    return evaluate(open_run(recorded(path, answers, kept, {"forecast_from": 2}, "forecast")))


def test_mean_and_quartiles_are_over_samples(tmp_path: Path) -> None:
    worst, right = [None, None, None], [1.0, 2.0, 4.0]
    found = forecast(tmp_path, [("a", right), ("b", right), ("c", worst), ("c", worst), ("d", right)]).quantities
    assert found["smape_mean"].value == pytest.approx(50.0)
    assert [found[f"smape_p{p}"].value for p in (25, 50, 75)] == pytest.approx([0.0, 0.0, 50.0])
    assert found["smape_mean"].n == 4


@pytest.mark.parametrize(
    ("points", "kept"), [([1.0, 2.0], SERIES), ([1.0, 2.0, 4.0], np.array([0.0, 0.0, np.nan, 1.0, 1.0]))]
)
def test_a_forecast_that_cannot_be_judged_is_reported(points: list[float], kept: Any, tmp_path: Path) -> None:
    result = forecast(tmp_path, [("a", points)], kept)
    assert "smape_mean" not in {str(key) for key in result.quantities}
    assert [note for note in result.notes if note.startswith("forecasts of the whole series")]


@pytest.mark.parametrize("silence", [None, "nothing", [None] * 3])
def test_a_silent_forecast_has_the_largest_error(silence: Any, tmp_path: Path) -> None:
    result = forecast(tmp_path, [("a", [1.0, 2.0, 4.0]), ("b", silence)])
    assert (result.quantities["smape_mean"].value, result.quantities["smape_mean"].n) == (pytest.approx(100.0), 2)
    assert not [note for note in result.notes if note.startswith("forecasts of the whole series")]


TRUTH = np.array([[9.0, 9.0], [0.0, 1.0], [1.0, 3.0], [2.0, 5.0]])
"""A series; its last three points are predicted."""


def regression(path: Path, answers: Sequence[tuple[str, Any]], truth: Any = TRUTH) -> Result:
    payload = np.zeros(len(truth), [("other", "u1"), ("velocity", "<f4", 2)])
    payload["velocity"] = truth
    details = {"regress": "velocity", "regress_from": dict.fromkeys("abc", 1)}
    return evaluate(open_run(recorded(path, answers, payload, details, "prediction")))


def test_the_explained_variance_is_the_mean_over_both_columns() -> None:
    """The reference's unit test: targets 0 to 9, predictions 1.1 times as large, then 1.1 times the next one."""
    y = np.arange(10.0)
    missed = (np.sum((0.1 * y) ** 2), np.sum((0.1 * y + 1.1) ** 2))
    wanted = 1.0 - (missed[0] + missed[1]) / 2 / 82.5
    assert r2(np.stack((y, y), axis=1), np.stack((1.1 * y, 1.1 * (y + 1)), axis=1)) == pytest.approx(wanted)


@LAW
@given(st.integers(0, 2**32 - 1))
def test_r2_is_zero_for_the_mean_and_one_for_truth(seed: int) -> None:
    wanted = np.random.default_rng(seed).normal(size=(20, 2))
    assert r2(wanted, wanted) == 1.0
    assert r2(wanted, np.tile(wanted.mean(axis=0), (20, 1))) == pytest.approx(0.0, abs=1e-12)


def test_r2_is_stated_per_session_and_as_a_mean(tmp_path: Path) -> None:
    right, middle = TRUTH[1:].tolist(), [[1.0, 3.0]] * 3
    found = regression(tmp_path, [("a", right), ("b", middle), ("c", middle), ("c", right)]).quantities
    assert [found[f"sample.{name}.r2"].value for name in "abc"] == pytest.approx([1.0, 0.0, 0.5])
    assert found["r2"].value == pytest.approx(0.5)
    assert found["r2"].n == 3


@pytest.mark.parametrize(("rows", "truth"), [
    ([[0.0, 1.0]] * 2, TRUTH), ([0.0, 1.0, 2.0], TRUTH), ([[0.0, 1.0], [0.0], [0.0, 1.0]], TRUTH),
    ([[None, 1.0]] * 3, TRUTH), ([["x", 1.0]] * 3, TRUTH), ([["0", "1"]] * 3, TRUTH),
    ([[0.0, 1.0]] * 3, np.ones((4, 2))), (None, TRUTH), ("nothing", TRUTH),
])  # fmt: skip
def test_predictions_that_cannot_be_judged_are_reported(rows: Any, truth: Any, tmp_path: Path) -> None:
    """A session that the device left unanswered must not improve the mean."""
    result = regression(tmp_path, [("a", rows), ("b", TRUTH[1:].tolist())], truth)
    assert not {"r2", "sample.a.r2"} & {str(key) for key in result.quantities}
    assert [note for note in result.notes if note.startswith("predictions of every step")]


def test_synthetic_samples_are_noted(tmp_path: Path) -> None:
    run = recorded(tmp_path, [("a", [])], SERIES, {"synthetic": "drawn by hand"}, "forecast")
    assert "The samples are synthetic, not recorded: drawn by hand" in evaluate(open_run(run)).notes


# ---- boxes, by COCO's mean average precision ---------------------------------------------------

CAR = [2, 100.0, 100.0, 100.0, 100.0]
needs_coco = pytest.mark.skipif(not has("faster_coco_eval"), reason="extra detection is not installed")


def answer(x: float, score: float = 0.9, kind: int = 2) -> list[float]:
    """Return a box as large as the car, at ``x``."""
    return [kind, score, x, 100.0, 100.0, 100.0]


def judged(path: Path, answers: Sequence[tuple[str, Any]], boxes: dict[str, Any]) -> Result:
    detect = {"classes": ["pedestrian", "two wheeler", "car"], "least_diagonal": 60.0, "boxes": boxes}
    return evaluate(open_run(recorded(path, answers, np.zeros(1), {"detect": detect}, "boxes")))


@needs_coco
def test_coco_map_is_exact() -> None:
    assert coco_map([[CAR]], [[answer(100)]], 3) == pytest.approx(1.0)
    # moved by 25 of 100 pixels: 75 of 125 are shared, IoU 0.6, right at the thresholds 0.50, 0.55 and 0.60
    assert coco_map([[CAR]], [[answer(125)]], 3) == pytest.approx(0.3)
    # the second frame's car is not found: recall 0.5 at precision 1, which is 51 of COCO's 101 points
    assert coco_map([[CAR], [CAR]], [[answer(100)], []], 3) == pytest.approx(51 / 101)
    # a box with a better score is wrong: precision 1/2 at every recall
    assert coco_map([[CAR]], [[answer(100, 0.5), answer(400, 0.9)]], 3) == pytest.approx(0.5)
    # one car found after a wrong box, and one pedestrian missed: the mean of 1/2 and 0
    assert coco_map([[CAR], [[0, *CAR[1:]]]], [[answer(100)], [answer(100, 0.95)]], 3) == pytest.approx(0.25)
    assert coco_map([[CAR]], [[]], 3) == 0.0


@needs_coco
def test_frames_without_an_entry_and_small_boxes_are_not_judged(tmp_path: Path) -> None:
    small = [2, 0.99, 300.0, 300.0, 30.0, 30.0]
    found = judged(tmp_path, [("a", [answer(100), small]), ("early", [answer(400)])], {"a": [CAR]})
    assert found.quantities["map"].value == pytest.approx(1.0)
    assert found.quantities["map"].n == 1


@pytest.mark.parametrize("odd", [None, [[1, 2]], [answer(100, kind=3)], [answer(float("nan"))], [["2", 1, 1, 1, 1, 1]]])
def test_malformed_boxes_fail_a_check(tmp_path: Path, odd: Any) -> None:
    found = judged(tmp_path, [("a", odd)], {"a": [CAR]})
    assert "map" not in {str(key) for key in found.quantities}
    assert any("boxes of a class" in note for note in found.notes)


def test_precision_is_refused_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "faster_coco_eval", None)
    found = judged(tmp_path, [("a", [answer(100)])], {"a": [CAR]})
    assert [str(r.scope) for r in found.refusals if "coco" in r.reason] == ["map"]


# ---- devices that answer with spikes -----------------------------------------------------------

SECONDS = 1.25


def spikes_of(first_output_ms: float | None, operations: int) -> dict[str, Any]:
    return {
        "label": "3", "first_input_ms": 1, "first_output_ms": first_output_ms, "synaptic_operations": operations,
        "synaptic_operations_ne15": 3 * operations,
    }  # fmt: skip


def spiking(path: Path, outputs: list[Any], rounds: int = 1, **said: Any) -> Run:
    given, info = iter(outputs * rounds), DeviceInfo("toy", "hardware", phases=("inference",), **said)
    samples = [Sample(f"s{k}", np.full(1, k % 4), "3", duration_s=SECONDS) for k in range(len(outputs))]
    steps = [Issue([sample]) for sample in samples * rounds]
    bench = Bench(blocking(lambda sample: next(given), info), (), HostClock())
    record(path, bench, Blank(), steps, scenario={"name": "by hand"})
    return open_run(path)


FOUR = [spikes_of(11.0, 1000), spikes_of(21.0, 2000), spikes_of(31.0, 3000), spikes_of(None, 2000)]
"""One of four samples stays silent; its operations are included, and it has no latency."""


def test_repeated_rounds_do_not_narrow_intervals(tmp_path: Path) -> None:
    once, often = (evaluate(spiking(tmp_path / f"{k}", FOUR, k)).quantities for k in (1, 9))
    copies = evaluate(spiking(tmp_path / "copies", 9 * FOUR)).quantities
    for key in ("response_latency_mean_s", "synaptic_operations_hz", "silent_share"):
        assert often[key].interval() == pytest.approx(once[key].interval())
        assert copies[key].interval() == pytest.approx(once[key].interval())


def test_figures_are_exact(tmp_path: Path) -> None:
    figures = evaluate(spiking(tmp_path / "run", FOUR)).quantities
    latency = figures["response_latency_mean_s"]
    assert latency.value == pytest.approx(0.020)
    assert latency.u == pytest.approx(0.010 / np.sqrt(3))
    assert latency.n == 3
    assert figures["silent_share"].value == 0.25
    assert figures["synaptic_operations_hz"].value == pytest.approx(2000 / SECONDS)
    assert figures["synaptic_operations_ne15_hz"].value == pytest.approx(6000 / SECONDS)
    assert figures["real_time_factor"].value == pytest.approx(SECONDS / figures["execution_time_s"].value)
    assert "energy_per_synaptic_operation_j" not in figures


def test_declared_simulator_times_give_no_real_time_factor(tmp_path: Path) -> None:
    result = evaluate(spiking(tmp_path / "run", FOUR, details={"times_of": "NEST on this computer"}))
    assert {"execution_time_s", "synaptic_operations_hz"} <= set(map(str, result.quantities))
    assert "real_time_factor" not in result.quantities
    assert "Times and energies are those of NEST on this computer, and say nothing about toy" in result.notes


NETWORK: dict[str, Any] = {
    "network": NetworkInfo(
        layers=(Layer("input", 2), Layer("decision", 3)),
        connections=(Connection("a", "pixels", "input", 2, 0, 2, 1), Connection("b", "input", "decision", 6, 1, 6, 3)),
        memory=(),
    ),
    "algorithm": {"network": {"neurons": {"pixels": 2, "input": 2, "decision": 3}}},
}
SPIKES = {"events": 10, "fired": {"input": 4, "decision": 1}}
"""Each of ten events reaches one neuron, and each of four spikes three: 22 operations."""


@pytest.mark.parametrize(("output", "said"), [
    (spikes_of(0.5, 22), "an output spike before the first input spike"),
    (spikes_of(11.0, -22), "a negative count"),
    (spikes_of(11.0, 11) | SPIKES, "11 operations by spikes that reach 22 synapses"),
    (spikes_of(11.0, 22) | SPIKES, None),
    (spikes_of(11.0, 11) | SPIKES | {"fired": {}}, None),
])  # fmt: skip
def test_contradictory_spikes_are_in_no_figure_and_fail(tmp_path: Path, output: Any, said: str | None) -> None:
    result = evaluate(spiking(tmp_path / "run", [output], **NETWORK))
    odd = [f.found for f in result.findings if f.rule == "answers of spikes that contradict themselves"]
    assert odd == ([] if said is None else [f"1, such as s0: {said}"])
    assert ("synaptic_operations_hz" in result.quantities) == (said is None)


def figures_at(energy_j: float, run: Run) -> Figures:
    """Return the figures if an inference takes this energy above idle, known to a tenth."""
    energy = Quantity(energy_j, "J", (Component("noise", 0.1 * abs(energy_j)),))
    known = Figures({FigureKey("dynamic_energy_per_inference_j", "inference"): energy})
    return spiking_figures(run, answers_of(run), known)


def test_energy_per_operation_is_the_inverse_of_operations_per_joule(tmp_path: Path) -> None:
    run = spiking(tmp_path / "run", [spikes_of(11.0, 1000), spikes_of(21.0, 3000)])
    figures = figures_at(6.0, run)
    each, per_joule = figures["energy_per_synaptic_operation_j"], figures["synaptic_operations_per_j"]
    assert each.value == pytest.approx(6.0 / 2000)
    assert each.u / each.value == pytest.approx(np.hypot(0.1, 1000 / 2000))
    assert each.value * per_joule.value == pytest.approx(1.0)
    below_idle = figures_at(-6.0, run)
    assert below_idle["energy_per_synaptic_operation_j"].value < 0
    assert "synaptic_operations_per_j" not in below_idle


@pytest.mark.parametrize("output", ["3", {"label": "3"}, {**spikes_of(1.0, 5), "synaptic_operations": "5"}])
def test_an_answer_without_spikes_has_no_spike_figures(tmp_path: Path, output: Any) -> None:
    run = spiking(tmp_path / "run", [output])
    assert not spiking_figures(run, answers_of(run), Figures())
