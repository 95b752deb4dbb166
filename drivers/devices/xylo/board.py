"""An opened Xylo board: its stopwatch, its power monitor, and when its readouts come by.

The stopwatch of the board's FPGA stamps every reading of the power monitor, and nothing that Rockpool calls reads it
directly. So the stamps tell the time: the quickest reading of the last seconds shows how far the host's clock is from
the stopwatch, but for the least delay of the link. Readouts of the core come over the same link with the same delay,
and get the stopwatch's time by it. The power monitor therefore runs from open to close, and is the driver's own.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from drivers.cleanup import quietly
from drivers.devices.xylo.kit import AUDIO_2, Kit
from rig.errors import DeviceError, SetupError

TICK_HZ = 1_000_000
"""The stamps of power readings are whole microseconds."""
COUNTER = 1 << 32
"""Where the stopwatch wraps if it has 32 bits, after 71.6 minutes."""
BACK_US = 5_000_000
"""How far a stamp may lie before the newest one: readings of different channels do not come in order."""
WINDOW_NS = 3_000_000_000
BUSY_S, IDLE_S = 2.5e-4, 4e-3
"""How often what arrived is looked at, while the chip works and otherwise."""
LOOK_NS, SURE, NEAR = 2_000_000, 0.01, 0.25
"""A readout is sure if two looks around it are this close, or this share of the span; and how far in it may be."""
SWITCH_S = 2e-4
"""Rockpool's wait for Audio 3 spins; without a short switch interval the looks are 5 ms late."""

WARM_S, PATIENCE_S = 1.0, 2.0
SETTLE_S = 0.01
"""How long after the answer readouts may still come here; Rockpool has a buffer of its own."""

Reading = tuple[str, int, float]
"""Rail, microseconds of the stopwatch, watts."""
T = TypeVar("T")


def default_rate_hz(kit: Kit) -> float:
    """Return the rate of the published baseline, 1280 Hz, or that of a slower converter."""
    return min(1280.0, 1.0 / kit.chip.converter_s if kit.chip.converter_s else 1280.0)


class StopWatch:
    """The board's stopwatch as the host sees it, by the quickest stamps of the last seconds."""

    def __init__(self) -> None:
        self._quickest: deque[tuple[int, int]] = deque()  # arrival and lag in ns, lags growing
        self._newest_us: int | None = None
        self._oldest_us = 0

    def heard(self, stamp_us: int, arrived_ns: int) -> int:
        """Note a stamp that has arrived, and return it unwrapped. Raises ``ValueError`` if the stopwatch went back."""
        if self._newest_us is None:
            self._newest_us = self._oldest_us = stamp_us
        newest = self._newest_us
        stamp_us += COUNTER * round((newest - stamp_us) / COUNTER)
        if stamp_us < newest - BACK_US:
            raise ValueError(f"the stopwatch of the board went back from {newest} to {stamp_us} us")
        self._newest_us = max(newest, stamp_us)
        lag = arrived_ns - stamp_us * 1000
        while self._quickest and self._quickest[-1][1] >= lag:
            self._quickest.pop()
        self._quickest.append((arrived_ns, lag))
        while self._quickest[0][0] < arrived_ns - WINDOW_NS:
            self._quickest.popleft()
        return stamp_us

    def moves(self) -> bool:
        """Return whether stamps differ."""
        return self._newest_us is not None and self._newest_us > self._oldest_us

    def tick(self, at_ns: int) -> int:
        """Return microseconds of the stopwatch when what arrived at ``at_ns`` was sent by the quickest way."""
        return (at_ns - self._quickest[0][1]) // 1000


def span_of(arrived: NDArray[np.int64]) -> tuple[int, int]:
    """Return when the core began the first step and ended the last, by the looks at its readouts (ns of the host).

    ``arrived`` has shape (steps, 2): the look that found a readout, and the look before it. A readout came halfway
    between them. Where that is long, the next readout towards the middle tells the end of the span by the mean step.
    Raises ``DeviceError`` if none is sure enough.
    """
    steps, unsure_ns = len(arrived), arrived[:, 0] - arrived[:, 1]
    if steps < 2:
        raise DeviceError("a sample of one time step cannot be timed", field="steps", value=steps)
    at_ns = arrived[:, 0] - unsure_ns // 2
    near = max(1, round(NEAR * steps))
    sure_ns = max(LOOK_NS, round(SURE * float(at_ns[-1] - at_ns[0])))
    first = int(np.argmax(unsure_ns[:near] <= sure_ns))
    last = steps - 1 - int(np.argmax(unsure_ns[::-1][:near] <= sure_ns))
    if max(unsure_ns[first], unsure_ns[last]) > sure_ns:
        what = (
            f"this program was held up for {max(unsure_ns[first], unsure_ns[last]) * 1e-6:.3g} ms while it timed a span"
        )
        remedy = "Close other programs, and give longer samples or repeat them (--repeat 100)"
        raise DeviceError(what, field="span", value=int(unsure_ns.max()), remedy=remedy)
    step_ns = (at_ns[last] - at_ns[first]) / max(last - first, 1)
    begin_ns, end_ns = at_ns[first] - (first + 1) * step_ns, at_ns[last] + (steps - 1 - last) * step_ns
    return round(begin_ns), round(end_ns)


class Board:
    """A board whose power readings and readouts a thread takes in; ``open`` makes one."""

    def __init__(self, kit: Kit, rate_hz: float) -> None:
        self.kit = kit
        utils, hdk = kit.utils, kit.hdk
        attach = utils.set_power_measure if kit.chip is AUDIO_2 else utils.set_power_measurement
        self._power, self._monitor, *_ = attach(hdk, rate_hz)
        if kit.chip is AUDIO_2:  # the other helper starts it
            hdk.get_stop_watch().set_enable_value(True)
            hdk.get_stop_watch().reset()
        self._readouts = utils.new_xylo_read_buffer(hdk)
        self._stopwatch, self._lock = StopWatch(), threading.Lock()
        self._readings: list[Reading] | None = None
        self._heard, self._looked_ns, self._steps = 0, 0, dict[int, tuple[int, int]]()
        self._busy, self._last_tick = False, -COUNTER
        self._error: Exception | None = None
        self.rate_hz = self.retune(rate_hz)
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._attend, name="xylo board", daemon=True)

    @classmethod
    def open(cls, kit: Kit, rate_hz: float) -> Board:
        """Start the monitor at ``rate_hz``. Raises ``SetupError`` if its readings do not come, or carry no time."""
        try:
            board = cls(kit, rate_hz)
        except Exception as error:
            raise SetupError(f"the board of {kit.chip.name} refuses its power monitor: {error}", field="device",
                             value="xylo", remedy="Unplug the board and plug it in again") from error  # fmt: skip
        board._thread.start()
        patience_s = PATIENCE_S + 10.0 / board.rate_hz
        until_s, enough = time.monotonic() + patience_s, 3 * len(kit.rail_of)
        time.sleep(WARM_S)  # the quickest reading must have come
        while board._heard < enough and board._error is None and time.monotonic() < until_s:
            time.sleep(IDLE_S)
        why = ""
        if board._error is not None or board._heard < enough:
            why = str(board._error or f"{board._heard} readings came in {patience_s:.1f} s")
        elif not board._stopwatch.moves():
            why = "its stopwatch stands still"
        if why:
            board.close()
            raise SetupError(f"the power monitor of {kit.chip.name} does not run: {why}", field="device",
                             value="xylo", remedy="Unplug the board and plug it in again")  # fmt: skip
        return board

    def retune(self, rate_hz: float) -> float:
        """Start the monitor at ``rate_hz``, whoever had started it before, and return its rate (Hz)."""
        if self._monitor.is_auto_power_measurement_active():
            self._monitor.stop_auto_power_measurement()
        made_hz = self._monitor.start_auto_power_measurement(rate_hz)
        self.rate_hz = rate_hz if made_hz is None else float(made_hz)
        return self.rate_hz

    def calls(self) -> dict[str, list[str]]:
        """Return what stopwatch and monitor can be asked, so that a first board tells what this driver does not know."""
        parts = {"stopwatch": self.kit.hdk.get_stop_watch(), "monitor": self._monitor}
        return {name: [n for n in dir(part) if not n.startswith("_")] for name, part in parts.items()}

    def measuring(self) -> bool:
        """Whether the monitor still runs."""
        return bool(self._monitor.is_auto_power_measurement_active())

    def collect(self, on: bool) -> None:
        """Begin or end to keep power readings, without those that came before."""
        with self._lock:
            self._readings = [] if on else None

    def readings(self) -> list[Reading]:
        """Take what the monitor has sent, in the order of its arrival. Raises ``DeviceError`` if the board is gone."""
        with self._lock:
            taken, self._readings = self._readings or [], None if self._readings is None else []
        if not taken:
            self.check()
        return taken

    def tick(self) -> int:
        """Return microseconds of the stopwatch now; it never goes back. Raises ``DeviceError`` if the board is gone."""
        self.check()
        with self._lock:
            self._last_tick = max(self._last_tick, self._stopwatch.tick(time.monotonic_ns()))
            return self._last_tick

    def timed(self, work: Callable[[], T], steps: int) -> tuple[T, int, int]:
        """Do ``work`` that makes ``steps`` readouts, and return when the core began and ended (us of the stopwatch).

        Raises ``DeviceError`` if readouts are missing, or if this program was held up when they came.
        """
        with self._looking():
            done = work()
            until_s = time.monotonic() + 0.5
            while not self._seen(steps) and time.monotonic() < until_s:
                time.sleep(BUSY_S)
            time.sleep(SETTLE_S)
        self.check()
        with self._lock:
            if not self._seen(steps):
                remedy = "Check the cable of the board, and give shorter samples"
                what = f"{min(len(self._steps), steps)} of {steps} readouts of the core came in a row"
                raise DeviceError(what, field="steps", value=len(self._steps), remedy=remedy)
            arrived = np.array([self._steps[step] for step in sorted(self._steps)[-steps:]])
            begin_ns, end_ns = span_of(arrived)
            return done, self._stopwatch.tick(begin_ns), self._stopwatch.tick(end_ns)

    def check(self) -> None:
        """Raise ``DeviceError`` for what ended the thread."""
        if self._error is not None:
            what = f"the board of {self.kit.chip.name} does not answer any more: {self._error}"
            raise DeviceError(what, field="device", value="xylo", remedy="Check its cable") from self._error

    def close(self) -> None:
        """Stop the monitor and the thread. May be called twice; raises nothing."""
        self._halt.set()
        if self._thread.is_alive():
            self._thread.join(2.0)
        quietly(self._monitor.stop_auto_power_measurement)

    def _seen(self, steps: int) -> bool:
        """Whether the last ``steps`` readouts follow one another. A readout that was asked for may come before them."""
        known = sorted(self._steps)[-steps:]
        return len(known) == steps and known[-1] - known[0] == steps - 1

    @contextmanager
    def _looking(self) -> Iterator[None]:
        with self._lock:
            self._readouts.get_events()
            self._steps = {}
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
            sys.setswitchinterval(interval_s)

    def _attend(self) -> None:
        try:
            while not self._halt.is_set():
                with self._lock:
                    self._take()
                self._wait()
        except Exception as error:
            self._error = error

    def _wait(self) -> None:
        """Wait for the next look. While the core works this spins: to sleep would be to wake late."""
        if not self._busy:
            self._halt.wait(IDLE_S)
        until_ns = time.monotonic_ns() + round(BUSY_S * 1e9)
        while self._busy and time.monotonic_ns() < until_ns:
            pass

    def _take(self) -> None:
        step = self.kit.chip.step
        begun_ns = time.monotonic_ns()
        readouts = self._readouts.get_events() if self._busy else ()
        found_ns = time.monotonic_ns()
        for event in readouts:
            if (number := getattr(event, step, None)) is not None:
                self._steps[int(number)] = (found_ns, self._looked_ns)
        self._looked_ns = begun_ns
        readings = self._power.get_events()
        now_ns = time.monotonic_ns()
        for event in readings:
            rail = self.kit.rail_of.get(int(event.channel))
            if rail is None:
                continue
            stamp_us = self._stopwatch.heard(int(event.timestamp), now_ns)
            self._heard += 1
            if self._readings is not None:
                self._readings.append((rail, stamp_us, float(event.value)))
