"""What meters that stream over USB share: a bound on what is held unread, and a grid without silent gaps.

``BoundedMeter`` is a ``SampledMeter`` (see ``scpi_stream``) that gives up, with a typed error, before its readings fill
the host's memory. ``GapFilled`` puts NaN where an instrument numbered readings that never came: the grid stays true,
the estimators see that they are missing, and nothing is averaged over them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from drivers.meters.sampled import Fetched, SampledMeter, Source
from rig.errors import MeterError
from rig.types import Bracket, Chunk, Clock, Floats, MeterInfo

KEPT = "The recording up to here is kept; `rig report` reads it"


@dataclass
class GapFilled:
    """Readings that the instrument numbers from 0 on, as a grid; ``lost`` counts those that never came."""

    name: str
    most: int
    next: int = 0
    lost: int = 0

    def take(self, index: int, value: Floats) -> Floats:
        """Readings ``index`` to ``index + n`` as float64, after one NaN for each of those missing before them.

        Raises ``MeterError`` for readings that come twice, and for more than ``most`` missing at once.
        """
        gap = index - self.next
        if not 0 <= gap <= self.most:
            what = f"{gap} readings are missing at once" if gap > 0 else f"{-gap} readings came twice"
            raise MeterError(f"meter {self.name}: {what}", field="meter", value=gap, remedy=f"Check its cable. {KEPT}")
        self.lost += gap
        self.next = index + len(value)
        value = np.asarray(value, dtype=np.float64)
        return np.concatenate([np.full(gap, np.nan), value]) if gap else value


class _Gate:
    """A source that counts what was fetched and not yet taken away, and stops at ``most`` readings a rail."""

    def __init__(self, source: Source, most: int) -> None:
        self._source, self._most = source, most
        self._held = 0
        self._lock = threading.Lock()

    def taken(self, count: int) -> None:
        with self._lock:
            self._held -= count

    def describe(self) -> MeterInfo:
        return self._source.describe()

    def begin(self, clock: Clock) -> Bracket:
        self._held = 0
        return self._source.begin(clock)

    def fetch(self) -> Fetched:
        got = self._source.fetch()
        with self._lock:
            self._held += got.count
            held = self._held
        if held > self._most:
            raise MeterError(
                f"{held} readings of the meter were waiting to be read, and {self._most} are the most that are held",
                field="hold_s",
                value=held,
                remedy=f"Raise hold_s, or read more often. {KEPT}",
            )
        return got

    def finish(self) -> Sequence[Fetched]:
        return self._source.finish()

    def close(self) -> None:
        self._source.close()


class BoundedMeter:
    """A sampled meter that holds at most ``most`` unread readings of each rail; beyond that ``MeterError``."""

    def __init__(self, source: Source, most: int, clock: Clock | None = None, patience_s: float = 5.0) -> None:
        self._gate = _Gate(source, most)
        self._meter = SampledMeter(self._gate, clock, patience_s)
        self._first = self._meter.info().rails[0].name

    def info(self) -> MeterInfo:
        """What the instrument was set to."""
        return self._meter.info()

    def start(self) -> Bracket:
        """Start the stream; the first reading begins at the tick in the bracket."""
        return self._meter.start()

    def read(self) -> Sequence[Chunk]:
        """What has arrived, without waiting; after it, the error that ended the stream."""
        chunks = self._meter.read()
        self._gate.taken(sum(len(chunk.value) for chunk in chunks if chunk.rail == self._first))
        return chunks

    def stop(self) -> Sequence[Chunk]:
        """Stop the stream and deliver the rest."""
        return self._meter.stop()

    def close(self) -> None:
        """Stop and let go. May be called twice; raises nothing."""
        self._meter.close()


def first_reading(before_ns: int, arrived_ns: int, count: int, rate_hz: float, tolerance: float) -> Bracket:
    """The bracket of tick 0 when ``count`` readings had come by ``arrived_ns`` of a stream asked for at ``before_ns``.

    The last of them had been taken by then, so the first began a whole number of periods earlier.
    """
    latest_ns = arrived_ns - round(count * 1e9 / rate_hz * (1.0 - tolerance))
    return Bracket(before_ns, 0, max(before_ns, latest_ns))
