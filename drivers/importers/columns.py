"""Columns of CSV files as arrays: read by pandas, refused by row and column where they hold no numbers."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from drivers.importers.units import NS
from rig.errors import DataError, UsageError
from rig.types import Floats, Indices

FARTHEST_S = 4e9
"""Seconds that nanoseconds in 64 bits hold with room to spare."""


def header(path: Path, separator: str = ",") -> list[str]:
    """The names in the first line that is not empty, without byte-order mark, quotes and spaces."""
    try:
        with path.open(encoding="utf-8-sig", errors="strict", newline="") as file:
            for row in csv.reader(file, delimiter=separator):
                if any(cell.strip() for cell in row):
                    return [cell.strip() for cell in row]
    except (OSError, ValueError, csv.Error) as error:
        raise _unread(path, error) from error
    raise DataError(f"{path.name} is empty", field="source", value=str(path), remedy="Export it again")


def read(path: Path, names: Sequence[str], separator: str = ",", decimal: str = ".") -> pd.DataFrame:
    """The named columns, in the order given. Raises ``DataError`` for what is no such table."""
    known = header(path, separator)
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
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
            frame = pd.read_csv(
                path, sep=separator, decimal=decimal, encoding="utf-8-sig", index_col=False, skipinitialspace=True,
                low_memory=False, header=0,
            )  # fmt: skip
    except (OSError, ValueError, OverflowError, pd.errors.ParserWarning, pd.errors.ParserError) as error:
        raise _unread(path, error) from error
    if len(frame.columns) != len(known):
        raise _unread(path, ValueError(f"{len(known)} names and {len(frame.columns)} columns"))
    chosen = frame.iloc[:, [known.index(n) for n in names]]
    chosen.columns = pd.Index(names)
    return chosen


def numbers(path: Path, frame: pd.DataFrame, name: str, *, whole: bool = False) -> Floats:
    """A column as float64, shape (n,); empty cells are NaN, refused where the column must be ``whole``."""
    column = frame[name]
    if pd.api.types.is_bool_dtype(column.dtype):
        raise _no_number(path, name, 0, column.iloc[0] if len(column) else "")
    if not pd.api.types.is_numeric_dtype(column.dtype):
        found = pd.to_numeric(column, errors="coerce")
        bad = np.flatnonzero(np.asarray(found.isna() & column.notna()))
        if len(bad):
            raise _no_number(path, name, int(bad[0]), column.iloc[bad[0]])
        column = found
    values = np.asarray(column, dtype=np.float64)
    if whole and not np.all(np.isfinite(values)):
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise _no_number(path, name, row, frame[name].iloc[row])
    return values


def stamps_ns(path: Path, frame: pd.DataFrame, name: str, unit: str) -> Indices:
    """A column of times in ``unit`` (s, ms, us, ns) as int64 nanoseconds; whole numbers lose nothing."""
    values = numbers(path, frame, name, whole=True)
    scale = NS[unit]
    far = np.flatnonzero(np.abs(values) * (scale * 1e-9) > FARTHEST_S)
    if len(far):
        raise DataError(
            f"{path.name}: {name} is {values[far[0]]:g} {unit} in data row {far[0] + 1}",
            field=name,
            value=float(values[far[0]]),
            remedy="Check the unit of time",
        )
    column: Any = frame[name]
    if pd.api.types.is_integer_dtype(column.dtype):
        return np.asarray(column, dtype=np.int64) * scale
    return np.asarray(np.round(values * scale), dtype=np.int64)


def separator_of(path: Path, given: str | None, option: str = "separator") -> str:
    """``given``, or the only one of comma, semicolon and tab that stands in the first line; else it is asked for."""
    if given is not None:
        chosen = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";"}.get(given, given)
        if len(chosen) == 1 and chosen not in '"\r\n':
            return chosen
        raise UsageError(f"{option} is {given!r}", field=option, value=given, remedy="Give one character")
    line = ",".join(header(path, "\x1f"))
    found = [c for c in ",;\t" if c in line]
    if len(found) > 1:
        raise UsageError(
            f"{path.name} may be separated by {' or '.join(map(repr, found))}",
            field=option,
            remedy=f"State it: {option}=, or ; or tab",
        )
    return found[0] if found else ","


def _no_number(path: Path, name: str, row: int, value: object) -> DataError:
    return DataError(
        f"{path.name}: {name} is {str(value)[:40]!r} in data row {row + 1}, which is no number",
        field=name,
        value=str(value)[:40],
        remedy="Mend the row; a decimal comma is stated with decimal=,",
    )


def _unread(path: Path, error: BaseException) -> DataError:
    what = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
    return DataError(
        f"{path.name} cannot be read as a table: {what}",
        field="source",
        value=str(path),
        remedy="Check that it is the exported CSV, whole and unedited",
    )
