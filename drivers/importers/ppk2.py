"""Nordic Power Profiler Kit II: the CSV that Nordic's nRF Connect Power Profiler exports."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from drivers.importers.csv_table import Blocks, Columns, Table, find, unit_of_time
from drivers.importers.files import bad_file
from drivers.importers.single_trace import Readings, SingleTrace, conversion, single_trace
from drivers.importers.windows import Windows, from_channel, is_high
from drivers.units import expect, named_unit
from rig.errors import UsageError
from rig.types import Floats, Rail

MOST_A = 2.0
"""No reading is larger (A): the instrument's data sheet states a range of 1 A."""
CHANNELS = tuple(f"D{k}" for k in range(8))
_REMEDY = (
    "A PPK2 export has the columns Timestamp(ms) and Current(uA). If you know the units, write them into the header. "
    "Otherwise import with --format plain-csv, where you declare columns and units"
)


@single_trace
def open_import(
    source: Path,
    *,
    supply_v: float | None = None,
    window_channel: str | None = None,
    window_active: str = "high",
    decimal: str | None = None,
) -> SingleTrace:
    """Import a PPK2 recording: ``Timestamp(ms),Current(uA)[,D0-D7][,D0,...,D7]``, units as the headers state them.

    ``supply_v`` (V, at the device) must be stated, since the file contains currents. Each stretch with the digital
    input ``window_channel`` (D0 to D7) at ``window_active`` is a window. ``decimal`` is the decimal mark of a file
    separated by semicolons; it must be stated if the numbers leave it open.

    Raises ``UsageError`` for an option that must be stated, ``DataError`` for a file that is not such an export.
    """
    form = ("a PPK2 export", "Export with time stamp and current")
    layout = find(source, _columns, decimal=decimal, has_decimal=True, form=form)
    time, current = layout.read
    rail = Rail("supply", "mean", conversion("A", supply_v))
    unit = unit_of_time(named_unit(time)[1], "time", f"the column {time}", _REMEDY)
    _, factor = expect(named_unit(current)[1], ("A",), "current", f"the column {current}", _REMEDY)
    marked = _channel_columns(layout.names, window_channel)
    table = Table(source, [time, current, *marked], layout)
    blocks = Blocks(table, lambda part: part.stamps_ns(time, unit), lambda part: _amperes(part, current, factor))
    readings, windows = Readings(rail, blocks.axis("start"), blocks), Windows()
    if window_channel is not None:
        place = (int(window_channel[1]), 8) if marked[0] == "D0-D7" else (0, 1)  # the first digit is D0
        levels = ((p.stamps_ns(time, unit), is_high(p, marked[0], *place)) for p in table)
        windows = from_channel(levels, window_active)
    return SingleTrace("Nordic PPK2", [readings], windows, notes=layout.notes(source))


def _amperes(part: Columns, current: str, factor: float) -> Floats:
    """Return the readings in A. Raises ``DataError`` for a reading that the instrument cannot deliver."""
    amperes = factor * part.numbers(current)
    if len(over := np.flatnonzero(np.abs(amperes) > MOST_A)):
        what = f"states {amperes[over[0]]:.3g} A in data row {part.before + over[0] + 1}; a PPK2 measures up to 1 A"
        raise bad_file(part.path, what, f"Correct the unit in the header {current}", field="current")
    return amperes


def _columns(names: Sequence[str]) -> list[str] | None:
    """Return the columns of time stamp and current, in any units, or None if one is missing."""
    bare = {named_unit(name)[0].lower(): name for name in names}
    return [bare[k] for k in ("timestamp", "current")] if "timestamp" in bare and "current" in bare else None


def _channel_columns(names: Sequence[str], channel: str | None) -> list[str]:
    """Return the column of a channel: its own, or ``D0-D7`` with eight digits."""
    if channel is None:
        return []
    for name in (channel.upper(), "D0-D7"):
        if channel.upper() in CHANNELS and name in names:
            return [name]
    known = [n for n in names if n in CHANNELS or n == "D0-D7"]
    what = f"window_channel is {channel!r}, but the file has {', '.join(known) or 'no digital channel'}"
    remedy = "Export the digital channels, or give windows=FILE.csv"
    raise UsageError(what, field="window_channel", value=channel, remedy=remedy)
