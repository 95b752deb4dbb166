"""Columns of a trace that stay in their file: they are read when they are sliced, so that any length fits in memory.

They stand in a ``rig.recording.traces.Trace`` in the place of arrays, and behave like them as far as the analysis of
long traces needs: ``len``, slices, arrays of indices, and ``np.asarray``, which reads the whole column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rig.errors import StoreError
from rig.recording.columns import array_of
from rig.recording.events import REMEDY
from rig.types import Bools, Floats, Indices

Key = slice | int | NDArray[Any]
MOST_COLUMNS = 1000
"""Columns in a file; those that the format does not name are ignored."""


@dataclass(frozen=True)
class GridTicks:
    """Ticks of a uniform grid: ``first + period * k``, plus ``within``."""

    first: int | float
    period: int | float
    count: int
    within: int | float | None = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, key: Key) -> Any:
        number = np.arange(*key.indices(self.count)) if isinstance(key, slice) else _positive(key, self.count)
        tick = self.first + self.period * number
        return tick if self.within is None else tick + self.within

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)


@dataclass(frozen=True)
class Batches:
    """Where the batches of a file stand: ``row[k]`` is the first row of batch k, and the last the number of rows."""

    path: Path
    schema: pa.Schema
    row: Indices
    at: Indices
    """Where the message of each batch begins in the file, in bytes."""
    plain: dict[str, Indices]
    """For columns whose numbers stand in the file as they are: where those of each batch begin, in bytes."""

    def read(self, number: int, name: str) -> NDArray[Any]:
        """Return a column of one batch, however it is stored; null is NaN."""
        with pa.OSFile(str(self.path)) as source:
            source.seek(int(self.at[number]))
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(source), self.schema)
            return array_of(batch.column(name))


@dataclass(frozen=True)
class Stored:
    """A column of numbers in the batches of a file, in its recorded type; with ``marks``, whether each is not zero."""

    batches: Batches
    name: str
    marks: bool = False
    _last: dict[int, NDArray[Any]] = field(default_factory=dict, compare=False, repr=False)
    """The batch that was decoded last, where batches are compressed."""

    def __len__(self) -> int:
        return int(self.batches.row[-1])

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Return the type of the numbers."""
        return np.dtype(bool) if self.marks else np.dtype(self.batches.schema.field(self.name).type.to_pandas_dtype())

    def __getitem__(self, key: Key) -> Any:
        if not isinstance(key, slice):
            return self._at(_positive(key, len(self)))
        first, last, step = key.indices(len(self))
        if last <= first:
            return np.zeros(0, self.dtype)
        row = self.batches.row
        numbers = range(int(np.searchsorted(row, first, side="right")) - 1, int(np.searchsorted(row, last)))
        parts = [self._part(k, max(first - int(row[k]), 0), min(last, int(row[k + 1])) - int(row[k])) for k in numbers]
        found = np.concatenate(parts) if len(parts) != 1 else parts[0]
        return found if step == 1 else found[::step]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)

    def _at(self, index: Any) -> Any:
        index = np.asarray(index)
        number = np.searchsorted(self.batches.row, index.ravel(), side="right") - 1
        found = np.empty(index.size, self.dtype)
        for k in np.unique(number):
            mine = np.flatnonzero(number == k)
            rows = index.ravel()[mine] - self.batches.row[k]
            low = int(rows.min())
            found[mine] = self._part(int(k), low, int(rows.max()) + 1)[rows - low]
        return found.reshape(index.shape)[()]

    def _part(self, k: int, first: int, last: int) -> NDArray[Any]:
        if self.name not in self.batches.plain:
            if k not in self._last:
                self._last.clear()
                self._last[k] = self.batches.read(k, self.name)
            found = self._last[k][first:last]
        else:
            kind = np.dtype(self.batches.schema.field(self.name).type.to_pandas_dtype())
            found = np.empty(max(last - first, 0), kind)
            at = int(self.batches.plain[self.name][k]) + first * kind.itemsize
            raw, held = memoryview(found.view(np.uint8).data), 0
            with self.batches.path.open("rb", buffering=0) as file:
                file.seek(at)
                while held < len(raw):
                    count = file.readinto(raw[held:])
                    if not count:
                        raise OSError("the file became shorter while it was read")
                    held += count
        return found != 0 if self.marks else found


@dataclass(frozen=True)
class Unmarked:
    """Flags of readings none of which is flagged."""

    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, key: Key) -> Any:
        return np.zeros(len(range(*key.indices(self.count))) if isinstance(key, slice) else np.shape(key), bool)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.zeros(self.count, dtype or bool)


@dataclass(frozen=True)
class Sifted:
    """A column of readings that is NaN where ``wrong`` says so of readings, which it sees between their neighbours."""

    column: Any
    wrong: Callable[[Floats], Bools]

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, key: Key) -> Any:
        if not isinstance(key, slice):
            at = np.asarray(_positive(key, len(self)))
            return np.array([self[k : k + 1][0] for k in at.ravel().tolist()]).reshape(at.shape)[()]
        first, last, step = key.indices(len(self))
        low = max(first - 1, 0)
        value = np.asarray(self.column[low : last + 1], dtype=np.float64)
        return np.where(self.wrong(value), np.nan, value)[first - low : last - low : step]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)


def check_columns(file: Path, schema: pa.Schema) -> None:
    """Raise ``StoreError`` for columns of which a name is no text or stands twice, or that are too many."""
    try:
        names = schema.names  # decoded only now
    except UnicodeDecodeError as error:
        what = f"{file.name} names a column in no UTF-8: {error}"
        raise StoreError(what, field="columns", value=file.name, remedy=REMEDY) from error
    if len({*names}) < len(names) or len(names) > MOST_COLUMNS:
        what = f"{file.name} has {len(names)} columns with {len({*names})} names, where at most {MOST_COLUMNS} may be"
        raise StoreError(what, field="columns", value=len(names), remedy=REMEDY)


def batches_of(path: Path, truncated: list[str]) -> Batches | None:
    """Return where the batches of a file stand, or None without a schema that can be read.

    An incomplete batch is left out and named in ``truncated``. Raises ``StoreError`` as ``check_columns`` does.
    """
    rows, at, schema = [0], list[int](), None
    places: dict[str, list[int]] = {}
    try:
        with pa.memory_map(str(path)) as source:
            base = source.read_buffer().address
            source.seek(0)
            messages = pa.ipc.MessageReader.open_stream(source)
            schema = pa.ipc.read_schema(messages.read_next_message())
            check_columns(path, schema)
            places = {name: [] for name in schema.names}
            while True:
                begin = source.tell()
                try:
                    batch = pa.ipc.read_record_batch(messages.read_next_message(), schema)
                except StopIteration:
                    break
                if batch.num_rows > 8 * path.stat().st_size:
                    raise pa.ArrowInvalid(f"{batch.num_rows} rows in {path.stat().st_size} bytes")
                for name, column in zip(schema.names, batch.columns, strict=True):
                    column.validate(full=True)
                    buffer = next(iter(column.buffers()[1:]), None)
                    inside = 0 if buffer is None else buffer.address - base
                    whole = 0 <= inside <= path.stat().st_size and not column.null_count and not column.offset
                    if whole and name in places:
                        places[name].append(inside)
                    else:
                        places.pop(name, None)
                rows.append(rows[-1] + batch.num_rows)
                at.append(begin)
    except (pa.ArrowException, EOFError, OSError, MemoryError):
        truncated.append(path.name)
    if schema is None:
        return None
    plain = {name: np.array(where, dtype=np.int64) for name, where in places.items()}
    return Batches(path, schema, np.array(rows, dtype=np.int64), np.array(at, dtype=np.int64), plain)


def _positive(key: Any, count: int) -> Any:
    index = np.asarray(key)
    return np.where(index < 0, index + count, index)[()]
