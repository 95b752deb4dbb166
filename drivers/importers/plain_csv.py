"""Any CSV whose columns and units are declared: what an oscilloscope, a logger or a script of one's own writes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from drivers.importers.axis import Axis, axis_of
from drivers.importers.columns import numbers, read, separator_of, stamps_ns
from drivers.importers.single import Readings, Setting, imported, positive, watts
from drivers.importers.units import ALIASES, NS, expect, iso_ns
from drivers.importers.windows import stated
from rig.calibration import stated as calibrated
from rig.errors import DataError, UsageError
from rig.importing import CRYSTAL, ImportedRun
from rig.types import Conversion, Floats, Indices, Rail, TraceKind

UNITS = {"power": "W", "current": "A", "voltage": "V", "energy": "J"}
Declared = list[tuple[str, float]]


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
    decimal: str = ".",
    windows: str | None = None,
    idle: str | None = None,
    sync_s: float = 0.0,
    clock_tolerance: float = CRYSTAL,
    simulated: bool = False,
    meter: str = "recorded trace",
    device: str = "device under test",
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
    another. ``simulated`` says that the trace was computed. ``separator`` and ``decimal`` describe the file.

    Raises ``UsageError`` for what must be stated, ``DataError`` for what is no such table.
    """
    found = stated(windows, idle, timezone)
    if not found.spans:
        raise UsageError(
            "nothing says when the device was at work",
            field="windows",
            remedy="Give windows=FILE.csv: start,end[,phase,inferences] in seconds of the trace",
        )
    if kind not in ("mean", "point") or decimal not in (".", ","):
        field, value = ("kind", kind) if decimal in (".", ",") else ("decimal", decimal)
        raise UsageError(f"{field} is {value!r}", field=field, value=value, remedy="kind=mean|point, decimal=.|,")
    said = {"power": power, "current": current, "voltage": voltage, "energy": energy}
    declared = {name: _declared(name, text) for name, text in said.items() if text is not None}
    sources = [name for name in ("power", "current", "energy") if name in declared]
    if len(sources) != 1:
        raise UsageError(
            f"{' and '.join(sources) or 'no column'} declared as what is read",
            field="power",
            remedy="Declare one of power=COLUMN:W, current=COLUMN:A (with voltage= or supply_v=), energy=COLUMN:J",
        )
    at = _time_column(time, rate_hz)
    columns = list(dict.fromkeys(name for pairs in declared.values() for name, _ in pairs))
    frame = read(source, ([at[0]] if at else []) + columns, separator_of(source, separator), decimal)
    what: TraceKind = "cumulative" if energy is not None else "point" if kind == "point" else "mean"
    axis = _axis(source, frame, at, rate_hz, stamp, what, timezone)
    readings = []
    day = datetime.fromtimestamp(axis.t0_ns * 1e-9, UTC).date() if at and at[1] == "iso" else None
    for rail, values in _rails(source, frame, declared, supply_v, what):
        known = calibrated(rail, calibration, range_max=calibration_range, temperature_c=temperature_c, on=day)
        readings.append(Readings(known, axis, values))
    setting = Setting(meter, device, "simulator" if simulated else "hardware", sync_s, clock_tolerance)
    return imported(source, setting, readings, found)


def _declared(option: str, text: str) -> Declared:
    """``COL:mW;COL2:mW`` -> [("COL", 1e-3), ("COL2", 1e-3)]. Raises ``UsageError`` for a unit left out."""
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
        pairs.append((name, expect(unit, UNITS[option], option, f"{option}={part}")[1]))
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
    source: Path,
    frame: pd.DataFrame,
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
        if len(frame) / hz > 4e9:
            raise UsageError(f"rate_hz is {hz}", field="rate_hz", value=hz, remedy="The trace would last a century")
        return Axis(0 if kind == "mean" else -round(1e9 / hz), hz)  # a point is read at the end of its period
    place = None if kind != "mean" else stamp
    if at[1] != "iso":
        return axis_of(stamps_ns(source, frame, at[0], at[1]), place, "mean" if kind == "mean" else "point")
    cells: list[Any] = frame[at[0]].tolist()
    if not all(isinstance(c, str) for c in cells):
        row = next(k for k, c in enumerate(cells) if not isinstance(c, str))
        raise DataError(
            f"{source.name}: {at[0]} is {cells[row]!r} in data row {row + 1}, which is no time stamp",
            field=at[0],
            value=str(cells[row]),
            remedy="Write ISO 8601, or declare the unit of its numbers",
        )
    stamps: Indices = np.array([iso_ns(c, timezone) for c in cells], dtype=np.int64)
    return axis_of(stamps, place, "mean" if kind == "mean" else "point")


def _rails(
    source: Path, frame: pd.DataFrame, declared: dict[str, Declared], supply_v: float | None, kind: TraceKind
) -> list[tuple[Rail, Floats]]:
    """Each rail with its readings, in the unit of its conversion."""
    if "energy" in declared:
        name, factor = declared["energy"][0]
        return [(Rail(name, "cumulative", Conversion("J")), factor * numbers(source, frame, name))]
    if "power" in declared:
        pairs = declared["power"]
        return [(Rail(n, kind, Conversion("W")), f * numbers(source, frame, n)) for n, f in pairs]
    name, factor = declared["current"][0]
    amperes = factor * numbers(source, frame, name)
    if "voltage" in declared:
        if supply_v is not None:
            raise UsageError(
                "voltage and supply_v are both stated", field="supply_v", value=supply_v, remedy="State one of them"
            )
        volts_name, volts_factor = declared["voltage"][0]
        volts = volts_factor * numbers(source, frame, volts_name)
        return [(Rail(name, kind, Conversion("W")), watts(amperes, volts))]
    return [(Rail(name, kind, Conversion("A", positive("supply_v", supply_v, "the supply voltage"))), amperes)]
