"""The traces of a run directory: what one is, and how its file is read, into memory or column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rig.errors import RigError, StoreError
from rig.recording import trace_validation
from rig.recording.events import REMEDY
from rig.recording.stored import Batches, GridTicks, Sifted, Stored, Unmarked, batches_of, check_columns
from rig.types import Bools, Floats, Rail

AT_ONCE = 1 << 20
"""Readings of a trace up to which it is read into memory; a longer one stays in its file."""
LOOKED_AT = 1 << 16
"""Readings of a long trace whose spacing is compared with its rate when it is opened."""


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


def by_rail(path: Path, traces: Iterable[Trace | None]) -> dict[str, Trace]:
    """Return the traces of the run at ``path`` by rail. Raises ``StoreError`` for two of one rail."""
    found: dict[str, Trace] = {}
    for trace in traces:
        if trace is not None and found.setdefault(trace.rail.name, trace) is not trace:
            what = f"two traces of {path} are of the rail {trace.rail.name!r}"
            remedy = "Give every rail of a run a name of its own"
            raise StoreError(what, field="rail", value=trace.rail.name, remedy=remedy)
    return found


def read_stream(file: Path, truncated: list[str]) -> pa.Table | None:
    """Return the whole batches of an Arrow stream, or None without a schema; a torn file's name joins ``truncated``.

    Raises ``StoreError`` as ``check_columns`` does.
    """
    if not file.is_file():
        return None
    batches: list[pa.RecordBatch] = []
    schema = None
    try:
        with pa.OSFile(str(file)) as source, pa.ipc.open_stream(source) as reader:
            schema = reader.schema
            check_columns(file, schema)
            most = 8 * file.stat().st_size  # a row takes a bit at least
            for batch in reader:
                if batch.num_rows > most:
                    raise pa.ArrowInvalid(f"{batch.num_rows} rows in {most // 8} bytes")
                batch.validate(full=True)
                batches.append(batch)
    except (pa.ArrowException, EOFError, OSError, MemoryError):
        truncated.append(file.name)
    return None if schema is None else pa.Table.from_batches(batches, schema)


def read_trace(
    file: Path, truncated: list[str], hz: Mapping[str, float], at_once: int
) -> tuple[Trace | None, tuple[str, ...]]:
    """Return the trace of one file, or None if nothing of it was written, and what was left out of it.

    ``hz`` are the rates of the clocks by name. A torn file's name joins ``truncated``. Raises ``StoreError`` for a file
    without a valid description and ``DataError`` for ticks that run backwards.
    """
    torn: list[str] = []
    batches = batches_of(file, torn) if file.stat().st_size > at_once else None
    if batches is not None and int(batches.row[-1]) <= at_once:
        batches = None
    table = None if batches is not None else read_stream(file, truncated)
    schema = batches.schema if batches is not None else None if table is None else table.schema
    if schema is None:
        return None, ()
    name = f"traces/{file.name}"
    uniform = "start_tick" not in schema.names and "end_tick" not in schema.names
    none = np.zeros(0)
    try:
        meta = {k.decode(): v.decode() for k, v in (schema.metadata or {}).items()}
        rail, clock = trace_validation.described_rail(meta, name), meta["clock"]
        empty = Trace(rail, meta.get("meter", ""), clock, none, none, none, none.astype(bool), uniform)
        if batches is not None and rail.kind != "edges":
            truncated += torn
            return _stored(batches, name, empty, meta, hz.get(clock)), ()
        table = read_stream(file, truncated) if table is None else table
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
