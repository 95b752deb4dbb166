"""``TextMeter``: the Meter protocol over a port on which lines of text arrive, placed by time or by count.

A thread empties the port and stamps what came; ``read`` only takes what is there. A reading that is missing is NaN at
its place, so that nothing is averaged over it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from drivers.links.real_time import check_real_time
from drivers.links.serial_line import LINE_MOST, SerialLine
from drivers.meters.serial_text.lines import Layout, LineError, Row
from drivers.meters.serial_text.order import KEPT, Order, Pace
from drivers.meters.serial_text.place import Batch, Plan
from rig.engine.clock import HostClock
from rig.errors import MeterError, RigError, SetupError
from rig.types import Bracket, Chunk, Clock, MeterInfo

POLL_S = 2e-3
PATIENCE_S = 2.0


@dataclass
class _Session:
    """One stretch from start to stop. ``last`` is the tick and ``heard_ns`` the arrival of the line before."""

    order: Order
    pace: Pace | None
    rest: bytes = b""
    torn: bool = True
    last: int = 0
    count: int = 0
    heard_ns: int = 0
    ready: Batch = field(default_factory=Batch)
    halt: threading.Event = field(default_factory=threading.Event)
    error: RigError | None = None
    told: bool = False


class TextMeter:
    """See the module. Raises ``SetupError`` in a run in simulated time."""

    def __init__(self, info: MeterInfo, line: SerialLine, plan: Plan, clock: Clock | None = None) -> None:
        self._info, self._line, self._plan = info, line, plan
        self._clock = HostClock() if clock is None else clock
        self._session: _Session | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        check_real_time(self._clock, info.name)

    def info(self) -> MeterInfo:
        """What the lines are declared to be."""
        return self._info

    def start(self) -> Bracket:
        """Have the board print, and wait for a line that it can only have begun after the call."""
        if self._session is not None:
            raise MeterError("the meter was started twice", field="meter", value=self._info.name, remedy="Stop it")
        p = self._plan
        pace = Pace(self._info.name, p.expected.rate_hz, p.expected.tolerance) if p.stamp == "count" else None
        s = _Session(Order(p.expected), pace)
        begin_ns = self._clock.now_ns()
        self._line.waiting()
        if p.start:
            self._line.write(p.start)
        bracket = self._first(s, begin_ns)
        self._session = s
        self._thread = threading.Thread(target=self._pump, args=(s,), name=f"meter {self._info.name}", daemon=True)
        self._thread.start()
        self._clock.sleep_until(bracket.after_ns)
        return bracket

    def read(self) -> Sequence[Chunk]:
        """What has come, perhaps nothing; after it, the error that ended it."""
        s = self._session
        if s is None:
            return ()
        with self._lock:
            ready, s.ready = s.ready, Batch()
            error = s.error
        if not ready.value and error is not None:
            s.told = True
            raise error
        return ready.chunks(self._info.rails, self._plan)

    def stop(self) -> Sequence[Chunk]:
        """Stop listening, tell the board; the rest. Raises what went wrong, unless ``read`` has said so already."""
        s, self._session = self._session, None
        if s is None:
            return ()
        self._join(s)
        if s.error is None:
            try:
                self._heard(s, self._line.waiting(), self._clock.now_ns())
                if s.pace is not None:
                    s.pace.end()
                if self._plan.stop:
                    self._line.write(self._plan.stop)
            except RigError as error:
                s.error = error
        if s.error is not None and not s.told:
            raise s.error
        return s.ready.chunks(self._info.rails, self._plan)

    def close(self) -> None:
        """Stop and let go. May be called twice; raises nothing."""
        s, self._session = self._session, None
        if s is not None:
            self._join(s)
            try:
                if self._plan.stop:
                    self._line.write(self._plan.stop)
            except RigError:
                pass  # it is gone: there is nobody left to be told
        self._line.close()

    # ---- the first line -------------------------------------------------------------------

    def _first(self, s: _Session, begin_ns: int) -> Bracket:
        """The bracket by the first line that cannot stand for a moment before ``begin_ns``.

        A line comes after what it stands for, by ``latency_s`` at most, and after the look before had not found it.
        """
        p = self._plan
        late_ns, doubt_ns = round(p.expected.latency_s * 1e9), round(p.doubt_s * 1e9)
        looked_ns = begin_ns
        until_ns = begin_ns + late_ns + doubt_ns + round(p.timeout_s * 1e9)
        while looked_ns < until_ns:
            rows, at_ns = list(self._rows(s, self._line.waiting())), self._clock.now_ns()
            if looked_ns < begin_ns + late_ns + doubt_ns:
                s.order = Order(p.expected)  # what was under way before the start says nothing about what follows
            elif took := [(row, found[1]) for row in rows if (found := s.order.take(row, at_ns)) is not None]:
                s.heard_ns = at_ns
                after_ns = self._anchored(s, *took[-1], at_ns) + doubt_ns
                return Bracket(looked_ns - late_ns - 2 * doubt_ns + after_ns - at_ns, s.last, after_ns)
            looked_ns = at_ns
            time.sleep(POLL_S)
        raise self._line.failed(
            f"printed no reading within {p.timeout_s:g} s of its start", silent=True, remedy="Check start_command"
        )

    def _anchored(self, s: _Session, row: Row, time_ns: int, at_ns: int) -> int:
        """Put the first line in its place; the latest host time at which the meter's clock can show ``s.last``.

        On a grid that is where the next reading begins, and the line itself is left out.
        """
        p = self._plan
        if p.stamp == "count":
            return at_ns + (round((1.0 / p.expected.rate_hz - p.aperture_s) * 1e9) if p.aperture_s else 0)
        s.last = time_ns + round(0.5 * row.time_step_ns)
        s.ready.add(s.last, row.value, row.flag)
        return at_ns

    # ---- the thread -----------------------------------------------------------------------

    def _pump(self, s: _Session) -> None:
        try:
            while not s.halt.wait(POLL_S):
                self._heard(s, self._line.waiting(), self._clock.now_ns())
        except RigError as error:
            s.error = error
        except Exception as error:
            s.error = MeterError(
                f"meter {self._info.name} failed while it was read: {error!r}",
                value=repr(error),
                remedy=f"This is a defect of its driver. {KEPT}",
            )

    def _heard(self, s: _Session, data: bytes, at_ns: int) -> None:
        """Bytes that had come by ``at_ns``: the readings in them, each in its place. Raises what is wrong."""
        rows = list(self._rows(s, data))
        batch = Batch()
        for row in rows:
            took = s.order.take(row, at_ns)
            if took is not None:
                self._place(s, batch, row, took)
        if rows:
            s.heard_ns = at_ns
            if s.pace is not None:
                s.pace.add(s.count, at_ns * 1e-9)
        elif (at_ns - s.heard_ns) * 1e-9 > self._plan.timeout_s:
            raise self._line.failed(f"printed no reading for {self._plan.timeout_s:g} s", silent=True)
        with self._lock:
            s.ready.join(batch)
            held = len(s.ready.value)
        if held > self._plan.hold:
            raise MeterError(
                f"nobody has read meter {self._info.name} for {held} readings",
                field="buffer_s",
                value=self._info.buffer_s,
                remedy=f"Drain it more often. {KEPT}",
            )

    def _place(self, s: _Session, batch: Batch, row: Row, took: tuple[int, int]) -> None:
        """One reading, after a NaN for each that is missing before it."""
        missing, time_ns = took
        tick = time_ns + round(0.5 * row.time_step_ns) if self._plan.stamp == "column" else 0
        batch.fill(s.last, tick, missing, len(row.value))
        batch.add(tick, row.value, row.flag)
        s.last, s.count = tick, s.count + missing + 1

    def _rows(self, s: _Session, data: bytes) -> Iterator[Row]:
        """The whole lines that ended in these bytes, as far as they are readings."""
        *lines, s.rest = (s.rest + data).split(b"\n")
        if len(s.rest) > LINE_MOST:
            raise self._line.failed(f"sent {len(s.rest)} bytes without a line end, at {self._line.baud} baud")
        for raw in lines:
            text = raw.decode("latin-1").replace("\0", "").strip()
            if s.torn:  # nobody knows where the line began
                s.torn = False
                continue
            if self._plan.banner and text.startswith(self._plan.banner) and s.heard_ns:
                raise self._line.failed(f"has restarted: it printed {text[:80]!r}", remedy="Check its supply")
            if self._plan.layout.ignored(text):
                continue
            try:
                row = self._plan.layout.row(text)
            except LineError as error:
                s.order.bad(f"{error}: {text[:80]!r}")
                continue
            yield row

    # ---- parts ----------------------------------------------------------------------------

    def _join(self, s: _Session) -> None:
        s.halt.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(PATIENCE_S)
            if thread.is_alive() and s.error is None:
                s.error = self._line.failed(f"hangs: its last look did not end within {PATIENCE_S:g} s")


def introduced(line: SerialLine, layout: Layout, start: bytes, stop: bytes, boot_s: float) -> tuple[str, Row]:
    """The first line that is a reading, whole for certain, and what it says. A board may have to boot before.

    ``start`` is sent again each second as long as nothing comes. Raises ``SetupError`` after ``boot_s``.
    """
    until_s = time.monotonic() + boot_s
    heard, why = 0, "nothing came"
    while time.monotonic() < until_s:
        if start and not heard:
            line.write(start)
        text = line.line(min(until_s, time.monotonic() + 1.0))
        heard += text is not None
        if text is None or layout.ignored(text):
            continue
        try:
            row = layout.row(text)
        except LineError as error:
            why = f"the last one {error}: {text[:80]!r}"
            continue
        if heard > 1:  # the first may have lost its beginning
            if stop:
                line.write(stop)
            return text, row
    raise SetupError(
        f"no line on {line.port} was a reading within {boot_s:g} s: {why}",
        field="columns",
        value=why,
        remedy=f"Check columns=, separator= and the baud rate (it is {line.baud}); lines of comment match ignore=",
    )
