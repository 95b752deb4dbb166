"""An opened Xylo board: its stopwatch, its power monitor, and the times of its readouts.

The stopwatch of the board's FPGA stamps every reading of the power monitor, and no function that Rockpool calls reads
the stopwatch directly. So the driver takes the time from these stamps. Among the readings of the last seconds, the one
with the least delay gives the offset between the host's clock and the stopwatch, except for the link's shortest delay.
Readouts of the core are taken to have the same delay, so the offset also converts their times, and begin and end of a
span. The power monitor therefore runs from open to close, and no other program may use it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from drivers.devices.xylo.kit import AUDIO_2, Kit, unusable
from drivers.failures import quietly, raising
from rig.errors import DeviceError, SetupError

TICK_HZ = 1_000_000
"""Stamps of power readings are whole microseconds."""
COUNTER = 1 << 32
"""A stopwatch of 32 bits starts again from 0 at this value, after 71.6 minutes."""
BACK_US = 800_000
"""A stamp may be at most this much older than the newest stamp, because readings of different channels are not in
order. A board is open for longer than this before a measurement, so a restart of the stopwatch is detected."""
AHEAD_NS = 60_000_000_000
"""A stamp may be at most this much ahead of the host's clock. A restart in the counter's second half looks like a step
to the counter's end, which is larger. Readings that waited while this program was held up make a smaller step."""
WINDOW_NS = 3_000_000_000
"""The stamp with the least delay is used for at most this long; a clock that is 100 ppm off moves by 0.3 ms then."""
LOOK_NS, NEAR = 2_000_000, 0.25
"""A readout's time counts as exact if the check that found it came at most ``LOOK_NS`` after the check before.

A limit of 2 ms is enough, because the published times of spans are in whole milliseconds. Within the share ``NEAR`` of
the steps from either end, one readout must be exact.
"""
BUSY_S, IDLE_S = 2.5e-4, 4e-3
"""The times between checks for arrived data: while the chip works, and at other times. The thread sleeps between
checks. If it checked without a pause on a busy computer, its time slice would be used up when a readout comes."""
SWITCH_S = 2e-4
"""Python's switch interval between threads (s). Rockpool waits for Audio 3 in a busy loop, and with Python's longer
default the checks would be 5 ms late."""

WARM_S, PATIENCE_S = 1.0, 2.0
SETTLE_S = 0.01
"""Readouts may come up to this long after the answer, because Rockpool has a separate buffer."""

Reading = tuple[str, int, float]
"""Rail, microseconds of the stopwatch, watts."""
T = TypeVar("T")


class HeldUpError(DeviceError):
    """This program was held up when a span began or ended, so its times are unknown."""


class StopWatch:
    """Converts host times to times of the board's stopwatch, by the stamp with the least delay in the last seconds."""

    def __init__(self) -> None:
        self._quickest: deque[tuple[int, int]] = deque()  # arrival and lag in ns, lags growing
        self._newest_us: int | None = None
        self._oldest_us = 0

    def heard(self, stamp_us: int, arrived_ns: int) -> int:
        """Add a stamp that has arrived; return it unwrapped. Raises ``ValueError`` if the stopwatch restarted."""
        if self._newest_us is None:
            self._newest_us = self._oldest_us = stamp_us
        newest = self._newest_us
        stamp_us += COUNTER * round((newest - stamp_us) / COUNTER)
        lag = arrived_ns - stamp_us * 1000
        if stamp_us < newest - BACK_US or (self._quickest and lag < self._quickest[0][1] - AHEAD_NS):
            where = f"{newest % COUNTER} to {stamp_us % COUNTER}"
            raise ValueError(f"its stopwatch went back from {where} us, as if it was started again")
        self._newest_us = max(newest, stamp_us)
        while self._quickest and self._quickest[-1][1] >= lag:
            self._quickest.pop()
        self._quickest.append((arrived_ns, lag))
        while self._quickest[0][0] < arrived_ns - WINDOW_NS:
            self._quickest.popleft()
        return stamp_us

    def moves(self) -> bool:
        """Return whether the stamps have changed."""
        return self._newest_us is not None and self._newest_us > self._oldest_us

    def tick(self, at_ns: int) -> int:
        """Return when data that arrived at ``at_ns`` was sent (stopwatch us), if it had the least delay."""
        return (at_ns - self._quickest[0][1]) // 1000


def span_of(arrived: NDArray[np.int64]) -> tuple[int, int]:
    """Return when the core began the first step and ended the last (host ns), from the checks for its readouts.

    ``arrived`` has shape (steps, 2): the times of the check that found a readout, and of the check before. The readout
    is taken to come halfway between them. If the two checks at an end of the span are too far apart, this end is
    computed from the nearest exact readout and the mean step. Raises ``HeldUpError`` if no readout near an end is
    exact, and ``DeviceError`` for a single step.
    """
    steps, unsure_ns = len(arrived), arrived[:, 0] - arrived[:, 1]
    if steps < 2:
        raise DeviceError("a sample of one time step cannot be timed", field="steps", value=steps)
    at_ns = arrived[:, 0] - unsure_ns // 2
    near = max(1, round(NEAR * steps))
    first = int(np.argmax(unsure_ns[:near] <= LOOK_NS))
    last = steps - 1 - int(np.argmax(unsure_ns[::-1][:near] <= LOOK_NS))
    if (longest_ns := max(unsure_ns[first], unsure_ns[last])) > LOOK_NS:
        what = f"this program was held up for {longest_ns * 1e-6:.3g} ms while it timed a span"
        remedy = "Close other programs, and give longer samples or repeat them (--repeat 100)"
        raise HeldUpError(what, field="span", value=int(unsure_ns.max()), remedy=remedy)
    step_ns = (at_ns[last] - at_ns[first]) / max(last - first, 1)
    begin_ns, end_ns = at_ns[first] - (first + 1) * step_ns, at_ns[last] + (steps - 1 - last) * step_ns
    return round(begin_ns), round(end_ns)


def default_rate_hz(kit: Kit) -> float:
    """Return the rate of the published baseline, 1280 Hz, or a slower converter's own rate."""
    return min(1280.0, 1.0 / kit.chip.converter_s if kit.chip.converter_s else 1280.0)


class Board:
    """A board and the thread that collects its power readings and readouts; ``open`` makes one."""

    def __init__(self, kit: Kit, rate_hz: float) -> None:
        self.kit = kit
        utils, hdk = kit.utils, kit.hdk
        attach = utils.set_power_measure if kit.chip is AUDIO_2 else utils.set_power_measurement
        self._power, self._monitor, *_ = attach(hdk, rate_hz)
        if kit.chip is AUDIO_2:  # the helper for Audio 3 starts the stopwatch itself
            hdk.get_stop_watch().set_enable_value(True)
            hdk.get_stop_watch().reset()
        self._readouts = utils.new_xylo_read_buffer(hdk)
        self._stopwatch, self._lock = StopWatch(), threading.Lock()
        self._readings: list[Reading] | None = None
        self._heard, self._looked_ns, self._steps = 0, 0, dict[int, tuple[int, int]]()
        self._busy, self._last_tick = False, 0
        self.on_readout: Callable[[Any, int], None] | None = None
        """If set, it is called with each readout and the time of the check that found it (host ns).

        ``timed`` then gets no readouts.
        """
        self._error: Exception | None = None
        self.rate_hz = self.retune(rate_hz)
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._attend, name="xylo board", daemon=True)

    @classmethod
    def open(cls, kit: Kit, rate_hz: float) -> Board:
        """Start the monitor at ``rate_hz``. Raises ``SetupError`` if its readings do not come, or have no time."""
        with raising(lambda error: _no_monitor(kit, str(error)), Exception):
            board = cls(kit, rate_hz)
        board._thread.start()
        patience_s = PATIENCE_S + 10.0 / board.rate_hz
        until_s, enough = time.monotonic() + patience_s, 3 * len(kit.rail_of)
        time.sleep(WARM_S)  # wait until a reading with the least delay has come
        while board._heard < enough and board._error is None and time.monotonic() < until_s:
            time.sleep(IDLE_S)
        why = str(board._error or "")
        if board._heard < enough:
            why = why or f"{board._heard} readings came in {patience_s:.1f} s"
        elif not board._stopwatch.moves():
            why = "its stopwatch stands still"
        if why:
            board.close()
            raise _no_monitor(kit, why)
        return board

    def retune(self, rate_hz: float) -> float:
        """Start the monitor at ``rate_hz``, even if it already runs, and return its rate (Hz)."""
        if self._monitor.is_auto_power_measurement_active():
            self._monitor.stop_auto_power_measurement()
        made_hz = self._monitor.start_auto_power_measurement(rate_hz)
        self.rate_hz = rate_hz if made_hz is None else float(made_hz)
        return self.rate_hz

    def calls(self) -> dict[str, list[str]]:
        """Return the names of the stopwatch's and the monitor's calls, which nobody has tried on a real board yet."""
        parts = {"stopwatch": self.kit.hdk.get_stop_watch(), "monitor": self._monitor}
        return {name: [n for n in dir(part) if not n.startswith("_")] for name, part in parts.items()}

    def measuring(self) -> bool:
        """Return whether the monitor still runs."""
        return bool(self._monitor.is_auto_power_measurement_active())

    def collect(self, on: bool) -> None:
        """Begin or stop keeping power readings; earlier readings are dropped."""
        with self._lock:
            self._readings = [] if on else None

    @property
    def collecting(self) -> bool:
        """Return whether power readings are kept."""
        return self._readings is not None

    def readings(self) -> list[Reading]:
        """Return and forget the kept readings, in order of arrival.

        Raises ``DeviceError`` if there are none because the board is gone.
        """
        with self._lock:
            taken, self._readings = self._readings or [], None if self._readings is None else []
        if not taken:
            self.check()
        return taken

    def tick(self) -> int:
        """Return the stopwatch's time now (us); it never goes back. Raises ``DeviceError`` if the board is gone."""
        self.check()
        with self._lock:
            self._last_tick = max(self._last_tick, self._stopwatch.tick(time.monotonic_ns()))
            return self._last_tick

    def tick_at(self, at_ns: int) -> int:
        """Return the stopwatch's time (us) at a time of the host (ns) within the last seconds."""
        with self._lock:
            return self._stopwatch.tick(at_ns)

    def timed(self, work: Callable[[], T], steps: int) -> tuple[T, int, int]:
        """Do ``work``, which makes ``steps`` readouts; return its result, and begin and end of the core (stopwatch us).

        Raises ``DeviceError`` if readouts are missing, ``HeldUpError`` if this program was held up when they came.
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
                what = f"{len(self._steps)} readouts of the core came, but not {steps} in a row"
                raise DeviceError(what, field="steps", value=len(self._steps), remedy=remedy)
            begin_ns, end_ns = span_of(np.array([self._steps[step] for step in sorted(self._steps)[-steps:]]))
            return done, self._stopwatch.tick(begin_ns), self._stopwatch.tick(end_ns)

    def check(self) -> None:
        """Raise ``DeviceError`` if an error has ended the thread."""
        if self._error is not None:
            what = f"the board of {self.kit.chip.name} cannot be read any more: {self._error}"
            remedy = "Check its cable, and close every other program that uses the board"
            raise DeviceError(what, field="device", value="xylo", remedy=remedy) from self._error

    def close(self) -> None:
        """Stop the monitor and the thread. May be called twice; raises nothing."""
        self._halt.set()
        if self._thread.is_alive():
            self._thread.join(2.0)
        quietly(self._monitor.stop_auto_power_measurement)

    def _seen(self, steps: int) -> bool:
        """Return whether the last ``steps`` readouts are consecutive; an extra readout may come before them."""
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
                self._halt.wait(BUSY_S if self._busy else IDLE_S)
        except Exception as error:
            self._error = error

    def _take(self) -> None:
        step = self.kit.chip.step
        begun_ns = time.monotonic_ns()
        listening = self.on_readout
        readouts = self._readouts.get_events() if self._busy or listening else ()
        found_ns = time.monotonic_ns()
        for event in readouts:
            if (number := getattr(event, step, None)) is None:
                continue
            if listening is None:
                self._steps[int(number)] = (found_ns, self._looked_ns)
            else:
                listening(event, found_ns)
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


def _no_monitor(kit: Kit, why: str) -> SetupError:
    what = f"the power monitor of {kit.chip.name} does not run: {why}"
    return unusable(what, "Unplug the board and plug it in again")
