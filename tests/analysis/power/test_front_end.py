"""Pre-processing is measured separately: in phases, or as the power of a front end that listens all the time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.bench.mock_device import open_device
from fixtures.bench.mock_meter import open_meter
from fixtures.bench.true_power import open_plant
from fixtures.worlds.random_draw import blank
from rig.analysis.evaluate import evaluate
from rig.analysis.result.finding import Finding
from rig.analysis.result.result import Result
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.recording.reader import open_run
from rig.types import DeviceInfo, Preprocessing, Rules
from scenarios.rules import neurobench_1_0, quick
from scenarios.single_stream import single_stream

STRICT = neurobench_1_0("single-stream")
LISTENING = Preprocessing(rails=("rail1",))


class Declares:
    """A device that declares how it pre-processes."""

    def __init__(self, driver: Any, told: Preprocessing | None) -> None:
        self._driver, self._told = driver, told

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def info(self) -> DeviceInfo:
        info: DeviceInfo = self._driver.info()
        return replace(info, preprocessing=self._told)


def measured(
    folder: Path, told: Preprocessing | None, rules: Rules = STRICT, preprocess_s: float = 0.0, rails: int = 2
) -> Result:
    plant = open_plant()
    device = Declares(open_device(plant, rails=rails, idle_w=3e-3, preprocess_s=preprocess_s), told)
    workload = blank(8)
    bench = Bench(device, (open_meter(plant),), plant.clock)
    steps = single_stream(workload, rules, idle_s=0.5)
    record(folder / "run", bench, workload, steps, scenario={"name": "single-stream"}, rules=rules, argv=[])
    return evaluate(open_run(folder / "run"))


def check_of(result: Result) -> Finding | None:
    assert result.validity is not None
    return next((c for c in result.validity.checks if "pre-processing" in c.rule), None)


def test_a_front_end_that_listens_is_reported_by_itself_and_not_lost_in_idle(tmp_path: Path) -> None:
    result = measured(tmp_path, LISTENING)
    low, high = result.quantities["preprocessing_power_w"].interval(0.999)
    assert low <= 1e-3 <= high
    assert result.quantities["preprocessing_power_w"].value == result.quantities["rail.rail1.idle_power_w"].value
    heard_s = float(open_run(tmp_path / "run").samples["duration_s"][0].as_py() or 0.0)
    energy = result.quantities.get("preprocessing_energy_per_inference_j")  # type: ignore[call-overload]
    assert (energy is None) == (heard_s == 0.0)


@pytest.mark.parametrize(
    ("told", "preprocess_s", "ok", "found"),
    [
        (None, 0.0, False, "not declared"),
        (None, 0.05, False, "not declared"),
        (Preprocessing(phases=("preprocess",)), 0.05, True, "preprocess"),
        (Preprocessing(phases=("preprocess",)), 0.0, False, "preprocess, not measured by itself"),
        (LISTENING, 0.0, True, "rail1"),
        (Preprocessing(rails=("afe",)), 0.0, False, "afe, not measured by itself"),
        (Preprocessing(none="it takes samples as they are"), 0.0, True, "it takes samples as they are"),
    ],
)
def test_pre_processing_must_be_measured_by_itself_or_declared_absent(
    tmp_path: Path, told: Preprocessing | None, preprocess_s: float, ok: bool, found: str
) -> None:
    check = check_of(measured(tmp_path, told, preprocess_s=preprocess_s))
    assert check is not None
    assert (check.ok, check.found) == (ok, found)


def test_a_front_end_without_a_rail_of_its_own_is_refused_with_a_remedy(tmp_path: Path) -> None:
    result = measured(tmp_path, Preprocessing(rails=("afe",)))
    (refusal,) = [r for r in result.refusals if str(r.scope) == "preprocessing_power_w"]
    assert "afe" in refusal.reason


def test_rules_of_the_bench_ask_for_no_declaration(tmp_path: Path) -> None:
    assert check_of(measured(tmp_path, None, quick("single-stream"))) is None
