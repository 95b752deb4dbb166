"""The layout of a table in a text file: the place of its header, the column separator, and the decimal mark."""

from __future__ import annotations

import csv
import itertools
import math
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from drivers.importers.files import bad_file, unstated
from rig.errors import DataError, UsageError, reason, refused
from rig.recording.disk.bounded import check_lines

SEARCHED = 2000
"""The header and the decimal mark are searched for in this many lines at the begin of a file."""
SEPARATORS = ",;\t"
Fits = Callable[[Sequence[str]], Sequence[str] | None]
"""A function of the names in a line: the names of the columns to read, or None if the line is not the header."""
_NUMBER = re.compile(r"[-+]?[\d.,]*\d[.,]?(?:[eE][-+]?\d+)?")
_GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}([.,])\d{3}(?:\1\d{3})*")
"""A number with two meanings: 1.955 is 1955 in some countries and less than 2 in others."""


@dataclass(frozen=True)
class Layout:
    """The place of a table: ``above`` lines come before its header.

    ``units`` are the cells of a row of units, one for each of ``names``, which is ``below`` lines below the header.
    Without such a row, they are empty and 0. ``has_decimal`` tells whether the importer has the option ``decimal``, so
    that a remedy may name it.
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
    refuses the layout. Raises ``DataError``, also for a file that is not text in its encoding, and ``UsageError`` for
    an unknown encoding, and for a separator or a decimal mark that must be stated.
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
    """Return UTF-16 if the byte order mark of a table says so, else UTF-8. Raises ``OSError`` as ``check_lines``."""
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

    A header of one column has no separator. Then any will do, but not the decimal mark.
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

    If commas separate the columns, the mark is the point. Otherwise a number such as 1.955 is ambiguous. A number
    decides if it begins with zero, or if other than three digits follow its mark. Raises ``UsageError`` if the numbers
    leave the mark open.
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
    return bad_file(path, f"cannot be read as a table: {what}", "Check that it is the complete, unedited CSV export")
