"""Make Arrow columns from buffers, without ``pyarrow.array``, and read them without ``to_numpy``.

The first call of either would import pandas, which takes 50 MB and 0.2 s, in every report and during a recording. So
would ``to_pandas_dtype``, up to pyarrow 25.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import index
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rig.recording.columns.tables import TABLES
from rig.types import Bools, Chunk

COLUMNS = ("value", "start_tick", "end_tick", "flags")
"""The columns of a trace."""
MOST_SLICES = 100
"""Rows in more slices than this are selected by ``pyarrow.compute``, whose import takes longer than a few slices."""


def columns_of(chunk: Chunk) -> dict[str, Any]:
    """Return the columns that a chunk has, by name."""
    return {name: column for name in COLUMNS if (column := getattr(chunk, name)) is not None}


def of(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return values as a column of texts, bytes, lists, integers or float64, by its ``type_``; None becomes null.

    Raises ``TypeError``, ``ValueError`` or ``OverflowError`` for a value that does not fit the type.
    """
    null = np.array([v is None for v in values], dtype=bool)
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        encode = str.encode if pa.types.is_string(type_) else bytes
        parts = [b"" if v is None else encode(v) for v in values]
        return pa.Array.from_buffers(type_, len(parts), [*_ends(parts, null), pa.py_buffer(b"".join(parts))])
    if pa.types.is_list(type_):
        lists = [() if v is None else v for v in values]
        inner = of([v for part in lists for v in part], type_.value_type)
        return pa.Array.from_buffers(type_, len(lists), _ends(lists, null), children=[inner])
    if pa.types.is_integer(type_):
        # ``index`` refuses a fraction, which a cast would cut off silently
        return numbers(np.array([0 if v is None else index(v) for v in values], dtype=dtype_of(type_)), null)
    return numbers(np.array([0.0 if v is None else float(v) for v in values]), null)


def numbers(values: NDArray[Any], null: Bools | None = None) -> pa.Array:
    """Return a column of integers or floats, shape (n,); ``null`` marks absent values.

    Raises ``TypeError`` for other values.
    """
    flat = np.ascontiguousarray(values)
    if flat.ndim != 1 or flat.dtype.kind not in "iuf" or not flat.dtype.isnative:
        raise TypeError(f"an array of {flat.dtype} and shape {flat.shape} is not a column of numbers")
    absent = None if null is None or not null.any() else _bits(~null)
    return pa.Array.from_buffers(pa.from_numpy_dtype(flat.dtype), len(flat), [absent, pa.py_buffer(flat)])


def booleans(values: Bools) -> pa.Array:
    """Return a column of truth values of shape (n,)."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


class Texts:
    """Texts for dictionary-encoded columns: each distinct text is stored once, and None is null."""

    __slots__ = ("_codes", "_distinct", "_null")

    def __init__(self, known: Sequence[str | None]) -> None:
        distinct = {text: k for k, text in enumerate(dict.fromkeys(text for text in known if text is not None))}
        codes = np.array([-1 if text is None else distinct[text] for text in known], np.int32)
        self._null = codes < 0
        self._codes = np.where(self._null, 0, codes).astype(np.int32)
        self._distinct = of(list(distinct), pa.string())

    def column(self, which: NDArray[np.int32]) -> pa.Array:
        """Return the column ``known[which]``, shape (n,), dictionary-encoded."""
        return pa.DictionaryArray.from_arrays(numbers(self._codes[which], self._null[which]), self._distinct)


def array_of(column: pa.Array | pa.ChunkedArray, absent: float = math.nan) -> NDArray[Any]:
    """Return a column as an array of shape (n,): numbers, truth values, or texts as objects.

    An absent number becomes ``absent``; if this is NaN, an array with an absent number is of floats. An absent truth
    value becomes False, and an absent text None.
    """
    if isinstance(column, pa.ChunkedArray):
        parts = column.chunks or [pa.nulls(0, column.type)]
        column = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    type_, n, first = column.type, len(column), column.offset
    truth = pa.types.is_boolean(type_)
    if not (truth or pa.types.is_integer(type_) or pa.types.is_floating(type_)):
        return np.array(column.to_pylist(), dtype=object)
    if not n:
        return np.zeros(0, dtype_of(type_))
    _, held = column.buffers()
    dtype = dtype_of(type_)
    values = _flags(held, first, n) if truth else np.frombuffer(held, dtype, n, first * dtype.itemsize)
    if not column.null_count:
        return values
    return np.where(valid(column), values, False if truth else absent)


def valid(column: pa.Array | pa.ChunkedArray) -> Bools:
    """Return which values of a column are not null, shape (n,)."""
    parts = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    known = [_flags(p.buffers()[0], p.offset, len(p)) if p.null_count else np.ones(len(p), bool) for p in parts]
    return np.concatenate([np.zeros(0, bool), *known])


def kept(table: pa.Table, keep: Bools) -> pa.Table:
    """Return the rows of a table to ``keep``, shape (n,)."""
    ends = np.flatnonzero(np.diff(keep, prepend=False, append=False)).reshape(-1, 2).tolist()
    if len(ends) > MOST_SLICES:
        return table.filter(booleans(keep))
    return pa.concat_tables([table.slice(a, b - a) for a, b in ends] or [table.slice(0, 0)])


def without_null(table: pa.Table) -> pa.Table:
    """Return the rows that have a value in every column."""
    return kept(table, np.all([valid(column) for column in table.columns], axis=0))


def sizes_of(texts: pa.Array) -> NDArray[Any]:
    """Return the size of each text, or value of bytes, in a column (bytes), shape (n,)."""
    kind = np.int64 if "large" in str(texts.type) else np.int32
    ends = np.frombuffer(texts.buffers()[1], kind) if len(texts) else np.zeros(1, kind)
    return np.diff(ends[texts.offset : texts.offset + len(texts) + 1])


def dtype_of(type_: pa.DataType) -> np.dtype[Any]:
    """Return the NumPy type of integers, floats or truth values of an Arrow type."""
    if pa.types.is_boolean(type_):
        return np.dtype(bool)
    kind = "f" if pa.types.is_floating(type_) else "i" if pa.types.is_signed_integer(type_) else "u"
    return np.dtype(f"{kind}{type_.bit_width // 8}")


def _flags(buffer: pa.Buffer, first: int, n: int) -> Bools:
    return np.unpackbits(np.frombuffer(buffer, np.uint8), count=first + n, bitorder="little")[first:].astype(bool)


def table_batch(name: str, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """Return rows as a batch of the table ``name``. Raises what ``of`` raises."""
    schema = TABLES[name]
    arrays = [of(values, f.type) for values, f in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def trace_batch(chunk: Chunk, meta: Mapping[str, str]) -> pa.RecordBatch:
    """Return readings of one rail as a batch; ``meta`` becomes the metadata of the schema.

    Raises ``TypeError`` for values that are not an array of numbers.
    """
    arrays = {name: numbers(values) for name, values in columns_of(chunk).items()}
    schema = pa.schema([(k, v.type) for k, v in arrays.items()], metadata=dict(meta))
    return pa.record_batch(list(arrays.values()), schema=schema)


def joined(chunks: Sequence[Chunk]) -> Chunk:
    """Join chunks of one rail, at least one, which have the same columns."""
    if len(chunks) == 1:
        return chunks[0]
    return replace(chunks[0], **{k: np.concatenate([getattr(c, k) for c in chunks]) for k in columns_of(chunks[0])})


def _ends(parts: Sequence[Any], null: Bools) -> list[pa.Buffer | None]:
    """Return the first two buffers of a column of texts or lists: which of them exist, and where each ends."""
    offsets = np.fromiter(accumulate(map(len, parts), initial=0), np.int64, len(parts) + 1)
    if offsets[-1] >= 2**31:
        raise OverflowError("a batch holds 2 GiB of text or more")
    return [_bits(~null) if null.any() else None, pa.py_buffer(offsets.astype(np.int32))]


def _bits(values: Bools) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))
