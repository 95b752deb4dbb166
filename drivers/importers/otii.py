"""Qoitech Otii (Arc, Ace): exported recordings, one channel per file or all in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from drivers.importers.axis import axis_of
from drivers.importers.columns import read
from drivers.importers.layout import find
from drivers.importers.single import Limits, Readings, Setting, imported, supply, watts
from drivers.importers.windows import from_channel, stated
from drivers.units import NS, named_unit, unit_of
from rig.errors import DataError, UsageError
from rig.importing.write import CRYSTAL, ImportedRun
from rig.types import Conversion, Floats, Indices, Rail

CHANNELS = {"current": "A", "power": "W", "voltage": "V"}
RAIL = "otii"


def open_import(
    source: Path,
    *,
    supply_v: float | None = None,
    channel: str = "main",
    window_channel: str | None = None,
    window_active: str = "high",
    inferences: int = 1,
    windows: str | None = None,
    idle: str | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    sync_s: float = 0.0,
    clock_tolerance: float = CRYSTAL,
    calibration: str | None = None,
    calibration_range: float | None = None,
    temperature_c: float | None = None,
) -> ImportedRun:
    """An Otii export: a file ``Main current - Arc.csv`` with the columns Timestamp,Value in s and A; a folder of such

    files; or one table with a column per channel (``Main current (A)``), whose headers state the units.

    Of the ``channel`` (main or adc) the power is taken, else current times voltage where both were recorded, else
    current at ``supply_v`` (V), which must then be stated. Windows are the stretches in which the digital input
    ``window_channel`` (gpi1, gpi2) is ``window_active``, each of ``inferences``, or stand in the table ``windows``
    (start,end[,phase,inferences], seconds of the recording); ``idle`` declares idle windows as START:END,....
    ``separator`` and ``decimal`` describe exports of other countries, where those leave it open.

    Raises ``UsageError`` for what must be stated, ``DataError`` for files that are no such export.
    """
    series, notes = _series(source, separator, decimal)
    taken = {kind: series[f"{channel} {kind}"] for kind in CHANNELS if f"{channel} {kind}" in series}
    if "power" not in taken and "current" not in taken:
        raise UsageError(
            f"{source.name} holds neither power nor current of the channel {channel}",
            field="channel",
            value=channel,
            remedy=f"Recorded: {', '.join(sorted(series)) or 'nothing'}",
        )
    if inferences < 1:
        raise UsageError(f"inferences is {inferences}", field="inferences", value=inferences, remedy="Give 1 or more")
    main, values, unit = _watts_or_amperes(taken)
    volts = supply(supply_v) if unit == "A" else None
    found = stated(windows, idle)
    if window_channel is not None:
        mark = series.get(window_channel.lower())
        if mark is None:
            raise UsageError(
                f"window_channel is {window_channel!r}, which was not recorded",
                field="window_channel",
                value=window_channel,
                remedy=f"Recorded: {', '.join(sorted(series))}",
            )
        found = found.joined(from_channel(mark.values > 0.5, mark.stamps_ns, window_active, inferences))
    if not found.spans:
        raise UsageError(
            "nothing says when the device was at work",
            field="windows",
            remedy="Give windows=FILE.csv, or window_channel=gpi1",
        )
    rail = Rail(RAIL, "mean", Conversion("A", volts) if unit == "A" else Conversion("W"))
    limits = Limits(calibration, calibration_range, temperature_c)
    details = {"channel": channel}
    setting = Setting("Otii", sync_s=sync_s, clock_tolerance=clock_tolerance, details=details, limits=limits)
    readings = Readings(rail, axis_of(main.stamps_ns, None), values)
    return imported(source, setting, [readings], found, sorted({s.path for s in series.values()}), notes)


@dataclass(frozen=True)
class _Series:
    """One channel, SI units: stamps and values of shape (n,)."""

    path: Path
    stamps_ns: Indices
    values: Floats


def _series(source: Path, separator: str | None, decimal: str | None) -> tuple[dict[str, _Series], tuple[str, ...]]:
    """Every channel that is known, by its name in lower case without the instrument's; and notes of their files."""
    files = sorted(source.glob("*.csv")) if source.is_dir() else [source]
    if not files:
        raise DataError(f"{source} holds no CSV file", field="source", value=str(source), remedy="Name the export")
    found: dict[str, _Series] = {}
    notes: tuple[str, ...] = ()
    for path in files:
        own, said = _of_file(path, separator, decimal)
        notes += said
        for name, series in own.items():
            if name in found:
                raise DataError(
                    f"{path.name} and {found[name].path.name} both hold {name}",
                    field="source",
                    value=name,
                    remedy="Import the recordings one by one",
                )
            found[name] = series
    return found, notes


def _of_file(path: Path, separator: str | None, decimal: str | None) -> tuple[dict[str, _Series], tuple[str, ...]]:
    layout = find(path, _timed, separator, decimal, asks=True)
    (time, time_unit), *rest = [named_unit(n) for n in layout.names]
    if _timed(layout.names) is None:
        raise DataError(
            f"{path.name} is no Otii export: its columns are {', '.join(layout.names)[:200]}",
            field="source",
            value=str(path),
            remedy="Export the recording as CSV",
        )
    if (time_unit or "s") not in NS:
        raise DataError(f"{path.name} states {time} in {time_unit}", field="time", value=time_unit, remedy="Use s")
    table = read(path, layout.names, layout)
    stamps = table.stamps_ns(layout.names[0], time_unit or "s")
    single = len(rest) == 1 and rest[0][0].lower() == "value"
    found = {}
    for full, (name, unit) in zip(layout.names[1:], rest, strict=True):
        channel = _channel(path.stem if single else name)
        if channel:
            scale = _scale(path, channel, full, unit, single)
            found[channel] = _Series(path, stamps, scale * table.numbers(full, whole="gpi" in channel))
    return found, table.notes()


def _timed(names: Sequence[str]) -> Sequence[str] | None:
    """All columns, where time is the first of several."""
    return names if len(names) > 1 and names[0].lower().startswith("time") else None


def _channel(text: str) -> str:
    """``Main current - Arc`` and ``Arc main current`` -> ``main current``; "" for what is not known."""
    words = text.lower().replace("-", " ").replace("_", " ").split()
    for word in ("gpi1", "gpi2"):
        if word in words:
            return word
    kind = [w for w in words if w in CHANNELS]
    group = [w for w in words if w in ("main", "adc")]
    return f"{group[0]} {kind[0]}" if len(kind) == 1 and len(group) == 1 else ""


def _scale(path: Path, channel: str, header_: str, unit: str, single: bool) -> float:
    """Factor to SI. A file of one channel holds SI units; a table must state them."""
    kind = channel.rpartition(" ")[2]
    if kind not in CHANNELS or (single and not unit):
        return 1.0
    found = unit_of(unit)
    if found is None or found[0] != CHANNELS[kind]:
        raise DataError(
            f"{path.name} states {header_!r} in {unit or 'no unit'!r}",
            field="unit",
            value=unit,
            remedy=f"Export with units in the headers, such as ({CHANNELS[kind]})",
        )
    return found[1]


def _watts_or_amperes(taken: dict[str, _Series]) -> tuple[_Series, Floats, str]:
    if "power" in taken:
        return taken["power"], taken["power"].values, "W"
    current, voltage = taken["current"], taken.get("voltage")
    if voltage is None:
        return current, current.values, "A"
    # voltage is sampled more slowly; between its readings it is taken as straight
    ordered = len(voltage.stamps_ns) > 1 and bool(np.all(np.diff(voltage.stamps_ns) > 0))
    known = np.isfinite(voltage.values)
    if not ordered or not np.any(known):
        raise DataError("the voltage does not move forward in time", field="time", remedy="Export it again")
    zero = voltage.stamps_ns[0]
    at = (current.stamps_ns - zero).astype(np.float64)
    volts = np.interp(at, (voltage.stamps_ns - zero).astype(np.float64)[known], voltage.values[known])
    return current, watts(current.values, volts), "W"
