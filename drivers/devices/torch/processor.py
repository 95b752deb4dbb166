"""The processor of a module, and the timing of an execution: by the host's clock, and on a GPU also by CUDA."""

import os
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from drivers.meters.nvml.meter import gpus_of, open_nvml
from drivers.meters.rapl import CONTROL, ROOT
from rig.errors import SetupError, refused

_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


@dataclass(frozen=True, slots=True)
class Timed:
    """What a module returned, on the host, and when its executions began and ended by the host's clock.

    ``kernels_s`` is the time of the last execution between CUDA events, without copies; None on a CPU.
    """

    output: Any
    on_ns: int
    off_ns: int
    kernels_s: float | None = None


Execute = Callable[[Any, Any, int], Timed]
"""Runs a module a number of times on inputs in the host's memory. At the end, the output is in the host's memory."""


@dataclass(frozen=True, slots=True)
class Processor:
    """A place where torch runs modules; ``meter`` measures it, if this computer has one that can be read."""

    place: str
    execute: Execute
    details: Mapping[str, Any]
    meter: str | None
    close: Callable[[], None] = lambda: None


def open_processor(torch: Any, name: str, threads: int, clock_mhz: int) -> Processor:
    """Open ``cpu``, ``cuda`` or ``cuda:N``. Raises ``UsageError`` for another name, and what ``open_cuda`` raises."""
    if name == "cpu":
        if clock_mhz:
            raise refused("clock_mhz", clock_mhz, "Leave it out: only the clock of a GPU is set here")
        return _cpu(torch, threads)
    kind, _, index = name.partition(":")
    if kind != "cuda" or not (index.isdecimal() or name == "cuda"):
        raise refused("processor", name, "Give cpu, cuda or cuda:N")
    return open_cuda(torch, int(index or 0), clock_mhz)


def _cpu(torch: Any, threads: int) -> Processor:
    if threads:
        torch.set_num_threads(threads)
    frequency = psutil.cpu_freq()
    details = {
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "clock_mhz": None if frequency is None else frequency.current,
        "governor": _GOVERNOR.read_text().strip() if _GOVERNOR.is_file() else None,
    }

    def execute(module: Any, inputs: Any, times: int) -> Timed:
        on_ns = time.monotonic_ns()
        for _ in range(times):
            output = module(inputs)
        return Timed(output, on_ns, time.monotonic_ns())

    readable = os.access(f"{ROOT}/{CONTROL}:0/energy_uj", os.R_OK)
    return Processor("cpu", execute, details, "rapl" if readable else None)


def open_cuda(torch: Any, index: int, clock_mhz: int) -> Processor:
    """Open a GPU. The host waits for the GPU before each time stamp. CUDA events also mark begin and end of the module.

    With ``clock_mhz`` its clock is locked through NVML until ``close``. Raises ``SetupError`` without such a GPU, and
    where its clock cannot be locked.
    """
    if not torch.cuda.is_available() or index >= torch.cuda.device_count():
        what = f"torch {torch.__version__} finds no GPU {index} for CUDA"
        remedy = "Check nvidia-smi, and that torch was built for CUDA; or use --option processor=cpu"
        raise SetupError(what, field="processor", value=f"cuda:{index}", remedy=remedy)
    place, properties = f"cuda:{index}", torch.cuda.get_device_properties(index)
    clocks, close = _clocks(getattr(properties, "uuid", None), index, clock_mhz)
    details = {"processor": properties.name, "memory_bytes": properties.total_memory, "cuda": torch.version.cuda}
    with torch.cuda.device(index):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def execute(module: Any, inputs: Any, times: int) -> Timed:
        with torch.cuda.device(index):
            torch.cuda.synchronize(index)
            on_ns = time.monotonic_ns()
            for _ in range(times):  # each with its copies, as in a single execution
                given = inputs.to(place)
                begin.record()
                output = module(given)
                end.record()
                output = output.to("cpu") if hasattr(output, "to") else output
            torch.cuda.synchronize(index)
            off_ns = time.monotonic_ns()
            return Timed(output, on_ns, off_ns, 1e-3 * begin.elapsed_time(end))

    return Processor(place, execute, details | clocks, "nvml", close)


def _clocks(uuid: object, index: int, clock_mhz: int) -> tuple[dict[str, Any], Callable[[], None]]:
    """Lock the clock of a GPU unless ``clock_mhz`` is 0; return its clocks, and the function that unlocks it."""
    try:
        nvml = open_nvml()
    except SetupError as error:
        if clock_mhz:
            raise
        return {"clocks": f"not recorded: {error.message}"}, lambda: None
    gpu = gpus_of(nvml, str(index) if uuid is None else f"GPU-{uuid}")[0]
    if clock_mhz:
        try:
            nvml.nvmlDeviceSetGpuLockedClocks(gpu.handle, clock_mhz, clock_mhz)
        except nvml.NVMLError as error:
            what = f"the clock of GPU {gpu.index} ({gpu.name}) cannot be locked: {error}"
            remedy = f"As root: nvidia-smi -i {gpu.index} -lgc {clock_mhz}; then leave clock_mhz out"
            raise SetupError(what, field="clock_mhz", value=clock_mhz, remedy=remedy) from error

    def clock_of(kind: int) -> int | None:
        with suppress(nvml.NVMLError):  # a virtual GPU does not support this
            return int(nvml.nvmlDeviceGetClockInfo(gpu.handle, kind))
        return None

    now = {"clock_mhz": clock_of(nvml.NVML_CLOCK_SM), "memory_clock_mhz": clock_of(nvml.NVML_CLOCK_MEM)}

    def close() -> None:
        if clock_mhz:
            nvml.nvmlDeviceResetGpuLockedClocks(gpu.handle)

    return now | {"locked_clock_mhz": clock_mhz or None, "gpu": gpu.uuid}, close
