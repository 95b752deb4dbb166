"""Read Arrow columns from their buffers, without ``to_numpy``.

Its first call would import pandas, which takes 50 MB and 0.2 s. So would ``pyarrow.array`` and, up to pyarrow 25,
``to_pandas_dtype``.
"""

import math
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rig.recording.columns.arrow_stream import Column
from rig.recording.columns.packing import booleans
from rig.types import Bools

MOST_SLICES = 100
"""Rows in more slices than this are selected by ``pyarrow.compute``, whose import takes longer than a few slices."""


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
        return table.filter(arrow_of(booleans(keep), pa.bool_()))
    return pa.concat_tables([table.slice(a, b - a) for a, b in ends] or [table.slice(0, 0)])


def arrow_of(column: Column, type_: pa.DataType) -> pa.Array:
    """Return a packed column of texts, numbers or truth values as an array of Arrow."""
    absent, *held = column.buffers
    buffers = [pa.py_buffer(absent) if column.absent else None, *map(pa.py_buffer, held)]
    return pa.Array.from_buffers(type_, column.rows, buffers)


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
