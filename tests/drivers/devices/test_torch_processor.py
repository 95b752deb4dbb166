"""The path to a GPU, with substitutes for torch and NVML; it was never run on a real GPU."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from drivers.devices.torch import processor
from drivers.devices.torch.processor import open_cuda, open_processor
from rig.errors import SetupError, UsageError


class Tensor:
    """The parts of a tensor that the path uses."""

    def __init__(self, place: str, done: list[str]) -> None:
        self.place, self._done = place, done

    def to(self, place: str) -> Tensor:
        self._done.append(f"copy to {place}")
        return Tensor(place, self._done)


class FakeTorch:
    """The parts of torch that the path uses; ``done`` lists the GPU's tasks in order."""

    __version__ = "2.fake"

    def __init__(self, gpus: int = 1) -> None:
        self.done: list[str] = []
        self.version = SimpleNamespace(cuda="12.0")
        properties = SimpleNamespace(name="SIM GPU", total_memory=1 << 30, uuid="0")
        self.cuda = SimpleNamespace(
            is_available=lambda: gpus > 0,
            device_count=lambda: gpus,
            get_device_properties=lambda index: properties,
            synchronize=lambda index: self.done.append("synchronise"),
            device=lambda index: nullcontext(),
            Event=self._event,
        )

    def _event(self, enable_timing: bool) -> Any:
        assert enable_timing
        return SimpleNamespace(record=lambda: self.done.append("event"), elapsed_time=lambda end: 2.5)


class NVMLError(Exception):
    """Like pynvml's."""


class FakeNvml:
    """The parts of NVML that the path uses."""

    NVMLError, NVML_CLOCK_SM, NVML_CLOCK_MEM = NVMLError, 1, 2

    def __init__(self, root: bool = True) -> None:
        self.root, self.locked_mhz = root, 0

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return "SIM GPU"

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return "GPU-0"

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:  # noqa: N802
        return self.locked_mhz or {1: 1410, 2: 1593}[kind]

    def nvmlDeviceSetGpuLockedClocks(self, handle: int, low: int, high: int) -> None:  # noqa: N802
        if not self.root:
            raise NVMLError("Insufficient Permissions")
        self.locked_mhz = high

    def nvmlDeviceResetGpuLockedClocks(self, handle: int) -> None:  # noqa: N802
        self.locked_mhz = 0


def test_an_execution_goes_from_host_memory_to_it_with_events_around_the_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processor, "open_nvml", FakeNvml)
    torch = FakeTorch()
    place = open_cuda(torch, 0, 0)

    def module(given: Tensor) -> Tensor:
        assert given.place == "cuda:0"
        torch.done.append("module")
        return given

    timed = place.execute(module, Tensor("cpu", torch.done), 2)
    execution = ["copy to cuda:0", "event", "module", "event", "copy to cpu"]
    assert torch.done == ["synchronise", *execution, *execution, "synchronise"]
    assert timed.off_ns >= timed.on_ns and timed.kernels_s == pytest.approx(2.5e-3)
    assert place.meter == "nvml" and place.details["processor"] == "SIM GPU"
    assert (place.details["clock_mhz"], place.details["memory_clock_mhz"]) == (1410, 1593)


def test_a_clock_is_locked_until_the_device_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    monkeypatch.setattr(processor, "open_nvml", lambda: nvml)
    place = open_cuda(FakeTorch(), 0, 1200)
    assert (nvml.locked_mhz, place.details["locked_clock_mhz"]) == (1200, 1200)
    place.close()
    assert nvml.locked_mhz == 0


def test_a_clock_that_only_root_may_lock_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "open_nvml", lambda: FakeNvml(root=False))
    with pytest.raises(SetupError, match=r"cannot be locked.*nvidia-smi -i 0 -lgc 1200"):
        open_cuda(FakeTorch(), 0, 1200)


def test_without_nvml_the_clocks_are_not_recorded_and_none_is_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise SetupError("an NVIDIA GPU needs pynvml")

    monkeypatch.setattr(processor, "open_nvml", absent)
    assert "needs pynvml" in open_cuda(FakeTorch(), 0, 0).details["clocks"]
    with pytest.raises(SetupError, match="needs pynvml"):
        open_cuda(FakeTorch(), 0, 1200)


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_gpu_that_is_not_there_is_told(gpus: int) -> None:
    with pytest.raises(SetupError, match="finds no GPU 1 for CUDA"):
        open_processor(FakeTorch(gpus), "cuda:1", 0, 0)


@pytest.mark.parametrize(("name", "clock_mhz", "field"), [("gpu", 0, "processor"), ("cpu", 900, "clock_mhz")])
def test_a_place_that_is_none_is_refused(name: str, clock_mhz: int, field: str) -> None:
    with pytest.raises(UsageError) as refused:
        open_processor(FakeTorch(), name, 0, clock_mhz)
    assert refused.value.field == field
