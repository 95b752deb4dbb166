"""A recording with one time axis: readings and windows of one instrument to an ``ImportedRun``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from drivers.importers.axis import Axis, chunks
from drivers.importers.windows import Windows
from rig.bench.calibration import stated
from rig.errors import UsageError
from rig.importing.imported import PLAUSIBLE
from rig.importing.write import CRYSTAL, ImportedRun, ImportedTrace, wild
from rig.recording.lines import LIMIT
from rig.types import Bracket, Chunk, ClockInfo, DeviceInfo, Floats, MeterInfo, Mode, Rail

RECORDING, WINDOWS = "recording", "windows"
MOST_SUPPLY_V = 400.0
"""More is no supply of a board or a server, and what is meant are millivolts."""


@dataclass(frozen=True)
class Readings:
    """One rail and what was read of it, in the unit of its conversion: an array (n,), or chunks made while read."""

    rail: Rail
    axis: Axis
    values: Floats | None = None
    stream: Iterable[Chunk] = ()

    def trace(self, zero_ns: int) -> ImportedTrace:
        """As the run holds it, in ticks since ``zero_ns``."""
        made = self.stream if self.values is None else chunks(self.rail.name, self.values, self.axis, zero_ns)
        return ImportedTrace(self.rail.name, made, self.axis.t0_ns - zero_ns)


@dataclass(frozen=True)
class Limits:
    """The calibration file of an instrument and what is said of its use; see ``rig.bench.calibration.stated``."""

    path: str | None = None
    range_max: float | None = None
    temperature_c: float | None = None
    on: date | None = None

    def known(self, rail: Rail, axis: Axis) -> Rail:
        """The rail at the rate of its axis, with the limits for readings of that length."""
        paced = replace(rail, rate_hz=axis.rate_hz)
        aperture_s = None
        if axis.start_ns is not None and axis.end_ns is not None:
            aperture_s = float(np.min(axis.end_ns - axis.start_ns)) * 1e-9
        return stated(
            paced, self.path, range_max=self.range_max, temperature_c=self.temperature_c, on=self.on,
            aperture_s=aperture_s,
        )  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """What was said about the instrument, beside its files."""

    meter: str
    device: str = "device under test"
    mode: Mode = "hardware"
    sync_s: float = 0.0
    clock_tolerance: float = CRYSTAL
    details: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = Limits()


def imported(
    source: Path,
    setting: Setting,
    readings: Sequence[Readings],
    windows: Windows,
    files: Sequence[Path] = (),
    notes: Sequence[str] = (),
) -> ImportedRun:
    """One run. Windows and readings share an axis, unless ``sync_s`` says how far two clocks may be apart.

    Ticks are ns of the recording's clock since the first reading, or, where the windows are known to a sample of a
    channel only, such samples; its rate is trusted to ``clock_tolerance``. Limits of error are looked up here, where
    it is known how long a reading lasts. Raises ``UsageError``, and what ``rig.bench.calibration.stated`` raises.
    """
    for name, value in (("sync_s", setting.sync_s), ("clock_tolerance", setting.clock_tolerance)):
        if not 0.0 <= value <= 1e3:
            raise UsageError(f"{name} is {value}", field=name, value=value, remedy="Give a limit, 0 or more")
    axis = readings[0].axis
    zero = axis.t0_ns
    for on, off in [(s.on_tick, s.off_tick) for s in windows.spans] + [*windows.idle_ns, (zero, zero)]:
        if max(abs(on), abs(off)) >= LIMIT // 2:
            raise wild("time", "a window or the first reading is at ns", max(on, off, key=abs))
    coarse = windows.tick_ns > 0 and all(r.axis.start_ns is None and r.axis.t0_ns == zero for r in readings)
    hz = 1e9 / windows.tick_ns if coarse else 1e9
    clock = ClockInfo(RECORDING, hz, setting.clock_tolerance)
    doubt_ns = round(1e9 * (max(r.axis.doubt_s for r in readings) + setting.sync_s))
    brackets = {RECORDING: (Bracket(zero - doubt_ns, 0, zero + doubt_ns),)}
    stamped = clock
    if setting.sync_s > 0.0:
        stamped = ClockInfo(WINDOWS, hz, setting.clock_tolerance)
        brackets[WINDOWS] = (Bracket(zero, 0, zero),)
    rails = tuple(setting.limits.known(r.rail, r.axis) for r in readings)
    phases = tuple(dict.fromkeys(s.phase for s in windows.spans if not s.warmup)) or ("inference",)
    spans = [(round((s.on_tick - zero) * (hz / 1e9)), round((s.off_tick - zero) * (hz / 1e9))) for s in windows.spans]
    return ImportedRun(
        name=source.stem,
        device=DeviceInfo(setting.device, setting.mode, clock=stamped, phases=phases),
        meters=(MeterInfo(setting.meter, setting.mode, clock, rails, details=dict(setting.details)),),
        traces=tuple(replace(r, rail=rail).trace(zero) for r, rail in zip(readings, rails, strict=True)),
        spans=tuple(replace(s, on_tick=a, off_tick=b) for s, (a, b) in zip(windows.spans, spans, strict=True)),
        brackets=brackets,
        originals={p.name: p for p in files or (source,)} | {f"windows/{p.name}": p for p in windows.files},
        idle_ns=windows.idle_ns,
        t0_ns=zero,
        task="imported",
        notes=tuple(notes),
    )


def watts(current: Floats, voltage: Floats) -> Floats:
    """Volts times amperes, reading by reading; what overflows is refused as any wild reading is."""
    with np.errstate(all="ignore"):
        found = np.asarray(current * voltage)
    overflown = np.isinf(found) & np.isfinite(current) & np.isfinite(voltage)
    return np.where(overflown, np.sign(found) * 10.0 * PLAUSIBLE, found)


def positive(name: str, value: float | None, what: str) -> float:
    """An option that must be stated and positive. Raises ``UsageError`` naming it."""
    if value is None or not value > 0.0:
        raise UsageError(
            f"{what} is not stated" if value is None else f"{name} is {value}",
            field=name,
            value=value,
            remedy=f"State it: {name}=NUMBER",
        )
    return value


def supply(value: float | None) -> float:
    """The option ``supply_v``. Raises ``UsageError`` where it is missing, or no voltage that a device is fed with."""
    volts = positive("supply_v", value, "the supply voltage")
    if volts > MOST_SUPPLY_V:
        raise UsageError(
            f"supply_v is {volts:g}", field="supply_v", value=volts, remedy="Give volts, not millivolts: supply_v=1.8"
        )
    return volts
