"""Tables in text files: find their layout, and read their columns as arrays.

The layout is the place of the header, the column separator and the decimal mark. An error names the row and the column
of a cell that is not a number.
"""

import csv
import itertools
import math
import re
import warnings
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from drivers.importers.files import bad_file, unstated
from drivers.importers.time_axis import TimeAxis, axis_of
from drivers.units import ALIASES, NS, named_unit, with_overloads
from rig.errors import DataError, UsageError, reason, refused
from rig.recording.disk.size_limits import check_lines
from rig.types import Floats, Indices

SEARCHED = 2000
"""The header and the decimal mark are searched for in this many lines at the begin of a file."""
SEPARATORS = ",;\t"
Fits = Callable[[Sequence[str]], Sequence[str] | None]
"""A function of the names in a line: the names of the columns to read, or None if the line is not the header."""
_NUMBER = re.compile(r"[-+]?[\d.,]*\d[.,]?(?:[eE][-+]?\d+)?")
_GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}([.,])\d{3}(?:\1\d{3})*")
"""A number with two meanings: 1.955 is 1955 in some countries and less than 2 in others."""
FARTHEST_S = 4e9
"""The largest time that is accepted (s); 64-bit nanoseconds can represent twice as much."""
ROWS, CELLS = 1 << 20, 1 << 22
"""The largest number of rows, and the largest number of cells, that are read at once."""


@dataclass(frozen=True)
class Layout:
    """The place of a table: ``above`` lines come before its header.

    ``units`` are the cells of a row of units, one for each of ``names``. This row is ``below`` lines below the header.
    Without such a row, ``units`` is empty and ``below`` is 0. ``has_decimal`` tells whether the importer has the option
    ``decimal``, so that a remedy may name it.
    """

    names: tuple[str, ...]
    separator: str = ","
    decimal: str = "."
    above: int = 0
    below: int = 0
    units: tuple[str, ...] = ()
    has_decimal: bool = False
    encoding: str = "utf-8-sig"
    read: tuple[str, ...] = ()
    """The names of the columns to read."""

    def notes(self, path: Path) -> tuple[str, ...]:
        """Return sentences on the lines of the file that are not part of the table."""
        found = []
        if self.above:
            found.append(f"{path.name}: lines before the header were skipped: {self.above}")
        if self.units:
            words = ", ".join(u for u in self.units if u)[:80]
            found.append(f"{path.name}: the line below the header was read as units: {words}")
        return tuple(found)


def find(
    path: Path,
    fits: Fits,
    separator: str | None = None,
    decimal: str | None = None,
    *,
    has_decimal: bool = False,
    encoding: str | None = None,
    form: tuple[str, str] | None = None,
) -> Layout:
    """Find the table whose header ``fits``. Lines before it, such as comments, are skipped.

    If no header fits, the header is taken to be the line above the first row of numbers, or else the first line that is
    not empty. The file is then refused as not of this ``form`` (its name, and a remedy); without a form, the caller
    refuses the layout. Raises ``DataError``, also for a file that is not text in its encoding. Raises ``UsageError``
    for an unknown encoding, and for a separator or a decimal mark that must be stated.
    """
    (lines, encoding), given = _head(path, encoding), _separator(separator)
    for above, line in enumerate(lines):
        found = {s: names for s in given or SEPARATORS if fits(names := _cells(line, s)) is not None}
        if found:
            sep = _of_several([*found], line, path, decimal)
            names = found[sep] if sep in found else next(iter(found.values()))
            read = tuple(fits(names) or ())
            layout = Layout(tuple(names), sep, above=above, has_decimal=has_decimal, encoding=encoding, read=read)
            return _below(path, lines, layout, decimal)
    filled = [k for k, line in enumerate(lines) if line.strip()]
    if not filled:
        raise bad_file(path, "is empty", "Export it again")
    above_numbers = (k for k, row in pairwise(filled) if _is_row(lines[row], given) and not _is_row(lines[k], given))
    first = next(above_numbers, filled[0])
    sep = given or _of_several([s for s in SEPARATORS if s in lines[first]] or [","], lines[first], path, decimal)
    names = _cells(lines[first], sep)
    if form is not None:
        raise bad_file(path, f"is not {form[0]}: its columns are {', '.join(names)[:200]}", form[1])
    return Layout(tuple(names), sep, decimal or ".", first, has_decimal=has_decimal, encoding=encoding)


def all_of(wanted: Sequence[str]) -> Fits:
    """Return a ``Fits`` for a header that contains all of these names."""
    return lambda names: wanted if set(wanted) <= set(names) else None


def encoding_of(path: Path) -> str:
    """Return UTF-16 if a table's byte order mark says so, else UTF-8. Raises ``OSError`` as ``check_lines`` does."""
    check_lines(path)
    with path.open("rb") as file:
        return "utf-16" if file.read(2) in (BOM_UTF16_LE, BOM_UTF16_BE) else "utf-8-sig"


def _head(path: Path, stated: str | None) -> tuple[list[str], str]:
    try:
        shown = encoding_of(path)
        with path.open(encoding=stated or shown, newline="") as file:
            return [line.rstrip("\r\n") for line in itertools.islice(file, SEARCHED)], stated or shown
    except LookupError as error:
        raise refused("encoding", stated, "Name one that Python knows, such as latin-1") from error
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def _cells(line: str, separator: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator), [])]
    except csv.Error:
        return []


def _separator(given: str | None) -> str | None:
    if given is None:
        return None
    chosen = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";"}.get(given, given)
    if len(chosen) != 1 or chosen in '"\r\n':
        raise refused("separator", given, "Give one character")
    return chosen


def _of_several(found: Sequence[str], line: str, path: Path, decimal: str | None) -> str:
    """Return the one separator that is in the header. Raises ``UsageError`` if there are several.

    A header of one column has no separator. Then any separator but the decimal mark will do.
    """
    there = [s for s in found if s in line]
    if len(there) > 1:
        what = f"{path.name} may be separated by {' or '.join(map(repr, there))}"
        raise unstated("separator", what, "separator=,  separator=;  or separator=tab")
    return there[0] if there else found[0] if len(found) == 1 or decimal != "," else ";"


def _below(path: Path, lines: Sequence[str], layout: Layout, decimal: str | None) -> Layout:
    """Return the layout, completed from the lines below the header: the row of units and the decimal mark."""
    at = [layout.names.index(name) for name in layout.read]
    filled = [k for k in range(layout.above + 1, len(lines)) if lines[k].strip()]
    rows = [(k, _cells(lines[k], layout.separator)) for k in filled]
    below, units = 0, tuple[str, ...]()
    if rows and _is_units([rows[0][1][i] for i in at if i < len(rows[0][1])]):
        cells = rows[0][1] + [""] * len(layout.names)
        below, units = rows[0][0] - layout.above, tuple(cells[: len(layout.names)])
        rows = rows[1:]
    cells = [row[i] for _, row in rows for i in at if i < len(row)]
    mark = _decimal(path, [c for c in cells if _NUMBER.fullmatch(c)], layout, decimal)
    return replace(layout, decimal=mark, below=below, units=units)


def _is_row(line: str, separator: str | None) -> bool:
    """Return whether a line has at least two cells, and each cell begins with a number, as a date does."""
    rows = ([c for c in _cells(line, s) if c] for s in separator or SEPARATORS)
    return any(len(row) > 1 and all(_NUMBER.match(c) for c in row) for row in rows)


def _is_units(cells: Sequence[str]) -> bool:
    """Return whether a row has only words in the columns that are read. A row of data has a digit or a NaN there."""
    words = [c for c in cells if c]
    return bool(words) and not any(re.search(r"\d", c) or _is_nan(c) for c in words)


def _is_nan(cell: str) -> bool:
    try:
        return not math.isfinite(float(cell))
    except ValueError:
        return cell.lower() in ("na", "n/a", "null", "none", "-", "<na>", "#n/a")


def _decimal(path: Path, cells: Sequence[str], layout: Layout, given: str | None) -> str:
    """Return the decimal mark: the stated one, or the one that follows from the numbers.

    If commas separate the columns, the mark is the point. Otherwise a number such as 1.955 is ambiguous. A number that
    begins with zero decides, and so does one with more or fewer than three digits after its mark. Raises ``UsageError``
    if the numbers leave the mark open.
    """
    if given is not None:
        if given not in (".", ","):
            raise refused("decimal", given, "Give . or ,")
        return given
    if layout.separator == ",":
        return "."
    marked = [c for c in cells if "." in c or "," in c]
    plain = {"," if "," in c else "." for c in marked if not _GROUPED.fullmatch(c) and not ("." in c and "," in c)}
    if len(plain) == 1:
        return plain.pop()
    if not marked:
        return "."
    what = f"{path.name}: the mark in numbers such as {marked[0]} may be a decimal mark or a thousands mark"
    if layout.has_decimal:
        raise unstated("decimal", what, "decimal=. or decimal=,", marked[0])
    raise UsageError(what, field="decimal", value=marked[0], remedy="Write a decimal point and no thousands marks")


def unreadable(path: Path, error: BaseException) -> DataError:
    """Return the error for a file that cannot be read as a table."""
    if isinstance(error, FileNotFoundError):
        return bad_file(path, "does not exist", "Check its name and its folder")
    if isinstance(error, UnicodeError):
        remedy = "Save it as UTF-8, or import it as plain-csv with its encoding, such as encoding=latin-1"
        return bad_file(path, f"is not text in its encoding: {error}", remedy, field="encoding")
    what = reason(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
    remedy = "Check that each row has the fields of its header, and that it is a complete, unedited export"
    return bad_file(path, f"cannot be read as a table: {what}", remedy)


# ---- columns -----------------------------------------------------------------------------


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
            text = column.astype("string").str.strip().str.replace("∞", "inf", regex=False)  # as PicoScope writes it
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
    """Return the unit of ``NS`` that ``text`` names: ``ms`` for ``msec``. Raises ``UsageError`` if it names none."""
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
