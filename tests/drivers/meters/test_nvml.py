"""NVML: a renewed counter becomes a reading, power states its averaging time, and a lost GPU is reported."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.meters.nvml import meter as nvml_gpu
from drivers.meters.nvml.meter import open_meter
from drivers.meters.polled import LOOKS
from fixtures.bench.live_plant import LivePlant, live_plant
from fixtures.bench.true_power import VirtualClock
from rig.conformance.device import check_meter
from rig.errors import SetupError, UsageError
from rig.types import Chunk, Meter
from tests.support.fake_nvml import GPU_IS_LOST, LIBRARY_NOT_FOUND, FakeGpu, FakeNvml
from tests.support.meters import computed, error_of, refusal
from tests.support.waiting import until

pytestmark = pytest.mark.real_time

refused = partial(refusal, open_meter)


@contextmanager
def live(monkeypatch: pytest.MonkeyPatch, **how: Any) -> Iterator[tuple[LivePlant, FakeNvml]]:
    plant = live_plant()
    plant.install({"core": 50.0, "other": 10.0}, {"inference": {"core": 250.0}})
    nvml = FakeNvml(plant, **how)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    yield plant, nvml
    assert nvml.opened == 0


def taken(meter: Meter, readings: int) -> list[Chunk]:
    """Return at least this many readings of the first GPU."""
    chunks: list[Chunk] = []

    def enough() -> bool:
        chunks.extend(meter.read())
        return sum(len(chunk.value) for chunk in chunks if chunk.rail == "gpu0") >= readings

    meter.start()
    until(enough)
    return [*chunks, *meter.stop()]


def joined(chunks: Sequence[Chunk], name: str, rail: str = "gpu0") -> Any:
    return np.concatenate([getattr(chunk, name) for chunk in chunks if chunk.rail == rail])


# ---- the contract with the real module ----------------------------------------------------


def test_the_stand_in_has_the_functions_and_parameters_of_the_real_module() -> None:
    real = pytest.importorskip("pynvml", reason="extra nvml is not installed")
    functions = [name for name in vars(FakeNvml) if name.startswith("nvml")]
    constants = [name for name in vars(FakeNvml) if name.startswith("NVML_")]

    assert len(functions) >= 9
    for name in functions:
        own = list(inspect.signature(getattr(FakeNvml, name)).parameters)[1:]
        assert own == list(inspect.signature(getattr(real, name)).parameters), name
    for name in constants:
        assert getattr(FakeNvml, name) == getattr(real, name), name
    assert issubclass(real.NVMLError, Exception) and real.NVMLError(3).value == 3
    fields = {field for field, _ in real.c_nvmlFieldValue_t._fields_}
    assert {"nvmlReturn", "value"} <= fields and "uiVal" in {field for field, _ in real.c_nvmlValue_t._fields_}
    assert (real.NVML_ERROR_LIBRARY_NOT_FOUND, real.NVML_ERROR_GPU_IS_LOST) == (LIBRARY_NOT_FOUND, GPU_IS_LOST)


# ---- readings -----------------------------------------------------------------------------


def test_the_counter_keeps_every_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    with live(monkeypatch) as (plant, _):
        checked = check_meter(open_meter(plant.clock), clock=plant.clock, seconds=0.15)
    assert {"chunk.grow", "rail.unit", "start.again"} <= set(checked)


def test_power_keeps_every_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    with live(monkeypatch) as (plant, _):
        check_meter(open_meter(plant.clock, source="instant", rate_hz=50.0), clock=plant.clock, seconds=0.15)


def test_a_reading_is_made_when_the_counter_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    with live(monkeypatch) as (_, nvml):
        with closing(open_meter(rate_hz=500.0)) as meter:
            rail = meter.info().rails[0]
            chunks = taken(meter, 12)
        value, end = joined(chunks, "value"), joined(chunks, "end_tick")
        renewals = np.array([nvml.renewals(end_ns) for end_ns in end])
        renewed_ns = nvml.began_ns + renewals * round(nvml.update_s * 1e9)
        looks = np.searchsorted(nvml.asked_ns, end) - np.searchsorted(nvml.asked_ns, renewed_ns)

    assert rail.kind == "cumulative" and 25.0 < rail.rate_hz < 100.0  # its renewals, 50 a second, not the polls
    assert np.all(np.diff(value) > 0) and np.all(looks[1:] <= LOOKS)  # a slow poll is repeated
    assert value[-1] - value[0] == pytest.approx(50.0 * nvml.update_s * (renewals[-1] - renewals[0]), abs=1.0)


def test_a_sensor_that_looks_part_of_the_time_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    with live(monkeypatch) as _, closing(open_meter(source="instant")) as meter:
        rail, info = meter.info().rails[0], meter.info()

    assert (rail.kind, rail.aperture_s, rail.rate_hz) == ("mean", 0.025, 10.0)
    assert "25 ms of every 100 ms" in info.description and info.details["gpus"]["gpu0"]["part_time"]


@pytest.mark.parametrize("name", ["SIM RTX A1000", "SIM RTX A3000"])
def test_a_name_that_only_begins_alike_is_another_gpu(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with live(monkeypatch, gpus=(FakeGpu(name=name),)) as _, closing(open_meter()) as meter:
        assert not meter.info().details["gpus"]["gpu0"]["part_time"]
        assert "25 ms" not in meter.info().description


@pytest.mark.parametrize(
    ("missing", "source", "kind"),
    [((), "energy", "cumulative"), (("energy",), "instant", "mean")],
)
def test_the_best_that_it_has_is_taken(
    monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...], source: str, kind: str
) -> None:
    with live(monkeypatch, gpus=(FakeGpu(missing=missing),)) as _, closing(open_meter()) as meter:
        assert meter.info().details["source"] == source and meter.info().rails[0].kind == kind


def test_gpus_are_chosen_by_index_or_uuid_and_each_has_its_rail(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = (FakeGpu(), FakeGpu(rail="other", uuid="GPU-abc"))
    with live(monkeypatch, gpus=gpus) as _:
        with closing(open_meter(gpus="GPU-abc,0", source="instant")) as meter:
            assert [(r.name, r.gain_id) for r in meter.info().rails] == [("gpu1", "GPU-abc"), ("gpu0", "GPU-0")]
            chunks = taken(meter, 2)
        for wanted in ("2", "0,0", "GPU-x", ""):
            assert isinstance(refused(gpus=wanted), UsageError), wanted

    assert [joined(chunks, "value", rail)[0] for rail in ("gpu0", "gpu1")] == pytest.approx([50.0, 10.0])


# ---- the whole chain ----------------------------------------------------------------------


def test_the_energy_of_a_kernel_is_what_it_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live(monkeypatch, update_s=0.01) as (plant, _):
        meter = open_meter(plant.clock, rate_hz=500.0)
        found = computed(tmp_path / "run", plant, meter, samples=5).quantities["dynamic_power_w"]

    low, high = found.interval(0.999)
    assert low <= 200.0 <= high and found.value == pytest.approx(200.0, rel=0.15)


# ---- what goes wrong ----------------------------------------------------------------------


def test_a_gpu_that_is_lost_ends_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu()
    with live(monkeypatch, gpus=(gpu,)) as _, closing(open_meter()) as meter:
        meter.start()
        gpu.lost = True
        assert "GPU is lost" in error_of(meter).message


def test_a_counter_that_falls_back_ends_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu()
    with live(monkeypatch, gpus=(gpu,)) as _, closing(open_meter()) as meter:
        meter.start()
        gpu.begin_mj = 0
        assert "driver was reloaded" in error_of(meter).remedy


def test_a_counter_that_stands_still_is_a_setup_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_gpu, "WATCH_S", 0.1)
    with live(monkeypatch, frozen=True) as _:
        error = refused()
    assert isinstance(error, SetupError) and "did not change" in error.message


def test_no_driver_and_nothing_to_measure_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with live(monkeypatch, fails=LIBRARY_NOT_FOUND) as _:
        error = refused()
        assert isinstance(error, SetupError) and "nvidia-smi" in error.remedy
    with live(monkeypatch, gpus=(FakeGpu(missing=("energy", "instant")),)) as _:
        assert "gives no power" in refused().message
        assert "gives no energy" in refused(source="energy").message


def test_options_and_clocks_that_cannot_be_meant_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with live(monkeypatch) as _:
        assert refused(source="watts").field == "source"
        assert refused(rate_hz=-1.0).field == "rate_hz"
        assert "simulated time" in refused(clock=VirtualClock(), source="instant").message
