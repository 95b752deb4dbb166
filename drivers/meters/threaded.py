"""``ThreadedMeter``: the Meter protocol over an instrument that must be emptied while the rig does something else.

A new instrument needs one file with a ``Source``. A thread fetches its readings, so neither a busy device nor a slow
link delays the rig: ``read`` never waits. The first error ends the thread. ``read`` raises it after the readings that
came before it. If ``read`` has not raised it, ``stop`` raises it instead, and the unread readings are lost.

``sampled_meter`` is for instruments that fill a memory by their own sample timer, without time stamps. The times in
such a trace follow only from the count of readings, and an instrument may lose readings silently. So the count is
compared with the host's clock.
"""

import math
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from drivers.failures import meter_failed
from rig.engine.clock import HostClock
from rig.errors import MeterError, RigError, SetupError, place, said
from rig.recording.columns.packing import joined
from rig.types import Bracket, Chunk, Clock, Floats, MeterInfo

LARGE = 10_000
"""Chunks of a rail are not joined if one of them has at least this many readings, because copying takes long."""
Batch = Sequence[Chunk]
"""Chunks of all rails that became ready together."""
APART_NS = 1_000_000_000
"""If the meter's clock differs from the host's by more than this, the run is in simulated time."""
POLL_S = 0.05
HOLD_S = 20.0
"""Readings of a stream may stay unread for at most this long (s)."""
LAG_S = 0.5
"""Readings that become ready at most this late (s) are not counted as missing."""


class Source(Protocol):
    """What the meter's thread needs from an instrument.

    ``begin`` starts the sampling and returns the bracket of the first tick. ``fetch`` runs in the thread and yields the
    batches that are ready. After the thread has ended, ``finish`` stops the sampling and yields the rest. These three
    raise ``RigError`` if something goes wrong; ``close`` raises nothing.
    """

    def begin(self, clock: Clock) -> Bracket: ...
    def fetch(self) -> Iterable[Batch]: ...
    def finish(self) -> Iterable[Batch]: ...
    def close(self) -> None: ...


@dataclass
class _Acquisition:
    """What has come since the start: chunks that wait to be read (``held`` readings per rail), and the final error."""

    chunks: list[Chunk] = field(default_factory=list)
    held: int = 0
    halt: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    thread: threading.Thread | None = None
    error: RigError | None = None
    raised: bool = False

    def hand_over(self, batch: Batch) -> int:
        """Add a batch to the waiting chunks; return how many readings of a rail now wait."""
        with self.lock:
            self.chunks += batch
            self.held += len(batch[0].value) if batch else 0
            return self.held

    def take(self) -> list[Chunk]:
        """Take all waiting chunks, joined to one per rail unless a chunk is large."""
        with self.lock:
            chunks, self.chunks, self.held = self.chunks, [], 0
        by_rail: dict[str, list[Chunk]] = {}
        for chunk in chunks:
            if len(chunk.value):
                by_rail.setdefault(chunk.rail, []).append(chunk)
        taken: list[Chunk] = []
        for own in by_rail.values():
            taken += [joined(own)] if max(len(c.value) for c in own) < LARGE else own
        return taken


class ThreadedMeter:
    """A meter whose thread fetches every ``every_s`` if ``steady``, else ``every_s`` after the end of the last fetch.

    It keeps at most ``most`` unread readings of each rail (None: no limit). ``stop`` waits at most ``patience_s`` for a
    running fetch. Raises ``SetupError`` in a run in simulated time.
    """

    def __init__(
        self,
        info: MeterInfo,
        source: Source,
        clock: Clock | None = None,
        *,
        every_s: float,
        steady: bool = False,
        most: int | None = None,
        patience_s: float = 2.0,
    ) -> None:
        self._info, self._source, self._clock = info, source, clock or HostClock()
        self._every_s, self._steady, self._most, self._patience_s = every_s, steady, most, patience_s
        self._running: _Acquisition | None = None
        if abs(self._clock.now_ns() - time.monotonic_ns()) > APART_NS:
            what = f"meter {info.name} measures in real time, but this run is in simulated time"
            remedy = "Use it with a real device, or use the meter of the simulated device"
            raise SetupError(what, field="meter", value=info.name, remedy=remedy)

    def info(self) -> MeterInfo:
        return self._info

    def start(self) -> Bracket:
        """Start the sampling and the thread. The meter's clock has the bracket's tick at a time inside the bracket."""
        if self._running is not None:
            raise MeterError("the meter was started twice", field="meter", value=self._info.name, remedy="Stop it")
        bracket = self._source.begin(self._clock)
        a = self._running = _Acquisition()
        a.thread = threading.Thread(target=self._acquire, args=(a,), name=f"meter {self._info.name}", daemon=True)
        a.thread.start()
        self._clock.sleep_until(bracket.after_ns)  # the first reading may begin later than now
        return bracket

    def read(self) -> Sequence[Chunk]:
        """Return what the thread has fetched, perhaps nothing. Once all is read, raise the thread's final error."""
        a = self._running
        if a is None:
            return ()
        error, chunks = a.error, a.take()
        if not chunks and error is not None:
            a.raised = True
            raise error
        return chunks

    def stop(self) -> Sequence[Chunk]:
        """Stop the sampling and return the rest. Raises what went wrong, unless ``read`` has already raised it."""
        a = self._end_thread()
        if a is None:
            return ()
        if a.error is None:
            try:
                for batch in self._source.finish():
                    a.hand_over(batch)
            except RigError as error:
                a.error = error
        if a.error is not None and not a.raised:
            raise a.error
        return a.take()

    def close(self) -> None:
        """Stop and release the instrument. May be called twice; raises nothing."""
        self._end_thread()
        self._source.close()

    def _acquire(self, a: _Acquisition) -> None:
        due_s = time.monotonic()
        try:
            while True:
                now_s = time.monotonic()
                due_s = max(due_s + self._every_s, now_s) if self._steady else now_s + self._every_s
                if a.halt.wait(due_s - now_s):
                    return
                for batch in self._source.fetch():
                    self._deliver(a, batch)
        except RigError as error:
            a.error = error
        except Exception as error:
            what = f"meter {self._info.name} failed while it was read: {said(error)}"
            a.error = meter_failed(what, "meter", repr(error), f"Correct its driver: {place(error)}")

    def _end_thread(self) -> _Acquisition | None:
        """End the running acquisition and return it. If the thread hangs, this becomes the acquisition's error."""
        a, self._running = self._running, None
        if a is None or a.thread is None:
            return None
        a.halt.set()
        a.thread.join(self._patience_s)
        if a.thread.is_alive() and a.error is None:
            what = f"meter {self._info.name} did not end its last exchange within {self._patience_s:g} s"
            remedy = "Check its cable and its driver; its last readings are lost"
            a.error = meter_failed(what, "meter", self._info.name, remedy)
        return a

    def _deliver(self, a: _Acquisition, batch: Batch) -> None:
        held = a.hand_over(batch)
        if self._most is not None and held > self._most:
            what = f"{held} readings of meter {self._info.name} were waiting to be read, but only {self._most} can wait"
            raise meter_failed(what, "meter", held, "Read more often, or lower its rate")


def sampled_meter(
    info: MeterInfo, source: Source, clock: Clock | None = None, patience_s: float = 5.0, most: int | None = None
) -> ThreadedMeter:
    """Return a meter over a source whose first rail is a grid of ``rate_hz`` from tick 0. See ``ThreadedMeter``."""
    every_s = min(POLL_S, 0.1 * (info.buffer_s or math.inf))
    return ThreadedMeter(info, _Counted(info, source), clock, every_s=every_s, most=most, patience_s=patience_s)


class _Counted:
    """A source whose count of readings must fit the time since its start; else ``MeterError`` is raised."""

    def __init__(self, info: MeterInfo, source: Source) -> None:
        self._info, self._source = info, source

    def begin(self, clock: Clock) -> Bracket:
        self._clock, self._count = clock, 0
        self._bracket = self._source.begin(clock)
        return self._bracket

    def fetch(self) -> Iterator[Batch]:
        before_ns = asked_ns = self._clock.now_ns()
        for batch in self._counted(self._source.fetch()):
            before_ns, asked_ns = asked_ns, self._clock.now_ns()
            yield batch
        self._check(before_ns, self._clock.now_ns())

    def finish(self) -> Iterator[Batch]:
        before_ns = self._clock.now_ns()  # readings that come after the sampling has stopped are not due
        yield from self._counted(self._source.finish())
        self._check(before_ns, self._clock.now_ns())

    def close(self) -> None:
        self._source.close()

    def _counted(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            self._count += len(batch[0].value)
            self._check(self._bracket.after_ns, self._clock.now_ns())
            yield batch

    def _check(self, before_ns: int, after_ns: int) -> None:
        """Refuse fewer readings than due at ``before_ns`` (a loss) or more than due at ``after_ns`` (a wrong timer)."""
        rate_hz, tolerance = self._info.rails[0].rate_hz, self._info.clock.tolerance
        least = max(0.0, ((before_ns - self._bracket.after_ns) * 1e-9 * (1.0 - tolerance) - LAG_S) * rate_hz - 2.0)
        most = ((after_ns - self._bracket.before_ns) * 1e-9 * (1.0 + tolerance)) * rate_hz + 2.0
        if not least <= self._count <= most:
            elapsed_s = (after_ns - self._bracket.after_ns) * 1e-9
            what = (
                f"meter {self._info.name} delivered {self._count} readings in {elapsed_s:.3f} s at {rate_hz:g} Hz, "
                f"where {least:.0f} to {most:.0f} are expected: readings were lost, or its timer runs at another rate"
            )
            remedy = "Lower rate_hz, use a faster link, or close other programs that use the meter"
            raise meter_failed(what, "rate_hz", self._count, remedy)


def first_reading(before_ns: int, arrived_ns: int, count: int, rate_hz: float, tolerance: float) -> Bracket:
    """Return the bracket of tick 0 if ``count`` readings came by ``arrived_ns`` from a stream started at ``before_ns``.

    The last reading was complete by then, so the first reading began at least ``count`` periods earlier.
    """
    latest_ns = arrived_ns - round(count * 1e9 / rate_hz * (1.0 - tolerance))
    return Bracket(before_ns, 0, max(before_ns, latest_ns))


@dataclass
class GapFiller:
    """Fills gaps in readings numbered from 0 on with NaN; at most ``most`` may be missing in a row."""

    name: str
    most: int
    next: int = 0

    def take(self, index: int, value: Floats) -> Floats:
        """Return readings from number ``index`` on in their own type, after one NaN for each reading missing before.

        Raises ``MeterError`` for readings that come twice, and if more than ``most`` are missing at once.
        """
        gap = index - self.next
        if not 0 <= gap <= self.most:
            what = f"{gap} readings are missing at once" if gap > 0 else f"{-gap} readings arrived twice"
            raise meter_failed(f"meter {self.name}: {what}", "meter", gap, "Check its cable")
        self.next = index + len(value)
        return np.concatenate([np.full(gap, np.nan, value.dtype), value]) if gap else value
