"""The run directory, read: hashes verified first, then a read-only view. Computes nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rig.errors import IntegrityError, StoreError
from rig.store import EVENTS, GENESIS, SCHEMA, SEAL, TABLES, sha256_of
from rig.types import Accuracy, Bracket, ClockInfo, Conversion, Floats, Rail

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Trace:
    """Raw readings of one rail, shapes (n,). Ticks are on ``clock``; ``overload`` marks flagged readings.

    A ``cumulative`` counter keeps its own readings; ``rig.power`` takes the differences.
    """

    rail: Rail
    meter: str
    clock: str
    start_tick: Floats
    end_tick: Floats
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
        found = [ClockInfo(**c) for c in self.start["clocks"]]
        return {c.name: c for c in found}

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
        """pandas DataFrames: samples, replies, progress, and ``trace.RAIL`` for each rail."""
        import pandas as pd

        tables = {"samples": self.samples, "replies": self.replies, "progress": self.progress}
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


def open_run(path: Path) -> Run:
    """Read and verify a run directory.

    Raises ``StoreError`` when it is not one, ``IntegrityError`` when a byte is not as recorded.
    """
    if not (path / EVENTS).is_file():
        raise StoreError(
            f"{path} is not a run directory: it has no {EVENTS}",
            field="run",
            value=str(path),
            remedy="Name the directory that `rig measure --out` wrote, or a run inside a session",
        )
    events, digest = _read_events(path)
    start = _checked_start(path, events)
    stop = events[-1] if events[-1]["type"] == "stop" else None
    sealed = _check_seal(path, digest)
    if stop is not None:
        _check_files(path, stop)
    truncated: list[str] = []
    tables = {name: _read_stream(path / f"{name}.arrows", truncated) for name in TABLES}
    trace_files = sorted((path / "traces").glob("*.arrows")) if (path / "traces").is_dir() else []
    if stop is not None:
        trace_files = [p for p in trace_files if str(p.relative_to(path)) in stop["files"]]
    traces = [_trace(p, truncated) for p in trace_files]
    return Run(
        path=path,
        start=start,
        events=tuple(events),
        stop=stop,
        sealed=sealed,
        samples=_or_empty(tables["samples"], "samples"),
        replies=_or_empty(tables["replies"], "replies"),
        progress=_or_empty(tables["progress"], "progress"),
        traces={t.rail.name: t for t in traces if t is not None},
        digest=digest,
        truncated=tuple(truncated),
    )


def _read_events(path: Path) -> tuple[list[Mapping[str, Any]], str]:
    data = (path / EVENTS).read_bytes()
    lines = data.split(b"\n")
    torn = lines.pop()  # empty when the last line is whole; a crash may leave part of one
    events: list[Mapping[str, Any]] = []
    prev = GENESIS
    for number, line in enumerate(lines):
        try:
            event = json.loads(line)
        except ValueError as error:
            raise _altered(path, f"{EVENTS} line {number + 1} is not JSON") from error
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            raise _altered(path, f"{EVENTS} line {number + 1} is not an event")
        if event.get("seq") != number or event.get("prev") != prev:
            raise _altered(path, f"{EVENTS} line {number + 1} does not follow from the line before")
        prev = hashlib.sha256(line).hexdigest()
        events.append(event)
    if not events:
        raise StoreError(f"{path / EVENTS} is empty", field="run", value=str(path), remedy="Nothing was recorded")
    if torn and events[-1]["type"] == "stop":
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
    missing = [k for k in ("run_id", "t0_ns", "clocks", "device", "meters", "scenario", "workload") if k not in start]
    if missing:
        raise StoreError(
            f"the start line of {path} lacks {', '.join(missing)}",
            field="start",
            value=missing,
            remedy="See docs/run-directory.md for what it must hold",
        )
    return start


def _check_seal(path: Path, digest: str) -> bool:
    if not (path / SEAL).is_file():
        return False
    if (path / SEAL).read_text().split()[:1] != [digest]:
        raise _altered(path, f"{EVENTS} is not as sealed")
    return True


def _check_files(path: Path, stop: Mapping[str, Any]) -> None:
    for name, expected in stop["files"].items():
        file = path / name
        if not file.is_file():
            raise _altered(path, f"{name} is missing")
        if sha256_of(file) != expected:
            raise _altered(path, f"{name} is not as recorded")


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
    batches = []
    try:
        with pa.OSFile(str(file)) as source, pa.ipc.open_stream(source) as reader:
            schema = reader.schema
            try:
                batches.extend(reader)
            except (pa.ArrowInvalid, OSError):
                truncated.append(file.name)
            return pa.Table.from_batches(batches, schema)
    except (pa.ArrowInvalid, OSError):
        truncated.append(file.name)
        return None


def _or_empty(table: pa.Table | None, name: str) -> pa.Table:
    if table is None:
        return TABLES[name].empty_table()
    missing = [c for c in TABLES[name].names if c not in table.column_names]
    if missing:
        raise StoreError(
            f"{name}.arrows lacks the columns {', '.join(missing)}",
            field=name,
            value=missing,
            remedy="See docs/run-directory.md for its columns",
        )
    return table


def _trace(file: Path, truncated: list[str]) -> Trace | None:
    table = _read_stream(file, truncated)
    if table is None:
        return None
    try:
        meta = {k.decode(): v.decode() for k, v in (table.schema.metadata or {}).items()}
        rail = rail_from_json(json.loads(meta["rail"]))
        grid = json.loads(meta["grid"])
    except (KeyError, ValueError, TypeError) as error:
        raise StoreError(
            f"{file.name} does not say what it is: {error}",
            field=file.name,
            value=str(error),
            remedy="Its schema metadata needs rail, clock and grid; see docs/run-directory.md",
        ) from error
    columns = {name: table[name].to_numpy() for name in table.column_names}
    value = columns["value"].astype(np.float64)
    uniform = "start_tick" not in columns
    if uniform:
        start = grid["t0_tick"] + grid["period_tick"] * np.arange(len(value))
        end = start + grid["aperture_tick"]
    else:
        start, end = columns["start_tick"].astype(np.float64), columns["end_tick"].astype(np.float64)
    flags = columns.get("flags")
    overload = np.zeros(len(value), bool) if flags is None else flags.astype(bool)
    return Trace(rail, meta.get("meter", ""), meta["clock"], start, end, value, overload, uniform)


def rail_from_json(data: Mapping[str, Any]) -> Rail:
    """A ``Rail`` from its JSON form; absent fields take their defaults."""
    fields = dict(data)
    fields["conversion"] = Conversion(**fields.get("conversion") or {})
    accuracy = fields.get("accuracy")
    fields["accuracy"] = None if accuracy is None else Accuracy(**accuracy)
    return Rail(**fields)
