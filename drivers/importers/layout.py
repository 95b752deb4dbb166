"""How a table lies in a text file: where its header stands, what separates columns, which mark decimals have."""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.errors import DataError, UsageError

SEARCHED = 2000
"""Lines in which a header is looked for; data in them show the decimal mark."""
SEPARATORS = ",;\t"
Fits = Callable[[Sequence[str]], Sequence[str] | None]
"""Of the names in a line: those of the columns that will be read, or None when it is not the header."""
_NUMBER = re.compile(r"[-+]?[\d.,]*\d[.,]?(?:[eE][-+]?\d+)?")
_GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}([.,])\d{3}(?:\1\d{3})*")
"""1.955 is one thousand nine hundred and fifty-five in one country and not quite two in another."""


@dataclass(frozen=True)
class Layout:
    """One table. ``above`` lines stand before its header, ``below`` between that and its first row.

    ``units`` are of the row below the header that holds no numbers, one for each of ``names``, if there is one.
    ``asks`` says whether its reader has the option ``decimal``.
    """

    names: tuple[str, ...]
    separator: str = ","
    decimal: str = "."
    above: int = 0
    below: int = 0
    units: tuple[str, ...] = ()
    comment: str | None = None
    asks: bool = False

    def unit_below(self, name: str) -> str:
        """What the row of units says of a column."""
        return self.units[self.names.index(name)] if self.units else ""

    def notes(self, path: Path) -> tuple[str, ...]:
        """What of the file is no part of the table."""
        found = []
        if self.above:
            found.append(f"{path.name}: {self.above} lines before the header were passed over")
        if self.units:
            words = ", ".join(u for u in self.units if u)[:80]
            found.append(f"{path.name}: the line below the header was taken for units: {words}")
        return tuple(found)


def find(
    path: Path,
    fits: Fits,
    separator: str | None = None,
    decimal: str | None = None,
    comment: str | None = None,
    *,
    asks: bool = False,
) -> Layout:
    """The layout of the table whose header ``fits``: preambles and comments before it are passed over.

    Without such a line the first that is not empty stands as the header, for the caller to refuse. Raises ``DataError``
    for what is no text, ``UsageError`` for a separator or a decimal mark that must be stated.
    """
    if comment is not None and (len(comment) != 1 or comment in SEPARATORS + "\"'\r\n"):
        raise UsageError(f"comment is {comment!r}", field="comment", value=comment, remedy="Give one character, as #")
    lines = _head(path)
    given = _separator(separator)
    for above, line in enumerate(lines):
        found = [(s, names) for s in ([given] if given else SEPARATORS) if fits(names := _cells(line, s)) is not None]
        if found:
            sep = _of_several([s for s, _ in found], line, path, decimal)
            names = next(n for s, n in found if s == sep or len(found) == 1)
            return _below(
                path, lines, Layout(tuple(names), sep, above=above, comment=comment, asks=asks), fits, decimal
            )
    first = next((k for k, line in enumerate(lines) if line.strip()), None)
    if first is None:
        raise DataError(f"{path.name} is empty", field="source", value=str(path), remedy="Export it again")
    sep = given or _of_several([s for s in SEPARATORS if s in lines[first]] or [","], lines[first], path, decimal)
    return Layout(tuple(_cells(lines[first], sep)), sep, decimal or ".", above=first, comment=comment, asks=asks)


def all_of(wanted: Sequence[str]) -> Fits:
    """A header in which all of these names stand."""
    return lambda names: wanted if set(wanted) <= set(names) else None


def _head(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return [line.rstrip("\r\n") for line in itertools.islice(file, SEARCHED)]
    except (OSError, ValueError) as error:
        raise unread(path, error) from error


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
        raise UsageError(f"separator is {given!r}", field="separator", value=given, remedy="Give one character")
    return chosen


def _of_several(found: Sequence[str], line: str, path: Path, decimal: str | None) -> str:
    """The one separator that stands in the header. A table of one column has none."""
    there = [s for s in found if s in line]
    if len(there) > 1:
        raise UsageError(
            f"{path.name} may be separated by {' or '.join(map(repr, there))}",
            field="separator",
            remedy="State it: separator=, or ; or tab",
        )
    return there[0] if there else found[0] if len(found) == 1 or decimal != "," else ";"


def _below(path: Path, lines: Sequence[str], layout: Layout, fits: Fits, decimal: str | None) -> Layout:
    """The layout with what the lines below the header show: a row of units, and the decimal mark."""
    wanted = fits(layout.names) or ()
    at = [layout.names.index(name) for name in wanted]
    rows = []
    for k in range(layout.above + 1, len(lines)):
        if lines[k].strip() and not (layout.comment and lines[k].startswith(layout.comment)):
            rows.append((k, _cells(lines[k], layout.separator)))
    below, units = 0, tuple[str, ...]()
    if rows and _is_units([rows[0][1][i] for i in at if i < len(rows[0][1])]):
        cells = rows[0][1] + [""] * len(layout.names)
        below, units = rows[0][0] - layout.above, tuple(cells[: len(layout.names)])
        rows = rows[1:]
    cells = [row[i] for _, row in rows for i in at if i < len(row)]
    mark = _decimal(path, [c for c in cells if _NUMBER.fullmatch(c)], layout, decimal)
    return Layout(layout.names, layout.separator, mark, layout.above, below, units, layout.comment, layout.asks)


def _is_units(cells: Sequence[str]) -> bool:
    """A row of words in every column that matters; a row of data has a digit in one of them, or is a NaN."""
    said = [c for c in cells if c]
    return bool(said) and not any(re.search(r"\d", c) or _is_nan(c) for c in said)


def _is_nan(cell: str) -> bool:
    try:
        return not math.isfinite(float(cell))
    except ValueError:
        return cell.lower() in ("na", "n/a", "null", "none", "-", "<na>", "#n/a")


def _decimal(path: Path, cells: Sequence[str], layout: Layout, given: str | None) -> str:
    """The decimal mark: as stated, or as the numbers show, or asked for.

    Where columns are separated by commas it is the point. Elsewhere a number such as 1.955 leaves it open, and any
    that has other than three digits behind its mark, or a nought before it, does not.
    """
    if given is not None:
        if given not in (".", ","):
            raise UsageError(f"decimal is {given!r}", field="decimal", value=given, remedy="Give . or ,")
        return given
    if layout.separator == ",":
        return "."
    marked = [c for c in cells if "." in c or "," in c]
    plain = {"," if "," in c else "." for c in marked if not _GROUPED.fullmatch(c) and not ("." in c and "," in c)}
    if len(plain) == 1:
        return plain.pop()
    if not marked:
        return "."
    first = marked[0]
    state = "State it: decimal=. or decimal=," if layout.asks else "Write numbers with a point, and no thousands marked"
    raise UsageError(
        f"{path.name} is separated by {layout.separator!r}, and its numbers, such as {first}, may have their decimals "
        "or their thousands marked",
        field="decimal",
        value=first,
        remedy=state,
    )


def unread(path: Path, error: BaseException) -> DataError:
    """The error for what is no table at all."""
    what = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
    return DataError(
        f"{path.name} cannot be read as a table: {what}",
        field="source",
        value=str(path),
        remedy="Check that it is the exported CSV, whole and unedited",
    )
