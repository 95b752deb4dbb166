"""The lines of ``events.jsonl``: one struct for each type of line. They are written, read and described by these."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rig.errors import DataError, StoreError
from rig.types import Calibration, ClockInfo, Mode, Rail, Rules

SCHEMA = "neurorig-run/1"
REMEDY = "See docs/reference/run-directory.md for what it must hold"

LIMIT = 2**62
Integer = Annotated[int, Meta(gt=-LIMIT, lt=LIMIT)]
"""Inside +-2^62, so that the difference of any two fits 64 bits."""
Count = Annotated[int, Meta(ge=0, lt=LIMIT)]
InsidePath = Annotated[str, Meta(pattern=r"^(?!/)(?!([^\0]*/)?\.\.(/|$))[^\0]+$")]
Object = dict[str, Any]


def plain(value: Any) -> Any:
    """What msgspec does not encode by itself: arrays as lists, any mapping as an object, the rest as text."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return dict(value) if isinstance(value, Mapping) else str(value)


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


# ---- lines --------------------------------------------------------------------------------


class Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """One line. ``seq`` and ``prev``, which chain it to the line before, stand in every line and in no struct."""


class Start(Line, frozen=True, tag="start", omit_defaults=True):
    """The first line of events.jsonl: what was measured with what. Other fields are allowed and kept."""

    schema: str
    """Format and its version."""
    run_id: str
    """Name of the run; normally that of its directory."""
    t0_ns: Integer
    """Zero of the run's seconds, in nanoseconds of the host clock (ns)."""
    clocks: list[ClockInfo]
    """Every clock of the recording, by unique name."""
    device: DeviceRecord
    meters: list[MeterRecord]
    """The instruments; empty when no power was measured."""
    scenario: ScenarioRecord
    workload: WorkloadRecord
    created_utc: str = ""
    """When recording began, ISO 8601, UTC by the wall clock. Informative: no figure uses it."""
    argv: list[str] = []
    """The command line, without what identifies a person or a host unless that was asked for."""
    purpose: str = "all"
    """What the run is for: all, performance, accuracy, power, compliance or probe."""
    lab: str | None = None
    """Where it was recorded, as the bench file says. Informative."""
    operator: str | None = None
    """Who recorded it, as the bench file says. Informative."""
    ambient_temperature_c: float | None = None
    """Around the bench, as the bench file says (degree Celsius, which is what laboratories read). Informative."""
    rules: Rules | None = None
    """What makes a result of the scenario valid."""
    environment: Environment | None = None
    imported: ImportRecord | None = None
    as_recorded: Object = {}
    """The line as it stands, for what is printed as it was recorded. Set by the reader, never written."""

    @property
    def simulated(self) -> bool:
        """Anything of the bench is not said to be hardware."""
        return self.modes != {"hardware"}

    @property
    def played(self) -> dict[str, Any]:
        """Scenario and workload as they were recorded; what also stands in the workload's details, only there."""
        given = {name: self.as_recorded[name] for name in ("scenario", "workload")}
        given["workload"] = {k: v for k, v in given["workload"].items() if k not in _MOVED}
        return given

    @property
    def modes(self) -> set[str | None]:
        """The modes of the device and its meters."""
        return {self.device.mode, *(meter.mode for meter in self.meters)}


class Brackets(Line, frozen=True, tag="brackets"):
    """Readings of one clock between two host stamps."""

    clock: str
    """Which clock was read."""
    rows: list[tuple[Integer, Integer, Integer]]
    """before_ns (host), tick (that clock), after_ns (host). The clock showed tick at some moment between."""
    why: str = ""
    """trigger, mark, periodic or imported. Informative."""


class IdleWindow(Line, frozen=True, tag="idle"):
    """A window in which the configured device was left alone."""

    on_ns: Integer
    """Its begin (host ns)."""
    off_ns: Integer
    """Its end (host ns), not before on_ns."""


class MarkPulses(Line, frozen=True, tag="marks"):
    """Pulses of power that the device drew on purpose."""

    spans: list[tuple[Integer, Integer]]
    """on_tick, off_tick on the device's clock."""
    clock: str = ""
    """The device's clock. Informative."""
    phase: str = ""


class ChunkArrived(Line, frozen=True, tag="chunk"):
    """Readings of one rail reached the host."""

    rail: str
    readings: Count
    """How many arrived together."""
    arrived_ns: Integer
    """When the host had them (host ns)."""


class Note(Line, frozen=True, tag="note"):
    """What an import lacked."""

    about: str
    """files, or trace."""
    text: str
    """For the reader; notes about files stand in every report."""


class ReferenceWindows(Line, frozen=True, tag="peer", omit_defaults=True):
    """What the program that made an imported recording computes its own figures from."""

    method: str
    rail: str = ""
    clock: str = ""
    stamps: list[int] = []
    """Ticks, in order."""
    inferences: list[int] = []
    """Of each window."""
    testing: tuple[int, int] | None = None
    """Begin and end of the run, in ticks."""
    ranging: tuple[int, int] | None = None
    """Begin and end of the ranging run, in ticks."""
    queries: int | None = None
    duration_s: float | None = None
    scenario: str = ""


class Stop(Line, frozen=True, tag="stop"):
    """The last line of events.jsonl: how the run ended. A run without this line ended in a crash."""

    files: dict[InsidePath, str]
    """SHA-256 in hex of each recorded file by its path below the directory, with / between parts."""
    error: ErrorRecord | None = None
    """What ended the run early; null when it ended as planned."""
    issues: int = 0
    """Samples handed to the device. Informative."""
    replies: int = 0
    """Answers that count. Informative."""


LINES: dict[str, type[Line]] = {
    "start": Start, "brackets": Brackets, "idle": IdleWindow, "marks": MarkPulses, "chunk": ChunkArrived,
    "note": Note, "peer": ReferenceWindows, "stop": Stop,
}  # fmt: skip
_DECODERS = {type_: msgspec.json.Decoder(line) for type_, line in LINES.items()}


# ---- decoding -----------------------------------------------------------------------------


def decode(line: bytes, type_: str, number: int) -> Line | None:
    """A line of a type as its struct; None for a type that is not known.

    Raises ``StoreError`` that names the line, the field and the value, and ``DataError`` for time that runs backwards.
    """
    decoder = _DECODERS.get(type_)
    if decoder is None:
        return None
    try:
        if type_ == "start":
            return start_of(json.loads(line))
        try:
            found: Line = decoder.decode(line)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:  # what Python's json takes for JSON: NaN, half of a surrogate pair
            found = msgspec.convert(json.loads(line), LINES[type_])
    except (ValueError, RecursionError) as error:
        raise _refused(line, type_, number, error) from error
    _check_order(found, type_, number)
    return found


def start_of(document: Mapping[str, Any]) -> Start:
    """A start line from plain JSON. Raises ``msgspec.ValidationError``."""
    moved = dict(document)
    for name, record in (("device", DeviceRecord), ("workload", WorkloadRecord)):
        if isinstance(part := moved.get(name), dict):
            found = declared(part.get("details"), record)
            moved[name] = part | {k: v for k, v in found.items() if part.get(k) in (None, {}, [])}
    return msgspec.convert(moved | {"as_recorded": document}, Start)


def declared_start(document: Mapping[str, Any]) -> Start:
    """A start line from what drivers, workload and rules declare. Raises ``StoreError`` for what no line can hold."""
    try:
        return start_of(msgspec.to_builtins(document, enc_hook=plain))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StoreError(
            f"the start line cannot be written: {error}",
            field="start",
            value=str(error),
            remedy="Give plain numbers, texts, lists and objects in what a driver or workload declares",
        ) from error


def reference_windows(given: Mapping[str, Any]) -> ReferenceWindows:
    """What an importer gives for the recorder's own figures, checked. Raises ``DataError``."""
    try:
        return msgspec.convert(dict(given), ReferenceWindows)
    except ValueError as error:
        raise _refused(msgspec.json.encode(given), "peer", None, error) from error


def declared(details: object, record: type[DeviceRecord | WorkloadRecord]) -> dict[str, Any]:
    """What stands in ``details`` and has a field of its own, as older recordings and drivers give it."""
    if not isinstance(details, Mapping):
        return {}
    found: dict[str, Any] = {}
    given = dict(details)
    if record is DeviceRecord:
        given = {"schedule_depends_on_budget": given.get("schedule_depends_on_budget"), "algorithm": given}
    for f in msgspec.structs.fields(record):
        if f.name in _MOVED and given.get(f.name) is not None:
            try:
                found[f.name] = msgspec.to_builtins(msgspec.convert(given[f.name], f.type))
            except msgspec.ValidationError:
                continue  # another driver's or workload's own meaning of the name
    return found


_MOVED = frozenset({"schedule_depends_on_budget", "algorithm", "targets", "notes", "nodes"})


def _refused(line: bytes, type_: str, number: int | None, error: Exception) -> StoreError | DataError:
    """The error for a line that does not decode: what is missing, or the field and its value."""
    kind = DataError if type_ == "peer" else StoreError
    at = f"the {type_} line" + ("" if number is None else f" (line {number + 1} of events.jsonl)")
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return kind(f"{at} is not JSON", field=type_, value=number, remedy=REMEDY)
    required = [f.name for f in msgspec.structs.fields(LINES[type_]) if f.required]
    if missing := [name for name in required if name not in document]:
        return kind(f"{at} lacks {', '.join(missing)}", field=type_, value=missing, remedy=REMEDY)
    what, _, where = str(error).partition(" - at ")
    path = re.search(r"\$\.?([^`]*)", where)
    field, value = path[1] if path else "", document
    for step in re.findall(r"\w+", field):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
    shown = repr(value) if len(repr(value)) <= 80 else repr(value)[:77] + "..."
    return kind(f"{field or 'a field'} of {at} is {shown}: {what}", field=field, value=value, remedy=REMEDY)


def _check_order(found: Line, type_: str, number: int) -> None:
    """Refuse a stretch of time that ends before it begins. Raises ``DataError``."""
    if isinstance(found, IdleWindow):
        pairs: Sequence[Sequence[int]] = [(found.on_ns, found.off_ns)]
    else:
        pairs = found.rows if isinstance(found, Brackets) else found.spans if isinstance(found, MarkPulses) else ()
    for row in pairs:
        if row[-1] < row[0]:
            raise DataError(
                f"line {number + 1} ({type_}) ends before it begins",
                field=type_,
                value=row[-1] - row[0],
                remedy="Check the clock that stamped it",
            )


def check_counters(lines: Sequence[Line]) -> None:
    """Refuse a clock whose counter went back between two brackets. Raises ``DataError``."""
    last: dict[str, tuple[int, int, int]] = {}
    for line in (line for line in lines if isinstance(line, Brackets)):
        for row in line.rows:
            before = last.setdefault(line.clock, row)
            if row[0] >= before[2] and row[1] < before[1]:
                raise DataError(
                    f"the clock {line.clock!r} went back from {before[1]} to {row[1]}",
                    field="brackets",
                    value=line.clock,
                    remedy="Unwrap its counter, and do not reset it during a run",
                )
            last[line.clock] = row
