"""Pack values into the columns of a batch."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.recording.columns.arrow_stream import Column
from rig.recording.columns.tables import TABLES
from rig.types import Bools, Chunk

COLUMNS = ("value", "start_tick", "end_tick", "flags")
"""The columns of a trace."""


def columns_of(chunk: Chunk) -> dict[str, Any]:
    """Return the columns that a chunk has, by name."""
    return {name: column for name in COLUMNS if (column := getattr(chunk, name)) is not None}


def of(values: Sequence[Any], type_: str) -> Column:
    """Return values as a column of a type of ``tables``; None becomes null.

    Raises ``TypeError``, ``ValueError`` or ``OverflowError`` for a value that does not fit the type.
    """
    null = np.array([v is None for v in values], dtype=bool)
    if type_ in ("string", "binary"):
        encode = str.encode if type_ == "string" else bytes
        parts = [b"" if v is None else encode(v) for v in values]
        return _column(type_, null, _ends(parts), b"".join(parts))
    if type_ == "list":
        lists = [() if v is None else v for v in values]
        return _column(type_, null, _ends(lists), items=(of([v for part in lists for v in part], "int64"),))
    # ``index`` refuses a fraction, which a cast would cut off silently
    convert = float if type_ == "float64" else index
    return numbers(np.array([0 if v is None else convert(v) for v in values], dtype=type_), null)


def numbers(values: NDArray[Any], null: Bools | None = None) -> Column:
    """Return a column of integers or floats, shape (n,); ``null`` marks absent values.

    Raises ``TypeError`` for other values.
    """
    flat = np.ascontiguousarray(values)
    if flat.ndim != 1 or flat.dtype.kind not in "iuf" or flat.dtype.itemsize > 8 or not flat.dtype.isnative:
        raise TypeError(f"an array of {flat.dtype} and shape {flat.shape} is not a column of numbers")
    return _column(flat.dtype.str, np.zeros(len(flat), bool) if null is None else null, flat)


def booleans(values: Bools) -> Column:
    """Return a column of truth values of shape (n,)."""
    return Column("bool", len(values), 0, (b"", _bits(values)))


class Texts:
    """Texts for dictionary-encoded columns: each distinct text is stored once, and None is null."""

    __slots__ = ("_codes", "_distinct", "_null")

    def __init__(self, known: Sequence[str | None]) -> None:
        distinct = {text: k for k, text in enumerate(dict.fromkeys(text for text in known if text is not None))}
        codes = np.array([-1 if text is None else distinct[text] for text in known], np.int32)
        self._null = codes < 0
        self._codes = np.where(self._null, 0, codes).astype(np.int32)
        self._distinct = of(list(distinct), "string")

    def column(self, which: NDArray[np.int32]) -> Column:
        """Return the column ``known[which]``, shape (n,), dictionary-encoded."""
        return numbers(self._codes[which], self._null[which])._replace(texts=self._distinct)


def table_columns(name: str, rows: Sequence[tuple[Any, ...]]) -> dict[str, Column]:
    """Return rows as columns of the table ``name``. Raises what ``of`` raises."""
    columns = zip(*rows, strict=True)
    return {field: of(values, type_) for (field, type_), values in zip(TABLES[name].items(), columns, strict=True)}


def joined(chunks: Sequence[Chunk]) -> Chunk:
    """Join chunks of one rail, at least one, which have the same columns."""
    if len(chunks) == 1:
        return chunks[0]
    return replace(chunks[0], **{k: np.concatenate([getattr(c, k) for c in chunks]) for k in columns_of(chunks[0])})


def _column(type_: str, null: Bools, *buffers: Any, items: tuple[Column, ...] = ()) -> Column:
    absent = int(np.count_nonzero(null))
    return Column(type_, len(null), absent, (_bits(~null) if absent else b"", *buffers), items)


def _ends(parts: Sequence[Any]) -> bytes:
    """Return where each of the texts or lists of a column ends, after a zero."""
    offsets = np.fromiter(accumulate(map(len, parts), initial=0), np.int64, len(parts) + 1)
    if offsets[-1] >= 2**31:
        raise OverflowError("a column of a batch holds 2^31 bytes of text or items of lists, or more")
    return offsets.astype(np.int32).tobytes()


def _bits(values: Bools) -> bytes:
    return np.packbits(values, bitorder="little").tobytes()
