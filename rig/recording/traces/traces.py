"""The traces of a run directory. Their files are read into memory, or column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from rig.errors import RigError, StoreError
from rig.recording.columns.stored import Batches, Changed, GridTicks, Stored
from rig.recording.events import malformed
from rig.recording.traces import trace_validation
from rig.types import Floats, Indices, Rail

COLUMNS = ("start_tick", "end_tick", "value", "overload")
AT_ONCE = 1 << 20
"""A trace of at most this many readings is read into memory; a longer one stays in its file."""
LOOKED_AT = 1 << 16
"""When a long trace is opened, the spacing of this many first readings is compared with the declared rate."""


class Trace(Struct, frozen=True):
    """Raw readings of one rail, shapes (n,).

    Ticks are on ``clock``. Values are in the rail's raw unit. ``overload`` is True where the instrument flagged a
    reading. ``uniform`` is True for readings without ticks of their own. The columns of a long trace are not arrays but
    columns of ``columns.stored``, which are read when they are sliced.
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
        start, end, over = (np.asarray(c[first:last]) for c in (self.start_tick, self.end_tick, self.overload))
        value = np.asarray(self.value[first:last], dtype=np.float64)
        return replace(self, start_tick=start, end_tick=end, value=value, overload=over)

    def parts(self, ranges: Indices) -> Trace:
        """Return the readings of several ranges (first, last), shape (k, 2), as arrays, one range after another."""
        parts = [self.part(a, b) for a, b in ranges.tolist() if b > a]
        joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
        return replace(self, **joined, uniform=False)

    def changed(self, change: Callable[[Floats], Floats]) -> Trace:
        """Return the trace with changed values; the values of a long trace are computed when they are sliced.

        ``change`` maps successive values, shape (n,), to new values. A new value may depend only on the old one and its
        two neighbours; NaN is a missing reading.
        """
        column = self.value
        if isinstance(column, np.ndarray):
            return replace(self, value=change(column))
        return replace(self, value=cast(Any, Changed(column, change)))


def by_rail(path: Path, traces: Iterable[Trace | None]) -> dict[str, Trace]:
    """Return the traces of the run at ``path`` by rail. Raises ``StoreError`` for two traces of one rail."""
    found: dict[str, Trace] = {}
    for trace in traces:
        if trace is not None and found.setdefault(trace.rail.name, trace) is not trace:
            what = f"two traces of {path} are of the rail {trace.rail.name!r}"
            remedy = "Give every rail of a run a name of its own"
            raise StoreError(what, field="rail", value=trace.rail.name, remedy=remedy)
    return found


def read_trace(batches: Batches, hz: Mapping[str, float], at_once: int) -> tuple[Trace, tuple[str, ...]]:
    """Return the trace of one file, and notes about what was left out.

    ``hz`` are the rates of the clocks by name. Raises ``StoreError`` for a file without a valid description or with
    columns of wrong types. Raises ``DataError`` for readings that end before they begin, for a spacing that contradicts
    the declared rate, and for edges that readers cannot use.
    """
    rows, name, schema = int(batches.row[-1]), batches.file.name, batches.schema
    uniform = "start_tick" not in schema.names and "end_tick" not in schema.names
    none = np.zeros(0)
    with described(name):
        meta = {k.decode(): v.decode() for k, v in (schema.metadata or {}).items()}
        rail, clock = trace_validation.described_rail(meta, name), meta["clock"]
        empty = Trace(rail, meta.get("meter", ""), clock, none, none, none, none.astype(bool), uniform)
        for column in ("value", *(() if uniform else ("start_tick", "end_tick")), "flags"):
            if column in schema.names:
                _check_numbers(Stored(batches, column))
            elif column != "flags":
                raise KeyError(column)
        if rows > at_once and rail.kind != "edges":
            return _stored(batches, empty, meta, hz.get(clock)), ()
        return _in_memory(batches, empty, meta, hz.get(clock))


def _integers(column: Stored) -> NDArray[np.int64]:
    """Return a column of integers as an array, shape (n,). Raises ``StoreError`` for an integer of 2^63 or more."""
    values = np.asarray(column)
    if len(values) and values.max() > np.iinfo(np.int64).max:
        raise malformed(column.batches.file.name, f"has a number of 2^63 or more in {column.name}", column.name)
    return np.asarray(values, dtype=np.int64)


def _check_numbers(column: Stored) -> None:
    """Raise ``StoreError`` if a column ``value`` does not have numbers, or another column does not have integers."""
    file, name, whole = column.batches.file.name, column.name, pa.types.is_integer(column.type)
    if name == "value" and not (whole or pa.types.is_floating(column.type)):
        raise malformed(file, f"has a column {name} of {column.type}", name)
    if name != "value" and (not whole or column.absent):
        raise malformed(file, f"has a column {name} that is not integers throughout", name)


@contextmanager
def described(name: str) -> Iterator[None]:
    """Convert an error inside the block, which reads the description of the trace ``name``, to ``StoreError``."""
    try:
        yield
    except RigError:
        raise
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise malformed(name, f"has no valid description: {what}", what) from error


def _in_memory(
    batches: Batches, trace: Trace, meta: Mapping[str, str], tick_hz: float | None
) -> tuple[Trace, tuple[str, ...]]:
    """Return the trace with arrays as columns, and notes about what was left out."""
    rail, value = trace.rail, np.asarray(Stored(batches, "value"), dtype=np.float64)
    flags = "flags" in batches.columns
    over = np.asarray(Stored(batches, "flags", marks=True)) if flags else np.zeros(len(value), bool)
    if trace.uniform:
        grid = trace_validation.grid_of(meta)
        start: NDArray[Any] = grid.t0_tick + grid.period_tick * np.arange(len(value))
        end: NDArray[Any] = start + grid.aperture_tick
    else:
        start, end = (_integers(Stored(batches, c)) for c in ("start_tick", "end_tick"))
    lost: tuple[str, ...] = ()
    keep = None if rail.kind == "edges" else trace_validation.good_readings(rail, start, end, value)
    if keep is not None:
        bad = int(len(keep) - keep.sum())
        lost = (f"{bad} of {len(keep)} readings of rail {rail.name}, which are out of bounds or out of order",)
        if trace.uniform:
            value = np.where(keep, value, np.nan)
        else:
            start, end, value, over = start[keep], end[keep], value[keep], over[keep]
    trace_validation.check_ticks(rail, start, end, tick_hz)
    if rail.kind == "edges":
        trace_validation.check_edges(rail, value, start, end, trace.uniform)
    return replace(trace, start_tick=start, end_tick=end, value=value, overload=over), lost


def _stored(batches: Batches, trace: Trace, meta: Mapping[str, str], tick_hz: float | None) -> Trace:
    """Return the trace with columns that stay in its file."""
    rows = int(batches.row[-1])
    start: Any = Stored(batches, "start_tick")
    end: Any = Stored(batches, "end_tick")
    if trace.uniform:
        grid = trace_validation.grid_of(meta)
        start, end = (GridTicks(grid.t0_tick, grid.period_tick, rows, w) for w in (None, grid.aperture_tick))
    flags = Stored(batches, "flags", marks=True) if "flags" in batches.columns else np.broadcast_to(np.False_, rows)
    value = cast(Any, Stored(batches, "value"))
    found = replace(trace, start_tick=start, end_tick=end, value=value, overload=cast(Any, flags))
    few = found.part(0, LOOKED_AT)
    trace_validation.check_ticks(trace.rail, few.start_tick, few.end_tick, tick_hz)
    return found
