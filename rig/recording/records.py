"""The parts of the start and stop lines of ``events.jsonl``: the device, its meters, the scenario, the workload."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from rig.types import Calibration, ClockInfo, Mode, Rail

Object = dict[str, Any]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the start or stop line. Fields that it does not name are allowed and passed over."""


class Algorithm(Record, frozen=True, omit_defaults=True):
    """What a device runs, as far as its driver says."""

    algorithm: Any = None
    model: Any = None
    encoder: Any = None
    network: Any = None
    tuning: Any = None
    training: Any = None
    solver: Any = None
    parameters: Any = None


class DeviceRecord(Record, frozen=True):
    """The system under test."""

    name: str = ""
    mode: Mode | None = None
    """Anything but hardware marks every figure as simulated."""
    description: str = ""
    clock: ClockInfo | None = None
    """The clock of on_tick and off_tick; null means host nanoseconds."""
    phases: list[str] = []
    """Names of the phases that it can tell apart, in the order in which they run."""
    max_batch: int = 1
    """Samples that it takes at once."""
    max_pending: int | None = None
    """Samples that it can hold unanswered; null means one batch at a time."""
    timeout_s: float | None = 60.0
    """How long to wait for an answer (s)."""
    onboard_meter: str | None = None
    """Name of the meter on its board."""
    versions: Object = {}
    """Software and firmware versions by name."""
    artifacts: Object = {}
    """Digest of each thing that results depend on, by name."""
    details: Object = {}
    """Anything else that a report should print."""
    spans_on_pin: bool = False
    """It stamps no span but marks each on a pin, which a logic input of a meter records."""
    schedule_depends_on_budget: bool | None = None
    """Whether a solver works differently when it is given more time; null means not stated."""
    algorithm: Algorithm = Algorithm()
    """What it runs. In older recordings these stand in details."""


class MeterRecord(Record, frozen=True):
    """One instrument."""

    name: str = ""
    mode: Mode | None = None
    """Anything but hardware marks every figure as simulated."""
    clock: ClockInfo | None = None
    rails: list[Rail] = []
    """What it sees. Figures use the copy in each trace's metadata."""
    omitted: list[str] = []
    """Supplies that it leaves out."""
    description: str = ""
    buffer_s: float | None = None
    """How long it can go undrained (s)."""
    versions: Object = {}
    details: Object = {}
    serial_number: str | None = None
    firmware: str | None = None
    calibration: Calibration | None = None
    """The certificate of its last calibration."""


class ScenarioRecord(Record, frozen=True):
    """How samples were issued."""

    name: str = ""
    options: Object = {}
    """Every option it ran with."""
    amortise_s: float | UnsetType = UNSET
    """Length of the sequences over which the cost of configuring is spread (s)."""

    @property
    def deadline_s(self) -> float | None:
        """When an answer is due after its sample, in seconds: the deadline, or else the stride of a stream."""
        return self.options.get("deadline_s") or self.options.get("stride_s") or None

    @property
    def latency_bound_s(self) -> float | None:
        """The latency that the scenario allows, in seconds."""
        return self.options.get("latency_bound_s")

    @property
    def to_gap(self) -> float | None:
        """The gap to the target at which solvers were told to stop, relative."""
        return self.options.get("to_gap")

    @property
    def per_phase(self) -> bool:
        """Each phase was issued by itself."""
        return bool(self.options.get("apart"))


class WorkloadRecord(Record, frozen=True):
    """What was streamed."""

    name: str = ""
    task: str = ""
    """What it asks of the device."""
    version: str = ""
    digest_sha256: str = ""
    """Digest of all samples."""
    samples: int = 0
    """Number of samples."""
    details: Object = {}
    targets: dict[str, dict[str, float | None]] = {}
    """Of solvers: other costs to reach besides target_cost, by the target's name and the sample's id."""
    notes: list[str] = []
    """Sentences for every report."""
    nodes: int | None = None
    """Of solvers: the size of each problem."""


class Environment(Record, frozen=True):
    """What ran the recording."""

    python: str | None = None
    platform: str | None = None
    processor: str | None = None
    cpus: int | None = None
    packages: Object = {}
    """Versions by name."""
    commit: str | None = None
    """Of the rig's source, when it is a checkout."""
    dirty: bool | None = None
    """Whether that checkout held changes."""


class OriginalFile(Record, frozen=True):
    """A file that an import keeps."""

    sha256: str
    bytes: int


class ImportRecord(Record, frozen=True):
    """From what a run was imported."""

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
