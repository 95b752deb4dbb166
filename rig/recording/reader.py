"""The reader of the run directory: it verifies the hashes first, gives a read-only view, and computes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rig.errors import DataError, RigError, StoreError
from rig.network.description import NetworkInfo
from rig.recording import trace_validation, validation
from rig.recording.bounded import check_texts
from rig.recording.events import (
    REMEDY,
    Brackets,
    ChunkArrived,
    IdleWindow,
    Line,
    MarkPulses,
    SampleNetwork,
    Start,
    Stop,
)
from rig.recording.layout import payload_path, read_files
from rig.recording.log import check_files, check_networks, read_log
from rig.recording.records import ErrorRecord
from rig.recording.stored import Batches, GridTicks, Sifted, Stored, Unmarked, batches_of
from rig.recording.tables import TABLES
from rig.types import Bools, Bracket, ClockInfo, Floats, Rail

if TYPE_CHECKING:
    import pandas as pd

L = TypeVar("L", bound=Line)

AT_ONCE = 1 << 20
"""Readings of a trace up to which it is read into memory; a longer one stays in its file."""


@dataclass(frozen=True)
class Trace:
    """Raw readings of one rail, shapes (n,).

    Ticks are on ``clock``. Counters are as they were read. ``overload`` is True where the instrument flagged a reading.
    The columns of a long trace are not arrays but ``rig.recording.stored`` ones, which are read when they are sliced.
    """

    rail: Rail
    meter: str
    clock: str
    start_tick: NDArray[Any]
    end_tick: NDArray[Any]
    value: Floats
    overload: NDArray[np.bool_]
    uniform: bool

    def part(self, first: int, last: int) -> Trace:
        """Return the readings ``first`` to ``last`` as arrays, values in double precision."""
        return replace(
            self,
            start_tick=np.asarray(self.start_tick[first:last]),
            end_tick=np.asarray(self.end_tick[first:last]),
            value=np.asarray(self.value[first:last], dtype=np.float64),
            overload=np.asarray(self.overload[first:last]),
        )

    def without(self, wrong: Callable[[Floats], Bools]) -> Trace:
        """Return the trace with NaN in the place of readings that are wrong; of a long one, when they are sliced.

        ``wrong`` says which of successive readings are, shape (n,), from each and the one before and after it.
        """
        column = self.value
        if isinstance(column, np.ndarray):
            return replace(self, value=np.where(wrong(column), np.nan, column))
        return replace(self, value=cast(Any, Sifted(column, wrong)))


@dataclass(frozen=True)
class Run:
    """One recording.

    ``stop`` is None after a crash. The data then end at the last whole batch.
    """

    path: Path
    start: Start
    lines: tuple[bytes, ...]
    """Every line of events.jsonl as it is in the file, including lines of unknown types."""
    events: tuple[Line, ...]
    """Every line between start and stop whose type is known."""
    stop: Stop | None
    sealed: bool
    samples: pa.Table
    replies: pa.Table
    progress: pa.Table
    activity: pa.Table
    traces: Mapping[str, Trace]
    digest: str
    truncated: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """What the files hold and no reader can use: a span or a reading, and what is wrong with it."""

    @property
    def error(self) -> ErrorRecord | None:
        """Return the error that ended the run, if one was recorded."""
        return None if self.stop is None else self.stop.error

    def of_type(self, type_: type[L]) -> list[L]:
        """Return the lines of one type, in order."""
        return [e for e in self.events if isinstance(e, type_)]

    def clocks(self) -> dict[str, ClockInfo]:
        """Return every clock of the run by name; the host's clock is ``host``."""
        return {c.name: c for c in self.start.clocks}

    def brackets(self, clock: str) -> list[Bracket]:
        """Return every reading of a clock between two host stamps."""
        return [Bracket(*row) for e in self.of_type(Brackets) if e.clock == clock for row in e.rows]

    def networks(self) -> dict[str, NetworkInfo]:
        """Return the networks of the samples that have one of their own, by sample."""
        return {e.sample_id: e.network for e in self.of_type(SampleNetwork)}

    def marks(self) -> NDArray[np.int64]:
        """Return begin and end of the pulses that the device drew, in ticks of its clock, shape (k, 2)."""
        return np.array([row for e in self.of_type(MarkPulses) for row in e.spans], dtype=np.int64).reshape(-1, 2)

    def arrivals(self, rail: str) -> NDArray[np.int64]:
        """Return the count of readings so far and the host time when the last of them had arrived, shape (k, 2)."""
        rows = [(e.readings, e.arrived_ns) for e in self.of_type(ChunkArrived) if e.rail == rail]
        table = np.array(rows, dtype=np.int64).reshape(-1, 2)
        table[:, 0] = np.cumsum(table[:, 0])
        return table

    def payload(self, sample_id: str) -> NDArray[Any] | None:
        """Return the stored payload of a sample, or None if it was not kept. Raises ``DataError`` for a damaged one."""
        file = self.path / payload_path(sample_id)
        if not file.is_file():
            return None
        try:
            stored: NDArray[Any] = np.load(file, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise DataError(
                f"{file} cannot be read: {error}", field="payload", value=sample_id, remedy="Restore the recording"
            ) from error
        return stored

    def idle_windows_ns(self) -> NDArray[np.int64]:
        """Return the declared idle windows in host time, shape (k, 2)."""
        return np.array([(e.on_ns, e.off_ns) for e in self.of_type(IdleWindow)], dtype=np.int64).reshape(-1, 2)

    def frames(self) -> dict[str, pd.DataFrame]:
        """Return pandas DataFrames: samples, replies, progress, activity, and ``trace.RAIL`` for each rail.

        Times are ticks as they were recorded, each on a clock of its own. ``Result.frames`` has seconds on one
        timeline, and watts.
        """
        import pandas as pd

        frames = {name: getattr(self, name).to_pandas() for name in TABLES}
        columns = ("start_tick", "end_tick", "value", "overload")
        for name, trace in self.traces.items():
            frames[f"trace.{name}"] = pd.DataFrame({column: np.asarray(getattr(trace, column)) for column in columns})
        return frames


def open_run(path: Path | str, *, traces: bool = True, at_once: int = AT_ONCE) -> Run:
    """Read and verify a run directory.

    Without ``traces``, the trace files are verified, but their readings are not read into memory. A trace of more
    than ``at_once`` readings stays in its file, and its columns are read when they are sliced.

    Raises ``StoreError`` if it is not a run directory, ``IntegrityError`` if a byte was changed after recording, and
    ``DataError`` if a stretch of time runs backwards.

    Example::

        import rig

        run = rig.open_run("runs/first")
        print(run.digest, sorted(run.traces))
    """
    path = Path(path)
    try:
        return _opened(path, traces, at_once)
    except OSError as error:
        raise StoreError(
            f"cannot read {path}: {error}",
            field="run",
            value=str(path),
            remedy="Check its files and their permissions",
        ) from error


def _opened(path: Path, with_traces: bool, at_once: int) -> Run:
    log = read_log(path)
    tables = {name: path / f"{name}.arrows" for name in TABLES}
    files = read_files(path, TABLES)
    check_files(path, log.stop, files)
    traces = [file for file in files if file.parent.name == "traces"]
    truncated: list[str] = []
    hz = {clock.name: clock.tick_hz for clock in log.start.clocks}
    read = {name: _table(file, name, truncated) for name, file in tables.items()}
    check_networks(log, read["samples"]["id"])
    read["replies"], left_out = validation.without_bad_spans(read["replies"])
    found = [_trace(p, truncated, hz, at_once) for p in traces if with_traces]
    return Run(
        path=path,
        **vars(log),
        **read,
        traces=_by_rail(path, [trace for trace, _ in found]),
        truncated=tuple(truncated),
        left_out=(*left_out, *(what for _, lost in found for what in lost)),
    )


def _read_stream(file: Path, truncated: list[str]) -> pa.Table | None:
    if not file.is_file():
        return None
    batches: list[pa.RecordBatch] = []
    schema = None
    try:
        with pa.OSFile(str(file)) as source, pa.ipc.open_stream(source) as reader:
            schema = reader.schema
            _check_names(file, schema)
            most = 8 * file.stat().st_size  # a row takes a bit at least
            for batch in reader:
                if batch.num_rows > most:
                    raise pa.ArrowInvalid(f"{batch.num_rows} rows in {most // 8} bytes")
                batch.validate(full=True)
                batches.append(batch)
    except (pa.ArrowException, EOFError, OSError, MemoryError):
        truncated.append(file.name)
    return None if schema is None else pa.Table.from_batches(batches, schema)


def _check_names(file: Path, schema: pa.Schema) -> None:
    try:
        list(schema.names)  # decoded only now
    except UnicodeDecodeError as error:
        what = f"{file.name} names a column in no UTF-8: {error}"
        raise StoreError(what, field="columns", value=file.name, remedy=REMEDY) from error


def _table(file: Path, name: str, truncated: list[str]) -> pa.Table:
    table = _read_stream(file, truncated)
    return (
        pa.Table.from_batches([], TABLES[name]) if table is None else validation.fitted_table(table, name, TABLES[name])
    )


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


def _trace(
    file: Path, truncated: list[str], hz: Mapping[str, float], at_once: int
) -> tuple[Trace | None, tuple[str, ...]]:
    torn: list[str] = []
    batches = batches_of(file, torn) if file.stat().st_size > at_once else None
    if batches is not None and int(batches.row[-1]) <= at_once:
        batches = None
    table = None if batches is not None else _read_stream(file, truncated)
    schema = batches.schema if batches is not None else None if table is None else table.schema
    if schema is None:
        return None, ()
    name = f"traces/{file.name}"
    uniform = "start_tick" not in schema.names and "end_tick" not in schema.names
    none = np.zeros(0)
    try:
        meta = {k.decode(): v.decode() for k, v in (schema.metadata or {}).items()}
        check_texts(meta, name)
        rail, clock = trace_validation.rail_from_json(json.loads(meta["rail"])), meta["clock"]
        empty = Trace(rail, meta.get("meter", ""), clock, none, none, none, none.astype(bool), uniform)
        if batches is not None and rail.kind != "edges":
            truncated += torn
            return _stored(batches, name, empty, meta, hz.get(clock)), ()
        table = _read_stream(file, truncated) if table is None else table
        columns = {column: table[column] for column in schema.names} if table is not None else {}
        return _in_memory(columns, name, empty, meta, hz.get(clock))
    except RigError:
        raise
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise StoreError(f"{name} has no valid description: {what}", field=name, value=what, remedy=REMEDY) from error


def _in_memory(
    columns: Mapping[str, pa.ChunkedArray], name: str, trace: Trace, meta: Mapping[str, str], tick_hz: float | None
) -> tuple[Trace, tuple[str, ...]]:
    """The trace with its columns as arrays, and what was left out of them."""
    rail = trace.rail
    value = trace_validation.reals(columns["value"], name, "value")
    flags = (
        trace_validation.integers(columns["flags"], name, "flags") if "flags" in columns else np.zeros(len(value), int)
    )
    if trace.uniform:
        grid = trace_validation.grid_of(meta)
        start: NDArray[Any] = grid.t0_tick + grid.period_tick * np.arange(len(value))
        end: NDArray[Any] = start + grid.aperture_tick
    else:
        start, end = (trace_validation.integers(columns[c], name, c) for c in ("start_tick", "end_tick"))
    lost: tuple[str, ...] = ()
    keep = None if rail.kind == "edges" else trace_validation.good_readings(rail, start, end, value)
    if keep is not None:
        bad = int(len(keep) - keep.sum())
        lost = (f"{bad} of {len(keep)} readings of rail {rail.name}, which are out of bounds or out of order",)
        if trace.uniform:
            value = np.where(keep, value, np.nan)
        else:
            start, end, value, flags = start[keep], end[keep], value[keep], flags[keep]
    trace_validation.check_ticks(rail, start, end, tick_hz)
    if rail.kind == "edges":
        trace_validation.check_edges(rail, value, start, end, trace.uniform)
    return replace(trace, start_tick=start, end_tick=end, value=value, overload=flags != 0), lost


LOOKED_AT = 1 << 16
"""Readings of a long trace whose spacing is compared with its rate when it is opened."""


def _stored(batches: Batches, name: str, trace: Trace, meta: Mapping[str, str], tick_hz: float | None) -> Trace:
    """The trace with columns that stay in its file."""
    rows, kinds = int(batches.row[-1]), {field.name: field.type for field in batches.schema}
    if missing := [c for c in ("value", *(() if trace.uniform else ("start_tick", "end_tick"))) if c not in kinds]:
        raise KeyError(missing[0])
    for column in ("value", "flags", "start_tick", "end_tick"):
        if column in kinds:
            none = pa.chunked_array([], type=kinds[column])
            (trace_validation.reals if column == "value" else trace_validation.integers)(none, name, column)
    start: Any = Stored(batches, "start_tick")
    end: Any = Stored(batches, "end_tick")
    if trace.uniform:
        grid = trace_validation.grid_of(meta)
        start, end = (GridTicks(grid.t0_tick, grid.period_tick, rows, w) for w in (None, grid.aperture_tick))
    flags = Stored(batches, "flags", marks=True) if "flags" in kinds else Unmarked(rows)
    value = cast(Any, Stored(batches, "value"))
    found = replace(trace, start_tick=start, end_tick=end, value=value, overload=cast(Any, flags))
    few = found.part(0, LOOKED_AT)
    trace_validation.check_ticks(trace.rail, few.start_tick, few.end_tick, tick_hz)
    return found
