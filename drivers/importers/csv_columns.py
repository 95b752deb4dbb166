"""Read columns of CSV files as arrays. An error names the row and the column of a cell that is not a number."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from drivers.importers.csv_layout import Layout, unreadable
from drivers.importers.files import bad_file
from drivers.importers.time_axis import TimeAxis, axis_of
from drivers.units import ALIASES, NS, named_unit, with_overloads
from rig.errors import DataError, refused
from rig.types import Floats, Indices

FARTHEST_S = 4e9
"""The largest time that is accepted (s); 64-bit nanoseconds can represent twice as much."""
ROWS, CELLS = 1 << 20, 1 << 22
"""The largest number of rows, and the largest number of cells, that are read at once."""


@dataclass(frozen=True)
class Columns:
    """Rows of the selected columns. ``before`` is the number of data rows before them."""

    path: Path
    layout: Layout
    frame: pd.DataFrame
    before: int = 0

    def __len__(self) -> int:
        return len(self.frame)

    def cells(self, name: str) -> list[Any]:
        """Return the cells of a column as pandas read them."""
        return list(self.frame[name].tolist())

    def numbers(self, name: str, *, whole: bool = False) -> Floats:
        """Return a column as float64, shape (n,). An empty cell is NaN, but is refused if the column must be ``whole``.

        A multimeter's code for overload becomes infinity.
        """
        column = self.frame[name]
        if pd.api.types.is_bool_dtype(column.dtype):
            raise self._no_number(name, 0, column.iloc[0] if len(column) else "")
        if not pd.api.types.is_numeric_dtype(column.dtype):
            text = column.astype("string").str.strip()
            if self.layout.decimal == ",":  # a decimal point would be a thousands mark or a mistake
                text = text.mask(text.str.contains(".", regex=False), "x").str.replace(",", ".", regex=False)
            found = pd.to_numeric(text, errors="coerce")
            bad = np.flatnonzero(np.asarray(found.isna() & column.notna(), dtype=bool))
            if len(bad):
                raise self._no_number(name, int(bad[0]), column.iloc[bad[0]])
            column = found
        values = with_overloads(column.to_numpy(dtype=np.float64, na_value=np.nan))
        if whole and not np.all(np.isfinite(values)):
            row = int(np.flatnonzero(~np.isfinite(values))[0])
            raise self._no_number(name, row, self.frame[name].iloc[row])
        return values

    def stamps_ns(self, name: str, unit: str) -> Indices:
        """Return a column of times in ``unit`` (s, ms, us, ns) as int64 nanoseconds; integers lose no precision."""
        column: Any = self.frame[name]
        values, scale = self.numbers(name, whole=True), NS[unit]
        far = np.flatnonzero(np.abs(values) * (scale * 1e-9) > FARTHEST_S)
        if len(far):
            value = float(values[far[0]])
            what = f"{self.path.name}: {name} is {value:g} {unit} in data row {self.before + far[0] + 1}"
            raise DataError(what, field=name, value=value, remedy="Check the unit of time")
        if pd.api.types.is_integer_dtype(column.dtype):
            return np.asarray(column, dtype=np.int64) * scale
        return np.asarray(np.round(values * scale), dtype=np.int64)

    def _no_number(self, name: str, row: int, value: object) -> DataError:
        text = str(value)[:40]
        other = "," if self.layout.decimal == "." else "."
        remedy = "Correct the row. Remove comments and repeated headers between the rows"
        if other in text:
            here = "a point" if self.layout.decimal == "." else "a comma"
            remedy = f"The decimal mark of this file is {here}, and thousands marks are not read; correct the row"
            if self.layout.has_decimal and self.layout.decimal == ".":
                remedy += ", or state decimal=,"
        what = f"{self.path.name}: {name} is {text!r} in data row {self.before + row + 1}, which is not a number"
        return DataError(what, field=name, value=text, remedy=remedy)


def unit_of_time(text: str, option: str, where: str, remedy: str = f"Give times in {', '.join(NS)}") -> str:
    """Convert ``msec`` to ``ms``, a unit of time for ``stamps_ns``. Raises ``UsageError`` for any other unit."""
    if (unit := ALIASES.get(text.lower(), text)) not in NS:
        raise refused(option, text, remedy, f"{where} is in {text or 'no unit'}, which is not a unit of time")
    return unit


class Table:
    """The named columns of a table. Iteration reads the file in blocks of rows, so the memory is bounded.

    Raises ``DataError`` for a file without the columns and, during reading, for a file that is not a table.
    """

    def __init__(self, path: Path, names: Sequence[str], layout: Layout) -> None:
        known = list(layout.names)
        if missing := [n for n in names if n not in known]:
            what = f"has no column {missing[0]!r}"
            units = [n for n in known if named_unit(n)[0] == missing[0]]
            remedy = f"Write its name with the unit: {units[0]}" if units else f"Its columns: {', '.join(known)[:300]}"
            raise bad_file(path, what, remedy, field="columns", value=missing[0])
        if twice := [n for n in names if known.count(n) > 1]:
            raise bad_file(path, f"has two columns {twice[0]!r}", "Rename one of them", field="columns", value=twice[0])
        self._path, self._names, self._layout = path, names, layout

    def __iter__(self) -> Iterator[Columns]:
        return self._read(min(ROWS, max(CELLS // len(self._layout.names), 1)))

    def whole(self) -> Columns:
        """Return all rows at once."""
        return next(self._read(None))

    def _read(self, rows: int | None) -> Iterator[Columns]:
        known, before = list(self._layout.names), 0
        frames = self._frames(rows)
        after = _strictly(frames, self._path)
        while (frame := after) is not None:
            after = _strictly(frames, self._path)
            if len(frame.columns) != len(known):
                raise unreadable(self._path, ValueError(f"{len(known)} names and {len(frame.columns)} columns"))
            if after is None:  # a spreadsheet may end with empty rows
                filled = np.flatnonzero(frame.notna().any(axis=1))
                frame = frame.iloc[: int(filled[-1]) + 1] if len(filled) else frame
            chosen = frame.iloc[:, [known.index(n) for n in self._names]]
            chosen.columns = pd.Index(self._names)
            yield Columns(self._path, self._layout, chosen, before)
            before += len(frame)

    def _frames(self, rows: int | None) -> Iterator[pd.DataFrame]:
        layout = self._layout
        with self._path.open(encoding=layout.encoding, newline="") as file:
            for _ in range(layout.above):
                file.readline()
            found: Any = pd.read_csv(
                file, sep=layout.separator, decimal=layout.decimal, index_col=False, skipinitialspace=True,
                low_memory=False, header=0, chunksize=rows,
                skiprows=[layout.below] if layout.below else None,
            )  # fmt: skip
            yield from [found] if rows is None else found


def _strictly(frames: Iterator[pd.DataFrame], path: Path) -> pd.DataFrame | None:
    """Return the next rows, or None after the last. Also raises ``DataError`` for rows longer than the header."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return next(frames, None)
    except (OSError, ValueError, OverflowError, pd.errors.ParserWarning, pd.errors.ParserError) as error:
        raise unreadable(path, error) from error


@dataclass(frozen=True)
class Blocks:
    """Stamps in ns and values of readings, made from the rows of a table whenever they are iterated."""

    table: Table
    stamps: Callable[[Columns], Indices]
    values: Callable[[Columns], Floats]

    def __iter__(self) -> Iterator[tuple[Indices, Floats]]:
        return ((self.stamps(part), self.values(part)) for part in self.table)

    def axis(self, place: str | None) -> TimeAxis:
        """Return the axis of the stamps from ``axis_of``. Also refuses values that are not numbers."""
        return axis_of((stamps for stamps, _ in self), place)
