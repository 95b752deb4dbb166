"""Common parts of all importers of one instrument's trace. Each importer reads only its own format."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from drivers.importers.common_options import Count, Limit, Recorded
from drivers.importers.files import bad_file, unstated
from drivers.importers.time_axis import Block, TimeAxis, chunks
from drivers.importers.windows import Windows, stated
from rig.bench.settings import of_settings
from rig.errors import refused
from rig.importing.checks import out_of_range
from rig.importing.imported import ImportedRun, ImportedTrace, not_an_import
from rig.recording.events import LIMIT
from rig.types import Bracket, ClockInfo, Conversion, DeviceInfo, Floats, MeterInfo, Mode, Rail

RECORDING, WINDOWS = "recording", "windows"
MOST_SUPPLY_V = 400.0
"""The largest supply voltage (V). No board and no server has more, so a larger number must be millivolts."""


@dataclass(frozen=True)
class TraceOptions:
    """The options of every importer of a single trace.

    ``windows`` names a table start,end[,phase,inferences] in seconds of the trace. ``idle`` declares idle windows as
    START:END,... in the same seconds. If the trace has dates, the seconds count from its first row. ``inferences`` is
    the number of inferences in each window for which no table states it; the default is 1. ``sync_s`` is the largest
    offset between the windows' clock and the trace's, if there are two clocks.
    """

    windows: str | None = None
    idle: str | None = None
    inferences: Count | None = None
    sync_s: Limit = 0.0
    own: Recorded = Recorded()


@dataclass(frozen=True)
class Readings:
    """The readings of one rail in the unit of its conversion. The blocks of a long file are made when they are read."""

    rail: Rail
    axis: TimeAxis
    blocks: Iterable[Block]

    def trace(self, zero_ns: int) -> ImportedTrace:
        """Return the trace in ticks since ``zero_ns``."""
        made = chunks(self.rail.name, self.blocks, self.axis, zero_ns)
        return ImportedTrace(self.rail.name, made, self.axis.t0_ns - zero_ns)


@dataclass(frozen=True)
class SingleTrace:
    """The contents of a format's files. ``windows`` are the windows in the files; options may add more.

    ``files`` are kept with the run (the source, if empty). ``notes`` are sentences on what the files lack. ``dated_ns``
    is the stamp of the first row, in ns since 1970, if the stamps are dates.
    """

    meter: str
    readings: Sequence[Readings]
    windows: Windows = field(default_factory=Windows)
    files: Sequence[Path] = ()
    notes: Sequence[str] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    device: str = "device under test"
    mode: Mode = "hardware"
    dated_ns: int | None = None


def single_trace(read: Callable[..., SingleTrace]) -> Callable[..., ImportedRun]:
    """Make an importer from ``read(source, *, options...)``. The importer also has the options of ``TraceOptions``.

    Windows are read first, so that an import without windows is refused before a long file is read. If ``read`` has the
    option ``timezone``, it is also the zone of the stamps in the table of windows. The importer raises ``SetupError``
    if ``read`` returns anything but a ``SingleTrace``.
    """
    own = inspect.signature(read).parameters

    def open_import(settings: TraceOptions, source: Path, **given: Any) -> ImportedRun:
        windows = stated(settings.windows, settings.idle, given.get("timezone"), settings.inferences)
        if not windows.spans and given.get("window_channel") is None:
            channel = ", or window_channel=NAME" if "window_channel" in own else ""
            how = f"windows=FILE.csv, with start,end[,phase,inferences] in seconds of the trace{channel}"
            raise unstated("windows", "no window says when the device was working", how)
        found = read(source, **given)
        if not (isinstance(found, SingleTrace) and found.readings):
            name = f"{read.__module__.partition('@')[0]}.{read.__qualname__}"
            raise not_an_import(name, found, "a SingleTrace with readings")
        marked = tuple(replace(s, executions=settings.inferences or 1) for s in found.windows.spans)
        windows = windows.since(found.dated_ns).joined(replace(found.windows, spans=marked))
        return settings.own.described(_imported(source, found, settings, windows))

    first, *_ = inspect.signature(open_import).parameters.values()
    open_import.__signature__ = inspect.Signature([first, *own.values()])  # type: ignore[attr-defined]
    made = of_settings(open_import)
    made.__doc__ = f"{read.__doc__}\n    {TraceOptions.__doc__}\n    {Recorded.__doc__}"
    made.__module__, made.__name__, made.__qualname__ = read.__module__, read.__name__, read.__qualname__
    made.__annotations__ |= get_type_hints(read, include_extras=True)
    return made


def _imported(source: Path, found: SingleTrace, options: TraceOptions, windows: Windows) -> ImportedRun:
    """Make one run. Windows and readings have the same axis, unless ``sync_s`` limits the offset of two clocks.

    A tick is 1 ns of the recording's clock, counted from the first reading. If a channel bounds the windows and the
    readings are on its grid, a tick is one sample of the channel. Limits of error are looked up here, because the
    length of a reading is known here.
    Raises ``UsageError``, and what ``rig.bench.calibration.stated`` raises.
    """
    zero = found.readings[0].axis.t0_ns
    for on, off in [*((s.on_tick, s.off_tick) for s in windows.spans), *windows.idle_ns, (zero, zero)]:
        if max(abs(on), abs(off)) >= LIMIT // 2:
            raise out_of_range("time", "a window or the first reading is at ns", max(on, off, key=abs))
    coarse = windows.tick_ns > 0 and all(not r.axis.typical_ns and r.axis.t0_ns == zero for r in found.readings)
    hz = 1e9 / windows.tick_ns if coarse else 1e9
    clock = ClockInfo(RECORDING, hz, options.own.clock_tolerance)
    width_ns = round(1e9 * (max(r.axis.uncertainty_s for r in found.readings) + options.sync_s))
    brackets = {RECORDING: (Bracket(zero - width_ns, 0, zero + width_ns),)}
    stamped = clock
    if options.sync_s > 0.0:
        stamped = replace(clock, name=WINDOWS)
        brackets[WINDOWS] = (Bracket(zero, 0, zero),)
    day = None if found.dated_ns is None else datetime.fromtimestamp(found.dated_ns * 1e-9, UTC).date()
    notes = [*found.notes, *windows.notes]
    if day is not None and day.year < 1901:  # strptime gives the year 1900 to stamps without a year
        notes.append(f"The stamps state no year; they are recorded as of {day}")
        day = None
    rails = tuple(_declared(r, options.own, day) for r in found.readings)
    phases = tuple(dict.fromkeys(s.phase for s in windows.spans if not s.warmup)) or ("inference",)

    def tick(ns: int) -> int:
        return round((ns - zero) * (hz / 1e9))

    return ImportedRun(
        name=source.stem,
        device=DeviceInfo(found.device, found.mode, clock=stamped, phases=phases),
        meters=(MeterInfo(found.meter, found.mode, clock, rails, details=dict(found.details)),),
        traces=tuple(r.trace(zero) for r in found.readings),
        spans=tuple(replace(s, on_tick=tick(s.on_tick), off_tick=tick(s.off_tick)) for s in windows.spans),
        brackets=brackets,
        originals={p.name: p for p in found.files or (source,)} | {f"windows/{p.name}": p for p in windows.files},
        idle_ns=windows.idle_ns,
        t0_ns=zero,
        task="imported",
        notes=tuple(notes),
    )


def _declared(readings: Readings, own: Recorded, day: date | None) -> Rail:
    """Return a rail with the rate of its axis, and with the limits of error for its shortest reading."""
    axis = readings.axis
    shortest_s = axis.shortest_ns * 1e-9 if axis.typical_ns else None
    return own.limited(replace(readings.rail, rate_hz=axis.rate_hz), day, shortest_s)


def watts(current: Floats, voltage: Floats) -> Floats:
    """Return volts times amperes, reading by reading. An overload of either makes the product an overload."""
    with np.errstate(all="ignore"):
        return np.asarray(current * voltage)


def check_power(path: Path, blocks: Iterable[tuple[Floats, Floats]]) -> None:
    """Refuse power whose mean is more than twice, or less than half, that of current times voltage in the same file.

    ``blocks`` are pairs of the power and the product, in W. If they differ so much, one column is in another unit or
    misnamed. Raises ``DataError``.
    """
    sums, counts = np.zeros(2), np.ones(2)
    for block in blocks:
        for k, values in enumerate(block):
            known = values[np.isfinite(values)]
            sums[k] += np.abs(known).sum(dtype=np.float64)
            counts[k] += len(known)
    power_w, product_w = sums / counts
    if max(power_w, product_w) > 2.0 * min(power_w, product_w) > 0.0:
        what = f"holds {power_w:.3g} W of power in the mean, but its current times its voltage is {product_w:.3g} W"
        remedy = "Correct the unit that is wrong, or declare columns and units with --format plain-csv"
        raise bad_file(path, what, remedy, field="power", value=float(power_w))


def conversion(unit: str, supply_v: float | None) -> Conversion:
    """Return the conversion of readings in W, or in A at ``supply_v``, which must then be stated.

    Raises ``UsageError`` if ``supply_v`` is missing, or is not a plausible supply voltage.
    """
    if unit == "W":
        return Conversion("W")
    if supply_v is None:
        raise unstated("supply_v", "the supply voltage is not stated", "supply_v=NUMBER")
    if not 0.0 < supply_v <= MOST_SUPPLY_V:
        raise refused("supply_v", supply_v, "Give volts above 0, not millivolts: supply_v=1.8")
    return Conversion("A", supply_v)
