"""Columns of CSV files as arrays: read by pandas, refused by row and column where they hold no numbers."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from drivers.importers.layout import Layout, unread
from drivers.units import NS
from rig.errors import DataError
from rig.types import Floats, Indices

FARTHEST_S = 4e9
"""Seconds that nanoseconds in 64 bits hold with room to spare."""


@dataclass(frozen=True)
class Columns:
    """Some columns of a table. ``short`` of its lines, the first of them line ``first_short``, end before the header.

    What they lack is read as empty cells.
    """

    path: Path
    layout: Layout
    frame: pd.DataFrame
    short: int = 0
    first_short: int = 0

    def __len__(self) -> int:
        return len(self.frame)

    def cells(self, name: str) -> list[Any]:
        """A column as it stands."""
        return list(self.frame[name].tolist())

    def numbers(self, name: str, *, whole: bool = False) -> Floats:
        """A column as float64, shape (n,); empty cells are NaN, refused where the column must be ``whole``."""
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
        values = self.numbers(name, whole=True)
        scale = NS[unit]
        far = np.flatnonzero(np.abs(values) * (scale * 1e-9) > FARTHEST_S)
        if len(far):
            raise DataError(
                f"{self.path.name}: {name} is {values[far[0]]:g} {unit} in data row {far[0] + 1}",
                field=name,
                value=float(values[far[0]]),
                remedy="Check the unit of time",
            )
        column: Any = self.frame[name]
        if pd.api.types.is_integer_dtype(column.dtype):
            return np.asarray(column, dtype=np.int64) * scale
        return np.asarray(np.round(values * scale), dtype=np.int64)

    def notes(self) -> tuple[str, ...]:
        """What a reader of the figures should know of the file."""
        said = self.layout.notes(self.path)
        if not self.short:
            return said
        which = f"{self.short} of {len(self)} lines end before the header's last column, the first in line"
        return (*said, f"{self.path.name}: {which} {self.first_short}; what they lack was read as empty")

    def _no_number(self, name: str, row: int, value: object) -> DataError:
        text = str(value)[:40]
        other = "," if self.layout.decimal == "." else "."
        remedy = "Mend the row, or say how comments begin (comment=)" if text[:1] in "#;%" and text[:1] else "Mend it"
        if other in text:
            here = "points" if self.layout.decimal == "." else "commas"
            remedy = f"Decimals have {here} in this file, and thousands may not be marked; mend the row"
            if self.layout.asks and self.layout.decimal == ".":
                remedy += ", or state decimal=,"
        return DataError(
            f"{self.path.name}: {name} is {text!r} in data row {row + 1}, which is no number",
            field=name,
            value=text,
            remedy=remedy,
        )


def read(path: Path, names: Sequence[str], layout: Layout) -> Columns:
    """The named columns. Raises ``DataError`` for what is no such table."""
    known = list(layout.names)
    if missing := [n for n in names if n not in known]:
        raise DataError(
            f"{path.name} has no column {missing[0]!r}",
            field="columns",
            value=missing[0],
            remedy=f"Its columns: {', '.join(known)[:300]}",
        )
    if twice := [n for n in names if known.count(n) > 1]:
        raise DataError(f"{path.name} has two columns {twice[0]!r}", field="columns", remedy="Rename one of them")
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
        raise unread(path, error) from error
    if len(frame.columns) != len(known):
        raise unread(path, ValueError(f"{len(known)} names and {len(frame.columns)} columns"))
    short = _short(path, layout) if len(frame) and frame.iloc[:, -1].isna().any() else []
    chosen = frame.iloc[:, [known.index(n) for n in names]]
    chosen.columns = pd.Index(names)
    return Columns(path, layout, chosen, len(short), short[0] if short else 0)


def _short(path: Path, layout: Layout) -> list[int]:
    """Numbers of the lines with fewer cells than the header; blank ones and comments are none."""
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
        raise unread(path, error) from error
    return found
