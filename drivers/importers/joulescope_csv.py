"""Joulescope: the statistics table that its user interface records, one mean per update."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from drivers.importers.axis import axis_of
from drivers.importers.columns import read
from drivers.importers.layout import find
from drivers.importers.single import Limits, Readings, Setting, imported
from drivers.importers.windows import stated
from rig.errors import DataError, UsageError
from rig.importing.write import CRYSTAL, ImportedRun
from rig.types import Conversion, Rail

COLUMNS = ["#time", "current", "voltage", "power", "charge", "energy"]


def open_import(
    source: Path,
    *,
    windows: str | None = None,
    idle: str | None = None,
    sync_s: float = 0.0,
    clock_tolerance: float = CRYSTAL,
    calibration: str | None = None,
    calibration_range: float | None = None,
    temperature_c: float | None = None,
) -> ImportedRun:
    """A statistics recording, ``#time,current,voltage,power,charge,energy`` in s, A, V, W, C and J: its power.

    Each row is the mean up to its time, which counts from the end of the first. ``windows`` names a table
    start,end[,phase,inferences] in the same seconds, ``idle`` declares idle windows as START:END,...; ``sync_s`` is how
    far the windows' clock may be off, if it is another; ``clock_tolerance`` limits the instrument's (relative).

    Raises ``UsageError`` for what must be stated, ``DataError`` for what is no such table.
    """
    found = stated(windows, idle)
    if not found.spans:
        raise UsageError(
            "nothing says when the device was at work",
            field="windows",
            remedy="Give windows=FILE.csv: start,end[,phase,inferences] in seconds of this file",
        )
    layout = find(source, lambda names: names if _bare(names) == _bare(COLUMNS) else None)
    names = layout.names
    if _bare(names) != _bare(COLUMNS):
        raise DataError(
            f"{source.name} is no statistics recording: its columns are {', '.join(names)[:200]}",
            field="source",
            value=str(source),
            remedy=f"It begins with {','.join(COLUMNS)}",
        )
    table = read(source, [names[0], "power"], layout)
    axis = axis_of(table.stamps_ns(names[0], "s"), "end")
    rail = Rail("joulescope", "mean", Conversion("W"))
    limits = Limits(calibration, calibration_range, temperature_c)
    setting = Setting("Joulescope statistics", sync_s=sync_s, clock_tolerance=clock_tolerance, limits=limits)
    return imported(source, setting, [Readings(rail, axis, table.numbers("power"))], found, notes=table.notes())


def _bare(names: Sequence[str]) -> list[str]:
    return [n.lstrip("#") for n in names]
