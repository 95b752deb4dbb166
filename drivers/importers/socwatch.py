"""Intel SoC Watch: the tables of its CSV that contain power or energy over time."""

import csv
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from drivers.importers.csv_table import Columns, Layout, encoding_of, unit_of_time
from drivers.importers.files import bad_file, unstated
from drivers.importers.single_trace import Readings, SingleTrace, single_trace
from drivers.importers.time_axis import axis_of
from drivers.units import named_unit, unit_of
from rig.errors import reason
from rig.types import Conversion, Floats, Indices, Rail

TIME = re.compile(r"(?:.*\s)?time(?:stamp)?", re.I)
RULE = re.compile(r"[-=\s,]+")


@single_trace
def open_import(
    source: Path,
    *,
    rails: str | None = None,
    table: str | None = None,
    energy: str | None = None,
    time_unit: str | None = None,
    stamp: str | None = None,
) -> SingleTrace:
    """Import a table over time of a SoC Watch CSV: a column of time and columns of power or energy, with units.

    A table ends at a blank line; tables without time are skipped. ``table`` chooses a table by a part of its title. If
    it has several columns of power or energy, ``rails`` names those to import, with commas between them. A package
    contains its cores, so the sum of both would count the cores twice. ``energy`` states what a column of energy
    contains: the energy of each ``interval``, or a ``cumulative`` counter. ``stamp`` states whether a row is stamped at
    the start, the middle or the end of its interval; without it, times are uncertain by half an interval.

    Raises ``UsageError`` for an option that must be stated, ``DataError`` for a file without such a table.
    """
    chosen, names = chosen_table(tables_of(source), table, rails, source)
    stamps = stamps_of(chosen, time_unit)
    readings = [rail_of(chosen, name, stamps, energy, stamp) for name in names]
    return SingleTrace("Intel SoC Watch", readings, details={"table": chosen.title})


@dataclass
class Table:
    """One table of a file: its title, its header as names and units, and its rows of cells."""

    path: Path
    title: str
    columns: list[tuple[str, str]] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    def where(self, kinds: str) -> list[int]:
        """Return the columns whose SI unit is one of ``kinds``."""
        units = [unit_of(unit) for _, unit in self.columns]
        return [k for k, u in enumerate(units) if u is not None and u[0] in kinds]

    @property
    def time(self) -> int | None:
        found = [k for k, (name, _) in enumerate(self.columns) if TIME.fullmatch(name)]
        return found[0] if found else None

    def column(self, k: int) -> Columns:
        """Return one column; an empty cell is a missing value."""
        cells = [row[k] if k < len(row) else "" for row in self.rows]
        name = self.columns[k][0]
        return Columns(self.path, Layout((name,)), pd.DataFrame({name: cells}, dtype="string").replace("", pd.NA))


def tables_of(source: Path) -> list[Table]:
    """Return the tables between blank lines.

    The header is the first line with a unit or a column of time; the lines above it are the title.
    """
    out = []
    for block in _blocks(source):
        title: list[str] = []
        table: Table | None = None
        for cells in block:
            if RULE.fullmatch(",".join(cells)):
                continue
            if table is not None:
                table.rows.append(cells)
            elif len(cells) > 1 and any(named_unit(c)[1] or TIME.fullmatch(c) for c in cells):
                table = Table(source, " ".join(title)[:120], [named_unit(c) for c in cells])
            else:
                title += [c for c in cells if c]
        if table is not None:
            out.append(table)
    return out


def _blocks(source: Path) -> Iterator[list[list[str]]]:
    """Yield the rows between two blank lines, without the empty cells at the ends of rows. Raises ``DataError``."""
    try:
        with source.open(encoding=encoding_of(source), newline="") as file:
            rows = [[c.strip() for c in row] for row in csv.reader(file)]
    except (OSError, ValueError, csv.Error) as error:
        what = f"cannot be read as CSV: {reason(error)[:150]}"
        raise bad_file(source, what, "Export it again, as CSV in UTF-8") from error
    for cells in rows:
        while cells and not cells[-1]:
            cells.pop()
    for filled, block in itertools.groupby(rows, key=bool):
        if filled:
            yield list(block)


def chosen_table(tables: list[Table], table: str | None, rails: str | None, source: Path) -> tuple[Table, list[str]]:
    """Return the table over time and the columns to import."""
    timed = [t for t in tables if t.time is not None and t.where("WJ")]
    timed = [t for t in timed if table is None or table.lower() in t.title.lower()]
    if not timed:
        summed = any(t.where("WJ") for t in tables)
        what = "power only as totals, without time" if summed else "no table of power or energy over time"
        remedy = "Collect with the traces written (-r int or --max-detail), and import the trace's CSV"
        raise bad_file(source, f"holds {what}", remedy, field="table", value=table)
    if len(timed) > 1:
        how = f"table=TEXT, with a part of one of these titles: {'; '.join(t.title for t in timed)[:300]}"
        raise unstated("table", f"{source.name} holds {len(timed)} tables of power over time", how, table)
    chosen = timed[0]
    known = [chosen.columns[k][0] for k in chosen.where("WJ")]
    names = known if rails is None else [r.strip() for r in rails.split(",")]
    if (rails is None and len(known) > 1) or not set(names) <= set(known) or len(set(names)) < len(names):
        what = f"{source.name} holds {len(known)} columns of power or energy, and one column may be part of another"
        raise unstated("rails", what, f"rails=NAME,NAME with names from {', '.join(known)[:300]}", rails)
    return chosen, names


def stamps_of(table: Table, time_unit: str | None) -> Indices:
    """Return the times of the rows in ns. Raises ``UsageError`` if their unit must be stated."""
    assert table.time is not None
    name, unit = table.columns[table.time]
    known = unit_of_time(unit or time_unit or "", "time_unit", f"the column {name}", "State it: time_unit=ms")
    return table.column(table.time).stamps_ns(name, known)


def rail_of(table: Table, name: str, stamps: Indices, energy: str | None, stamp: str | None) -> Readings:
    """Return a rail with its readings: power unchanged, energy as a counter."""
    column = next(k for k in table.where("WJ") if table.columns[k][0] == name)
    unit, factor = unit_of(table.columns[column][1]) or ("W", 1.0)
    values = factor * table.column(column).numbers(name)
    if unit == "W":
        return Readings(Rail(name, "mean", Conversion("W")), axis_of([stamps], stamp), [(stamps, values)])
    if energy not in ("interval", "cumulative"):
        what = f"the column {name} is energy, but the file does not say if it is per interval or a running sum"
        raise unstated("energy", what, "energy=interval or energy=cumulative", energy)
    if energy == "cumulative":
        return Readings(Rail(name, "cumulative", Conversion("J")), axis_of([stamps], "end"), [(stamps, values)])
    at, sums = summed(stamps, values, stamp)
    axis = axis_of([at], "end")
    # if it is unknown which part of an interval is stamped, times are uncertain by half an interval
    axis = replace(axis, uncertainty_s=axis_of([stamps], stamp).uncertainty_s)
    return Readings(Rail(name, "cumulative", Conversion("J")), axis, [(at, sums)])


def summed(stamps: Indices, joules: Floats, stamp: str | None) -> tuple[Indices, Floats]:
    """Return moments and the energy (J) up to each, from the energy of each interval; shapes (n,) or (n - 1,).

    A row that comes late holds the energy since the row before. So energies are added, not powers over a typical
    interval. A row without energy leaves a missing value.
    """
    sums = np.cumsum(np.nan_to_num(joules)) + 0.0 * joules
    if stamp == "end":
        return stamps, sums
    if stamp == "start":
        return stamps, sums - joules
    return stamps[:-1] + np.diff(stamps) // 2, sums[:-1]
