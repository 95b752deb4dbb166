"""The parts of the start and stop lines of ``events.jsonl``: the device, its meters, the scenario, the workload."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from rig.driver_call_timeouts import DEFAULT_TIMEOUT_S
from rig.errors import SAID, DataError, Ended
from rig.network.description import NetworkInfo
from rig.types import Benchmark, Calibration, ClockInfo, Mode, Preprocessing, Rail

Object = dict[str, Any]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the start or stop line. Fields that the struct does not name are allowed and ignored."""


class Algorithm(Record, frozen=True, omit_defaults=True):
    """What a device runs, so far as its driver declares it."""

    algorithm: Any = None
    model: Any = None
    encoder: Any = None
    network: Any = None
    tuning: Any = None
    training: Any = None
    solver: Any = None
    parameters: Any = None

    @property
    def outline(self) -> Any:
        """Return the best description of the model or algorithm; None if nothing is declared."""
        return self.model or self.algorithm or self.network or self.solver

    @property
    def tuned(self) -> Any:
        """Return the best description of the training and tuning; None if nothing is declared."""
        return self.tuning or self.training or self.parameters


class DeviceRecord(Record, frozen=True):
    """The system under test."""

    name: str = ""
    mode: Mode | None = None
    """With anything but hardware, every figure is marked as simulated."""
    description: str = ""
    clock: ClockInfo | None = None
    """The clock of on_tick and off_tick; null means host nanoseconds."""
    phases: list[str] = []
    """Names of the phases that the device distinguishes, in the order in which they run."""
    max_batch: int = 1
    """The most samples that the device takes at once."""
    max_pending: int | None = None
    """The most unanswered samples that the device can hold; null means one batch at a time."""
    timeout_s: float | None = DEFAULT_TIMEOUT_S
    """How long to wait for an answer (s)."""
    onboard_meter: str | None = None
    """Name of the meter on the device's board."""
    versions: Object = {}
    """Software and firmware versions by name."""
    artifacts: Object = {}
    """Digest of each thing that affects results, by name."""
    details: Object = {}
    """Anything else that a report should print."""
    spans_on_pin: bool = False
    """The device does not stamp spans but marks each on a pin, which a logic input of a meter records."""
    schedule_depends_on_budget: bool | None = None
    """Whether the time that a solver gets changes how it works; null means not stated."""
    preprocessing: Preprocessing | None = None
    """How samples are pre-processed; null means not stated."""
    network: NetworkInfo | None = None
    """The deployed network; null means not stated."""
    algorithm: Algorithm = Algorithm()
    """What the device runs. Older recordings have these fields in details."""
    options: Object | UnsetType = UNSET
    """Every option of the opened device, for a driver that is not the rig's own."""

    @property
    def holds_one(self) -> bool:
        """Return whether the device holds one sample at a time, so that spans of different samples do not overlap."""
        return self.max_batch == 1 and (self.max_pending or 1) == 1


class MeterRecord(Record, frozen=True):
    """One instrument."""

    name: str = ""
    mode: Mode | None = None
    """With anything but hardware, every figure is marked as simulated."""
    clock: ClockInfo | None = None
    rails: list[Rail] = []
    """The rails that the meter measures. Figures use the copy in each trace's metadata."""
    omitted: list[str] = []
    """Supplies that the meter does not measure."""
    description: str = ""
    buffer_s: float | None = None
    """Time after which a meter that is not drained loses readings (s)."""
    versions: Object = {}
    details: Object = {}
    serial_number: str | None = None
    firmware: str | None = None
    calibration: Calibration | None = None
    """The certificate of the meter's last calibration."""


class _Number:
    """An option of a scenario that is a number, or None if it was not given. Raises ``DataError`` for anything else."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, record: ScenarioRecord, owner: type) -> float | None:
        value = record.options.get(self._name)
        if value is None or (isinstance(value, (int, float)) and abs(value) <= 1e300):
            return value
        what = f"the scenario's option {self._name} is {repr(value)[:100]}, not a number up to 1e300"
        raise DataError(what, field=self._name, remedy="See docs/reference/run-directory.md for what it must hold")


class ScenarioRecord(Record, frozen=True, omit_defaults=True):
    """How samples were issued."""

    name: str = ""
    options: Object = {}
    """Every option of the scenario's run."""
    amortise_s: float | None = None
    """Length of the sequences that share the cost of configuring (s)."""

    latency_bound_s = _Number("latency_bound_s")
    """The latency that the scenario allows (s)."""
    arrival_hz = _Number("arrival_hz")
    """The mean rate of random arrivals (Hz)."""
    duration_s = _Number("duration_s")
    """The least time for which samples should arrive (s)."""
    timeout_s = _Number("timeout_s")
    """The budget of each solve (s)."""
    repeat = _Number("repeat")
    """How many times each sample should loop inside one span."""
    to_gap = _Number("to_gap")
    """The relative gap to the target at which solvers should stop."""
    _deadline_s, _stride_s = _Number("deadline_s"), _Number("stride_s")

    @property
    def deadline_s(self) -> float | None:
        """Return the deadline after a sample (s); without one, the stride of a stream."""
        return self._deadline_s or self.stride_s

    @property
    def stride_s(self) -> float | None:
        """Return the time between frames (s); None without a stream."""
        return self._stride_s or None

    @property
    def per_phase(self) -> bool:
        """Return whether each phase was issued alone."""
        return bool(self.options.get("apart"))


class WorkloadRecord(Record, frozen=True):
    """What was streamed."""

    name: str = ""
    task: str = ""
    """What the workload requires of the device."""
    version: str = ""
    digest_sha256: str = ""
    """Digest of all samples."""
    samples: int = 0
    """Number of samples."""
    options: Object = {}
    """Every option of the opened workload."""
    details: Object = {}
    targets: dict[str, dict[str, float | None]] = {}
    """For solvers: further costs to reach besides target_cost, by the target's name and the sample's id."""
    notes: list[str] = []
    """Sentences for every report."""
    nodes: int | None = None
    """For solvers: the size of each problem."""
    benchmark: Benchmark | None = None
    """The benchmark that the workload declares, with its parameters; null if it declares none."""


class Environment(Record, frozen=True):
    """The interpreter, machine and packages that made the recording."""

    python: str | None = None
    platform: str | None = None
    processor: str | None = None
    cpus: int | None = None
    packages: Object = {}
    """Versions by name."""
    commit: str | None = None
    """The commit of the rig's source, if the source is a checkout."""
    dirty: bool | None = None
    """Whether that checkout had uncommitted changes."""
    local_code: dict[str, str] = {}
    """SHA-256 in hex of each file from which path.py:function was loaded, by its path."""


class OriginalFile(Record, frozen=True):
    """A file that an import stores with the run."""

    sha256: str
    bytes: int


class ImportRecord(Record, frozen=True):
    """The source from which a run was imported."""

    format: str = ""
    source: str = ""
    options: Object = {}
    recording: str = ""
    originals: dict[str, OriginalFile] = {}


class ErrorRecord(Record, frozen=True):
    """What ended a run early."""

    error: str = ""
    """Kind of error."""
    message: str = ""
    field: str | None = None
    value: Any = None
    remedy: str | None = None
    exit_code: int | None = None


def error_record(error: Ended) -> ErrorRecord:
    """Return what the stop line records about an error: texts are cut, so that readers accept the line."""
    said = {name: _short(value) if isinstance(value, (str, int)) else value for name, value in error.to_json().items()}
    return msgspec.convert(said, ErrorRecord)


def _short(value: str | int) -> str | int:
    if isinstance(value, int):
        return value if abs(value) < 2**53 else _short(hex(value))
    cut = value if len(value) <= SAID else f"{value[:SAID]} ... ({len(value)} characters)"
    return cut.encode(errors="replace").decode()
