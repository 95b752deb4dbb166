"""The power monitor on the Xylo board, read by the device's own handle. The simulated bench has its own monitor.

The driver starts the monitor at its own rate, and takes the time of each reading from the board's stopwatch. Readings
are put in order of time. A reading that comes too late, or not at all, is missing in the trace; the ticks reveal the
gap. Readings share the link with events: docs/reference/xylo-board.md states how much of the link they use.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

import numpy as np

from drivers.devices.xylo.board import TICK_HZ, Board, Reading, default_rate_hz
from drivers.devices.xylo.kit import Kit
from drivers.failures import meter_failed, raising
from drivers.meters.common_options import described
from drivers.meters.threaded import Batch, ThreadedMeter
from rig.bench.calibration import stated
from rig.bench.settings import parts_of, positive
from rig.errors import DeviceError, MeterError, SetupError, refused
from rig.types import Bracket, Chunk, Clock, ClockInfo, Device, Meter, MeterInfo, Rail, SimulatedBench

MODES = ("hardware", "simulator")

NAME = "xylo-monitor"
HOLD_US = 250_000
"""A reading waits this long (us of the stopwatch) for readings that arrive late."""
LINK_NS = 5_000_000
"""The bracket of the start assumes that the link's shortest delay is at most this."""
TAKES = 5
"""The start is bracketed this many times and the narrowest bracket is used: the program may be delayed during one."""
RATE_OFF = 0.02
ENOUGH = 20
"""The rate is checked from this many intervals between readings; at the end of a measurement two are enough."""


def open_meter(
    device: Device,
    bench: SimulatedBench | None = None,
    clock: Clock | None = None,
    *,
    rate_hz: float | None = None,
    calibration: str = "",
    temperature_c: float | None = None,
) -> Meter:
    """Open the monitor of ``device`` at ``rate_hz``: by default 1280 Hz, as in the published baseline.

    The converter of Audio 3 runs at 925.9 Hz, which is its default and its highest rate. ``calibration`` names a file
    for each rail that has one, as ``Io=io.toml,Logic=logic.toml``; for other rails no accuracy is stated.

    Raises ``UsageError`` for a rate above that of the board's converter, ``SetupError`` for a device without this
    monitor, for a device that records its activity, and for a simulated device without its bench.
    """
    positive(rate_hz=rate_hz)
    info = device.info()
    if info.onboard_meter != NAME:
        what = f"device {info.name!r} has no power monitor of this kind"
        remedy = f"It has {info.onboard_meter or 'none'}; choose another meter"
        raise SetupError(what, field="meter", value=NAME, remedy=remedy)
    board: Board | None = getattr(device, "board", None)
    if board is None and (bench is None or info.mode != "simulator"):
        what = "the simulated monitor needs the simulated bench of its device"
        raise SetupError(what, field="bench", remedy="Use the simulated bench, or pass bench=")
    if board is None:
        assert bench is not None
        return bench.meter(NAME, rate_hz or 1280.0)
    if info.details.get("records_activity"):
        what = "this device records its activity, which draws power that a timed run does not draw"
        raise SetupError(what, field="record_activity", value=True, remedy="Add --meter none, or drop record_activity")
    return _of_board(board, rate_hz or default_rate_hz(board.kit), calibration, temperature_c, clock)


def _of_board(
    board: Board, rate_hz: float, calibration: str, temperature_c: float | None, clock: Clock | None
) -> Meter:
    kit = board.kit
    if kit.chip.converter_s and rate_hz * kit.chip.converter_s > 1.0 + 1e-6:
        remedy = f"Give {1.0 / kit.chip.converter_s:.1f} or less: faster readings are interpolated, not measured"
        raise refused("rate_hz", rate_hz, remedy)
    made_hz = board.retune(rate_hz)
    info = described(
        NAME, ClockInfo("board", float(TICK_HZ)), f"power monitor on the board of {kit.chip.name}",
        _rails(kit, made_hz, calibration, temperature_c), omitted=("every supply of the board but those of the chip",),
        simulated=kit.simulated, versions=kit.versions,
        details={"rate_asked_hz": rate_hz, "rails": "named by the channels of the vendor's driver",
                 "aperture": "assumed: readings are means up to their stamps", "calibration": calibration or None},
    )  # fmt: skip
    return ThreadedMeter(info, BoardPower(board, info), clock, every_s=0.05)


def _rails(kit: Kit, rate_hz: float, calibration: str, temperature_c: float | None) -> list[Rail]:
    aperture_s = max(1.0 / rate_hz, kit.chip.converter_s)
    files = dict(part.partition("=")[::2] for part in parts_of(calibration))
    if strays := sorted(set(files) - set(kit.chip.rails)):
        raise refused("calibration", calibration, f"The rails are {', '.join(kit.chip.rails)}", f"no rail {strays[0]}")
    rails = (Rail(n, "mean", rate_hz=rate_hz, aperture_s=aperture_s, gain_id=f"{NAME}:{n}") for n in kit.chip.rails)
    limited = partial(stated, temperature_c=temperature_c, on=datetime.now(UTC).date())
    return [limited(rail, files[rail.name]) if rail.name in files else rail for rail in rails]


class BoardPower:
    """The ``Source``: the readings of every rail with the stopwatch's time, in order."""

    def __init__(self, board: Board, info: MeterInfo) -> None:
        self._board, self._info = board, info
        self._rate_hz = info.rails[0].rate_hz
        self._aperture_us = round((info.rails[0].aperture_s or 0.0) * TICK_HZ)

    def begin(self, clock: Clock) -> Bracket:
        """Restart the monitor at its rate, because another user of the board may have changed or stopped it."""
        self._waiting: dict[str, list[tuple[int, float]]] = {rail.name: [] for rail in self._info.rails}
        self._stamps: list[int] = []
        made_hz = self._board.retune(self._rate_hz)
        if abs(made_hz / self._rate_hz - 1.0) > RATE_OFF:
            raise self._wrong_rate(made_hz)
        self._board.collect(True)
        time.sleep(LINK_NS * 1e-9)
        with raising(self._gone, DeviceError):
            brackets = [self._bracket(clock) for _ in range(TAKES)]
        bracket = min(brackets, key=lambda b: b.after_ns - b.before_ns)
        self._given_us = dict.fromkeys(self._waiting, bracket.tick)  # readings at the earlier rate may still arrive
        return bracket

    def _bracket(self, clock: Clock) -> Bracket:
        before_ns = clock.now_ns() - LINK_NS
        return Bracket(before_ns, self._board.tick(), clock.now_ns())

    def fetch(self) -> Iterator[Batch]:
        """Yield readings older than ``HOLD_US``. A reading is dropped if newer ones were yielded before it arrived."""
        self._take()
        if not self._board.measuring():
            what = "the power monitor was stopped by something else that holds the board"
            raise meter_failed(what, "meter", NAME, "Close every other program that uses the board")
        newest_us = max((own[-1][0] for own in self._waiting.values() if own), default=0)
        yield self._given(newest_us - HOLD_US)

    def finish(self) -> Iterator[Batch]:
        """Check the rate, and yield the rest."""
        self._take()
        self._check_rate([], enough=2)
        self._board.collect(False)
        yield self._given(1 << 62)

    def close(self) -> None:
        """Stop keeping readings. The monitor runs until the device is closed, because it times the device's spans."""
        self._board.collect(False)

    def _take(self) -> None:
        with raising(self._gone, DeviceError):
            readings = self._board.readings()
        kept = [reading for reading in readings if reading[1] > self._given_us[reading[0]]]
        self._check_rate(kept)
        for rail, stamp_us, watts in kept:
            self._waiting[rail].append((stamp_us, watts))
        for own in self._waiting.values():
            own.sort()

    def _given(self, until_us: int) -> Batch:
        chunks = []
        for rail, own in self._waiting.items():
            ready = dict(pair for pair in own if pair[0] <= until_us)
            self._waiting[rail] = [pair for pair in own if pair[0] > until_us]
            stamps = np.fromiter(ready, np.int64, len(ready))
            if len(stamps):
                self._given_us[rail] = int(stamps[-1])
            watts = np.fromiter(ready.values(), np.float64, len(ready))
            chunks.append(Chunk(rail, watts, stamps - self._aperture_us, stamps))
        return chunks

    def _check_rate(self, readings: list[Reading], enough: int = ENOUGH) -> None:
        """Check the rate by the shortest recent interval and the lower quartile, which tolerates missing readings."""
        first = self._info.rails[0].name
        self._stamps = sorted({*self._stamps, *(stamp for rail, stamp, _ in readings if rail == first)})[-10 * ENOUGH :]
        if len(self._stamps) <= enough:
            return
        apart = np.diff(self._stamps)
        found_hz, fastest_hz = (TICK_HZ / float(us) for us in (np.percentile(apart, 25.0), np.min(apart[-ENOUGH:])))
        if abs(found_hz / self._rate_hz - 1.0) > RATE_OFF:
            raise self._wrong_rate(found_hz)
        if fastest_hz < (1.0 - RATE_OFF) * self._rate_hz:  # it was set to a lower rate a short while ago
            raise self._wrong_rate(fastest_hz)

    def _wrong_rate(self, found_hz: float) -> MeterError:
        what = f"the power monitor runs at {found_hz:g} Hz and was set to {self._rate_hz:g} Hz"
        remedy = "Close every other program that uses the board, or give a rate that it makes"
        return meter_failed(what, "rate_hz", found_hz, remedy)

    def _gone(self, error: DeviceError) -> MeterError:
        return meter_failed(str(error), "meter", NAME, "Check the cable of the board")
