"""Columns of CSV files become arrays; an error names the row and the column that hold no number."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from drivers.importers.csv_layout import Layout, unreadable
from drivers.importers.refusals import bad_file
from drivers.units import ALIASES, NS, named_unit
from rig.errors import DataError
from rig.types import Floats, Indices

FARTHEST_S = 4e9
"""The largest time that is taken; nanoseconds in 64 bits hold twice as much."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table that are read.

    ``short`` of its lines, the first of them line ``first_short``, have fewer cells than the header; the cells that
    they lack are read as empty.
    """

    path: Path
    layout: Layout
    frame: pd.DataFrame
    short: int = 0
    first_short: int = 0

    def __len__(self) -> int:
        return len(self.frame)

    def cells(self, name: str) -> list[Any]:
        """The cells of a column as pandas read them."""
        return list(self.frame[name].tolist())

    def numbers(self, name: str, *, whole: bool = False) -> Floats:
        """A column as float64, shape (n,); an empty cell is NaN, and refused in a column that must be ``whole``."""
        column = self.frame[name]
        if pd.api.types.is_bool_dtype(column.dtype):
            raise self._no_number(name, 0, column.iloc[0] if len(column) else "")
        if not pd.api.types.is_numeric_dtype(column.dtype):
            text = column.astype("string").str.strip()
            if self.layout.decimal == ",":  # a point in it would be of thousands, or a mistake
                text = text.mask(text.str.contains(".", regex=False), "x").str.replace(",", ".", regex=False)
            found = pd.to_numeric(text, errors="coerce")
            bad = np.flatnonzero(np.asarray(found.isna() & column.notna(), dtype=bool))
            if len(bad):
                raise self._no_number(name, int(bad[0]), column.iloc[bad[0]])
            column = found
        values = np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
        if whole and not np.all(np.isfinite(values)):
            row = int(np.flatnonzero(~np.isfinite(values))[0])
            raise self._no_number(name, row, self.frame[name].iloc[row])
        return values

    def stamps_ns(self, name: str, unit: str) -> Indices:
        """A column of times in ``unit`` (s, ms, us, ns) as int64 nanoseconds; whole numbers lose nothing."""
        column: Any = self.frame[name]
        stamps = nanoseconds(self.numbers(name, whole=True), unit, f"{self.path.name}: {name}", name)
        return np.asarray(column, dtype=np.int64) * NS[unit] if pd.api.types.is_integer_dtype(column.dtype) else stamps

    def notes(self) -> tuple[str, ...]:
        """Sentences on what the file lacks."""
        notes = self.layout.notes(self.path)
        if not self.short:
            return notes
        which = f"{self.short} of {len(self)} lines end before the header's last column; the first is line"
        return (*notes, f"{self.path.name}: {which} {self.first_short}; the missing cells were read as empty")

    def _no_number(self, name: str, row: int, value: object) -> DataError:
        text = str(value)[:40]
        other = "," if self.layout.decimal == "." else "."
        remedy = "Correct the row"
        if text and text[0] in "#;%":
            remedy += ", or state how comments begin (comment=)"
        if other in text:
            here = "a point" if self.layout.decimal == "." else "a comma"
            remedy = f"The decimal mark of this file is {here}, and thousands marks are not read; correct the row"
            if self.layout.has_decimal and self.layout.decimal == ".":
                remedy += ", or state decimal=,"
        what = f"{self.path.name}: {name} is {text!r} in data row {row + 1}, which is not a number"
        return DataError(what, field=name, value=text, remedy=remedy)


def unit_of_time(text: str) -> str | None:
    """``msec`` -> ``ms``: a unit of time as ``nanoseconds`` takes it, None for any other."""
    unit = ALIASES.get(text.lower(), text)
    return unit if unit in NS else None


def nanoseconds(values: Floats, unit: str, where: str, field: str) -> Indices:
    """Times in ``unit`` (s, ms, us, ns), shape (n,), as int64 ns. Raises ``DataError`` beyond ``FARTHEST_S``."""
    scale = NS[unit]
    far = np.flatnonzero(np.abs(values) * (scale * 1e-9) > FARTHEST_S)
    if len(far):
        value = float(values[far[0]])
        what = f"{where} is {value:g} {unit} in data row {far[0] + 1}"
        raise DataError(what, field=field, value=value, remedy="Check the unit of time")
    return np.asarray(np.round(values * scale), dtype=np.int64)


def read(path: Path, names: Sequence[str], layout: Layout) -> Columns:
    """Read the named columns. Raises ``DataError`` for a file without them, and for one that is not a table."""
    known = list(layout.names)
    if missing := [n for n in names if n not in known]:
        what = f"has no column {missing[0]!r}"
        units = [n for n in known if named_unit(n)[0] == missing[0]]
        remedy = f"Write its name with the unit: {units[0]}" if units else f"Its columns: {', '.join(known)[:300]}"
        raise bad_file(path, what, remedy, field="columns", value=missing[0])
    if twice := [n for n in names if known.count(n) > 1]:
        raise bad_file(path, f"has two columns {twice[0]!r}", "Rename one of them", field="columns", value=twice[0])
    try:
        with warnings.catch_warnings(), path.open(encoding="utf-8-sig", newline="") as file:
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
            for _ in range(layout.above):
                file.readline()
            frame = pd.read_csv(
                file, sep=layout.separator, decimal=layout.decimal, index_col=False, skipinitialspace=True,
                low_memory=False, header=0, comment=layout.comment,
                skiprows=[layout.below] if layout.below else None,
            )  # fmt: skip
    except (OSError, ValueError, OverflowError, pd.errors.ParserWarning, pd.errors.ParserError) as error:
        raise unreadable(path, error) from error
    if len(frame.columns) != len(known):
        raise unreadable(path, ValueError(f"{len(known)} names and {len(frame.columns)} columns"))
    short = _short(path, layout) if len(frame) and frame.iloc[:, -1].isna().any() else []
    chosen = frame.iloc[:, [known.index(n) for n in names]]
    chosen.columns = pd.Index(names)
    return Columns(path, layout, chosen, len(short), short[0] if short else 0)


def _short(path: Path, layout: Layout) -> list[int]:
    """The numbers of the lines with fewer cells than the header, other than blank lines and comments."""
    first = layout.above + layout.below + 2
    found = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for _ in range(first - 1):
                file.readline()
            table = csv.reader(file, delimiter=layout.separator)
            for cells in table:
                blank = not cells or (layout.comment is not None and cells[0].startswith(layout.comment))
                if not blank and len(cells) < len(layout.names):
                    found.append(first - 1 + table.line_num)
    except (OSError, ValueError, csv.Error) as error:
        raise unreadable(path, error) from error
    return found
