"""Pre-processing is measured separately: in phases, or as the power of a front end that listens all the time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.bench.mock_device import MockDevice
from fixtures.bench.true_power import SimPlant
from rig.analysis.result.finding import Finding
from rig.analysis.result.result import Result
from rig.types import Preprocessing, Rules
from scenarios.rules import neurobench_1_0, quick
from tests.support.figures import held
from tests.support.plants import on_plant

STRICT = neurobench_1_0("single-stream")
LISTENING, NOWHERE = Preprocessing(rails=("rail1",)), Preprocessing(rails=("afe",))
PHASE, ABSENT = Preprocessing(phases=("preprocess",)), Preprocessing(none="it takes samples as they are")


def measured(folder: Path, told: Preprocessing | None, rules: Rules = STRICT, preprocess_s: float = 0.0) -> Result:
    def declaring(plant: SimPlant, device: MockDevice) -> MockDevice:
        info = replace(device.info(), preprocessing=told)
        device.info = lambda: info  # type: ignore[method-assign]
        return device

    options = {"rails": 2, "idle_w": 3e-3, "preprocess_s": preprocess_s}
    stream = {"idle_s": 0.5}
    return on_plant(folder / "run", device=options, stream=stream, samples=8, rules=rules, driver=declaring).result


def check_of(result: Result) -> Finding | None:
    assert result.validity is not None
    return next((c for c in result.validity.checks if "pre-processing" in c.rule), None)


def test_a_front_end_that_listens_is_reported_by_itself_and_not_lost_in_idle(tmp_path: Path) -> None:
    found = measured(tmp_path, LISTENING).quantities
    assert held(found["preprocessing_power_w"], 1e-3, 0.999)
    assert found["preprocessing_power_w"].value == found["rail.rail1.idle_power_w"].value


@pytest.mark.parametrize(
    ("told", "preprocess_s", "ok", "found"),
    [
        (None, 0.0, False, "not declared"), (None, 0.05, False, "not declared"), (PHASE, 0.05, True, "preprocess"),
        (PHASE, 0.0, False, "preprocess, not measured by itself"), (LISTENING, 0.0, True, "rail1"),
        (NOWHERE, 0.0, False, "afe, not measured by itself"), (ABSENT, 0.0, True, "it takes samples as they are"),
    ],
)  # fmt: skip
def test_pre_processing_must_be_measured_by_itself_or_declared_absent(
    tmp_path: Path, told: Preprocessing | None, preprocess_s: float, ok: bool, found: str
) -> None:
    result = measured(tmp_path, told, preprocess_s=preprocess_s)
    check = check_of(result)
    assert check is not None
    assert (check.ok, check.found) == (ok, found)
    assert [str(r.scope) for r in result.refusals if "afe" in r.reason] == ["preprocessing_power_w"] * (told is NOWHERE)


def test_rules_of_the_bench_ask_for_no_declaration(tmp_path: Path) -> None:
    assert check_of(measured(tmp_path, None, quick("single-stream"))) is None
