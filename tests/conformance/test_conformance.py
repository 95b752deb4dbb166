"""Every driver of this repository that can be opened here keeps the rules of ``rig.conformance.device``."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fixtures.bench.mock_device import open_device as open_mock_device
from fixtures.bench.mock_meter import open_meter as open_mock_meter
from fixtures.bench.true_power import open_plant
from rig.conformance.device import check_device, check_meter
from rig.engine.blocking_device import blocking
from rig.plugins import names
from rig.types import DeviceInfo, Sample
from tests.support.paths import ROOT

SAMPLES = [Sample(f"s{k}", np.zeros(4), label="ab"[k % 2]) for k in range(3)]


def imported(module: str, text: str) -> bool:
    package, _, name = map(re.escape, module.rpartition("."))
    return bool(re.search(rf"from {re.escape(module)} import |from {package} import .*\b{name}\b", text))


def test_every_registered_driver_is_checked_by_a_test_that_imports_it() -> None:
    tests = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    tests.append(f"check_meter( {(ROOT / 'tests/support/instruments.py').read_text()}")  # of test_every_meter
    checked = "\n".join(text for text in tests if "check_device(" in text or "check_meter(" in text)
    modules = {entry.module for group in ("devices", "meters") for entry in names(group).values()}
    assert not [module for module in modules if not imported(module, checked)]


@pytest.mark.parametrize("faults", [
    {}, {"marks": False}, {"preprocess_s": 0.05, "rails": 3}, {"span_spread": 0.05, "stamp_jitter_s": 2e-5},
    {"device_latch_s": 1e-3, "device_wander": 1e-6, "device_drift_ppm": 400.0},
    {"device_forward_s": 0.0, "device_back_s": 0.0, "device_jitter_s": 0.0},
], ids=lambda faults: "-".join(faults) or "plain")  # fmt: skip
def test_the_mock_device_keeps_every_rule(faults: dict[str, Any]) -> None:
    plant = open_plant()

    checked = check_device(open_mock_device(plant, **faults), SAMPLES, clock=plant.clock)

    assert ("pulse.length" in checked) == faults.get("marks", True)
    assert {"timer.rate", "repeat.unknown", "replies.once"} <= set(checked)


@pytest.mark.parametrize("faults", [
    {}, {"drop": 0.2}, {"noise": 0.1, "flicker": 0.01, "hum": 0.1}, {"rate_hz": 3.0, "stated": False},
    {"supply_v": 1.8, "burden_ohm": 1.0, "resolution": 1e-3, "clip": 0.5},
    {"rate_hz": 5e4, "meter_wander": 1e-6, "meter_drift_ppm": -300.0},
    {"meter_forward_s": 5e-3, "meter_latch_s": 1e-3, "filter_tau_s": 0.01, "aperture": 0.3},
], ids=lambda faults: "-".join(faults) or "plain")  # fmt: skip
def test_the_mock_meter_keeps_every_rule_whatever_its_faults(faults: dict[str, Any]) -> None:
    plant = open_plant()
    open_mock_device(plant, rails=2)

    checked = check_meter(open_mock_meter(plant, **faults), clock=plant.clock)

    assert ("chunk.grow" if "drop" in faults else "read.count") in checked


@pytest.mark.parametrize("batch", [1, 2])
def test_a_blocking_function_keeps_every_rule(batch: int) -> None:
    device = blocking(lambda sample: sample.label, DeviceInfo("function", "hardware", max_batch=batch))

    assert "span.clock" in check_device(device, SAMPLES, prompt_s=5.0)
