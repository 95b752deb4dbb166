"""The types of the lines of ``events.jsonl``; the writer, the reader and the JSON Schemas all use them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rig.errors import StoreError
from rig.network.description import NetworkInfo
from rig.recording import records
from rig.recording.layout import GENESIS
from rig.types import ClockInfo, Rules

SCHEMA = "neurorig-run/1"
REMEDY = "See docs/reference/run-directory.md for what it must hold"

MOVED = frozenset({"schedule_depends_on_budget", "algorithm", "targets", "notes", "nodes"})
"""Keys in the details of a device or workload that now also have fields; older recordings have the details only."""

LIMIT = 2**62
Integer = Annotated[int, Meta(gt=-LIMIT, lt=LIMIT)]
"""Between -2^62 and 2^62, so that the difference of any two fits 64 bits."""
Count = Annotated[int, Meta(ge=0, lt=LIMIT)]
InsidePath = Annotated[str, Meta(pattern=r"^(?!/)(?!([^\0]*/)?\.\.(/|$))[^\0]+$")]


def malformed(where: str, what: str, value: object, field: str = "") -> StoreError:
    """Return the error for a part of a recording that does not hold what the format requires."""
    return StoreError(f"{where} {what}", field=field or where, value=value, remedy=REMEDY)


def changed(found: Iterable[Mapping[str, str]]) -> list[str]:
    """Return what has several versions, in order; ``found`` holds the ``versions`` of each recording."""
    versions = {pair for each in found for pair in each.items()}
    return sorted(name for name, count in Counter(name for name, _ in versions).items() if count > 1)


def plain(value: Any) -> Any:
    """Convert a value that msgspec cannot encode: arrays to lists, any mapping to an object, all else to text."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return dict(value) if isinstance(value, Mapping) else str(value)


class Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """One line of ``events.jsonl``.

    In the file, every line also has ``seq`` and ``prev``, which chain it to the line before.
    """


class SessionLink(records.Record, frozen=True):
    """The place of a run in its session, and its link to the run before."""

    id: str
    """Random name of the session, the same in all its runs."""
    number: Count
    """Place of the run in the session, counted from 1."""
    of: int | None = None
    """How many runs the complete session has; null while a search continues."""
    previous: str = GENESIS
    """SHA-256 of events.jsonl of the run before; 64 zeros in the first run."""


class Start(Line, frozen=True, tag="start", omit_defaults=True):
    """The first line of events.jsonl: what was measured with what.

    Other fields are allowed and stored.
    """

    schema: str
    """Format and its version."""
    run_id: str
    """Name of the run; normally the name of its directory."""
    t0_ns: Integer
    """Zero of the run's seconds, in nanoseconds of the host clock (ns)."""
    clocks: list[ClockInfo]
    """Every clock of the recording, by unique name."""
    device: records.DeviceRecord
    meters: list[records.MeterRecord]
    """The instruments; empty when no power was measured."""
    scenario: records.ScenarioRecord
    workload: records.WorkloadRecord
    created_utc: str = ""
    """When recording began by the wall clock, ISO 8601, UTC. Informative: no figure uses it."""
    argv: list[str] = []
    """The command line. Without --keep-identity, parts that identify a person or a host are removed."""
    purpose: str = "all"
    """What the run is for: all, performance, accuracy, power, compliance or probe."""
    configuration: str = ""
    """The configuration of the system, such as performance or efficiency; no result mixes two of them."""
    session: SessionLink | None = None
    """The place of the run in its session; null for a run by itself."""
    lab: str | None = None
    """Where it was recorded, as the bench file says. Informative."""
    operator: str | None = None
    """Who recorded it, as the bench file says. Informative."""
    ambient_temperature_c: float | None = None
    """Temperature around the bench, as the bench file says (degree Celsius, as laboratories use it). Informative."""
    rules: Rules | None = None
    """The rules that make a result of the scenario valid."""
    environment: records.Environment | None = None
    imported: records.ImportRecord | None = None
    as_recorded: records.Object = {}
    """The line as it is in the file, for parts that are printed unchanged. Only the reader sets it."""

    @property
    def simulated(self) -> bool:
        """Return whether the device or a meter is not declared as hardware."""
        return self.modes != {"hardware"}

    @property
    def versions(self) -> dict[str, str]:
        """Return what an upgrade or a recalibration changes: packages, the user's own files, calibrations."""
        env, calibrations = self.environment, {f"the calibration of {m.name}": m.calibration for m in self.meters}
        found = {} if env is None else {**env.packages, "the rig's source": env.commit, **env.local_code}
        return {name: str(version) for name, version in (found | calibrations).items() if version is not None}

    @property
    def played(self) -> dict[str, Any]:
        """Return scenario and workload as they were recorded.

        The fields of the workload in ``MOVED`` are left out, because its details have the same values.
        """
        given = {name: self.as_recorded[name] for name in ("scenario", "workload")}
        given["workload"] = {k: v for k, v in given["workload"].items() if k not in MOVED}
        return given

    @property
    def modes(self) -> set[str | None]:
        """Return the modes of the device and its meters."""
        return {self.device.mode, *(meter.mode for meter in self.meters)}


class Brackets(Line, frozen=True, tag="brackets"):
    """Readings of one clock between two host stamps."""

    clock: str
    """Which clock was read."""
    rows: list[tuple[Integer, Integer, Integer]]
    """before_ns (host), tick (that clock), after_ns (host). The clock showed tick at some moment between the two."""
    why: str = ""
    """trigger, mark, periodic or imported. Informative."""


class IdleWindow(Line, frozen=True, tag="idle"):
    """A window in which nothing was asked of the configured device."""

    on_ns: Integer
    """Begin of the window (host ns)."""
    off_ns: Integer
    """End of the window (host ns), not before on_ns."""


class HostGap(Line, frozen=True, tag="gap"):
    """An interval in which the recording process did not run: it was stopped, had no processor, or the host slept."""

    on_ns: Integer
    """Last time before the gap at which the process ran (host ns)."""
    off_ns: Integer
    """``on_ns`` plus the length of the gap. The host clock may stand still while the host sleeps."""


class SampleNetwork(Line, frozen=True, tag="network"):
    """The network of a sample, if each sample is a network of its own."""

    sample_id: str
    network: NetworkInfo


class MarkPulses(Line, frozen=True, tag="marks"):
    """Pulses of power that the device made on purpose."""

    spans: list[tuple[Integer, Integer]]
    """on_tick, off_tick on the device's clock."""
    clock: str = ""
    """The device's clock. Informative."""
    phase: str = ""


class ChunkArrived(Line, frozen=True, tag="chunk", omit_defaults=True):
    """Some readings of one rail reached the host."""

    rail: str
    readings: Count
    """How many readings arrived together."""
    arrived_ns: Integer
    """When the host received the readings (host ns)."""
    waiting_s: float | None = None
    """How many seconds of readings of this rail waited to be written at that time. Informative."""


class Note(Line, frozen=True, tag="note"):
    """Something that the files of an import lack."""

    about: str
    """What lacks something: files, or trace (the readings of a meter)."""
    text: str
    """A sentence for the reader; notes about files are in every report."""


class ReferenceWindows(Line, frozen=True, tag="peer", omit_defaults=True):
    """Values from which another program, whose files were imported, computes its figures."""

    method: str
    rail: str = ""
    clock: str = ""
    stamps: list[int] = []
    """Ticks, in order."""
    inferences: list[int] = []
    """The number of inferences in each window."""
    testing: tuple[int, int] | None = None
    """Begin and end of the run, in ticks."""
    ranging: tuple[int, int] | None = None
    """Begin and end of the ranging run, in ticks."""
    queries: int | None = None
    duration_s: float | None = None
    scenario: str = ""


class Stop(Line, frozen=True, tag="stop"):
    """The last line of events.jsonl: how the run ended.

    A run without this line ended in a crash.
    """

    files: dict[InsidePath, str]
    """SHA-256 in hex of each recorded file by its path below the directory, with / between parts."""
    error: records.ErrorRecord | None = None
    """What ended the run early; null when it ended as planned."""
    issues: int = 0
    """Number of requested samples, issued or dropped. Informative."""
    replies: int = 0
    """Number of answers that count. Informative."""


LINES: dict[str, type[Line]] = {str(line.__struct_config__.tag): line for line in Line.__subclasses__()}
