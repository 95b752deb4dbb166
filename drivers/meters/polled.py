"""Meters over numbers that the host can read at any time, such as energy counters.

In each *look*, the host reads its own clock, then the number, then its clock again. If a look takes long, the time of
its value is uncertain. The look is then repeated, and the quickest look is used.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from drivers.failures import meter_failed, quietly
from drivers.meters.threaded import Batch, ThreadedMeter
from rig.types import Bracket, Chunk, Clock, ClockInfo, MeterInfo

HOST = ClockInfo("host", 1e9, 0.0)
LOOKS = 3
"""The largest number of looks for one reading."""

Reading = tuple[int, int, float]
"""Host time in ns before and after a look, and the value read."""


@dataclass(frozen=True)
class Polled:
    """The number that one rail reads: ``look`` returns it, ``begin`` prepares a new start. Both may raise ``RigError``.

    A reading covers the last ``covers_s`` before the end of the look; 0 means the value at the look. If the source
    renews the number at its own pace (``renewed``), a look becomes a reading if the value is new, or ``stale_s`` after
    the last reading. A number that ``counts`` must never fall. A look that took longer than ``quick_s`` is repeated.
    """

    rail: str
    look: Callable[[], float]
    covers_s: float = 0.0
    counts: bool = False
    renewed: bool = False
    begin: Callable[[], None] = lambda: None
    stale_s: float = 1.0
    quick_s: float = 200e-6


def polled_meter(
    info: MeterInfo,
    numbers: Sequence[Polled],
    rate_hz: float,
    clock: Clock | None = None,
    release: Callable[[], None] = lambda: None,
) -> ThreadedMeter:
    """Return a meter that looks ``rate_hz`` times a second. Its readings may wait to be read for ``info.buffer_s``.

    ``release`` is called once, to release what the numbers use. Raises ``SetupError`` in a run in simulated time.
    """
    most = max(16, round((info.buffer_s or 60.0) * rate_hz))
    return ThreadedMeter(info, _Looks(numbers, release), clock, every_s=1.0 / rate_hz, steady=True, most=most)


class _Looks:
    """The ``Source``: each fetch looks at every number, again if a look took long."""

    def __init__(self, numbers: Sequence[Polled], release: Callable[[], None]) -> None:
        self._numbers, self._release = numbers, ExitStack()
        self._release.callback(release)
        self._last: dict[str, Reading] = {}

    def begin(self, clock: Clock) -> Bracket:
        self._clock = clock
        before_ns = clock.now_ns()
        for p in self._numbers:
            p.begin()
        self._last = {p.rail: self._quickest(p) for p in self._numbers}
        self._first = [_chunk(p, self._last[p.rail]) for p in self._numbers if not p.renewed]
        now_ns = clock.now_ns()
        return Bracket(before_ns, now_ns, now_ns)

    def fetch(self) -> Iterator[Batch]:
        first, self._first = self._first, []
        yield first
        yield [_chunk(p, reading) for p in self._numbers if (reading := self._new_reading(p)) is not None]

    def finish(self) -> Iterator[Batch]:
        yield self._first

    def close(self) -> None:
        quietly(self._release.close)

    def _new_reading(self, p: Polled) -> Reading | None:
        reading, last = self._quickest(p), self._last[p.rail]
        old = reading[2] == last[2] and reading[1] - last[1] < p.stale_s * 1e9
        if p.renewed and old:
            return None
        if p.counts and reading[2] < last[2]:
            what = f"the counter of {p.rail} fell from {last[2]:.3f} to {reading[2]:.3f}"
            raise meter_failed(what, p.rail, reading[2], "It was reset, or its driver was reloaded")
        self._last[p.rail] = reading
        return reading

    def _quickest(self, p: Polled) -> Reading:
        readings: list[Reading] = []
        while len(readings) < LOOKS and (not readings or _took_ns(readings[-1]) > p.quick_s * 1e9):
            before_ns = self._clock.now_ns()
            value = p.look()
            readings.append((before_ns, self._clock.now_ns(), value))
        return min(readings, key=_took_ns)


def _took_ns(reading: Reading) -> int:
    return reading[1] - reading[0]


def _chunk(p: Polled, reading: Reading) -> Chunk:
    before_ns, after_ns, value = reading
    begin_ns = after_ns - round(p.covers_s * 1e9) if p.covers_s else before_ns
    return Chunk(p.rail, np.array([value]), np.array([begin_ns], np.int64), np.array([after_ns], np.int64))
