"""One NVIDIA GPU through NVML: its energy counter, its power, and known facts about its sensor. See ``meter``."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drivers.failures import meter_failed
from rig.errors import MeterError, SetupError, refused
from rig.plugins import imported

WATCH_S = 0.6
UPDATES = 3

_PART_TIME = re.compile(r"\b(A100|A30|A800|H100|H200|H800|GH200)\b")
_GA100 = re.compile(r"\b(A100|A30|A800)\b")


class Energy:
    """The energy counter of one GPU, in joules since the driver was loaded."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu, self._last_j = gpu, 0.0

    def begin(self) -> None:
        """Forget the last value."""
        self._last_j = 0.0

    def look(self) -> float:
        """Return the joules so far, in steps of 1 mJ. Raises ``MeterError`` for a counter that falls."""
        joules = self._gpu.energy_j()
        if joules < self._last_j:
            raise self._gpu.failed(
                f"has a counter that fell from {self._last_j:.3f} J to {joules:.3f} J",
                "Its driver was reloaded, or it was reset",
            )
        self._last_j = joules
        return joules


@dataclass(frozen=True)
class Gpu:
    """One GPU: NVML, its handle, and its properties."""

    nvml: Any
    handle: Any
    index: int
    name: str
    uuid: str

    @property
    def rail(self) -> str:
        """Return the name of its rail."""
        return f"gpu{self.index}"

    def energy_j(self) -> float:
        """Return the value of nvmlDeviceGetTotalEnergyConsumption, which is in millijoules."""
        return 1e-3 * float(self._query("nvmlDeviceGetTotalEnergyConsumption"))

    def average_w(self) -> float:
        """Return the value of nvmlDeviceGetPowerUsage, which is in milliwatts."""
        return 1e-3 * float(self._query("nvmlDeviceGetPowerUsage"))

    def instant_w(self) -> float:
        """Return the field NVML_FI_DEV_POWER_INSTANT, an unsigned int in milliwatts."""
        value = self._query("nvmlDeviceGetFieldValues", [self.nvml.NVML_FI_DEV_POWER_INSTANT])[0]
        if value.nvmlReturn != self.nvml.NVML_SUCCESS:
            raise self.failed(f"gave no NVML_FI_DEV_POWER_INSTANT: error {value.nvmlReturn}", "Use source=energy")
        return 1e-3 * float(value.value.uiVal)

    def _query(self, function: str, *arguments: object) -> Any:
        """One of NVML's answers. Raises ``MeterError`` with NVML's message."""
        try:
            return getattr(self.nvml, function)(self.handle, *arguments)
        except self.nvml.NVMLError as error:
            raise self.failed(f"gave no {function}: {error}", "Check that nvidia-smi still lists it") from error

    def failed(self, what: str, remedy: str) -> MeterError:
        """Return the error to raise for this GPU."""
        return meter_failed(f"GPU {self.index} ({self.name}) {what}", "gpu", self.uuid, remedy)

    def supports(self, call: Callable[[], float]) -> bool:
        """Return whether a number is available and above zero."""
        try:
            return call() > 0.0
        except MeterError:
            return False


def gpus_of(nvml: Any, wanted: str) -> list[Gpu]:
    """Return the GPUs named by index or UUID. Raises ``SetupError`` without any, ``UsageError`` for an unknown one."""
    try:
        count = int(nvml.nvmlDeviceGetCount())
        every = [_gpu(nvml, k) for k in range(count)]
    except nvml.NVMLError as error:
        raise SetupError(
            f"NVML lists no GPU: {error}", field="gpus", value=wanted, remedy="Check nvidia-smi and the permissions"
        ) from error
    found: list[Gpu] = []
    for part in (text.strip() for text in wanted.split(",")):
        fits = [gpu for gpu in every if part in (str(gpu.index), gpu.uuid)]
        if not fits or fits[0] in found:
            known = ", ".join(f"{gpu.index} ({gpu.name}, {gpu.uuid})" for gpu in every) or "none"
            what = f"there is no GPU {part!r} here" if not fits else f"GPU {part!r} is named twice"
            raise refused("gpus", wanted, f"Known: {known}", what)
        found.append(fits[0])
    return found


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    return Gpu(nvml, handle, index, text_of(nvml.nvmlDeviceGetName(handle)), text_of(nvml.nvmlDeviceGetUUID(handle)))


def update_s(gpu: Gpu) -> float:
    """Return the mean time between updates of the energy counter. Raises ``SetupError`` if it does not change."""
    began_s = time.monotonic()
    value, steps = gpu.energy_j(), list[float]()
    while (now_s := time.monotonic()) - began_s < WATCH_S and len(steps) <= UPDATES:
        if (now := gpu.energy_j()) != value:
            value = now
            steps.append(now_s)
        time.sleep(1e-3)
    if len(steps) < 2:
        what = f"the energy counter of GPU {gpu.index} ({gpu.name}) did not change for {WATCH_S:g} s"
        remedy = "Wake it up (nvidia-smi -pm 1), or use source=instant"
        raise SetupError(what, field="gpus", value=gpu.uuid, remedy=remedy)
    return (steps[-1] - steps[0]) / (len(steps) - 1)


def part_time(gpu: Gpu) -> bool:
    """Return whether sensors of this GPU's family are known to measure only part of the time."""
    return bool(_PART_TIME.search(gpu.name))


def averages(gpu: Gpu) -> bool:
    """Return whether power usage is a mean over 1 s (NVML reference); GA100 and older give the last sample."""
    nvml = gpu.nvml
    try:
        new = int(nvml.nvmlDeviceGetArchitecture(gpu.handle)) >= nvml.NVML_DEVICE_ARCH_AMPERE
    except nvml.NVMLError:
        return True
    return new and not _GA100.search(gpu.name)


def open_nvml() -> Any:
    """NVML, initialised. Raises ``MissingExtraError`` without nvidia-ml-py, ``SetupError`` without a driver."""
    pynvml = imported("pynvml", "an NVIDIA GPU", "nvml", value="nvidia-ml-py")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        remedy = "Install NVIDIA's driver, and give the container its GPUs (nvidia-smi must work)"
        raise SetupError(f"NVML cannot be used: {error}", field="meter", value="nvml", remedy=remedy) from error
    return pynvml


def text_of(said: Any) -> str:
    """Return the text of an answer, which older versions of NVML's bindings give as bytes."""
    return said.decode() if isinstance(said, bytes) else str(said)
