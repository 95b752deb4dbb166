"""Nordic Power Profiler Kit II on its serial port: the current of one supply, 100,000 readings a second.

    rig measure --device ... --meter ppk2 --option port=/dev/ttyACM0 --option supply_v=3.0

Readings that its counter says were lost are NaN in the trace, never averaged over. See ``ppk2_stream`` for the words.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivers.meters.ppk2_stream import ADC_FULL, RATE_HZ, Aligner, Modifiers, Words, modifiers_of
from drivers.meters.scpi_stream import Fetched, calibrated, calibration_details
from drivers.meters.usb_stream import KEPT, TAP_S, BoundedMeter, Tap, first_reading
from drivers.serial_line import METER, SerialLine, open_line, positive
from rig.errors import MeterError, MeterSilentError, SetupError, UsageError
from rig.types import Bracket, Clock, ClockInfo, Conversion, Floats, Meter, MeterInfo, Mode, Rail

MODES = ("hardware",)

BAUD = 115_200
"""What a USB serial port ignores."""
SOURCE_V = (0.8, 5.0)
START, STOP, RUNNING, REGULATOR, POWER_MODE, METADATA = 0x06, 0x07, 0x0C, 0x0D, 0x11, 0x19
POWER_MODES = {"ampere": 1, "source": 2}
POWERS = ("on", "off-at-close", "keep")
QUIET_S = 0.02
TAP_MOST = 1 << 22
EDGES_MOST = 1_000_000


def open_meter(
    clock: Clock | None = None,
    *,
    port: str = "",
    name: str = "ppk2",
    rail: str = "supply",
    mode: str = "source",
    supply_v: float = 0.0,
    power: str = "on",
    mark_channel: str = "",
    clock_tolerance: float = 1e-3,
    calibration: str | None = None,
    calibration_range: float | None = None,
    temperature_c: float | None = None,
    hold_s: float = 20.0,
    timeout_s: float = 1.0,
) -> Meter:
    """A PPK2 on a serial ``port``. ``mode`` is ``source`` (it supplies ``supply_v``, 0.8 to 5 V) or ``ampere`` (it lies

    in a supply of ``supply_v``, which must be stated since it measures no voltage; the offset of its calibration and
    the watts both need it). ``power`` says what becomes of its output: switched ``on`` and left on, ``off-at-close``,
    or ``keep`` it as it is. ``mark_channel`` (D0 to D7) is a logic input whose edges ``Ppk2Meter.edges`` gives in
    ticks. ``clock_tolerance`` limits its sample timer's rate (relative). ``calibration`` names a calibration file,
    limits in A; without one no accuracy is stated. ``hold_s`` of readings are held unread at most, ``timeout_s`` is
    how long it may be silent.

    Raises ``UsageError`` for options that do not fit, ``SetupError`` for a port that is no PPK2's.
    """
    _check(mode, supply_v, power, mark_channel)
    positive(clock_tolerance=clock_tolerance, hold_s=hold_s, timeout_s=timeout_s)
    line = open_line(port, BAUD, METER)
    try:
        modifiers = _metadata(line, timeout_s)
        _set(line, mode, supply_v, power)
        described = Rail(rail, "mean", Conversion("A", supply_v), RATE_HZ, gain_id=f"{name}:{rail}")
        described = calibrated(described, calibration, _serial(line), calibration_range, temperature_c)
        details = {
            "port": port, "mode": mode, "supply_v": supply_v, "power": power, "mark_channel": mark_channel,
            "metadata": modifiers.other, "step_a_by_range": modifiers.steps_a(), "spike_filter": "none",
            "lost_readings": "NaN, as its six-bit counter tells; multiples of 64 are seen only against the clock",
            "calibration": calibration_details(calibration),
        }  # fmt: skip
        info = _info(name, described, clock_tolerance, hold_s, modifiers, details)
        source = _Stream(line, info, modifiers, supply_v, mark_channel, timeout_s, power == "off-at-close")
        return Ppk2Meter(source, round(hold_s * RATE_HZ), clock, timeout_s + 1.0)
    except BaseException:
        line.close()
        raise


@dataclass(frozen=True)
class Edges:
    """Changes of a logic input: ticks (int64) of the first reading after each, and the level (bool) from there on."""

    tick: NDArray[np.int64]
    level: NDArray[np.bool_]


class Ppk2Meter(BoundedMeter):
    """A PPK2; beside a meter's methods it gives the edges of its mark channel."""

    def __init__(self, source: _Stream, most: int, clock: Clock | None, patience_s: float) -> None:
        super().__init__(source, most, clock, patience_s)
        self._stream = source

    def edges(self) -> Edges:
        """Edges of ``mark_channel`` since ``start``, in ticks of this meter's clock (one per reading)."""
        found = list(self._stream.edges)
        tick, level = np.array([t for t, _ in found], dtype=np.int64), np.array([v for _, v in found], dtype=bool)
        return Edges(tick, level)

    def lost(self) -> int:
        """Readings that the counter told as lost since ``start``."""
        return self._stream.aligner.lost


class _Stream:
    """The ``Source`` of a PPK2: starts the stream, cuts it into words, makes amperes of them."""

    def __init__(
        self, line: SerialLine, info: MeterInfo, modifiers: Modifiers, supply_v: float, mark: str,
        timeout_s: float, off_at_close: bool,
    ) -> None:  # fmt: skip
        self._line, self._info, self._modifiers, self._supply_v = line, info, modifiers, supply_v
        self._mark = int(mark[1]) if mark else None
        self._timeout_s, self._off_at_close = timeout_s, off_at_close
        self._early: list[Fetched] = []
        self._tap: Tap | None = None
        self._heard_s = 0.0
        self._reset()

    def _reset(self) -> None:
        self.aligner = Aligner()
        self.edges: list[tuple[int, bool]] = []
        self._early, self._count = [], 0
        self._level: bool | None = None

    def describe(self) -> MeterInfo:
        return self._info

    def begin(self, clock: Clock) -> Bracket:
        """Start the stream and await its first certain words."""
        self._untap()
        _silence(self._line, self._timeout_s)
        self._reset()
        before_ns = clock.now_ns()
        self._line.write(bytes([START]))
        self._tap = Tap(self._line, TAP_MOST)
        self._heard_s = time.monotonic()
        while True:
            got = self.fetch()
            if got.count:
                self._early = [got]
                rate_hz, tolerance = RATE_HZ, self._info.clock.tolerance
                return first_reading(before_ns, clock.now_ns(), got.count, rate_hz, tolerance)
            time.sleep(1e-3)

    def fetch(self) -> Fetched:
        if self._early:
            return self._early.pop()
        data = self._tap.take() if self._tap is not None else b""
        now_s = time.monotonic()
        if data:
            self._heard_s = now_s
        elif now_s - self._heard_s > self._timeout_s:
            raise MeterSilentError(
                f"meter {self._info.name} has sent nothing for {self._timeout_s:g} s",
                field="timeout_s",
                value=now_s - self._heard_s,
                remedy=f"Check the PPK2's cable. {KEPT}",
            )
        return self._readings(self.aligner.feed(data))

    def finish(self) -> Sequence[Fetched]:
        """Stop; what is still on its way was taken before it stopped."""
        self._line.write(bytes([STOP]))
        tap = self._tap
        assert tap is not None
        rest, until_s = list(self._early), time.monotonic() + self._timeout_s
        quiet_s = time.monotonic() + QUIET_S
        while time.monotonic() < min(quiet_s, until_s):
            if data := tap.take():
                rest.append(self._readings(self.aligner.feed(data)))
                quiet_s = time.monotonic() + QUIET_S
            time.sleep(TAP_S)
        self._untap()
        return rest

    def _untap(self) -> None:
        if self._tap is not None:
            self._tap.close()
            self._tap = None

    def close(self) -> None:
        self._untap()
        with contextlib.suppress(MeterError):
            self._line.write(bytes([STOP]))
            if self._off_at_close:
                self._line.write(bytes([RUNNING, 0]))
        self._line.close()

    def _readings(self, words: Words) -> Fetched:
        """Amperes on the grid, one NaN for each lost reading; a reading at the ADC's end is flagged."""
        word = words.word
        range_, adc = ((word >> 14) & 7).astype(np.intp), (word & ADC_FULL).astype(np.float64)
        value: Floats = self._modifiers.amperes(range_, adc, self._supply_v)
        over = (adc == ADC_FULL).astype(np.uint8)
        at = np.arange(len(word)) + np.cumsum(words.lost)
        n = int(at[-1]) + 1 if len(at) else 0
        if n != len(word):
            value, over = _spread(value, at, n, np.nan), _spread(over, at, n, 0)
        if self._mark is not None:
            self._note_edges(self._count + at, (word >> (24 + self._mark)) & 1 == 1)
        self._count += n
        rail = self._info.rails[0].name
        return Fetched({rail: value}, {rail: over}, False)

    def _note_edges(self, tick: NDArray[np.int64], high: NDArray[np.bool_]) -> None:
        if not len(high):
            return
        before = np.concatenate([[high[0] if self._level is None else self._level], high[:-1]])
        for k in np.flatnonzero(high != before):
            self.edges.append((int(tick[k]), bool(high[k])))
        self._level = bool(high[-1])
        if len(self.edges) > EDGES_MOST:
            raise MeterError(
                f"the logic input D{self._mark} changed more than {EDGES_MOST} times",
                field="mark_channel",
                value=len(self.edges),
                remedy=f"Choose another, or tie it to ground. {KEPT}",
            )


def _spread(value: NDArray[Any], at: NDArray[np.int64], n: int, fill: float) -> NDArray[Any]:
    out = np.full(n, fill, dtype=value.dtype)
    out[at] = value
    return out


def _check(mode: str, supply_v: float, power: str, mark: str) -> None:
    channels = ("", *(f"D{k}" for k in range(8)))
    chosen = (("mode", mode, tuple(POWER_MODES)), ("power", power, POWERS), ("mark_channel", mark, channels))
    for name, value, known in chosen:
        if value not in known:
            names = ", ".join(k for k in known if k)
            raise UsageError(f"option {name} is {value!r}", field=name, value=value, remedy=f"Give one of {names}")
    low, high = SOURCE_V
    if not low <= supply_v <= high:
        raise UsageError(
            f"option supply_v is {supply_v}: a PPK2 measures no voltage, so it must be stated",
            field="supply_v",
            value=supply_v,
            remedy=f"Give {low} to {high} V",
        )


def _metadata(line: SerialLine, timeout_s: float) -> Modifiers:
    """Silence the instrument, ask for its calibration and read it up to END."""
    _silence(line, timeout_s)
    line.write(bytes([METADATA]))
    said, until_s = b"", time.monotonic() + timeout_s
    while b"END" not in said:
        if time.monotonic() > until_s:
            raise SetupError(
                f"what is on {line.port} does not state a PPK2's calibration: {said[:60]!r}",
                field="port",
                value=line.port,
                remedy="A PPK2 has two ports on some firmware: try the other. Close every other program that uses it",
            )
        said += line.waiting()
        time.sleep(1e-3)
    return modifiers_of(said.decode("latin-1"))


def _silence(line: SerialLine, timeout_s: float) -> None:
    """Stop a stream that somebody left running, and let what is on its way pass."""
    line.write(bytes([STOP]))
    until_s = time.monotonic() + timeout_s
    quiet_s = time.monotonic() + QUIET_S
    while time.monotonic() < quiet_s:
        if line.waiting():
            quiet_s = time.monotonic() + QUIET_S
        if time.monotonic() > until_s:
            raise line.failed("goes on sending although it was told to stop")
        time.sleep(1e-3)


def _set(line: SerialLine, mode: str, supply_v: float, power: str) -> None:
    """Mode, voltage (two bytes, the higher first, in 0.001 V) and output, unless all is to be kept."""
    if power == "keep":
        return
    line.write(bytes([POWER_MODE, POWER_MODES[mode]]))
    if mode == "source":
        line.write(bytes([REGULATOR, *round(supply_v * 1000.0).to_bytes(2, "big")]))
    line.write(bytes([RUNNING, 1]))


def _serial(line: SerialLine) -> str:
    """The serial number of the USB device at this port, "" where the system does not tell."""
    from serial.tools.list_ports import comports

    return next((str(p.serial_number or "") for p in comports() if p.device == line.port), "")


def _info(
    name: str, rail: Rail, tolerance: float, hold_s: float, modifiers: Modifiers, details: dict[str, Any]
) -> MeterInfo:
    simulated = modifiers.other.get("Simulated", "") == "1"
    mode: Mode = "simulator" if simulated else "hardware"
    return MeterInfo(
        name=name,
        mode=mode,
        clock=ClockInfo(name, RATE_HZ, tolerance),
        rails=(rail,),
        omitted=("every supply but the one that the meter is in",),
        description=f"{'SIMULATED ' if simulated else ''}Nordic PPK2, {details['mode']} mode, {RATE_HZ:g} readings/s",
        buffer_s=hold_s,
        versions={"PPK2 hardware": modifiers.other.get("HW", ""), "pyserial": version("pyserial")},
        details=details,
    )
