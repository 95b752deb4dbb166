"""Qoitech Otii (Arc, Ace): exported recordings, one channel per file or all in one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from drivers.importers.csv_table import Table, find, unit_of_time
from drivers.importers.files import bad_file
from drivers.importers.single_trace import Readings, SingleTrace, check_power, conversion, single_trace, watts
from drivers.importers.time_axis import axis_of
from drivers.importers.windows import Windows, from_channel
from drivers.units import expect, named_unit
from rig.errors import DataError, UsageError
from rig.types import Floats, Indices, Rail

CHANNELS = {"current": "A", "voltage": "V", "power": "W"}
RAIL = "otii"


@single_trace
def open_import(
    source: Path,
    *,
    supply_v: float | None = None,
    channel: str = "main",
    window_channel: str | None = None,
    window_active: str = "high",
    separator: str | None = None,
    decimal: str | None = None,
) -> SingleTrace:
    """Import an Otii export: a file for each channel, a folder of such files, or one table with a column per channel.

    A file ``Main current - Arc.csv`` has the columns Timestamp,Value in s and A. The headers of a table state the units
    (``Main current (A)``). Power comes from the power of ``channel`` (main or adc); else from its current times its
    voltage, if both were recorded; else from its current at ``supply_v`` (V), which must then be given. The stretches
    in which the digital input ``window_channel`` (gpi1, gpi2) is ``window_active`` are windows. ``separator`` and
    ``decimal`` must be stated if the file leaves them open.

    Raises ``UsageError`` for an option that must be stated, ``DataError`` for files that are not such exports.
    """
    series, notes = _series(source, separator, decimal)
    taken = {kind: series[f"{channel} {kind}"] for kind in CHANNELS if f"{channel} {kind}" in series}
    recorded = f"Recorded: {', '.join(sorted(series)) or 'nothing'}"
    if "power" not in taken and "current" not in taken:
        what = f"{source.name} holds neither power nor current of the channel {channel}"
        raise UsageError(what, field="channel", value=channel, remedy=recorded)
    main, values, unit = _watts_or_amperes(taken)
    windows = Windows()
    if window_channel is not None:
        mark = series.get(window_channel.lower())
        if mark is None:
            what = f"window_channel is {window_channel!r}, which was not recorded"
            raise UsageError(what, field="window_channel", value=window_channel, remedy=recorded)
        windows = from_channel([(mark.stamps_ns, mark.values > 0.5)], window_active)
    rail, stamps = Rail(RAIL, "mean", conversion(unit, supply_v)), main.stamps_ns
    readings = Readings(rail, axis_of([stamps], None), [(stamps, values)])
    files = sorted({s.path for s in series.values()})
    return SingleTrace("Otii", [readings], windows, files, notes, {"channel": channel})


@dataclass(frozen=True)
class _Series:
    """One channel, SI units: stamps and values of shape (n,)."""

    path: Path
    stamps_ns: Indices
    values: Floats


def _series(source: Path, separator: str | None, decimal: str | None) -> tuple[dict[str, _Series], tuple[str, ...]]:
    """Return the known channels by name (lower case, without the instrument's name), and the notes on their files."""
    files = sorted(source.glob("*.csv")) if source.is_dir() else [source]
    if not files:
        raise DataError(f"{source} holds no CSV file", field="source", value=str(source), remedy="Name the export")
    found: dict[str, _Series] = {}
    notes: tuple[str, ...] = ()
    for path in files:
        own, own_notes = _of_file(path, separator, decimal)
        notes += own_notes
        for name, series in own.items():
            if name in found:
                what = f"and {found[name].path.name} both hold {name}"
                raise bad_file(path, what, "Import each recording by itself", value=name)
            found[name] = series
    return found, notes


def _of_file(path: Path, separator: str | None, decimal: str | None) -> tuple[dict[str, _Series], tuple[str, ...]]:
    form = ("an Otii export", "Export the recording as CSV")
    layout = find(path, _timed, separator, decimal, has_decimal=True, form=form)
    (time, unit), *rest = [named_unit(n) for n in layout.names]
    known = unit_of_time(unit or "s", "time", f"{time} of {path.name}")
    table = Table(path, layout.names, layout).whole()
    stamps = table.stamps_ns(layout.names[0], known)
    single = len(rest) == 1 and rest[0][0].lower() == "value"
    found = {}
    for full, (name, unit) in zip(layout.names[1:], rest, strict=True):
        channel = _channel(path.stem if single else name)
        if channel:
            scale = _scale(path, channel, full, unit, single)
            found[channel] = _Series(path, stamps, scale * table.numbers(full, whole="gpi" in channel))
    return found, layout.notes(path)


def _timed(names: Sequence[str]) -> Sequence[str] | None:
    """Return all columns, or None if the first one is not time."""
    return names if len(names) > 1 and names[0].lower().startswith("time") else None


def _channel(text: str) -> str:
    """Convert ``Main current - Arc`` or ``Arc main current`` to ``main current``; any unknown channel to ""."""
    words = text.lower().replace("-", " ").replace("_", " ").split()
    for word in ("gpi1", "gpi2"):
        if word in words:
            return word
    kind = [w for w in words if w in CHANNELS]
    group = [w for w in words if w in ("main", "adc")]
    return f"{group[0]} {kind[0]}" if len(kind) == 1 and len(group) == 1 else ""


def _scale(path: Path, channel: str, header_: str, unit: str, single: bool) -> float:
    """Return the factor to SI units. A file of one channel is in SI units; a table must state its units."""
    kind = channel.rpartition(" ")[2]
    if kind not in CHANNELS or (single and not unit):
        return 1.0
    remedy = f"Export with units in the headers, such as ({CHANNELS[kind]})"
    return expect(unit, CHANNELS[kind], "unit", f"{header_!r} of {path.name}", remedy)[1]


def _watts_or_amperes(taken: dict[str, _Series]) -> tuple[_Series, Floats, str]:
    current, voltage, power = (taken.get(kind) for kind in CHANNELS)
    if power is not None:
        if current is not None and voltage is not None:
            mean_v = np.mean(voltage.values[np.isfinite(voltage.values)], dtype=np.float64)
            check_power(power.path, [(power.values, current.values * mean_v)])
        return power, power.values, "W"
    assert current is not None
    if voltage is None:
        return current, current.values, "A"
    # voltage is sampled more slowly, so it is interpolated linearly between its readings
    ordered = len(voltage.stamps_ns) > 1 and bool(np.all(np.diff(voltage.stamps_ns) > 0))
    known = np.isfinite(voltage.values)
    if not ordered or not np.any(known):
        raise DataError("no two readings of the voltage follow in time", field="time", remedy="Export it again")
    zero = voltage.stamps_ns[0]
    at = (current.stamps_ns - zero).astype(np.float64)
    volts = np.interp(at, (voltage.stamps_ns - zero).astype(np.float64)[known], voltage.values[known])
    return current, watts(current.values, volts), "W"
