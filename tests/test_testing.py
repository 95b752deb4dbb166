"""The plug-in costs a test run without it next to nothing, and its fixtures report failures."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import rig
from rig.testing import Conforms, Measures
from rig.types import SimulatedBench

MOST_S = 0.02
TIMED = """
import pytest, sys, time
began = time.process_time()
import rig.testing
rig.testing.pytest_load_initial_conftests()
print(time.process_time() - began)
print([name for name in ("numpy", "pyarrow", "rig.types", "rig.plugins", "fixtures") if name in sys.modules])
"""


def test_the_plug_in_costs_less_than_20_ms_and_loads_nothing() -> None:
    runs = [subprocess.run([sys.executable, "-c", TIMED], capture_output=True, text=True, check=True) for _ in range(3)]
    took, loaded = zip(*(run.stdout.splitlines() for run in runs), strict=True)

    assert min(map(float, took)) < MOST_S
    assert set(loaded) == {"[]"}


def test_a_bench_knows_its_energy(rig_bench: SimulatedBench) -> None:
    rig_bench.install({"core": 1e-3, "io": 0.0}, {"inference": {"core": 3e-3}})
    begin_ns = rig_bench.clock.now_ns()
    rig_bench.occupy("inference", begin_ns, begin_ns + 10**9)

    assert rig_bench.energy_j(begin_ns, begin_ns + 2 * 10**9) == pytest.approx(4e-3)


def test_a_measurement_returns_its_result(rig_measure: Measures) -> None:
    results = [rig_measure("mock", meter="mock", options={"samples": 8, "audio_hz": 1000}) for _ in range(2)]

    assert [result.start.device.name for result in results] == ["mock", "mock"]
    low, high = results[0].quantities["active_power_w"].interval(0.95)
    assert low <= 3e-3 <= high


def test_a_device_that_breaks_a_rule_fails_the_test_with_it(assert_conforms: Conforms) -> None:
    sound = assert_conforms(rig.blocking(lambda sample: {"label": "noise"}))
    with pytest.raises(pytest.fail.Exception, match=r"reply\.json"):
        assert_conforms(rig.blocking(lambda sample: {"label": np.nan}))

    assert "reply.json" in sound


def test_meters_and_workloads_conform_too(assert_conforms: Conforms, rig_bench: SimulatedBench) -> None:
    rig_bench.install({"core": 1e-3}, {"inference": {"core": 3e-3}})

    assert "samples.ids" in assert_conforms(rig.workload([rig.Sample("one", np.ones(3))], name="one"))
    assert assert_conforms(rig_bench.meter("mine", 1000.0), clock=rig_bench.clock)
