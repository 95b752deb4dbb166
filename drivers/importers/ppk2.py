"""Nordic Power Profiler Kit II: the CSV that the nRF Connect Power Profiler exports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from drivers.importers.axis import axis_of
from drivers.importers.columns import header, numbers, read, stamps_ns
from drivers.importers.single import Readings, Setting, imported, positive
from drivers.importers.units import expect, named_unit
from drivers.importers.windows import Windows, from_channel, stated
from rig.calibration import stated as calibrated
from rig.errors import DataError, UsageError
from rig.importing import CRYSTAL, ImportedRun
from rig.types import Bools, Conversion, Rail

CHANNELS = tuple(f"D{k}" for k in range(8))


def open_import(
    source: Path,
    *,
    supply_v: float | None = None,
    window_channel: str | None = None,
    window_active: str = "high",
    inferences: int = 1,
    windows: str | None = None,
    idle: str | None = None,
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
    START:END,... in the same seconds. ``sync_s`` is how far the windows' clock may be off, if it is another.
    ``clock_tolerance`` limits the instrument's clock rate (relative), ``calibration`` names its calibration file.

    Raises ``UsageError`` for what must be stated, ``DataError`` for what is no such file.
    """
    names = header(source)
    units = {name.lower(): (full, unit) for full in names for name, unit in [named_unit(full)]}
    if "timestamp" not in units or "current" not in units:
        raise DataError(
            f"{source.name} is no PPK2 export: its columns are {', '.join(names)[:200]}",
            field="source",
            value=str(source),
            remedy="Export with time stamp and current",
        )
    volts = positive("supply_v", supply_v, "the supply voltage")
    (time, time_unit), (current, current_unit) = units["timestamp"], units["current"]
    _, second = expect(time_unit, ("s",), "source", f"the column {time}")
    _, factor = expect(current_unit, ("A",), "source", f"the column {current}")
    marked = _channel_columns(names, window_channel)
    frame = read(source, [time, current, *marked])
    stamps = stamps_ns(source, frame, time, {1.0: "s", 1e-3: "ms", 1e-6: "us", 1e-9: "ns"}[second])
    axis = axis_of(stamps, "start")
    found = stated(windows, idle)
    if window_channel is not None:
        if inferences < 1:
            raise UsageError(f"inferences is {inferences}", field="inferences", value=inferences, remedy="Give 1 up")
        level = _level(source, frame, marked[0], window_channel)
        found = found.joined(from_channel(level, stamps, window_active, inferences))
    _need_windows(found)
    rail = Rail("supply", "mean", Conversion("A", volts))
    rail = calibrated(rail, calibration, range_max=calibration_range, temperature_c=temperature_c)
    setting = Setting("Nordic PPK2", sync_s=sync_s, clock_tolerance=clock_tolerance)
    readings = Readings(rail, axis, factor * numbers(source, frame, current))
    return imported(source, setting, [readings], found)


def _channel_columns(names: list[str], channel: str | None) -> list[str]:
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


def _level(source: Path, frame: pd.DataFrame, column: str, channel: str) -> Bools:
    """Whether the channel is high, shape (n,). The digits of ``D0-D7`` run from D0 to D7."""
    values = numbers(source, frame, column, whole=True)
    digits = 8 if column == "D0-D7" else 1
    held = [np.floor(values / 10.0 ** (digits - 1 - k)) % 10.0 for k in range(digits)]
    if not np.all((values >= 0.0) & (values < 10.0**digits) & (values == np.floor(values)) & (np.max(held, 0) <= 1.0)):
        raise DataError(
            f"{source.name}: {column} is not {digits} digits of 0 and 1 throughout",
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
