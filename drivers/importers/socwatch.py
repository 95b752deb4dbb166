"""Intel SoC Watch: the tables of its CSV that give power or energy over time."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from drivers.importers.axis import Axis, axis_of
from drivers.importers.columns import FARTHEST_S
from drivers.importers.single import Limits, Readings, Setting, imported
from drivers.importers.windows import stated
from drivers.units import NS, named_unit, unit_of
from rig.errors import DataError, UsageError
from rig.importing.write import CRYSTAL, ImportedRun
from rig.types import Conversion, Floats, Indices, Rail

TIME = re.compile(r"(?:.*\s)?time(?:stamp)?", re.I)
RULE = re.compile(r"[-=\s,]+")


def open_import(
    source: Path,
    *,
    rails: str | None = None,
    table: str | None = None,
    energy: str | None = None,
    time_unit: str | None = None,
    stamp: str | None = None,
    windows: str | None = None,
    idle: str | None = None,
    sync_s: float = 0.0,
    clock_tolerance: float = CRYSTAL,
    calibration: str | None = None,
    calibration_range: float | None = None,
    temperature_c: float | None = None,
) -> ImportedRun:
    """A SoC Watch CSV with a table over time: a column of time and columns of power or energy, units in the headers.

    A table ends at a blank line; others are passed over. Where there is more than one such column ``rails`` names those
    to take, comma between them (``table`` the table, by a part of its title), because a package contains its cores and
    their sum would count them twice. ``energy`` says whether columns of energy hold it ``interval`` by interval or as a
    ``cumulative`` counter. ``stamp`` says whether a row is stamped at the start, the middle or the end of its interval;
    unknown, half an interval is doubted. ``windows`` names a table start,end[,phase,inferences] in seconds of the
    file, ``idle`` declares idle windows as START:END,...; ``sync_s`` is how far the windows' clock may be off.

    Raises ``UsageError`` for what must be stated, ``DataError`` for files that hold no such table.
    """
    found = stated(windows, idle)
    if not found.spans:
        raise UsageError(
            "nothing says when the device was at work",
            field="windows",
            remedy="Give windows=FILE.csv: start,end[,phase,inferences] in seconds of the file",
        )
    chosen, names = _chosen(_tables(source), table, rails, source)
    stamps = _stamps(chosen, time_unit)
    readings = []
    for name in names:
        rail, axis, values = _rail(chosen, name, stamps, energy, stamp)
        readings.append(Readings(rail, axis, values))
    details = {"table": chosen.title}
    limits = Limits(calibration, calibration_range, temperature_c)
    setting = Setting("Intel SoC Watch", sync_s=sync_s, clock_tolerance=clock_tolerance, details=details, limits=limits)
    return imported(source, setting, readings, found)


@dataclass
class _Table:
    """One table: its title, its header by name and unit, and its cells as text."""

    title: str
    columns: list[tuple[str, str]] = field(default_factory=list)
    rows: list[tuple[int, list[str]]] = field(default_factory=list)

    def where(self, kinds: str) -> list[int]:
        """Columns in one of these SI units."""
        units = [unit_of(unit) for _, unit in self.columns]
        return [k for k, u in enumerate(units) if u is not None and u[0] in kinds]

    @property
    def time(self) -> int | None:
        """The column of time."""
        found = [k for k, (name, _) in enumerate(self.columns) if TIME.fullmatch(name)]
        return found[0] if found else None


def _tables(source: Path) -> list[_Table]:
    """Blocks of lines between blank ones; the first line with a unit in it is the header, what is above the title."""
    out = []
    for block in _blocks(source):
        title: list[str] = []
        table: _Table | None = None
        for number, cells in block:
            if RULE.fullmatch(",".join(cells)):
                continue
            if table is not None:
                table.rows.append((number, cells))
            elif len(cells) > 1 and any(named_unit(c)[1] or TIME.fullmatch(c) for c in cells):
                table = _Table(" ".join(title)[:120], [named_unit(c) for c in cells])
            else:
                title += [c for c in cells if c]
        if table is not None:
            out.append(table)
    return out


def _blocks(source: Path) -> Iterator[list[tuple[int, list[str]]]]:
    block: list[tuple[int, list[str]]] = []
    try:
        with source.open(encoding="utf-8-sig", newline="") as file:
            for number, row in enumerate(csv.reader(file), start=1):
                cells = [cell.strip() for cell in row]
                while cells and not cells[-1]:
                    cells.pop()  # trailing commas
                if cells:
                    block.append((number, cells))
                elif block:
                    yield block
                    block = []
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(
            f"{source.name} cannot be read as CSV: {str(error)[:150]}",
            field="source",
            value=str(source),
            remedy="Export it again, as CSV in UTF-8",
        ) from error
    if block:
        yield block


def _chosen(tables: list[_Table], table: str | None, rails: str | None, source: Path) -> tuple[_Table, list[str]]:
    """The table over time and the columns to take."""
    timed = [t for t in tables if t.time is not None and t.where("WJ")]
    timed = [t for t in timed if table is None or table.lower() in t.title.lower()]
    if not timed:
        summed = any(t.where("WJ") for t in tables)
        raise DataError(
            f"{source.name} holds "
            + ("power only as totals, without time" if summed else "no table of power or energy over time"),
            field="table",
            value=table,
            remedy="Collect with the traces written (-r int or --max-detail), and import the trace's CSV",
        )
    if len(timed) > 1:
        raise UsageError(
            f"{source.name} holds {len(timed)} tables of power over time",
            field="table",
            value=table,
            remedy=f"Say which: table=, part of one of: {'; '.join(t.title for t in timed)[:300]}",
        )
    chosen = timed[0]
    known = [chosen.columns[k][0] for k in chosen.where("WJ")]
    names = known if rails is None else [r.strip() for r in rails.split(",")]
    if (rails is None and len(known) > 1) or not set(names) <= set(known) or len(set(names)) < len(names):
        raise UsageError(
            f"{source.name} holds {len(known)} columns of power or energy, and some may contain others",
            field="rails",
            value=rails,
            remedy=f"Say which, comma between them: rails=, of {', '.join(known)[:300]}",
        )
    return chosen, names


def _stamps(table: _Table, time_unit: str | None) -> Indices:
    assert table.time is not None
    name, stated_unit = table.columns[table.time]
    found = unit_of(stated_unit or time_unit or "")
    scale = {1.0: "s", 1e-3: "ms", 1e-6: "us", 1e-9: "ns"}.get(found[1]) if found and found[0] == "s" else None
    if scale is None:
        raise UsageError(
            f"the column {name} does not say its unit", field="time_unit", value=stated_unit, remedy="time_unit=ms"
        )
    seconds = _numbers(table, table.time, whole=True)
    if np.any(np.abs(seconds) * (NS[scale] * 1e-9) > FARTHEST_S):
        raise DataError(f"the column {name} holds {np.max(np.abs(seconds)):g}", field="time", remedy="Check its unit")
    return np.asarray(np.round(seconds * NS[scale]), dtype=np.int64)


def _rail(
    table: _Table, name: str, stamps: Indices, energy: str | None, stamp: str | None
) -> tuple[Rail, Axis, Floats]:
    """A column of power as it stands; of energy as means over its intervals, or as a counter."""
    column = next(k for k in table.where("WJ") if table.columns[k][0] == name)
    unit, factor = unit_of(table.columns[column][1]) or ("W", 1.0)
    values = factor * _numbers(table, column)
    if unit == "W":
        return Rail(name, "mean", Conversion("W")), axis_of(stamps, stamp), values
    if energy not in ("interval", "cumulative"):
        raise UsageError(
            f"{name} is energy: of each interval, or since the beginning?",
            field="energy",
            value=energy,
            remedy="State it: energy=interval or energy=cumulative",
        )
    if energy == "cumulative":
        return Rail(name, "cumulative", Conversion("J")), axis_of(stamps, None, "point"), values
    axis = axis_of(stamps, stamp)
    if axis.start_ns is None or axis.end_ns is None:
        return Rail(name, "mean", Conversion("W")), axis, values * axis.rate_hz
    length_s = np.maximum(axis.end_ns - axis.start_ns, 1) * 1e-9
    return Rail(name, "mean", Conversion("W")), axis, values / length_s


def _numbers(table: _Table, column: int, whole: bool = False) -> Floats:
    """A column as float64, shape (n,); an empty cell is NaN unless the column must be ``whole``."""
    out = np.empty(len(table.rows))
    for k, (line, cells) in enumerate(table.rows):
        text = cells[column] if column < len(cells) else ""
        try:
            out[k] = float(text) if text or whole else np.nan
        except ValueError:
            out[k] = np.inf
        if np.isinf(out[k]) or (whole and not np.isfinite(out[k])):
            raise DataError(
                f"{table.columns[column][0]} is {text[:40]!r} in line {line}",
                field=table.columns[column][0],
                value=text[:40],
                remedy="Export the file again; a table ends at a blank line",
            )
    return out
