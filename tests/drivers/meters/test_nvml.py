"""NVML: a renewed counter becomes a reading, power states its averaging time, and a lost GPU is reported."""

import inspect
from contextlib import closing

import numpy as np
import pytest

from drivers.meters.nvml import meter as nvml_gpu
from drivers.meters.polled import LOOKS
from rig.errors import SetupError
from tests.support.fake_nvml import GPU_IS_LOST, LIBRARY_NOT_FOUND, FakeGpu, FakeNvml
from tests.support.instruments import live
from tests.support.meters import at_least, column
from tests.support.raised import raised

pytestmark = pytest.mark.real_time


# ---- the contract with the real module ----------------------------------------------------


def test_the_fake_nvml_matches_the_real_module() -> None:
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


def test_each_counter_renewal_is_one_reading() -> None:
    with live("nvml") as it:
        with closing(it.open(rate_hz=500.0)) as meter:
            rail = meter.info().rails[0]
            chunks = at_least(meter, 12, "gpu0")
        value, end = (column(chunks, name, "gpu0") for name in ("value", "end_tick"))
        renewals = np.array([it.sim.renewals(end_ns) for end_ns in end])
        renewed_ns = it.sim.began_ns + renewals * round(it.sim.update_s * 1e9)
        looks = np.searchsorted(it.sim.asked_ns, end) - np.searchsorted(it.sim.asked_ns, renewed_ns)

    assert rail.kind == "cumulative" and 25.0 < rail.rate_hz < 100.0  # its renewals, 50 a second, not the polls
    assert np.all(np.diff(value) > 0) and np.all(looks[1:] <= LOOKS)  # a slow poll is repeated
    assert value[-1] - value[0] == pytest.approx(50.0 * it.sim.update_s * (renewals[-1] - renewals[0]), abs=1.0)


@pytest.mark.parametrize(("name", "part_time"), [(FakeGpu.name, True), ("SIM RTX A1000", False)])
def test_a_gpu_with_part_time_sampling_is_noted(name: str, part_time: bool) -> None:
    with live("nvml", gpus=(FakeGpu(name=name),)) as it, closing(it.open(source="instant")) as meter:
        rail, info = meter.info().rails[0], meter.info()

    assert (rail.kind, rail.aperture_s, rail.rate_hz) == ("mean", 0.025, 0.0)
    assert ("25 ms of every 100 ms" in info.description) is info.details["gpus"]["gpu0"]["part_time"] is part_time


def test_each_sensor_value_is_one_reading() -> None:
    with live("nvml") as it, closing(it.open(source="instant", rate_hz=500.0)) as meter:
        end_ns = column(at_least(meter, 12, "gpu0"), "end_tick", "gpu0")
        renewals = [it.sim.renewals(ns) for ns in end_ns]

    assert len(set(renewals)) == len(renewals)


@pytest.mark.parametrize(
    ("missing", "source", "kind"), [((), "energy", "cumulative"), (("energy",), "instant", "mean")]
)
def test_the_best_source_is_used(missing: tuple[str, ...], source: str, kind: str) -> None:
    with live("nvml", gpus=(FakeGpu(missing=missing),)) as it, closing(it.open()) as meter:
        assert meter.info().details["source"] == source and meter.info().rails[0].kind == kind


def test_gpus_are_chosen_by_index_or_uuid() -> None:
    gpus = (FakeGpu(), FakeGpu(rail="other", uuid="GPU-abc"))
    with live("nvml", gpus=gpus) as it:
        it.plant.install({"core": 50.0, "other": 10.0}, {})
        with closing(it.open(gpus="GPU-abc,0", source="instant")) as meter:
            assert [(r.name, r.gain_id) for r in meter.info().rails] == [("gpu1", "GPU-abc"), ("gpu0", "GPU-0")]
            chunks = at_least(meter, 2, "gpu0")

    assert [column(chunks, "value", rail)[0] for rail in ("gpu0", "gpu1")] == pytest.approx([50.0, 10.0], abs=0.01)


# ---- what goes wrong ----------------------------------------------------------------------


def test_a_frozen_counter_is_a_setup_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_gpu, "WATCH_S", 0.1)
    with live("nvml", frozen=True) as it:
        raised(SetupError, it.open, says="changed 0 times")


def test_a_missing_driver_or_source_is_reported() -> None:
    with live("nvml", fails=LIBRARY_NOT_FOUND) as it:
        assert "nvidia-smi" in raised(SetupError, it.open).remedy
    with live("nvml", gpus=(FakeGpu(missing=("energy", "instant")),)) as it:
        raised(SetupError, it.open, says="gives no power")
        raised(SetupError, it.open, source="energy", says="gives no energy")
