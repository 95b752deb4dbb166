"""A live run whose readings contradict their arrival times is INVALID; its power is refused or corrected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.result import Result
from scenarios.rules import quick
from tests.support.figures import POWER
from tests.support.plants import on_plant

POWERS = ("idle_power_w", "active_power_w", "dynamic_power_w", "average_power_w", "energy_per_inference_j")
TRUE_W = {"idle_power_w": 1e-3, "active_power_w": 3e-3, "dynamic_power_w": 2e-3}


def measured(path: Path, inference_s: float, **meter: Any) -> Result:
    rules = quick("single-stream")
    device = {"inference_s": inference_s}
    return on_plant(path / "run", device=device, meter=meter, stream={"idle_s": None}, rules=rules).result


def contradicted(result: Result) -> bool:
    """Return whether a check of the readings fails, and power is refused for that reason or corrected to the truth."""
    assert result.validity is not None
    failed = [c for c in result.validity.checks if not c.ok]
    if failed and POWER in result.quantities:
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
    tmp_path: Path, fault: dict[str, float], rate_hz: float
) -> None:
    assert contradicted(measured(tmp_path, 0.05, rate_hz=rate_hz, **fault))


@pytest.mark.parametrize(
    "honest",
    [{}, {"meter_forward_s": 0.05, "meter_back_s": 0.05}, {"meter_jitter_s": 0.02}, {"drop": 0.3}, {"rate_hz": 20.0}],
    ids=["plain", "slow link", "jitter", "lost readings with stamps", "slow meter"],
)
def test_an_honest_meter_contradicts_nothing(tmp_path: Path, honest: dict[str, float]) -> None:
    validity = measured(tmp_path, 0.3, **honest).validity
    assert validity is not None and validity.verdict == "VALID"
