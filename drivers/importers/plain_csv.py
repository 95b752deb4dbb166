"""Any CSV whose columns and units are declared: what an oscilloscope, a logger or a script of one's own writes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from drivers.importers.axis import Axis, axis_of
from drivers.importers.columns import Columns, read
from drivers.importers.layout import all_of, find
from drivers.importers.single import Limits, Readings, Setting, imported, positive, supply, watts
from drivers.importers.windows import Windows, stated
from drivers.units import ALIASES, NS, agree, expect, iso_ns
from rig.errors import DataError, UsageError
from rig.importing.write import CRYSTAL, ImportedRun
from rig.types import Conversion, Floats, Indices, Mode, Rail, TraceKind

UNITS = {"power": "W", "current": "A", "voltage": "V", "energy": "J"}
Declared = list[tuple[str, str]]
"""Columns, each with its unit."""


def open_import(
    source: Path,
    *,
    time: str | None = None,
    rate_hz: float | None = None,
    power: str | None = None,
    current: str | None = None,
    voltage: str | None = None,
    energy: str | None = None,
    supply_v: float | None = None,
    stamp: str | None = None,
    kind: str = "mean",
    timezone: str | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    comment: str | None = None,
    overrule_header: bool = False,
    windows: str | None = None,
    idle: str | None = None,
    sync_s: float = 0.0,
    clock_tolerance: float = CRYSTAL,
    simulated: bool = False,
    meter: str = "recorded trace",
    system: str = "device under test",
    calibration: str | None = None,
    calibration_range: float | None = None,
    temperature_c: float | None = None,
) -> ImportedRun:
    """Columns declared as NAME:UNIT. ``time`` in s, ms, us, ns or iso (ISO 8601, in ``timezone`` where a stamp does not

    say its own); or ``rate_hz`` where there is none. Readings are ``power`` (W, mW, uW), one rail for each of several
    columns with semicolons between them; or ``current`` (A, mA, ...) with ``voltage`` (V, mV) or ``supply_v``; or
    ``energy`` (J, mJ), a counter since the beginning. ``kind`` is mean or point; ``stamp`` says whether a mean is
    stamped at the start, the middle or the end of its interval; unknown, half an interval is doubted. ``windows``
    names a table start,end[,phase,inferences] in seconds of the same axis (ISO stamps for an iso axis), ``idle``
    declares idle windows as START:END,... in seconds; ``sync_s`` is how far the windows' clock may be off, if it is
    another. ``simulated`` says that the trace was computed; ``meter`` and ``system`` name instrument and device.

    The header is the line that holds the declared columns; what stands before it is passed over, and so are lines that
    begin with ``comment`` (one character). ``separator`` and ``decimal`` describe the file, where it leaves them open.
    A unit that the header states and that is declared otherwise is refused, but for ``overrule_header``.

    Raises ``UsageError`` for what must be stated, ``DataError`` for what is no such table.
    """
    found = _windows(windows, idle, timezone)
    if kind not in ("mean", "point"):
        raise UsageError(f"kind is {kind!r}", field="kind", value=kind, remedy="Give mean or point")
    said = {"power": power, "current": current, "voltage": voltage, "energy": energy}
    declared = {name: _declared(name, text) for name, text in said.items() if text is not None}
    _check_sources(declared)
    at = _time_column(time, rate_hz)
    asked = {"time": [at] if at else []} | declared
    columns = list(dict.fromkeys(name for pairs in asked.values() for name, _ in pairs))
    layout = find(source, all_of(columns), separator, decimal, comment, asks=True)
    for option, name, unit in [(o, *pair) for o, pairs in asked.items() for pair in pairs if not overrule_header]:
        agree(name, layout.unit_below(name) if name in layout.names else "", unit, option)
    table = read(source, columns, layout)
    what: TraceKind = "cumulative" if energy is not None else "point" if kind == "point" else "mean"
    axis = _axis(table, at, rate_hz, stamp, what, timezone)
    readings = [Readings(rail, axis, values) for rail, values in _rails(table, declared, supply_v, what)]
    day = datetime.fromtimestamp(axis.t0_ns * 1e-9, UTC).date() if at and at[1] == "iso" else None
    limits = Limits(calibration, calibration_range, temperature_c, day)
    mode: Mode = "simulator" if simulated else "hardware"
    setting = Setting(meter, system, mode, sync_s, clock_tolerance, limits=limits)
    return imported(source, setting, readings, found, notes=table.notes())


def _windows(windows: str | None, idle: str | None, timezone: str | None) -> Windows:
    found = stated(windows, idle, timezone)
    if not found.spans:
        raise UsageError(
            "nothing says when the device was at work",
            field="windows",
            remedy="Give windows=FILE.csv: start,end[,phase,inferences] in seconds of the trace",
        )
    return found


def _check_sources(declared: dict[str, Declared]) -> None:
    sources = [name for name in ("power", "current", "energy") if name in declared]
    if len(sources) != 1:
        raise UsageError(
            f"{' and '.join(sources) or 'no column'} declared as what is read",
            field="power",
            remedy="Declare one of power=COLUMN:W, current=COLUMN:A (with voltage= or supply_v=), energy=COLUMN:J",
        )


def _declared(option: str, text: str) -> Declared:
    """``COL:mW;COL2:mW`` -> [("COL", "mW"), ("COL2", "mW")]. Raises ``UsageError`` for a unit left out."""
    pairs: Declared = []
    for part in text.split(";"):
        name, _, unit = part.rpartition(":")
        if not name:
            raise UsageError(
                f"{option}={part} does not state a unit",
                field=option,
                value=text,
                remedy=f"Write {option}=COLUMN:{UNITS[option]}, or m{UNITS[option]} and the like",
            )
        expect(unit, UNITS[option], option, f"{option}={part}")
        pairs.append((name, unit))
    if len(pairs) > 1 and option != "power":
        raise UsageError(f"{option} names several columns", field=option, value=text, remedy="Only power may")
    if len({name for name, _ in pairs}) < len(pairs):
        raise UsageError(f"{option} names a column twice", field=option, value=text, remedy="Name each once")
    return pairs


def _time_column(time: str | None, rate_hz: float | None) -> tuple[str, str] | None:
    """The column and its unit; None when the rate is stated instead."""
    if (time is None) == (rate_hz is None):
        raise UsageError(
            "state time=COLUMN:UNIT or rate_hz=NUMBER, one of them",
            field="time",
            value=time,
            remedy="Units of time: s, ms, us, ns, iso",
        )
    if time is None:
        return None
    name, _, unit = time.rpartition(":")
    unit = ALIASES.get(unit.lower(), unit)
    if not name or unit not in (*NS, "iso"):
        raise UsageError(
            f"time={time} does not state a unit of time",
            field="time",
            value=time,
            remedy="Write time=COLUMN:s, :ms, :us, :ns or :iso",
        )
    return name, unit


def _axis(
    table: Columns,
    at: tuple[str, str] | None,
    rate_hz: float | None,
    stamp: str | None,
    kind: TraceKind,
    timezone: str | None,
) -> Axis:
    if at is None:
        hz = positive("rate_hz", rate_hz, "the sampling rate")
        if not 1e-6 <= hz <= 1e9:
            raise UsageError(f"rate_hz is {hz}", field="rate_hz", value=hz, remedy="Give Hz, from 1e-6 to 1e9")
        if len(table) / hz > 4e9:
            raise UsageError(f"rate_hz is {hz}", field="rate_hz", value=hz, remedy="The trace would last a century")
        return Axis(0 if kind == "mean" else -round(1e9 / hz), hz)  # a point is read at the end of its period
    place = None if kind != "mean" else stamp
    if at[1] != "iso":
        return axis_of(table.stamps_ns(*at), place, "mean" if kind == "mean" else "point")
    cells = table.cells(at[0])
    if not all(isinstance(c, str) for c in cells):
        row = next(k for k, c in enumerate(cells) if not isinstance(c, str))
        raise DataError(
            f"{table.path.name}: {at[0]} is {cells[row]!r} in data row {row + 1}, which is no time stamp",
            field=at[0],
            value=str(cells[row]),
            remedy="Write ISO 8601, or declare the unit of its numbers",
        )
    stamps: Indices = np.array([iso_ns(c, timezone) for c in cells], dtype=np.int64)
    return axis_of(stamps, place, "mean" if kind == "mean" else "point")


def _rails(
    table: Columns, declared: dict[str, Declared], supply_v: float | None, kind: TraceKind
) -> list[tuple[Rail, Floats]]:
    """Each rail with its readings, in the unit of its conversion."""
    if "energy" in declared:
        name, values = _si(table, declared["energy"][0], "energy")
        return [(Rail(name, "cumulative", Conversion("J")), values)]
    if "power" in declared:
        taken = [_si(table, pair, "power") for pair in declared["power"]]
        return [(Rail(name, kind, Conversion("W")), values) for name, values in taken]
    name, amperes = _si(table, declared["current"][0], "current")
    if "voltage" in declared:
        if supply_v is not None:
            raise UsageError(
                "voltage and supply_v are both stated", field="supply_v", value=supply_v, remedy="State one of them"
            )
        volts = _si(table, declared["voltage"][0], "voltage")[1]
        return [(Rail(name, kind, Conversion("W")), watts(amperes, volts))]
    return [(Rail(name, kind, Conversion("A", supply(supply_v))), amperes)]


def _si(table: Columns, pair: tuple[str, str], option: str) -> tuple[str, Floats]:
    """A column's name and its values in the SI unit of what it was declared as."""
    name, unit = pair
    return name, expect(unit, UNITS[option], option, name)[1] * table.numbers(name)
