"""One NVIDIA GPU as NVML shows it: its counter, its power, and what is known of its sensor. See ``nvml``."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drivers.meters.polled import KEPT
from rig.errors import MeterError, MissingExtraError, SetupError, UsageError

WATCH_S = 0.6
UPDATES = 3

_PART_TIME = re.compile(r"\b(A100|A30|A800|H100|H200|H800|GH200)\b")
_GA100 = re.compile(r"\b(A100|A30|A800)\b")


class Energy:
    """The energy counter of one GPU, in joules since the driver was loaded; it counts millijoules."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu, self._last_j = gpu, 0.0

    def begin(self) -> None:
        """Forget the last value."""
        self._last_j = 0.0

    def look(self) -> float:
        """Joules. Raises ``MeterError`` for a counter that falls back."""
        joules = 1e-3 * self._gpu.asked("nvmlDeviceGetTotalEnergyConsumption")
        if joules < self._last_j:
            raise self._gpu.failed(
                f"counted {self._last_j:.3f} J and now {joules:.3f} J", "Its driver was reloaded, or it was reset"
            )
        self._last_j = joules
        return joules


class Power:
    """The power of one GPU, in watts, as one of NVML's two averages."""

    def __init__(self, gpu: Gpu, source: str) -> None:
        self._take = gpu.instant_w if source == "instant" else gpu.average_w

    def begin(self) -> None:
        """Nothing to forget."""

    def look(self) -> float:
        """Watts."""
        return self._take()


@dataclass(frozen=True)
class Gpu:
    """One GPU: NVML, its handle, and what it is."""

    nvml: Any
    handle: Any
    index: int
    name: str
    uuid: str

    @property
    def rail(self) -> str:
        """The name of its rail."""
        return f"gpu{self.index}"

    def asked(self, function: str) -> float:
        """One of NVML's numbers. Raises ``MeterError`` with NVML's words."""
        try:
            return float(getattr(self.nvml, function)(self.handle))
        except self.nvml.NVMLError as error:
            raise self.failed(f"gave no {function}: {error}", "Look whether nvidia-smi still lists it") from error

    def average_w(self) -> float:
        """nvmlDeviceGetPowerUsage, which is in milliwatts."""
        return 1e-3 * self.asked("nvmlDeviceGetPowerUsage")

    def instant_w(self) -> float:
        """Field NVML_FI_DEV_POWER_INSTANT, in milliwatts, an unsigned int."""
        field = self.nvml.NVML_FI_DEV_POWER_INSTANT
        try:
            value = self.nvml.nvmlDeviceGetFieldValues(self.handle, [field])[0]
        except self.nvml.NVMLError as error:
            raise self.failed(f"gave no power: {error}", "Look whether nvidia-smi still lists it") from error
        if value.nvmlReturn != self.nvml.NVML_SUCCESS:
            raise self.failed(f"gave no NVML_FI_DEV_POWER_INSTANT: error {value.nvmlReturn}", "Use source=energy")
        return 1e-3 * float(value.value.uiVal)

    def failed(self, what: str, remedy: str) -> MeterError:
        """An error of this GPU."""
        return MeterError(
            f"GPU {self.index} ({self.name}) {what}", field="gpu", value=self.uuid, remedy=f"{remedy}. {KEPT}"
        )

    def supports(self, call: Callable[[], float]) -> bool:
        """Whether a number can be had at all."""
        try:
            return call() > 0.0
        except MeterError:
            return False


def gpus_of(nvml: Any, wanted: str) -> list[Gpu]:
    """The GPUs named by index or UUID. Raises ``SetupError`` without any, ``UsageError`` for an unknown one."""
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
            raise UsageError(
                f"there is no GPU {part!r} here" if not fits else f"GPU {part!r} is named twice",
                field="gpus",
                value=wanted,
                remedy=f"Known: {known}",
            )
        found.append(fits[0])
    return found


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    return Gpu(nvml, handle, index, text_of(nvml.nvmlDeviceGetName(handle)), text_of(nvml.nvmlDeviceGetUUID(handle)))


def update_s(gpu: Gpu) -> float:
    """How often the energy counter is renewed: the mean of a few of its steps. Raises ``SetupError`` for none."""
    began_s = time.monotonic()
    value, steps = gpu.asked("nvmlDeviceGetTotalEnergyConsumption"), list[float]()
    while (now_s := time.monotonic()) - began_s < WATCH_S and len(steps) <= UPDATES:
        if (now := gpu.asked("nvmlDeviceGetTotalEnergyConsumption")) != value:
            value = now
            steps.append(now_s)
        time.sleep(1e-3)
    if len(steps) < 2:
        raise SetupError(
            f"the energy counter of GPU {gpu.index} ({gpu.name}) did not go on for {WATCH_S:g} s",
            field="gpus",
            value=gpu.uuid,
            remedy="Wake it up (nvidia-smi -pm 1), or use source=instant",
        )
    return (steps[-1] - steps[0]) / (len(steps) - 1)


def part_time(gpu: Gpu) -> bool:
    """Whether a sensor of this GPU's family was found to look part of the time."""
    return bool(_PART_TIME.search(gpu.name))


def averages(gpu: Gpu) -> bool:
    """Whether its power usage is a mean over a second (NVML reference); GA100 and older give the last look."""
    nvml = gpu.nvml
    try:
        new = int(nvml.nvmlDeviceGetArchitecture(gpu.handle)) >= nvml.NVML_DEVICE_ARCH_AMPERE
    except nvml.NVMLError:
        return True
    return new and not _GA100.search(gpu.name)


def open_nvml() -> Any:
    """NVML, initialised. Raises ``MissingExtraError`` without nvidia-ml-py, ``SetupError`` without a driver."""
    try:
        import pynvml
    except ImportError as error:
        raise MissingExtraError(
            "NVIDIA GPUs need nvidia-ml-py, which is not installed",
            field="meter",
            value="nvml",
            remedy="pip install 'neurorig[nvml]'",
        ) from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise SetupError(
            f"NVML cannot be used: {error}",
            field="meter",
            value="nvml",
            remedy="Install NVIDIA's driver, and give the container its GPUs (nvidia-smi must work)",
        ) from error
    return pynvml


def text_of(said: Any) -> str:
    """Text, which older versions of NVML's bindings give as bytes."""
    return said.decode() if isinstance(said, bytes) else str(said)
