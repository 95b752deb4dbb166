"""Nordic Power Profiler Kit II: the CSV that the nRF Connect Power Profiler exports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from drivers.importers.axis import axis_of
from drivers.importers.columns import Columns, read
from drivers.importers.layout import find
from drivers.importers.single import Limits, Readings, Setting, imported, supply
from drivers.importers.windows import Windows, from_channel, stated
from drivers.units import expect, named_unit
from rig.errors import DataError, UsageError
from rig.importing.write import CRYSTAL, ImportedRun
from rig.types import Bools, Conversion, Rail

CHANNELS = tuple(f"D{k}" for k in range(8))
_REMEDY = (
    "The export writes Timestamp(ms) and Current(uA): write the units into the header if you know them, or import with "
    "--format plain-csv, where columns and units are declared"
)


def open_import(
    source: Path,
    *,
    supply_v: float | None = None,
    window_channel: str | None = None,
    window_active: str = "high",
    inferences: int = 1,
    windows: str | None = None,
    idle: str | None = None,
    decimal: str | None = None,
    sync_s: float = 0.0,
    clock_tolerance: float = CRYSTAL,
    calibration: str | None = None,
    calibration_range: float | None = None,
    temperature_c: float | None = None,
) -> ImportedRun:
    """A PPK2 recording: ``Timestamp(ms),Current(uA)[,D0-D7][,D0,...,D7]``, units as the headers state them.

    ``supply_v`` (V, at the device) must be stated, since the file holds currents. Windows are the stretches in which
    the digital input ``window_channel`` (D0 to D7) is ``window_active``, each of ``inferences``; or stand in the
    table ``windows`` (start,end[,phase,inferences], seconds of this file); ``idle`` declares idle windows as
    START:END,... in the same seconds. ``decimal`` is the mark of decimals in a file separated by semicolons, where its
    numbers leave that open. ``sync_s`` is how far the windows' clock may be off, if it is another.
    ``clock_tolerance`` limits the instrument's clock rate (relative), ``calibration`` names its calibration file.

    Raises ``UsageError`` for what must be stated, ``DataError`` for what is no such file.
    """
    layout = find(source, _columns, decimal=decimal, asks=True)
    wanted = _columns(layout.names)
    if wanted is None:
        raise DataError(
            f"{source.name} is no PPK2 export: its columns are {', '.join(layout.names)[:200]}",
            field="source",
            value=str(source),
            remedy="Export with time stamp and current",
        )
    volts = supply(supply_v)
    time, current = wanted
    _, second = expect(named_unit(time)[1], ("s",), "time", f"the column {time}", _REMEDY)
    _, factor = expect(named_unit(current)[1], ("A",), "current", f"the column {current}", _REMEDY)
    marked = _channel_columns(layout.names, window_channel)
    table = read(source, [time, current, *marked], layout)
    stamps = table.stamps_ns(time, {1.0: "s", 1e-3: "ms", 1e-6: "us", 1e-9: "ns"}[second])
    axis = axis_of(stamps, "start")
    found = stated(windows, idle)
    if window_channel is not None:
        if inferences < 1:
            raise UsageError(f"inferences is {inferences}", field="inferences", value=inferences, remedy="Give 1 up")
        level = _level(table, marked[0], window_channel)
        found = found.joined(from_channel(level, stamps, window_active, inferences))
    _need_windows(found)
    limits = Limits(calibration, calibration_range, temperature_c)
    setting = Setting("Nordic PPK2", sync_s=sync_s, clock_tolerance=clock_tolerance, limits=limits)
    readings = Readings(Rail("supply", "mean", Conversion("A", volts)), axis, factor * table.numbers(current))
    return imported(source, setting, [readings], found, notes=table.notes())


def _columns(names: Sequence[str]) -> list[str] | None:
    """Time stamp and current, whatever their units."""
    bare = {named_unit(name)[0].lower(): name for name in names}
    return [bare[k] for k in ("timestamp", "current")] if "timestamp" in bare and "current" in bare else None


def _channel_columns(names: Sequence[str], channel: str | None) -> list[str]:
    """The column that holds a channel: its own, or the eight digits of ``D0-D7``."""
    if channel is None:
        return []
    for name in (channel.upper(), "D0-D7"):
        if channel.upper() in CHANNELS and name in names:
            return [name]
    known = [n for n in names if n in CHANNELS or n == "D0-D7"]
    raise UsageError(
        f"window_channel is {channel!r}, and the file has {', '.join(known) or 'no digital channel'}",
        field="window_channel",
        value=channel,
        remedy="Export the digital channels, or give windows=FILE.csv",
    )


def _level(table: Columns, column: str, channel: str) -> Bools:
    """Whether the channel is high, shape (n,). The digits of ``D0-D7`` run from D0 to D7."""
    values = table.numbers(column, whole=True)
    digits = 8 if column == "D0-D7" else 1
    held = [np.floor(values / 10.0 ** (digits - 1 - k)) % 10.0 for k in range(digits)]
    if not np.all((values >= 0.0) & (values < 10.0**digits) & (values == np.floor(values)) & (np.max(held, 0) <= 1.0)):
        raise DataError(
            f"{table.path.name}: {column} is not {digits} digits of 0 and 1 throughout",
            field=column,
            remedy="Export the digital channels again",
        )
    return np.asarray(held[int(channel[1]) if digits == 8 else 0] == 1.0)


def _need_windows(found: Windows) -> None:
    if not found.spans:
        raise UsageError(
            "nothing says when the device was at work",
            field="windows",
            remedy="Give window_channel=D0 or windows=FILE.csv, with idle windows declared",
        )
