"""``ThreadedMeter``: the Meter protocol over an instrument that must be emptied while the rig does something else.

A new instrument is one file with a ``Source``. A thread fetches its readings, so that neither a busy device nor a slow
link holds up the rig: ``read`` never waits. The first error ends the thread; the caller gets it once, after the
readings that came before it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from drivers.failures import meter_failed
from drivers.links.real_time import check_real_time
from rig.engine.clock import HostClock
from rig.errors import MeterError, RigError
from rig.recording.columns import joined
from rig.types import Bracket, Chunk, Clock, MeterInfo

LARGE = 10_000
"""A chunk with at least this many readings is not joined to others."""
Batch = Sequence[Chunk]
"""Chunks of all rails that became ready together."""


class Source(Protocol):
    """An instrument as its thread uses it. Every method raises ``RigError`` for what goes wrong.

    ``begin`` starts the sampling and returns the bracket of the first tick. ``fetch`` runs in the thread and yields the
    batches that are ready. After the thread has ended, ``finish`` stops the sampling and yields the rest. ``close``
    raises nothing.
    """

    def begin(self, clock: Clock) -> Bracket: ...
    def fetch(self) -> Iterable[Batch]: ...
    def finish(self) -> Iterable[Batch]: ...
    def close(self) -> None: ...


@dataclass
class _Acquisition:
    """The time from start to stop: chunks that wait to be read (``held`` readings per rail), and the final error."""

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
        """Take all waiting chunks, joined to one per rail; large ones stay apart, because copying delays the caller."""
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
    """A meter that fetches every ``every_s``; with ``steady``, from the begin of one fetch to the begin of the next.

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
        check_real_time(self._clock, info.name)

    def info(self) -> MeterInfo:
        """Return the settings of the instrument."""
        return self._info

    def start(self) -> Bracket:
        """Start the sampling and the thread. The clock shows the bracket's tick at some moment of the bracket."""
        if self._running is not None:
            raise MeterError("the meter was started twice", field="meter", value=self._info.name, remedy="Stop it")
        bracket = self._source.begin(self._clock)
        a = self._running = _Acquisition()
        a.thread = threading.Thread(target=self._acquire, args=(a,), name=f"meter {self._info.name}", daemon=True)
        a.thread.start()
        self._clock.sleep_until(bracket.after_ns)  # the first reading may begin later than now
        return bracket

    def read(self) -> Sequence[Chunk]:
        """Return what the thread has fetched, perhaps nothing. After that, raise the error that ended the thread."""
        a = self._running
        if a is None:
            return ()
        error, chunks = a.error, a.take()
        if not chunks and error is not None:
            a.raised = True
            raise error
        return chunks

    def stop(self) -> Sequence[Chunk]:
        """Stop the sampling and deliver the rest. Raises what went wrong, unless ``read`` has raised it already."""
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

    def abort(self) -> None:
        """End the thread and drop what it has fetched. The meter can be started again."""
        self._end_thread()

    def close(self) -> None:
        """Stop and let go of the instrument. May be called twice; raises nothing."""
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
            a.error = meter_failed(
                f"meter {self._info.name} failed while it was read: {error!r}",
                "meter",
                repr(error),
                "This is a bug in its driver",
            )

    def _end_thread(self) -> _Acquisition | None:
        """End the running acquisition and return it. A thread that hangs becomes its error."""
        a, self._running = self._running, None
        if a is None or a.thread is None:
            return None
        a.halt.set()
        a.thread.join(self._patience_s)
        if a.thread.is_alive() and a.error is None:
            a.error = meter_failed(
                f"meter {self._info.name} did not end its last exchange within {self._patience_s:g} s",
                "meter",
                self._info.name,
                "Check its cable and its driver; its last readings are lost",
            )
        return a

    def _deliver(self, a: _Acquisition, batch: Batch) -> None:
        held = a.hand_over(batch)
        if self._most is None or held <= self._most:
            return
        what = f"{held} readings of meter {self._info.name} were waiting to be read, but only {self._most} can wait"
        raise meter_failed(what, "hold_s", held, "Read more often, or raise hold_s where the meter has this option")
