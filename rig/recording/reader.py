"""The run directory, read: hashes verified first, then a read-only view. Computes nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rig.errors import IntegrityError, RigError, StoreError
from rig.recording import validation as shape
from rig.recording.tables import TABLES
from rig.recording.validation import REMEDY
from rig.recording.writer import EVENTS, GENESIS, SCHEMA, SEAL, sha256_of
from rig.types import Accuracy, Bracket, ClockInfo, Conversion, Floats, Rail

if TYPE_CHECKING:
    import pandas as pd

CLOCK_FIELDS = tuple(field.name for field in fields(ClockInfo))


@dataclass(frozen=True)
class Trace:
    """Raw readings of one rail, shapes (n,): ticks on ``clock``, counters as read, ``overload`` where flagged."""

    rail: Rail
    meter: str
    clock: str
    start_tick: NDArray[Any]
    end_tick: NDArray[Any]
    value: Floats
    overload: NDArray[np.bool_]
    uniform: bool


@dataclass(frozen=True)
class Run:
    """One recording. ``stop`` is None after a crash; then the data end at the last whole batch."""

    path: Path
    start: Mapping[str, Any]
    events: tuple[Mapping[str, Any], ...]
    stop: Mapping[str, Any] | None
    sealed: bool
    samples: pa.Table
    replies: pa.Table
    progress: pa.Table
    activity: pa.Table
    traces: Mapping[str, Trace]
    digest: str
    truncated: tuple[str, ...]

    @property
    def error(self) -> Mapping[str, Any] | None:
        """The error that ended the run, if one was recorded."""
        return None if self.stop is None else self.stop.get("error")

    def of_type(self, type_: str) -> list[Mapping[str, Any]]:
        """The events of one type, in order."""
        return [e for e in self.events if e["type"] == type_]

    def clocks(self) -> dict[str, ClockInfo]:
        """Every clock of the run by name; the host's is ``host``."""
        rows = [{k: v for k, v in c.items() if k in CLOCK_FIELDS} for c in self.start["clocks"]]
        return {c["name"]: ClockInfo(**c) for c in rows}

    def brackets(self, clock: str) -> list[Bracket]:
        """Every reading of a clock between two host stamps."""
        return [Bracket(*row) for e in self.of_type("brackets") if e["clock"] == clock for row in e["rows"]]

    def arrivals(self, rail: str) -> NDArray[np.int64]:
        """Shape (k, 2): count of readings so far, and the host time by which the last had arrived."""
        rows = [(e["readings"], e["arrived_ns"]) for e in self.of_type("chunk") if e["rail"] == rail]
        table = np.array(rows, dtype=np.int64).reshape(-1, 2)
        table[:, 0] = np.cumsum(table[:, 0])
        return table

    def idle_windows_ns(self) -> NDArray[np.int64]:
        """Shape (k, 2): the declared idle windows, host time."""
        return np.array([(e["on_ns"], e["off_ns"]) for e in self.of_type("idle")], dtype=np.int64).reshape(-1, 2)

    def frames(self) -> dict[str, pd.DataFrame]:
        """pandas DataFrames: samples, replies, progress, activity, and ``trace.RAIL`` for each rail."""
        import pandas as pd

        tables = {
            "samples": self.samples,
            "replies": self.replies,
            "progress": self.progress,
            "activity": self.activity,
        }
        frames = {name: table.to_pandas() for name, table in tables.items()}
        for name, trace in self.traces.items():
            frames[f"trace.{name}"] = pd.DataFrame(
                {
                    "start_tick": trace.start_tick,
                    "end_tick": trace.end_tick,
                    "value": trace.value,
                    "overload": trace.overload,
                }
            )
        return frames


def open_run(path: Path | str) -> Run:
    """Read and verify a run directory.

    Raises ``StoreError`` when it is not one, ``IntegrityError`` when a byte is not as recorded and
    ``DataError`` when a stretch of time runs backwards.

    Example::

        import rig

        run = rig.open_run("runs/first")
        print(run.digest, sorted(run.traces))
    """
    path = Path(path)
    try:
        return _opened(path)
    except OSError as error:
        raise StoreError(
            f"cannot read {path}: {error}",
            field="run",
            value=str(path),
            remedy="Check its files and their permissions",
        ) from error


def _opened(path: Path) -> Run:
    if not (path / EVENTS).is_file():
        raise StoreError(
            f"{path} is not a run directory: it has no {EVENTS}",
            field="run",
            value=str(path),
            remedy="Name the directory that `rig measure --out` wrote, or a run inside a session",
        )
    events, digest = _read_events(path)
    sealed = _check_seal(path, digest)
    start = _checked_start(path, events)
    for event in events:
        shape.check_event(event)
    shape.check_counters(events)
    stop = events[-1] if events[-1]["type"] == "stop" else None
    files = {name: path / f"{name}.arrows" for name in TABLES}
    traces = sorted((path / "traces").glob("*.arrows")) if (path / "traces").is_dir() else []
    if stop is not None:
        _check_files(path, stop, [f for f in (*files.values(), *traces) if f.is_file()])
    truncated: list[str] = []
    hz = {clock["name"]: clock["tick_hz"] for clock in start["clocks"]}
    tables = {name: _read_stream(file, truncated) for name, file in files.items()}
    return Run(
        path=path,
        start=start,
        events=tuple(events),
        stop=stop,
        sealed=sealed,
        samples=_or_empty(tables["samples"], "samples"),
        replies=_or_empty(tables["replies"], "replies"),
        progress=_or_empty(tables["progress"], "progress"),
        activity=_or_empty(tables["activity"], "activity"),
        traces=_by_rail(path, [_trace(p, truncated, hz) for p in traces]),
        digest=digest,
        truncated=tuple(truncated),
    )


def _read_events(path: Path) -> tuple[list[Mapping[str, Any]], str]:
    data = (path / EVENTS).read_bytes()
    lines = data.split(b"\n")
    events: list[Mapping[str, Any]] = []
    prev = GENESIS
    for number, line in enumerate(lines):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines) - 1:
                break  # nothing after the last newline, or what a crash tore
            raise _altered(path, f"{EVENTS} line {number + 1} is not JSON") from error
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            raise _altered(path, f"{EVENTS} line {number + 1} is not an event")
        if event.get("seq") != number or event.get("prev") != prev:
            raise _altered(path, f"{EVENTS} line {number + 1} does not follow from the line before")
        prev = hashlib.sha256(line).hexdigest()
        events.append(event)
    if not events:
        raise StoreError(f"{path / EVENTS} is empty", field="run", value=str(path), remedy="Nothing was recorded")
    ends = [k for k, event in enumerate(events) if event["type"] == "stop"]
    if ends and (ends[0] < len(events) - 1 or lines[len(events) :] not in ([], [b""])):
        raise _altered(path, f"{EVENTS} goes on after its stop line")
    return events, hashlib.sha256(data).hexdigest()


def _checked_start(path: Path, events: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    start = events[0]
    if start["type"] != "start":
        raise _altered(path, f"{EVENTS} does not begin with a start line")
    if start.get("schema") != SCHEMA:
        raise StoreError(
            f"{path} has schema {start.get('schema')!r}",
            field="schema",
            value=start.get("schema"),
            remedy=f"This version reads {SCHEMA}",
        )
    return start


def _check_seal(path: Path, digest: str) -> bool:
    if not (path / SEAL).is_file():
        return False
    if (path / SEAL).read_bytes() != f"{digest}  {EVENTS}\n".encode():
        raise _altered(path, f"{EVENTS} is not as sealed")
    return True


def _check_files(path: Path, stop: Mapping[str, Any], present: list[Path]) -> None:
    for name, expected in stop["files"].items():
        file = path / name
        if not file.is_file():
            raise _altered(path, f"{name} is missing")
        if sha256_of(file) != expected:
            raise _altered(path, f"{name} is not as recorded")
    for file in present:
        name = file.relative_to(path).as_posix()
        if name not in stop["files"]:
            raise _altered(path, f"the stop line does not list {name}")


def _altered(path: Path, what: str) -> IntegrityError:
    return IntegrityError(
        f"{path} was altered: {what}",
        field="run",
        value=str(path),
        remedy="Restore the original recording; no figure is computed from an altered one",
    )


def _read_stream(file: Path, truncated: list[str]) -> pa.Table | None:
    if not file.is_file():
        return None
    batches: list[pa.RecordBatch] = []
    schema = None
    try:
        with pa.OSFile(str(file)) as source, pa.ipc.open_stream(source) as reader:
            schema = reader.schema
            for batch in reader:
                batch.validate(full=True)
                batches.append(batch)
    except (pa.ArrowException, EOFError, OSError, MemoryError):
        truncated.append(file.name)
    return None if schema is None else pa.Table.from_batches(batches, schema)


def _or_empty(table: pa.Table | None, name: str) -> pa.Table:
    return TABLES[name].empty_table() if table is None else shape.fitted_table(table, name, TABLES[name])


def _by_rail(path: Path, traces: list[Trace | None]) -> dict[str, Trace]:
    found: dict[str, Trace] = {}
    for trace in traces:
        if trace is not None and found.setdefault(trace.rail.name, trace) is not trace:
            raise StoreError(
                f"two traces of {path} are of the rail {trace.rail.name!r}",
                field="rail",
                value=trace.rail.name,
                remedy="Give every rail of a run a name of its own",
            )
    return found


def _trace(file: Path, truncated: list[str], hz: Mapping[str, float]) -> Trace | None:
    table = _read_stream(file, truncated)
    if table is None:
        return None
    name = f"traces/{file.name}"
    columns = {column: table[column] for column in table.column_names}
    uniform = "start_tick" not in columns and "end_tick" not in columns
    try:
        meta = {k.decode(): v.decode() for k, v in (table.schema.metadata or {}).items()}
        rail, clock = rail_from_json(json.loads(meta["rail"])), meta["clock"]
        value = shape.reals(columns["value"], name, "value")
        flags = shape.integers(columns["flags"], name, "flags") if "flags" in columns else np.zeros(len(value), int)
        if uniform:
            t0_tick, period_tick, aperture_tick = shape.grid_of(meta)
            start: NDArray[Any] = t0_tick + period_tick * np.arange(len(value))
            end: NDArray[Any] = start + aperture_tick
        else:
            start, end = (shape.integers(columns[c], name, c) for c in ("start_tick", "end_tick"))
        shape.check_ticks(rail, start, end, hz.get(clock))
        if rail.kind == "edges":
            shape.check_edges(rail, value, start, end, uniform)
    except RigError:
        raise
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise StoreError(f"{name} does not say what it is: {what}", field=name, value=what, remedy=REMEDY) from error
    return Trace(rail, meta.get("meter", ""), clock, start, end, value, flags != 0, uniform)


def rail_from_json(data: Mapping[str, Any]) -> Rail:
    """A ``Rail`` from its JSON form; absent fields take their defaults.

    Raises ``TypeError`` or ``ValueError`` for an unknown field or a value that cannot be one.
    """
    given = dict(data)
    given["conversion"] = Conversion(**given.get("conversion") or {})
    accuracy = given.get("accuracy")
    given["accuracy"] = None if accuracy is None else Accuracy(**accuracy)
    rail = Rail(**given)
    shape.check_rail(rail)
    return rail
