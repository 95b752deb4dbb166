"""Any CSV with declared columns and units, as written by an oscilloscope, a logger or a user's own script."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from drivers.importers.csv_table import FARTHEST_S, Blocks, Columns, Table, all_of, find, unit_of_time
from drivers.importers.files import unstated
from drivers.importers.single_trace import Readings, SingleTrace, conversion, single_trace, watts
from drivers.importers.time_axis import TimeAxis, axis_of
from drivers.importers.windows import Windows, from_channel, is_high
from drivers.units import NS, agree, expect, stamp_ns, unit_of
from rig.errors import DataError, UsageError, refused
from rig.types import Conversion, Floats, Indices, Mode, Rail, TraceKind

UNITS = {"power": "W", "current": "A", "voltage": "V", "energy": "J"}
Declared = list[tuple[str, str]]
"""Names of columns, each with its unit."""
Part = tuple[Indices, list[Floats]]
"""Stamps of some rows, and the readings of each rail."""
ROUNDED = 1e-3
"""A column counts as the sum of all others if it differs from the sum by at most this share of its largest reading."""


@single_trace
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
    shunt_ohm: float | None = None,
    stamp: str | None = None,
    kind: str = "mean",
    window_channel: str | None = None,
    window_active: str = "high",
    timezone: str | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    overrule_header: bool = False,
    simulated: bool = False,
    meter: str = "recorded trace",
    system: str = "device under test",
) -> SingleTrace:
    """Import a table of columns declared as NAME:UNIT: one of time, and one or more of readings.

    ``time`` is in s, ms, us, ns, iso (ISO 8601) or a form such as ``%d.%m.%Y %H:%M:%S,%f``; stamps without a zone are
    in ``timezone``. Without a column of time, ``rate_hz`` states the sampling rate. Readings are ``power``, ``current``
    or ``energy``. ``power`` is in W, mW or uW; several columns, with semicolons between, are one rail each. ``current``
    is in A, mA, ...; with ``shunt_ohm`` it is the V or mV across a shunt. It needs ``voltage`` (V, mV) or ``supply_v``.
    ``energy`` (J, mJ, Wh, mWh) is a running counter. ``kind`` is mean or point. ``stamp`` states whether a
    mean is stamped at the start, the middle or the end of its interval; without it, times are uncertain by half an
    interval. The stretches in which the column ``window_channel`` of 0 and 1 is ``window_active`` (high or low) are
    windows. ISO stamps in the table of windows need a trace with dates. ``simulated`` states that the trace was
    computed. ``meter`` and ``system`` name the instrument and the device.

    The header is the line with the declared columns; lines before it are skipped. ``separator`` and ``decimal``
    must be stated if the file leaves them open, and ``encoding`` for a file that is not UTF-8 or UTF-16. A unit in the
    header that contradicts the declared unit is refused, unless ``overrule_header`` is true.

    Raises ``UsageError`` for an option that must be stated, ``DataError`` for a file without this table.
    """
    if kind not in ("mean", "point"):
        raise refused("kind", kind, "Give mean or point")
    given = {"power": power, "current": current, "voltage": voltage, "energy": energy}
    units = UNITS if shunt_ohm is None else UNITS | {"current": "V"}
    declared = {name: _declared(name, text, units[name]) for name, text in given.items() if text is not None}
    _check_sources(declared, supply_v)
    at = _time_column(time, rate_hz)
    asked = {"time": [at] if at else []} | declared
    marks = [] if window_channel is None else [window_channel]
    columns = list(dict.fromkeys([*(name for pairs in asked.values() for name, _ in pairs), *marks]))
    layout = find(source, all_of(columns), separator, decimal, has_decimal=True, encoding=encoding)
    for option, name, unit in [(o, *pair) for o, pairs in asked.items() for pair in pairs if not overrule_header]:
        unit_below = layout.units[layout.names.index(name)] if layout.units and name in layout.names else ""
        agree(name, unit_below, unit, option)
    table = Table(source, columns, layout)
    what: TraceKind = "cumulative" if energy is not None else "point" if kind == "point" else "mean"
    rails = _rails(declared, supply_v, 1.0 if shunt_ohm is None else shunt_ohm, what)
    stamps_of = partial(_stamps, at=at, timezone=timezone, rate_hz=rate_hz or 0.0)
    checked = _apart(((stamps_of(part), [values(part) for _, values in rails]) for part in table), rails)
    if at is None:
        axis = _uniform(sum(len(values[0]) for _, values in checked), rate_hz or 0.0, what == "mean")
    else:
        axis = axis_of((stamps for stamps, _ in checked), stamp if what == "mean" else "end")
    readings = [Readings(rail, axis, Blocks(table, stamps_of, values)) for rail, values in rails]
    windows = Windows()
    if window_channel is not None:  # a level applies to the whole reading of its row
        ahead_ns = axis.t0_ns - axis.first_ns
        levels = ((stamps_of(part) + ahead_ns, is_high(part, window_channel)) for part in table)
        windows = from_channel(levels, window_active)
    dated_ns = axis.first_ns if at and at[1] not in NS else None
    mode: Mode = "simulator" if simulated else "hardware"
    notes = layout.notes(source)
    return SingleTrace(meter, readings, windows, notes=notes, device=system, mode=mode, dated_ns=dated_ns)


def _check_sources(declared: dict[str, Declared], supply_v: float | None) -> None:
    sources = [name for name in ("power", "current", "energy") if name in declared]
    if len(sources) != 1:
        how = "one of power=COLUMN:W, current=COLUMN:A (with voltage= or supply_v=), energy=COLUMN:J"
        raise unstated("power", f"{' and '.join(sources) or 'no column'} declared for the readings", how)
    for name, value in (("voltage", declared.get("voltage")), ("supply_v", supply_v)):
        if value is not None and "current" not in declared:
            raise refused(name, value, f"Leave it out: {sources[0]} needs no voltage")


def _declared(option: str, text: str, si: str) -> Declared:
    """Split ``COL:mW;COL2:mW`` into [("COL", "mW"), ("COL2", "mW")]. Raises ``UsageError`` for a missing unit."""
    pairs: Declared = []
    for part in text.split(";"):
        name, _, unit = part.rpartition(":")
        if not name:
            remedy = f"Write {option}=COLUMN:{si}, or m{si} and the like"
            raise UsageError(f"{option}={part} does not state a unit", field=option, value=text, remedy=remedy)
        remedy = f"State it: {option}=COLUMN:UNIT, such as m{si}"
        if option == "current":
            remedy += ". The voltage across a shunt, in V or mV, is a current with shunt_ohm=NUMBER"
        expect(unit, si, option, f"{option}={part}", remedy)
        pairs.append((name, unit))
    if len(pairs) > 1 and option != "power":
        raise UsageError(f"{option} names several columns", field=option, value=text, remedy="Only power may")
    if len({name for name, _ in pairs}) < len(pairs):
        raise UsageError(f"{option} names a column twice", field=option, value=text, remedy="Name each once")
    return pairs


def _time_column(time: str | None, rate_hz: float | None) -> tuple[str, str] | None:
    """Return the column of time and its unit; None if the rate is stated instead."""
    if (time is None) == (rate_hz is None):
        what = "one of time=COLUMN:UNIT and rate_hz=NUMBER must be stated"
        raise unstated("time", what, "units of time are s, ms, us, ns, iso, or a form with %", time)
    if time is None:
        if not 1e-6 <= (rate_hz or 0.0) <= 1e9:
            raise refused("rate_hz", rate_hz, "Give Hz, from 1e-6 to 1e9")
        return None
    name, _, form = time.partition(":%")
    if form:
        return name, f"%{form}"
    name, _, unit = time.rpartition(":")
    remedy = "Write time=COLUMN:s, :ms, :us, :ns, :iso or a form such as :%d.%m.%Y %H:%M:%S,%f"
    return name, "iso" if name and unit == "iso" else unit_of_time(unit if name else "", "time", f"time={time}", remedy)


def _uniform(count: int, hz: float, means: bool) -> TimeAxis:
    """Return the axis of a table without a column of time. A point counts at the end of its period."""
    if count / hz > FARTHEST_S:
        raise refused("rate_hz", hz, "Give a higher rate: the trace would last a century")
    return TimeAxis(0 if means else -round(1e9 / hz), hz)


def _stamps(part: Columns, at: tuple[str, str] | None, timezone: str | None, rate_hz: float) -> Indices:
    """Return the stamps of rows in ns; without a column of time, from the numbers of the rows."""
    if at is None:
        return np.round(np.arange(part.before, part.before + len(part)) * (1e9 / rate_hz)).astype(np.int64)
    if at[1] in NS:
        return part.stamps_ns(*at)
    return np.array([stamp_ns(str(c), timezone, at[1]) for c in part.cells(at[0])], dtype=np.int64)


def _rails(
    declared: dict[str, Declared], supply_v: float | None, shunt_ohm: float, kind: TraceKind
) -> list[tuple[Rail, Callable[[Columns], Floats]]]:
    """Return each rail with a function from rows of the table to readings in the unit of the rail's conversion."""
    if "energy" in declared:
        pair = declared["energy"][0]
        return [(Rail(pair[0], "cumulative", Conversion("J")), _si(pair))]
    if "power" in declared:
        return [(Rail(pair[0], kind, Conversion("W")), _si(pair)) for pair in declared["power"]]
    pair = declared["current"][0]
    if not 1e-6 <= shunt_ohm <= 1e6:
        raise refused("shunt_ohm", shunt_ohm, "Give ohm, above 0")
    amperes = _si(pair, shunt_ohm)
    if "voltage" in declared:
        if supply_v is not None:
            what = "voltage and supply_v are both stated"
            raise UsageError(what, field="supply_v", value=supply_v, remedy="State one of them")
        volts = _si(declared["voltage"][0])
        return [(Rail(pair[0], kind, Conversion("W")), lambda part: watts(amperes(part), volts(part)))]
    return [(Rail(pair[0], kind, conversion("A", supply_v)), amperes)]


def _apart(parts: Iterable[Part], rails: Sequence[tuple[Rail, object]]) -> Iterator[Part]:
    """Yield the parts of a table. Raises ``DataError`` after the last part for a rail that is the sum of all others.

    Totals add all rails, so they would count each of the others twice. Fewer than three rails are not checked.
    """
    off, most = np.zeros(len(rails)), np.zeros(len(rails))
    for stamps, columns in parts:
        if len(rails) > 2 and len(stamps):
            watts = np.array(columns)
            known = watts[:, np.all(np.isfinite(watts), axis=0)]
            off = np.maximum(off, np.max(np.abs(2.0 * known - known.sum(axis=0)), axis=1, initial=0.0))
            most = np.maximum(most, np.max(np.abs(known), axis=1, initial=0.0))
        yield stamps, columns
    names = [rail.name for rail, _ in rails]
    if len(names) > 2 and np.all(most > 0.0) and np.any(same := off <= ROUNDED * most):
        name = names[int(np.argmax(same))]
        what = f"in every row, {name} is the sum of the other columns of power, so a total would count these twice"
        raise DataError(what, field="power", value=name, remedy="Leave it out, and import it by itself if you need it")


def _si(pair: tuple[str, str], over: float = 1.0) -> Callable[[Columns], Floats]:
    """Return a function from rows of the table to a declared column's values, in SI units divided by ``over``."""
    name, found = pair[0], unit_of(pair[1])
    assert found is not None  # as declared
    return lambda part: found[1] / over * part.numbers(name)
