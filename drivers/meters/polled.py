"""``PolledMeter``: the Meter protocol over numbers that the host can look up at any time, such as energy counters.

A thread looks them up on the host's clock and stamps every look from both sides; ``read`` only takes what is there.
A look that took long says little about when its value held: it is repeated, and the quickest one counts.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from drivers.links.real_time import check_real_time
from rig.engine.clock import HostClock
from rig.errors import MeterError, RigError
from rig.types import Bracket, Chunk, Clock, ClockInfo, MeterInfo

HOST = ClockInfo("host", 1e9, 0.0)
LOOKS = 3
PATIENCE_S = 2.0
KEPT = "The recording up to here is kept; `rig report` reads it"

Row = tuple[int, int, float]


class Number(Protocol):
    """Something that can be looked up. ``begin`` forgets what was; both raise ``RigError``."""

    def begin(self) -> None: ...
    def look(self) -> float: ...


@dataclass(frozen=True)
class Polled:
    """One rail's number. Each reading covers ``covers_s`` up to the look; 0 for one that holds at the look.

    With ``on_change`` only a look that finds another value than the one before is a reading, or one after
    ``stale_s`` without. A look that took longer than ``quick_s`` is repeated.
    """

    rail: str
    number: Number
    covers_s: float = 0.0
    on_change: bool = False
    stale_s: float = 1.0
    quick_s: float = 200e-6


@dataclass
class _Session:
    """One stretch from start to stop: rows (before, after, value) by rail, and what ended it."""

    rows: dict[str, list[Row]]
    last: dict[str, Row] = field(default_factory=dict)
    halt: threading.Event = field(default_factory=threading.Event)
    error: RigError | None = None
    told: bool = False


class PolledMeter:
    """See the module. ``rate_hz`` is how often it looks; ``info.buffer_s`` how long it may go unread.

    ``release`` lets go of what the numbers need, once. Raises ``SetupError`` in a run in simulated time.
    """

    def __init__(
        self,
        info: MeterInfo,
        numbers: Sequence[Polled],
        rate_hz: float,
        clock: Clock | None = None,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        self._info, self._numbers, self._period_s = info, tuple(numbers), 1.0 / rate_hz
        self._clock = HostClock() if clock is None else clock
        self._most = max(16, round((info.buffer_s or 60.0) * rate_hz))
        self._release: Callable[[], None] | None = release
        self._session: _Session | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        check_real_time(self._clock, info.name)

    def info(self) -> MeterInfo:
        """What is looked up."""
        return self._info

    def start(self) -> Bracket:
        """Look for the first time, and go on in a thread."""
        if self._session is not None:
            raise MeterError("the meter was started twice", field="meter", value=self._info.name, remedy="Stop it")
        s = _Session({p.rail: [] for p in self._numbers})
        before_ns = self._clock.now_ns()
        for p in self._numbers:
            p.number.begin()
        self._look(s)
        self._session = s
        self._thread = threading.Thread(target=self._pump, args=(s,), name=f"meter {self._info.name}", daemon=True)
        self._thread.start()
        now_ns = self._clock.now_ns()
        return Bracket(before_ns, now_ns, now_ns)

    def read(self) -> Sequence[Chunk]:
        """What was looked up so far, perhaps nothing; after it, the error that ended it."""
        s = self._session
        if s is None:
            return ()
        chunks = self._taken(s)
        if not chunks and s.error is not None:
            s.told = True
            raise s.error
        return chunks

    def stop(self) -> Sequence[Chunk]:
        """Stop looking; the rest. Raises what went wrong, unless ``read`` has said so already."""
        s, self._session = self._session, None
        if s is None:
            return ()
        self._join(s)
        if s.error is not None and not s.told:
            raise s.error
        return self._taken(s)

    def close(self) -> None:
        """Stop and let go. May be called twice; raises nothing."""
        s, self._session = self._session, None
        if s is not None:
            self._join(s)
        release, self._release = self._release, None
        if release is not None:
            with contextlib.suppress(Exception):  # there is nothing left that could be done about it
                release()

    # ---- the thread -----------------------------------------------------------------------

    def _pump(self, s: _Session) -> None:
        due_s = time.monotonic()
        try:
            while True:
                due_s = max(due_s + self._period_s, time.monotonic())
                if s.halt.wait(due_s - time.monotonic()):
                    return
                self._look(s)
        except RigError as error:
            s.error = error
        except Exception as error:
            s.error = MeterError(
                f"meter {self._info.name} failed while it was read: {error!r}",
                value=repr(error),
                remedy=f"This is a defect of its driver. {KEPT}",
            )

    def _look(self, s: _Session) -> None:
        for p in self._numbers:
            row = self._stamped(p)
            last = s.last.setdefault(p.rail, row)
            if p.on_change and row[2] == last[2] and row[1] - last[1] < p.stale_s * 1e9:
                continue  # how old the first value is, nobody knows: it is no reading either
            s.last[p.rail] = row
            with self._lock:
                s.rows[p.rail].append(row)
                full = len(s.rows[p.rail]) > self._most
            if full:
                raise MeterError(
                    f"nobody has read meter {self._info.name} for {self._most * self._period_s:.0f} s",
                    field="buffer_s",
                    value=self._info.buffer_s,
                    remedy=f"Drain it more often. {KEPT}",
                )

    def _stamped(self, p: Polled) -> Row:
        """The quickest of a few looks: when it began, when it was back, the value."""
        best: Row | None = None
        for _ in range(LOOKS):
            before_ns = self._clock.now_ns()
            value = p.number.look()
            row = (before_ns, self._clock.now_ns(), value)
            if best is None or row[1] - row[0] < best[1] - best[0]:
                best = row
            if row[1] - row[0] <= p.quick_s * 1e9:
                break
        assert best is not None
        return best

    # ---- parts ----------------------------------------------------------------------------

    def _join(self, s: _Session) -> None:
        s.halt.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(PATIENCE_S)
            if thread.is_alive() and s.error is None:
                s.error = MeterError(
                    f"meter {self._info.name} did not end its last look within {PATIENCE_S:g} s",
                    field="meter",
                    value=self._info.name,
                    remedy=f"Its driver or its hardware hangs. {KEPT}",
                )

    def _taken(self, s: _Session) -> list[Chunk]:
        with self._lock:
            rows = {rail: own for rail, own in s.rows.items() if own}
            s.rows |= {rail: [] for rail in rows}
        return [self._chunk(p, rows[p.rail]) for p in self._numbers if p.rail in rows]

    def _chunk(self, p: Polled, rows: list[Row]) -> Chunk:
        before, after = (np.array([row[k] for row in rows], dtype=np.int64) for k in (0, 1))
        value = np.array([row[2] for row in rows], dtype=np.float64)
        begin = after - round(p.covers_s * 1e9) if p.covers_s else before
        return Chunk(p.rail, value, begin, after)
