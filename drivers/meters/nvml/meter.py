"""NVML: the energy and power that an NVIDIA GPU reports about itself. ``nvidia-ml-py`` is imported on opening.

Sources: NVML API reference (nvmlDeviceGetTotalEnergyConsumption, field value 186);
Yang, Adamek and Armour, "Part-time Power Measurements: nvidia-smi's Lack of Attention", arXiv 2312.02741, for how often
the sensors measure; ``python -m benchmarks.gpu_sensors`` on an H100 and an H200 (driver 580.159.04), for what the
counter includes and how late counter and sensor are.
"""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from drivers.failures import meter_failed, released_on_error
from drivers.meters.common_options import described
from drivers.meters.polled import HOST, Polled, polled_meter
from rig.bench.connected import Connected
from rig.bench.settings import one_of, positive
from rig.errors import MeterError, SetupError, refused
from rig.plugins import imported
from rig.types import Clock, Conversion, Meter, MeterInfo, Rail

WATCH_S = 0.6
"""The energy counter is watched for this long (s) to find how often it is updated."""
UPDATES = 3

_PART_TIME = re.compile(r"\b(A100|A30|A800|H100|H200|H800|GH200)\b")
MODES = ("hardware",)

SOURCES = ("energy", "instant")
"""The values of the option ``source`` besides ``auto``, the best first."""
BUFFER_S = 60.0
QUICK_S = 5e-3
"""A slower read is repeated. A call into the driver takes 2 to 3 ms, and up to 20 ms beside others (H100, H200)."""
PART_TIME_S = 0.025
"""An A100 or H100 measures for this time in each sensor period of 0.1 s (arXiv 2312.02741)."""
PART_TIME = (
    "sensors of A100 and H100 GPUs were found to measure during only 25 ms of every 100 ms (arXiv 2312.02741): power "
    "between these times is not in these figures, but it is in those of source=energy on an H100 and an H200"
)


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
        return f"gpu{self.index}"

    @property
    def part_time(self) -> bool:
        """Return whether sensors of this GPU's family are known to measure only part of the time."""
        return bool(_PART_TIME.search(self.name))

    def read(self, source: str) -> float:
        """Return the counter in joules (NVML: millijoules), or the sensor in watts (NVML: milliwatts)."""
        if source == "energy":
            return 1e-3 * float(self._query("nvmlDeviceGetTotalEnergyConsumption"))
        value = self._query("nvmlDeviceGetFieldValues", [self.nvml.NVML_FI_DEV_POWER_INSTANT])[0]
        if value.nvmlReturn != self.nvml.NVML_SUCCESS:
            raise self.failed(f"gave no NVML_FI_DEV_POWER_INSTANT: error {value.nvmlReturn}", "Use source=energy")
        return 1e-3 * float(value.value.uiVal)

    def _query(self, function: str, *arguments: object) -> Any:
        """Return one of NVML's answers. Raises ``MeterError`` with NVML's message."""
        try:
            return getattr(self.nvml, function)(self.handle, *arguments)
        except self.nvml.NVMLError as error:
            raise self.failed(f"gave no {function}: {error}", "Check that nvidia-smi still lists it") from error

    def failed(self, what: str, remedy: str) -> MeterError:
        """Return the error to raise for this GPU."""
        return meter_failed(f"GPU {self.index} ({self.name}) {what}", "gpu", self.uuid, remedy)

    def supports(self, source: str) -> bool:
        """Return whether NVML delivers this source, with a value above zero."""
        try:
            return self.read(source) > 0.0
        except MeterError:
            return False


def gpus_of(nvml: Any, wanted: str) -> list[Gpu]:
    """Return GPUs by index or UUID.

    Raises ``SetupError`` if NVML cannot list them, ``UsageError`` for a GPU that is not there or is named twice.
    """
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(k) for k in range(int(nvml.nvmlDeviceGetCount()))]
        named = [(h, k, nvml.nvmlDeviceGetName(h), nvml.nvmlDeviceGetUUID(h)) for k, h in enumerate(handles)]
    except nvml.NVMLError as error:
        what, remedy = f"NVML lists no GPU: {error}", "Check nvidia-smi and the permissions"
        raise SetupError(what, field="gpus", value=wanted, remedy=remedy) from error
    every, found = [Gpu(nvml, *one) for one in named], list[Gpu]()
    for part in (text.strip() for text in wanted.split(",")):
        fits = [gpu for gpu in every if part in (str(gpu.index), gpu.uuid)]
        if not fits or fits[0] in found:
            known = ", ".join(f"{gpu.index} ({gpu.name}, {gpu.uuid})" for gpu in every) or "none"
            what = f"there is no GPU {part!r} here" if not fits else f"GPU {part!r} is named twice"
            raise refused("gpus", wanted, f"Known: {known}", what)
        found.append(fits[0])
    return found


def update_s(gpu: Gpu) -> float:
    """Return the mean time between updates of the energy counter.

    Raises ``SetupError`` if it changes less than twice in ``WATCH_S``.
    """
    began_s = time.monotonic()
    value, steps = gpu.read("energy"), list[float]()
    while (now_s := time.monotonic()) - began_s < WATCH_S and len(steps) <= UPDATES:
        if (now := gpu.read("energy")) != value:
            value = now
            steps.append(now_s)
        time.sleep(1e-3)
    if len(steps) < 2:
        what = f"the energy counter of GPU {gpu.index} ({gpu.name}) changed {len(steps)} times in {WATCH_S:g} s"
        remedy = "Wake it up (nvidia-smi -pm 1), or use source=instant"
        raise SetupError(what, field="gpus", value=gpu.uuid, remedy=remedy)
    return (steps[-1] - steps[0]) / (len(steps) - 1)


def open_nvml() -> Any:
    """Return NVML, initialised. Raises ``MissingExtraError`` without nvidia-ml-py, ``SetupError`` without a driver."""
    pynvml = imported("pynvml", "an NVIDIA GPU", "nvml", value="nvidia-ml-py")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        remedy = "Install NVIDIA's driver, and give the container its GPUs (nvidia-smi must work)"
        raise SetupError(f"NVML cannot be used: {error}", field="meter", value="nvml", remedy=remedy) from error
    return pynvml


def connected(addresses: Sequence[str]) -> Iterator[Connected]:
    """Yield every GPU that NVML lists."""
    imported("pynvml", "an NVIDIA GPU", "nvml", value="nvidia-ml-py")
    with suppress(SetupError):  # a host without NVIDIA GPUs
        nvml = open_nvml()
        for index in range(int(nvml.nvmlDeviceGetCount())):
            gpu = gpus_of(nvml, str(index))[0]
            yield Connected(gpu.name, {"gpus": gpu.uuid})


def open_meter(
    clock: Clock | None = None, *, gpus: str = "0", name: str = "nvml", source: str = "auto", rate_hz: float = 100.0
) -> Meter:
    """Open GPUs by index or UUID, separated by commas. Each GPU is one rail, which covers its whole board.

    ``source`` is ``energy`` (the counter in millijoules; Volta and later), ``instant`` (the sensor's last sample), or
    ``auto``: the first source that all these GPUs have. The source is read ``rate_hz`` times a second. A value
    that changed becomes a reading at once, and one that did not, 1 s after the last reading.

    Raises ``UsageError`` for options that do not fit, ``MissingExtraError`` without nvidia-ml-py, ``SetupError``
    without a driver, a GPU, or the requested source.
    """
    one_of(("auto", *SOURCES), source=source)
    positive(rate_hz=rate_hz)
    nvml = open_nvml()
    with released_on_error(nvml.nvmlShutdown):
        opened = gpus_of(nvml, gpus)
        chosen = _source(opened, source)
        updates_s = {gpu.rail: update_s(gpu) for gpu in opened} if chosen == "energy" else {}
        info = _info(name, nvml, opened, chosen, rate_hz, updates_s)
        counts = chosen == "energy"
        number = partial(Polled, covers_s=0.0 if counts else PART_TIME_S, counts=counts, renewed=True, quick_s=QUICK_S)
        numbers = [number(gpu.rail, partial(gpu.read, chosen)) for gpu in opened]
        return polled_meter(info, numbers, rate_hz, clock, nvml.nvmlShutdown)


def _source(gpus: Sequence[Gpu], wanted: str) -> str:
    for source in SOURCES if wanted == "auto" else (wanted,):
        if all(gpu.supports(source) for gpu in gpus):
            return source
    what = f"{', '.join(gpu.name for gpu in gpus)} gives no {'power' if wanted == 'auto' else wanted} through NVML"
    raise SetupError(what, field="source", value=wanted, remedy="Use source=auto, or an external meter")


def _rail(gpu: Gpu, looks_hz: float, update_s: float | None) -> Rail:
    if update_s is not None:
        # a new value is stamped when it is first read: on average half a read interval late
        return Rail(
            gpu.rail, "cumulative", Conversion("J"), 1.0 / update_s,
            filter_tau_s=0.5 / looks_hz, resolution=1e-3, gain_id=gpu.uuid,
        )  # fmt: skip
    return Rail(gpu.rail, "mean", Conversion("W"), 0.0, PART_TIME_S, resolution=1e-3, gain_id=gpu.uuid)


def _info(
    name: str, nvml: Any, gpus: Sequence[Gpu], source: str, looks_hz: float, updates_s: dict[str, float]
) -> MeterInfo:
    said = "the energy counter" if source == "energy" else "the power sensor"
    said += ", a reading whenever it is renewed"
    said += f"; {PART_TIME}" if source == "instant" and any(gpu.part_time for gpu in gpus) else ""
    return described(
        name, HOST, f"NVML, {', '.join(gpu.name for gpu in gpus)}: {said}",
        [_rail(gpu, looks_hz, updates_s.get(gpu.rail)) for gpu in gpus],
        omitted=("the computer that the GPUs are in", "GPUs that are not named"),
        simulated=any(gpu.name.startswith("SIM") for gpu in gpus), buffer_s=BUFFER_S, versions=_versions(nvml),
        details={
            "source": source, "looks_hz": looks_hz, "update_interval_s": updates_s,
            "gpus": {gpu.rail: {"name": gpu.name, "uuid": gpu.uuid, "part_time": gpu.part_time} for gpu in gpus},
            "accuracy": "not stated by NVML for these GPUs; arXiv 2312.02741 found errors proportional to the power",
        },
    )  # fmt: skip


def _versions(nvml: Any) -> dict[str, str]:
    found = {"driver": nvml.nvmlSystemGetDriverVersion(), "NVML": nvml.nvmlSystemGetNVMLVersion()}
    try:
        return found | {"nvidia-ml-py": version("nvidia-ml-py")}
    except PackageNotFoundError:
        return found
