"""``SampledMeter``: the Meter protocol over any instrument that fills a memory by its own sample timer.

A new instrument is one file with a ``Source``: describe, begin, fetch, finish. Here stands what they share.
A thread drains the memory, so that neither a device that is busy nor a link that stalls keeps the rig from
it; ``read`` never waits. And the readings are counted against the host's clock: a trace without a time stamp
per reading is only as good as its count, and an instrument that loses readings need not say so.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from drivers.links.real_time import check_real_time
from rig.bench.calibration import load, stated
from rig.engine.clock import HostClock
from rig.errors import DataError, MeterError, RigError, SetupError
from rig.types import Bracket, Chunk, Clock, Floats, MeterInfo, Rail

POLL_S = 0.05
LAG_S = 0.5
"""How late readings may become ready before the count says that some are missing."""


@dataclass(frozen=True)
class Fetched:
    """What was taken out of the memory: readings by rail, all of one length, and flags (uint8, 1: overload).

    ``more`` says that the instrument may hold more right now.
    """

    value: Mapping[str, Floats]
    flags: Mapping[str, NDArray[np.uint8]]
    more: bool

    @property
    def count(self) -> int:
        """Readings of each rail."""
        return len(next(iter(self.value.values())))


class Source(Protocol):
    """An instrument that samples by itself. ``begin`` returns the bracket of its first reading's start, at

    tick 0; ``fetch`` takes out what is ready, without waiting, and raises when readings were lost; ``finish``
    stops the sampling and gives the rest, in the order that the instrument wants.
    """

    def describe(self) -> MeterInfo: ...
    def begin(self, clock: Clock) -> Bracket: ...
    def fetch(self) -> Fetched: ...
    def finish(self) -> Sequence[Fetched]: ...
    def close(self) -> None: ...


def drained(source: Source) -> Iterator[Fetched]:
    """Fetch until the instrument holds no more."""
    more = True
    while more:
        got = source.fetch()
        more = got.more
        yield got


@dataclass
class _Session:
    """One stretch from start to stop. ``count`` is how many readings of each rail were taken out."""

    bracket: Bracket
    halt: threading.Event = field(default_factory=threading.Event)
    ready: list[Fetched] = field(default_factory=list)
    count: int = 0
    error: RigError | None = None
    told: bool = False


class SampledMeter:
    """See the module. ``patience_s`` is how long ``stop`` waits for an exchange that is under way."""

    def __init__(self, source: Source, clock: Clock | None = None, patience_s: float = 5.0) -> None:
        self._source, self._clock = source, HostClock() if clock is None else clock
        self._patience_s = patience_s
        self._info = source.describe()
        self._session: _Session | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        try:
            check_real_time(self._clock, self._info.name)
        except SetupError:
            source.close()
            raise

    def info(self) -> MeterInfo:
        """What the instrument was set to, as it confirmed it."""
        return self._info

    def start(self) -> Bracket:
        """Trigger the instrument; its first reading begins at the tick in the bracket."""
        if self._session is not None:
            raise MeterError("the meter was started twice", field="meter", value=self._info.name, remedy="Stop it")
        self._session = _Session(self._source.begin(self._clock))
        name = f"meter {self._info.name}"
        self._thread = threading.Thread(target=self._pump, args=(self._session,), name=name, daemon=True)
        self._thread.start()
        return self._session.bracket

    def read(self) -> Sequence[Chunk]:
        """What the thread has taken out so far, perhaps nothing; after it, the error that ended it."""
        s = self._session
        if s is None:
            return ()
        with self._lock:
            ready, s.ready = s.ready, []
            error = s.error
        if not ready and error is not None:
            s.told = True
            raise error
        return _chunks(ready)

    def stop(self) -> Sequence[Chunk]:
        """Stop sampling and deliver the rest. Raises what went wrong, unless ``read`` has said so already."""
        s, self._session = self._session, None
        if s is None:
            return ()
        self._join(s)
        if s.error is None:
            try:
                before_ns = self._clock.now_ns()  # nothing is due for the time after the sampling has stopped
                rest = list(self._source.finish())
                s.ready += rest
                s.count += sum(got.count for got in rest)
                self._count_against_time(s, before_ns, self._clock.now_ns(), more=False)
            except RigError as error:
                s.error = error
        if s.error is not None and not s.told:
            raise s.error
        return _chunks(s.ready)

    def close(self) -> None:
        """Stop and let go. May be called twice; raises nothing."""
        s, self._session = self._session, None
        if s is not None:
            self._join(s)
        self._source.close()

    def _join(self, s: _Session) -> None:
        s.halt.set()
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.join(self._patience_s)
        if thread.is_alive() and s.error is None:
            s.error = MeterError(
                f"meter {self._info.name} did not end its last exchange within {self._patience_s:g} s",
                field="meter",
                value=self._info.name,
                remedy="Check its cable; its last readings are lost",
            )

    def _pump(self, s: _Session) -> None:
        """The thread: drain until told to halt, or until something is wrong."""
        poll_s = min(POLL_S, 0.1 * (self._info.buffer_s or math.inf))
        try:
            while not s.halt.wait(poll_s):
                self._drain(s)
        except RigError as error:
            s.error = error
        except Exception as error:
            s.error = MeterError(
                f"meter {self._info.name} failed while it was read: {error!r}",
                value=repr(error),
                remedy="This is a defect of its driver; the recording up to here is kept",
            )

    def _drain(self, s: _Session) -> None:
        before_ns = self._clock.now_ns()
        for got in drained(self._source):
            s.count += got.count
            self._count_against_time(s, before_ns, self._clock.now_ns(), got.more)
            if got.count:
                with self._lock:
                    s.ready.append(got)
            before_ns = self._clock.now_ns()

    def _count_against_time(self, s: _Session, before_ns: int, after_ns: int, more: bool) -> None:
        """As many readings as the time since the trigger holds: fewer were lost, more are not of this timer."""
        rate_hz, tolerance = self._info.rails[0].rate_hz, self._info.clock.tolerance
        least = ((before_ns - s.bracket.after_ns) * 1e-9 * (1.0 - tolerance) - LAG_S) * rate_hz - 2.0
        most = ((after_ns - s.bracket.before_ns) * 1e-9 * (1.0 + tolerance)) * rate_hz + 2.0
        if (s.count < least and not more) or s.count > most:
            elapsed_s = (before_ns - s.bracket.after_ns) * 1e-9
            raise MeterError(
                f"meter {self._info.name} delivered {s.count} readings in {elapsed_s:.3f} s at {rate_hz:g} Hz, where "
                f"{least:.0f} to {most:.0f} are due: readings were lost, or its timer is not what it says",
                field="rate_hz",
                value=s.count,
                remedy="Lower rate_hz, or use a faster link. The recording up to here is kept; `rig report` reads it",
            )


def calibrated(rail: Rail, path: str | None, serial: str, range_: float | None, temperature_c: float | None) -> Rail:
    """A rail with the limits of its owner's calibration file, today; without a file none is stated.

    Raises ``DataError`` for a file of another instrument or another time, ``UsageError`` for one that does not fit.
    """
    if path is None:
        return stated(rail, None, temperature_c=temperature_c)
    own = load(Path(path)).serial
    if own and own != serial:
        raise DataError(
            f"the calibration {Path(path).name} is of the instrument {own}, and this is {serial}",
            field="calibration",
            value=own,
            remedy="Give the calibration of this instrument",
        )
    return stated(rail, path, range_max=range_, temperature_c=temperature_c, on=datetime.now(UTC).date())


def calibration_details(path: str | None) -> dict[str, str] | None:
    """Which file the limits are from, for the record: its name and SHA-256."""
    if path is None:
        return None
    return {"file": Path(path).name, "sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest()}


def _chunks(ready: Sequence[Fetched]) -> list[Chunk]:
    """One chunk for each rail that has readings."""
    if not any(got.count for got in ready):
        return []
    return [
        Chunk(
            rail,
            np.concatenate([f.value[rail] for f in ready]),
            flags=np.concatenate([f.flags[rail] for f in ready]),
        )
        for rail in ready[0].value
    ]
