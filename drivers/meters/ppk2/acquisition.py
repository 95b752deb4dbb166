"""A Nordic PPK2 as a meter: its stream cut into words, proved complete by the times of arrival, in amperes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from drivers.failures import meter_failed
from drivers.links.serial_line import SerialLine
from drivers.meters.ppk2 import commands
from drivers.meters.ppk2.loss_detection import NEAR_S, LossDetector, PendingReadings, Stretch
from drivers.meters.ppk2.words import ADC_FULL, RATE_HZ, WORD, Aligner, Modifiers
from drivers.meters.threaded import Batch, ThreadedMeter, first_reading
from rig.errors import MeterError, MeterSilentError
from rig.types import Bracket, Chunk, Clock, MeterInfo, Rail

EMPTY_EVERY_S = 1e-3
"""How often the port is emptied: the memory of a serial port may hold no more than 10 ms."""
SLOT_NS = 10_000_000
BYTE_NS = 1e9 / RATE_HZ / WORD
FIRST_S = 0.1
"""The begin of the first reading is found from the arrivals in this many seconds."""


@dataclass
class Slot:
    """Bytes of 10 ms. They are cut at the arrival with the least lag, because it is the most exact in time."""

    data: bytearray
    total: int = 0
    best: int = 0
    best_ns: int = 0
    lag_ns: float = 0.0
    until_ns: int = 0

    def add(self, data: bytes, at_ns: int) -> tuple[bytes, int] | None:
        """Add what had arrived by ``at_ns``. At the end of the slot, return the bytes up to the cut and their time."""
        if data:
            self.data += data
            self.total += len(data)
            self.until_ns = self.until_ns or at_ns + SLOT_NS
            lag_ns = at_ns - self.total * BYTE_NS
            if not self.best or lag_ns < self.lag_ns:
                self.best, self.best_ns, self.lag_ns = len(self.data), at_ns, lag_ns
        if not self.best or at_ns < self.until_ns:
            return None
        piece = bytes(self.data[: self.best]), self.best_ns
        del self.data[: self.best]
        self.best = self.until_ns = 0
        return piece


class Ppk2Source:
    """The ``Source``. With ``clock_only`` it follows the instrument's clock and gives no readings.

    ``losses`` counts readings lost since ``begin``: those that the counter shows, and multiples of 64 that only the
    times of arrival show.
    """

    def __init__(self, line: SerialLine, info: MeterInfo, modifiers: Modifiers, range_: int, timeout_s: float) -> None:
        self._line, self._info, self._modifiers = line, info, modifiers
        self._range, self._timeout_s = range_, timeout_s
        self._lock = threading.Lock()
        self.losses = (0, 0)
        self.clock_only = False

    def begin(self, clock: Clock) -> Bracket:
        commands.silence(self._line, self._timeout_s)
        self._clock, self._slot, self._aligner = clock, Slot(bytearray()), Aligner()
        self._detector = LossDetector(self._info.name, RATE_HZ, self._info.clock.tolerance)
        self._pending = PendingReadings()
        self._high: bool | None = None
        self._begun_ns, self._heard_s = clock.now_ns(), time.monotonic()
        self._line.write(bytes([commands.START]))
        bracket = self._first()
        self._width_ns = bracket.after_ns - bracket.before_ns + round(NEAR_S * 1e9)
        return bracket

    def fetch(self) -> Iterator[Batch]:
        if self._arrived_ns() is None:
            return
        stretch = self._pending.release(self._detector.proved)
        if len(stretch.word) and not self.clock_only:
            yield self._chunks(stretch)

    def finish(self) -> Iterator[Batch]:
        """Let the stream run until all readings up to now are proved, then stop it."""
        by_s = (self._clock.now_ns() + self._width_ns - self._begun_ns) * 1e-9  # when a reading taken now has arrived
        while self._detector.proved_s < by_s:
            time.sleep(EMPTY_EVERY_S)
            yield from self.fetch()
        with contextlib.suppress(MeterError):
            commands.end(self._line)

    def close(self) -> None:
        with contextlib.suppress(MeterError):
            commands.end(self._line)
            if self._info.details["power"] == "off-at-close":
                self._line.write(bytes([commands.RUNNING, 0]))
        self._line.close()

    def tick_now(self) -> int:
        """Return the tick that the instrument shows at some moment of this call.

        It first waits for the width of the first reading's bracket: no reading arrives later than that.
        """
        self._clock.sleep_until(self._clock.now_ns() + self._width_ns)
        with self._lock:
            return int(self._detector.tick_at((self._clock.now_ns() - self._begun_ns) * 1e-9))

    def _first(self) -> Bracket:
        """Return the narrowest bracket of tick 0 from the arrivals of the first ``FIRST_S`` seconds."""
        found: Bracket | None = None
        until_ns = 0
        while found is None or self._clock.now_ns() < until_ns:
            at_ns, count = self._arrived_ns(), self._pending.count
            if at_ns is not None and count:
                own = first_reading(self._begun_ns, at_ns, count, RATE_HZ, self._info.clock.tolerance)
                until_ns = until_ns or at_ns + round(FIRST_S * 1e9)
                found = own if found is None or own.after_ns < found.after_ns else found
            time.sleep(EMPTY_EVERY_S)
        return found

    def _arrived_ns(self) -> int | None:
        """Empty the port. At the end of a slot, add its words and return the time at which they had arrived."""
        data, at_ns = self._line.waiting(), self._clock.now_ns()
        now_s = time.monotonic()
        if data:
            self._heard_s = now_s
        elif now_s - self._heard_s > self._timeout_s:
            what = f"meter {self._info.name} has sent nothing for {self._timeout_s:g} s"
            raise meter_failed(what, "timeout_s", now_s - self._heard_s, "Check the PPK2's cable", MeterSilentError)
        piece = self._slot.add(data, at_ns)
        if piece is None:
            return None
        self._account(*piece)
        return piece[1]

    def _account(self, data: bytes, at_ns: int) -> None:
        self._pending.add(self._aligner.feed(data))
        count, at_s = self._pending.count, (at_ns - self._begun_ns) * 1e-9
        if not count:
            return
        due = at_s * (1.0 + self._info.clock.tolerance) * RATE_HZ + 2.0
        if count + self._detector.missing > due:
            what = f"meter {self._info.name} sent {count} readings in {at_s:.3f} s, and {due:.0f} are due at most"
            remedy = (
                "Its timer is faster than clock_tolerance allows: raise clock_tolerance, or have the instrument checked"
            )
            raise meter_failed(what, "clock_tolerance", count, remedy)
        with self._lock:
            loss = self._detector.add(count, at_s)
        if loss is not None:
            self._pending.lose(loss)
        self.losses = self._aligner.lost, self._detector.missing

    def _chunks(self, got: Stretch) -> list[Chunk]:
        """Return amperes, NaN where a reading is lost. Flag readings at the ADC's limit or above the declared range."""
        range_, adc = ((got.word >> 14) & 7).astype(np.intp), (got.word & ADC_FULL).astype(np.float64)
        amperes = self._modifiers.amperes(range_, adc, float(self._info.details["supply_v"]))
        over = got.known & ((adc == ADC_FULL) | (range_ > self._range))
        supply, *inputs = self._info.rails
        chunks = [Chunk(supply.name, np.where(got.known, amperes, np.nan), flags=over.astype(np.uint8))]
        return chunks + [self._edges(got, rail) for rail in inputs]

    def _edges(self, got: Stretch, rail: Rail) -> Chunk:
        """Return the readings whose level differs from that of the last known reading."""
        at = np.flatnonzero(got.known)
        high = (got.word[at] >> (24 + int(rail.name[1:]))) & 1 == 1
        if len(high):
            before = np.concatenate([[high[0] if self._high is None else self._high], high[:-1]])
            self._high = bool(high[-1])
            at, high = at[high != before], high[high != before]
        tick = (got.first + at).astype(np.int64)
        return Chunk(rail.name, high.astype(np.uint8), tick, tick)


class Ppk2Meter:
    """A meter whose clock can also be read between two recordings: it then streams only for its clock."""

    def __init__(self, meter: ThreadedMeter, source: Ppk2Source) -> None:
        self._meter, self._source = meter, source
        self._recording = self._streaming = False

    def info(self) -> MeterInfo:
        """Return the settings of the meter, and what the instrument states about itself."""
        return self._meter.info()

    def lost(self) -> tuple[int, int]:
        """Return the readings lost since ``start``: those that the counter shows, and multiples of 64 that it hides."""
        return self._source.losses

    def start(self) -> Bracket:
        """Start the stream; its first reading begins at tick 0, in the bracket."""
        if not self._recording:
            self._meter.abort()
        self._source.clock_only = False
        bracket = self._meter.start()
        self._recording = self._streaming = True
        return bracket

    def read(self) -> Sequence[Chunk]:
        """Return all proved readings, perhaps none; after that, raise the error that ended the stream."""
        return self._meter.read() if self._recording else ()

    def stop(self) -> Sequence[Chunk]:
        """Stop as soon as all readings up to now are proved, and deliver the rest."""
        if not self._recording:
            return ()
        self._recording = self._streaming = False
        return self._meter.stop()

    def timer(self) -> int:
        """Return the tick at some moment of this call. After ``stop``, the clock starts again from tick 0."""
        if not self._streaming:
            self._source.clock_only = True
            self._meter.start()
            self._streaming = True
        return self._source.tick_now()

    def close(self) -> None:
        """Stop and close. May be called twice; raises nothing."""
        self._recording = self._streaming = False
        self._meter.close()
