"""The lines of ``events.jsonl``: one struct for each type of line. They are written, read and described by these."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from rig.errors import DataError, StoreError
from rig.recording.records import (
    DeviceRecord,
    Environment,
    ErrorRecord,
    ImportRecord,
    MeterRecord,
    Object,
    ScenarioRecord,
    WorkloadRecord,
)
from rig.types import ClockInfo, Rules

SCHEMA = "neurorig-run/1"
REMEDY = "See docs/reference/run-directory.md for what it must hold"

LIMIT = 2**62
Integer = Annotated[int, Meta(gt=-LIMIT, lt=LIMIT)]
"""Inside +-2^62, so that the difference of any two fits 64 bits."""
Count = Annotated[int, Meta(ge=0, lt=LIMIT)]
InsidePath = Annotated[str, Meta(pattern=r"^(?!/)(?!([^\0]*/)?\.\.(/|$))[^\0]+$")]


T = TypeVar("T")


def plain(value: Any) -> Any:
    """What msgspec does not encode by itself: arrays as lists, any mapping as an object, the rest as text."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return dict(value) if isinstance(value, Mapping) else str(value)


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


# ---- decoding -----------------------------------------------------------------------------


def decode(line: bytes, type_: str, number: int) -> Line | None:
    """A line of a type as its struct; None for a type that is not known.

    Raises ``StoreError`` that names the line, the field and the value, and ``DataError`` for time that runs backwards.
    """
    struct = LINES.get(type_)
    if struct is None:
        return None
    try:
        if type_ == "start":
            return start_of(json.loads(line))
        found = from_json(line, struct)
    except (ValueError, RecursionError) as error:
        raise _refused(line, type_, number, error) from error
    _check_order(found, type_, number)
    return found


def from_json(line: bytes, type_: type[T]) -> T:
    """A line as a struct. Raises ``msgspec.ValidationError`` for another shape, ``ValueError`` for what is no JSON."""
    try:
        return msgspec.json.decode(line, type=type_)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:  # what Python's json takes for JSON: NaN, half of a surrogate pair
        return msgspec.convert(json.loads(line), type_)


def start_of(document: Mapping[str, Any]) -> Start:
    """A start line from plain JSON. Raises ``msgspec.ValidationError``."""
    moved = dict(document)
    for name, record in (("device", DeviceRecord), ("workload", WorkloadRecord)):
        if isinstance(part := moved.get(name), dict):
            found = declared(part.get("details"), record)
            moved[name] = part | {k: v for k, v in found.items() if part.get(k) in (None, {}, [])}
    return msgspec.convert(moved | {"as_recorded": document}, Start)


def declared_start(document: Mapping[str, Any]) -> Start:
    """A start line of now, from what drivers, workload and rules declare; ``StoreError`` for what no line can hold."""
    made = {"schema": SCHEMA, "created_utc": datetime.now(UTC).isoformat(timespec="seconds")}
    try:
        return start_of(msgspec.to_builtins({**made, **document}, enc_hook=plain))
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
