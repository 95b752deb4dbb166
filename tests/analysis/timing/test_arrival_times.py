"""A live run whose readings contradict their arrival times is INVALID; its power is refused or corrected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures.bench.mock_device import open_device
from fixtures.bench.mock_meter import open_meter
from fixtures.bench.true_power import open_plant
from fixtures.worlds.random_draw import blank
from rig.analysis.evaluate import evaluate
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.result import Result
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.recording.reader import open_run
from scenarios.rules import quick
from scenarios.single_stream import single_stream

POWERS = ("idle_power_w", "active_power_w", "dynamic_power_w", "average_power_w", "energy_per_inference_j")
Measure = Callable[..., Result]


@pytest.fixture
def measure(tmp_path: Path) -> Measure:
    """Measure twenty samples, with the options of the meter."""

    def run(samples: int = 20, inference_s: float = 0.05, **meter: Any) -> Result:
        plant, rules, workload = open_plant(), quick("single-stream"), blank(samples)
        device = open_device(plant, inference_s=inference_s)
        bench = Bench(device, (open_meter(plant, **meter),), plant.clock)
        steps = single_stream(workload, rules, phases=("inference",))
        record(tmp_path / "run", bench, workload, steps, scenario={"name": "single-stream"}, rules=rules, argv=[])
        return evaluate(open_run(tmp_path / "run"))

    return run


TRUE_W = {"idle_power_w": 1e-3, "active_power_w": 3e-3, "dynamic_power_w": 2e-3}


def contradicted(result: Result) -> bool:
    """Return whether a check of the readings fails, and power is refused for that reason or corrected to the truth."""
    assert result.validity is not None
    failed = [c for c in result.validity.checks if not c.ok]
    if failed and FigureKey("dynamic_power_w") in result.quantities:
        for name, watts in TRUE_W.items():
            q = result.quantities[FigureKey(name)]
            assert abs(q.value - watts) <= 1.5 * q.half_width()
    elif failed:
        assert not any(FigureKey(name) in result.quantities for name in POWERS)
        assert all(any(c.rule in r.reason for r in result.refusals) for c in failed)
    return bool(failed) and all("rail core" in c.rule for c in failed)


@pytest.mark.parametrize(
    ("fault", "rate_hz"),
    [({"deliveries": 2}, 1e3), *(({"rate_error": e}, hz) for e, hz in ((0.01, 200.0), (-0.01, 20e3), (-0.5, 1e3)))],
    ids=["twice", "faster than declared", "slower than declared", "half the rate"],
)
def test_readings_at_another_rate_than_declared_make_a_live_run_invalid(
    measure: Measure, fault: dict[str, float], rate_hz: float
) -> None:
    assert contradicted(measure(rate_hz=rate_hz, **fault))


@pytest.mark.parametrize(
    "honest",
    [{}, {"meter_forward_s": 0.05, "meter_back_s": 0.05}, {"meter_jitter_s": 0.02}, {"drop": 0.3}, {"rate_hz": 20.0}],
    ids=["plain", "slow link", "jitter", "lost readings with stamps", "slow meter"],
)
def test_an_honest_meter_contradicts_nothing(measure: Measure, honest: dict[str, float]) -> None:
    result = measure(inference_s=0.3, **honest)
    assert not contradicted(result)
    assert result.validity is not None
    assert result.validity.verdict == "VALID"
