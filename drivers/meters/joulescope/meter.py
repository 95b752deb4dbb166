"""Joulescope JS110, JS220 and JS320 by their own driver package: power, or current, streamed at a declared rate.

    rig measure --device ... --meter joulescope --option rate_hz=100000

Readings carry the instrument's numbers (``sample_id``), so that what is missing is NaN in the trace. The package
reduces the rate from the instrument's own; which filter it uses for that is recorded where the instrument tells.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from drivers.links.serial_line import positive
from drivers.meters.joulescope.marks import MarkedMeter, marked_rail, marking
from drivers.meters.sampled import Fetched, calibrated, calibration_details
from drivers.meters.usb_stream import KEPT, BoundedMeter, GapFilled, first_reading
from rig.errors import MeterError, MeterSilentError, MissingExtraError, SetupError, UsageError
from rig.types import Bracket, Clock, ClockInfo, Conversion, Floats, Meter, MeterInfo, Rail

MODES = ("hardware",)

SIGNALS = {"power": "p", "current": "i"}
GONE = "@/!remove"
GAP_MOST_S = 10.0


def open_meter(
    clock: Clock | None = None,
    *,
    instrument: str = "",
    name: str = "joulescope",
    rail: str = "supply",
    signal: str = "power",
    rate_hz: float = 100_000.0,
    supply_v: float | None = None,
    range_mode: str = "auto",
    clock_tolerance: float = 1e-3,
    calibration: str | None = None,
    calibration_range: float | None = None,
    temperature_c: float | None = None,
    hold_s: float = 20.0,
    timeout_s: float = 2.0,
    mark_input: int | None = None,
    pin: str = "level",
    pin_lag_s: float = 0.0,
    mark_vref: str = "",
) -> Meter:
    """A Joulescope; ``instrument`` is its path (``u/js220/000123``) or a part of it, if there are several.

    ``signal`` is ``power`` (W) or ``current`` (A, which needs ``supply_v``). ``rate_hz`` is one of the instrument's
    (1 to 2,000,000, in steps of 1, 2, 5), ``range_mode`` its current range's. ``clock_tolerance`` limits its sample
    timer's rate (relative). ``calibration`` names a calibration file, limits in the rail's unit; without one no
    accuracy is stated. ``hold_s`` of readings are held unread at most, ``timeout_s`` is how long it may be silent.
    ``mark_input`` (0 to 3, 7 the trigger's) is recorded as edges beside it; ``pin`` is what the device does there: high
    during each span (``level``), a falling edge when one begins and ends (``stamp``), or ``toggle``; it lags or leads
    by ``pin_lag_s`` at most. ``mark_vref`` (``3v3``, ``extern``) sets the voltage of the inputs.

    Raises ``UsageError`` for options that do not fit, ``MissingExtraError`` without pyjoulescope_driver,
    ``SetupError`` for an instrument that is not there or refuses its settings.
    """
    positive(rate_hz=rate_hz, clock_tolerance=clock_tolerance, hold_s=hold_s, timeout_s=timeout_s)
    _check(signal, supply_v, rate_hz)
    mark = marking(mark_input, pin, pin_lag_s, mark_vref)
    package, driver = _driver()
    path = ""
    try:
        path = _path(driver, instrument)
        own_filter = _settings(driver, path, rate_hz, range_mode)
        serial = path.rsplit("/", 1)[-1]
        conversion = Conversion("W") if signal == "power" else Conversion("A", supply_v)
        described = Rail(rail, "mean", conversion, rate_hz, gain_id=f"{path}:{signal}")
        described = calibrated(described, calibration, serial, calibration_range, temperature_c)
        info = MeterInfo(
            name=name,
            mode="hardware",
            clock=ClockInfo(name, 1e9, clock_tolerance),
            rails=(described,),
            omitted=("every supply but the one that the meter is in",),
            description=f"Joulescope {path}, {signal}, {rate_hz:g} readings/s",
            buffer_s=hold_s,
            versions={"pyjoulescope_driver": str(getattr(package, "__version__", ""))},
            details={
                "instrument": path, "signal": signal, "range_mode": range_mode, "supply_v": supply_v,
                "rate_filter": own_filter, "lost_readings": "NaN, as the readings' numbers tell",
                "calibration": calibration_details(calibration),
            },
            serial_number=serial,
        )  # fmt: skip
        source = _Stream(driver, path, SIGNALS[signal], info, timeout_s, round(hold_s * rate_hz))
        meter = BoundedMeter(source, round(hold_s * rate_hz), clock, timeout_s + 2.0)
        if mark is None:
            return meter
        return MarkedMeter(meter, source, driver, path, marked_rail(driver, path, mark, name, timeout_s), mark)
    except BaseException:
        _let_go(driver, path)
        raise


class _Stream:
    """The ``Source``: blocks arrive in the package's own thread and are taken out by ``fetch``."""

    def __init__(self, driver: Any, path: str, signal: str, info: MeterInfo, timeout_s: float, most: int) -> None:
        self._driver, self._path, self._info, self._timeout_s, self._most = driver, path, info, timeout_s, most
        self._data, self._ctrl = f"{path}/s/{signal}/!data", f"{path}/s/{signal}/ctrl"
        self._lock = threading.Lock()
        self._blocks: deque[tuple[int, float, Floats]] = deque()
        self._held, self._heard_s, self._arrived_ns = 0, 0.0, 0
        self._gone = self._full = self._streaming = False
        self._zero: int | None = None
        self.zero_id: int | None = None
        """The instrument's number of the first reading, and so where its clock counts from."""
        self._grid = GapFilled(info.name, 0)
        self._clock: Clock | None = None
        self._on_data, self._on_gone = self._take, self._removed  # the package unsubscribes the same object only
        driver.subscribe(GONE, "pub", self._on_gone)

    def describe(self) -> MeterInfo:
        return self._info

    def begin(self, clock: Clock) -> Bracket:
        """Start the stream and await its first block."""
        rate_hz = self._info.rails[0].rate_hz
        self._blocks.clear()
        self._held, self._zero, self._arrived_ns, self._clock = 0, None, 0, clock
        self.zero_id = None
        self._grid = GapFilled(self._info.name, round(GAP_MOST_S * rate_hz))
        self._call("subscribe", self._data, "pub", self._on_data)
        self._streaming, self._heard_s = True, time.monotonic()
        before_ns = clock.now_ns()
        self._call("publish", self._ctrl, 1)
        while not self._blocks:
            self._living()
            time.sleep(1e-3)
        with self._lock:
            _, hz, value = self._blocks[0]
            arrived_ns = self._arrived_ns
        if abs(hz - rate_hz) > 1e-6 * rate_hz:
            raise MeterError(
                f"the Joulescope streams {hz:g} readings/s and was told {rate_hz:g}", field="rate_hz", value=hz,
                remedy=f"Give rate_hz={hz:g}, or another rate that it has",
            )  # fmt: skip
        return first_reading(before_ns, arrived_ns, len(value), rate_hz, self._info.clock.tolerance)

    def fetch(self) -> Fetched:
        self._living()
        with self._lock:
            blocks = list(self._blocks)
            self._blocks.clear()
            self._held = 0
        parts = [self._placed(index, value) for index, _, value in blocks]
        value = np.concatenate(parts) if parts else np.zeros(0)
        rail = self._info.rails[0].name
        return Fetched({rail: value}, {rail: np.zeros(len(value), np.uint8)}, False)

    def finish(self) -> Sequence[Fetched]:
        self._call("publish", self._ctrl, 0)
        self._call("unsubscribe", self._data, self._on_data)
        self._streaming = False
        return [self.fetch()]

    def close(self) -> None:
        for each in ((self._data, self._on_data), (GONE, self._on_gone)):
            with suppress(Exception):
                self._driver.unsubscribe(*each)
        if self._streaming:
            with suppress(Exception):
                self._driver.publish(self._ctrl, 0, self._timeout_s)
            self._streaming = False
        _let_go(self._driver, self._path)

    def _placed(self, index: int, value: Floats) -> Floats:
        self._zero = index if self._zero is None else self._zero
        return self._grid.take(index - self._zero, value)

    def _take(self, topic: str, block: Mapping[str, Any]) -> None:
        """In the package's thread: copy a block, whose memory is the package's."""
        factor = int(block["decimate_factor"])
        value = np.array(block["data"], dtype=np.float64)
        with self._lock:
            self._heard_s = time.monotonic()
            if self._clock is not None and not self._arrived_ns:
                self._arrived_ns = self._clock.now_ns()
            self._full = self._full or self._held > self._most
            if len(value) and not self._full:
                self.zero_id = int(block["sample_id"]) if self.zero_id is None else self.zero_id
                self._blocks.append((int(block["sample_id"]) // factor, block["sample_rate"] / factor, value))
                self._held += len(value)

    def _removed(self, topic: str, path: Any) -> None:
        self._gone = self._gone or path == self._path

    def _living(self) -> None:
        """Raise what has become of the instrument, once all that came before has been taken."""
        if self._blocks:
            return
        silent_s = time.monotonic() - self._heard_s
        if self._gone:
            raise MeterError(
                f"the Joulescope {self._path} was unplugged", field="instrument", value=self._path,
                remedy=f"Check its cable. {KEPT}",
            )  # fmt: skip
        if self._full:
            raise MeterError(
                f"{self._most} readings of {self._path} were waiting", field="hold_s", value=self._most,
                remedy=f"Lower rate_hz. {KEPT}",
            )  # fmt: skip
        if self._streaming and silent_s > self._timeout_s:
            raise MeterSilentError(
                f"the Joulescope {self._path} has sent nothing for {self._timeout_s:g} s", field="timeout_s",
                value=silent_s, remedy=f"Check its cable. {KEPT}",
            )  # fmt: skip

    def _call(self, what: str, *values: Any) -> None:
        try:
            getattr(self._driver, what)(*values, timeout=self._timeout_s)
        except Exception as error:  # RuntimeError, TimeoutError and what a callback throws
            raise MeterError(
                f"the Joulescope {self._path} did not take {what} {values[0]}: {error}", field="instrument",
                value=self._path, remedy=f"Check its cable. {KEPT}",
            ) from error  # fmt: skip


def _check(signal: str, supply_v: float | None, rate_hz: float) -> None:
    if signal not in SIGNALS:
        raise UsageError(
            f"option signal is {signal!r}", field="signal", value=signal, remedy=f"Give {' or '.join(SIGNALS)}"
        )
    if signal == "current" and not (supply_v is not None and supply_v > 0):
        raise UsageError(
            "a current is no power without the supply's voltage", field="supply_v", value=supply_v,
            remedy="Give supply_v, or signal=power, which it measures",
        )  # fmt: skip
    if rate_hz != round(rate_hz):
        raise UsageError(f"option rate_hz is {rate_hz}", field="rate_hz", value=rate_hz, remedy="Give a whole number")


def _driver() -> tuple[Any, Any]:
    try:
        import pyjoulescope_driver
    except ImportError as error:
        raise MissingExtraError(
            "a Joulescope needs pyjoulescope_driver, which is not installed", field="meter",
            value="pyjoulescope_driver", remedy="pip install 'neurorig[joulescope]'",
        ) from error  # fmt: skip
    try:
        return pyjoulescope_driver, pyjoulescope_driver.Driver()
    except Exception as error:
        raise SetupError(
            f"the Joulescope driver does not start: {error}", field="meter", value="pyjoulescope_driver",
            remedy="Check its installation; on Linux its udev rules",
        ) from error  # fmt: skip


def _path(driver: Any, instrument: str) -> str:
    paths = [str(p) for p in driver.device_paths()]
    found = [p for p in paths if instrument.lower() in p.lower()]
    if len(found) != 1:
        raise SetupError(
            f"{len(found)} Joulescopes are {instrument or 'connected'}", field="instrument", value=instrument,
            remedy=f"Name one: instrument=PATH. Connected: {', '.join(paths) or 'none'}",
        )  # fmt: skip
    return found[0]


def _settings(driver: Any, path: str, rate_hz: float, range_mode: str) -> str:
    """Open, set rate and range; the filter of the rate reduction, where it can be asked."""
    try:
        driver.open(path)
        driver.publish(f"{path}/h/fs", round(rate_hz))
        driver.publish(f"{path}/s/i/range/mode", range_mode)
    except Exception as error:
        raise SetupError(
            f"the Joulescope {path} refuses its settings: {error}", field="instrument", value=path,
            remedy="Close every other program that uses it, and check rate_hz and range_mode",
        ) from error  # fmt: skip
    try:
        return str(driver.query(f"{path}/h/filter"))
    except Exception:  # a model without this setting
        return "not stated"


def _let_go(driver: Any, path: str) -> None:
    with suppress(Exception):
        if path:
            driver.close(path)
    with suppress(Exception):
        driver.finalize()
