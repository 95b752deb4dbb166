"""Columns of a trace that stay in their file and are read when they are sliced, so that their length has no limit.

A ``Trace`` of many readings has such columns instead of arrays. They support ``len``, slices, arrays of indices, and
``np.asarray``, which reads the whole column.
"""

from array import array
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from rig.recording.columns import arrow_layout as layout
from rig.recording.columns.arrow_stream import BATCH
from rig.recording.columns.buffers import dtype_of
from rig.recording.columns.packing import COLUMNS
from rig.recording.disk.files import Opened
from rig.recording.events import malformed
from rig.types import Floats, Indices

_NUMBERS = (pa.types.is_integer, pa.types.is_floating)
Key = slice | int | NDArray[Any]
MOST_COLUMNS = 1000
"""The most columns of a file; columns that the format does not name are ignored."""


class Sliced:
    """The base class of columns that are read when they are sliced; ``np.asarray`` reads all rows."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)  # type: ignore[index]


class GridTicks(Sliced, Struct, frozen=True):
    """Ticks of readings at a fixed period: ``first + period * k``, plus ``within`` if it is given."""

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


class Column(NamedTuple):
    """One column of one batch: how many numbers are absent, and where in the file its two buffers begin.

    ``valid`` is the buffer of bits that mark the numbers that are not absent.
    """

    absent: int
    valid: int
    numbers: int


class Batches(Struct, frozen=True):
    """The places of a file's batches: ``row[k]`` is the first row of batch k, and ``row[-1]`` the number of rows."""

    file: Opened
    schema: pa.Schema
    row: Indices
    columns: Mapping[str, Indices]
    """By the name of each column of numbers: an array with the values of ``Column`` in one row per batch."""

    def part(self, number: int, name: str, first: int, last: int) -> NDArray[Any]:
        """Return the rows ``first`` to ``last`` of a column of one batch, with null as NaN."""
        column, kind = Column(*self.columns[name][number].tolist()), self.dtype(name)
        at, size = column.numbers + first * kind.itemsize, (last - first) * kind.itemsize
        values = np.frombuffer(self.file.read(at, size), kind)
        if not column.absent:
            return values
        return np.where(self._bits(column.valid, first, last), values, np.nan)

    def dtype(self, name: str) -> np.dtype[Any]:
        """Return the type of the numbers of a column."""
        return dtype_of(self.schema.field(name).type)

    def _bits(self, buffer: int, first: int, last: int) -> NDArray[np.bool_]:
        raw = self.file.read(buffer + first // 8, -(-last // 8) - first // 8)
        bits = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")
        return bits[first % 8 : first % 8 + last - first].astype(bool)


class Stored(Sliced, Struct, frozen=True, dict=True):
    """A column of numbers in a file, in its recorded type; with ``marks``, True for each number that is not zero."""

    batches: Batches
    name: str
    marks: bool = False

    def __len__(self) -> int:
        return int(self.batches.row[-1])

    @property
    def type(self) -> pa.DataType:
        """Return the type of the column in its file."""
        return self.batches.schema.field(self.name).type

    @cached_property
    def absent(self) -> int:
        return int(self.batches.columns[self.name][:, 0].sum())

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(bool) if self.marks else self.batches.dtype(self.name)

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
        found = self.batches.part(k, self.name, first, last)
        return found != 0 if self.marks else found


class Changed(Sliced, Struct, frozen=True):
    """A column of new values: ``change`` computes each from a reading and the readings just before and after it."""

    column: Any
    change: Callable[[Floats], Floats]

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, key: Key) -> Any:
        if not isinstance(key, slice):
            at = np.asarray(_positive(key, len(self)))
            return np.array([self[k : k + 1][0] for k in at.ravel().tolist()]).reshape(at.shape)[()]
        first, last, step = key.indices(len(self))
        low = max(first - 1, 0)
        value = np.asarray(self.column[low : last + 1], dtype=np.float64)
        return self.change(value)[first - low : last - low : step]


def check_columns(name: str, schema: pa.Schema) -> None:
    """Raise ``StoreError`` if a column's name is no text or is repeated, or if there are too many columns.

    ``name`` is the file's name.
    """
    try:
        names = schema.names  # Arrow decodes the names only here
    except UnicodeDecodeError as error:
        raise malformed(name, f"has a column name that is not UTF-8: {error}", name, "columns") from error
    if len({*names}) < len(names) or len(names) > MOST_COLUMNS:
        what = f"has {len(names)} columns with {len({*names})} names, where at most {MOST_COLUMNS} may be"
        raise malformed(name, what, len(names), "columns")


def batches_of(file: Opened, truncated: list[str]) -> Batches | None:
    """Return the places of the batches of a file, or None if its schema cannot be read.

    If a batch is incomplete, this batch and all later ones are left out, and the file is named in ``truncated``. Raises
    ``StoreError`` as ``check_columns`` and ``messages`` do.
    """
    rows, places = [0], dict[str, tuple[int, int, int]]()
    columns: dict[str, array[int]] = {}
    found: list[pa.Schema] = []
    try:
        for message in layout.messages(file, found):
            if not places:
                places = _places(file.name, found[0])
                columns = {name: array("q") for name in places}
            if message.kind != BATCH or not message.rows:
                continue
            batch = {name: _column(message, *place) for name, place in places.items()}
            for name, column in batch.items():
                columns[name].extend(column)
            rows.append(rows[-1] + message.rows)
    except layout.Damaged:
        truncated.append(PurePath(file.name).name)
    if not found:
        return None
    columns = columns or {name: array("q") for name in _places(file.name, found[0])}
    table = {name: np.array(each, dtype=np.int64).reshape(-1, len(Column._fields)) for name, each in columns.items()}
    return Batches(file, found[0], np.array(rows, dtype=np.int64), table)


def _places(name: str, schema: pa.Schema) -> dict[str, tuple[int, int, int]]:
    """Return node, first buffer and bits per number of each column of numbers. Raises as ``check_columns`` does."""
    check_columns(name, schema)
    found, buffer = {}, 0
    for node, column in enumerate(schema):
        type_ = column.type
        if column.name in COLUMNS and any(is_(type_) for is_ in _NUMBERS):
            found[column.name] = (node, buffer, type_.bit_width)
        try:
            buffer += layout.buffers_of(type_)
        except layout.Damaged as error:
            raise malformed(name, f"has {error}", column.name, "columns") from error
    return found


def _column(message: layout.Message, node: int, buffer: int, bits: int) -> Column:
    """Return one column of a batch. Raises ``Damaged`` if the buffers are too short for it."""
    if node >= len(message.nulls) or buffer + 1 >= len(message.buffers):
        raise layout.Damaged("a batch lacks a column")
    absent, (valid, marked), (numbers, held) = message.nulls[node], *message.buffers[buffer : buffer + 2]
    if 8 * held < bits * message.rows or (absent and 8 * marked < message.rows):
        raise layout.Damaged("a column is longer than its bytes")
    return Column(absent, valid, numbers)


def _positive(key: Any, count: int) -> Any:
    index = np.asarray(key)
    return np.where(index < 0, index + count, index)[()]
