"""A Nordic PPK2 as a meter: its words become amperes, once arrival times prove that none is missing."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from drivers.failures import meter_failed, quietly
from drivers.links.serial_line import SerialLine
from drivers.meters.ppk2 import commands
from drivers.meters.ppk2.losses_by_arrival_time import NEAR_S, Proof
from drivers.meters.ppk2.words import ADC_FULL, RATE_HZ, WORD, Aligner, Modifiers, PendingReadings, Stretch
from drivers.meters.threaded import Batch, first_reading
from rig.errors import MeterSilentError
from rig.types import Bracket, Chunk, Clock, MeterInfo, Rail

EMPTY_EVERY_S = 1e-3
"""The port is emptied at this interval (s), because a serial port may buffer only 10 ms of data."""
SLOT_NS = 10_000_000
BYTE_NS = 1e9 / RATE_HZ / WORD
FIRST_S = 0.1
"""The begin of the first reading is derived from the arrivals in this many seconds."""


@dataclass
class Slot:
    """The bytes of 10 ms. They are cut at the arrival with the least delay, because its time is the most exact."""

    data: bytearray
    total: int = 0
    best: int = 0
    best_ns: int = 0
    lag_ns: float = 0.0
    until_ns: int = 0

    def add(self, data: bytes, at_ns: int) -> tuple[bytes, int] | None:
        """Add bytes that had arrived by ``at_ns``. At the slot's end, return the bytes up to the cut and when it is."""
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
    """The ``Source`` of a PPK2's current and logic inputs."""

    def __init__(self, line: SerialLine, info: MeterInfo, modifiers: Modifiers, range_: int, timeout_s: float) -> None:
        self._line, self._info, self._modifiers = line, info, modifiers
        self._range, self._timeout_s = range_, timeout_s

    def begin(self, clock: Clock) -> Bracket:
        commands.silence(self._line, self._timeout_s)
        self._clock, self._slot, self._aligner = clock, Slot(bytearray()), Aligner()
        self._proof = Proof(self._info.name, RATE_HZ, self._info.clock.tolerance)
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
        stretch = self._pending.release(self._proof.proved)
        if len(stretch.word):
            yield self._chunks(stretch)

    def finish(self) -> Iterator[Batch]:
        """Let the stream run until it is proved that no reading up to now is lost, then stop it."""
        by_s = (self._clock.now_ns() + self._width_ns - self._begun_ns) * 1e-9  # a reading taken now arrives by then
        while self._proof.proved_s < by_s:
            time.sleep(EMPTY_EVERY_S)
            yield from self.fetch()
        quietly(commands.end, self._line)

    def close(self) -> None:
        quietly(commands.end, self._line)
        self._line.close()

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
        """Empty the port. At the end of a slot, add its words and return the time by which they had arrived."""
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
        if count > due:
            what = f"meter {self._info.name} sent {count} readings in {at_s:.3f} s, and {due:.0f} are due at most"
            remedy = "Its timer is faster than clock_tolerance allows: raise clock_tolerance, or have the kit checked"
            raise meter_failed(what, "clock_tolerance", count, remedy)
        self._proof.add(count, at_s)

    def _chunks(self, got: Stretch) -> list[Chunk]:
        """Return amperes, NaN where a reading is lost. Flag readings at the ADC's limit or above the declared range."""
        range_, adc = ((got.word >> 14) & 7).astype(np.intp), (got.word & ADC_FULL).astype(np.float64)
        amperes = self._modifiers.amperes(range_, adc, float(self._info.details["supply_v"]))
        over = got.known & ((adc == ADC_FULL) | (range_ > self._range))
        supply, *inputs = self._info.rails
        chunks = [Chunk(supply.name, np.where(got.known, amperes, np.nan), flags=over.astype(np.uint8))]
        return chunks + [self._edges(got, rail) for rail in inputs]

    def _edges(self, got: Stretch, rail: Rail) -> Chunk:
        """Return the readings whose level differs from the level of the last known reading."""
        at = np.flatnonzero(got.known)
        high = (got.word[at] >> (24 + int(rail.name[1:]))) & 1 == 1
        if len(high):
            before = np.concatenate([[high[0] if self._high is None else self._high], high[:-1]])
            self._high = bool(high[-1])
            at, high = at[high != before], high[high != before]
        tick = (got.first + at).astype(np.int64)
        return Chunk(rail.name, high.astype(np.uint8), tick, tick)
