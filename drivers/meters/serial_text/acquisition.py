"""A source of readings from a board that prints lines of text. A line's time comes from its stamp or from its number.

A missing reading becomes NaN, so that no average hides it.
"""

import time
from collections.abc import Iterator

from drivers.failures import quietly
from drivers.links.serial_line import LINE_MOST, SerialLine
from drivers.meters.serial_text.lines import Board, Layout, LineError, Plan, Readings, Row
from drivers.meters.serial_text.loss_detection import LineOrder, Pace
from drivers.meters.threaded import Batch
from rig.errors import SetupError
from rig.types import Bracket, Clock, MeterInfo

POLL_S = 2e-3


class TextSource:
    """The ``Source``. ``_last`` is the tick of the last reading; ``_heard_ns`` is the arrival of the last line."""

    def __init__(self, info: MeterInfo, line: SerialLine, plan: Plan) -> None:
        self._info, self._line, self._plan = info, line, plan
        self._sampling = False

    def begin(self, clock: Clock) -> Bracket:
        """Start the board's output, and wait for a line that the board began to print after this call."""
        p = self._plan
        self._clock, self._order, self._first = clock, LineOrder(p), Readings()
        self._pace = Pace(self._info.name, p.board.rate_hz, p.board.own.clock_tolerance) if p.stamp == "count" else None
        self._rest, self._torn, self._last, self._count, self._heard_ns = b"", True, 0, 0, 0
        begin_ns = clock.now_ns()
        self._line.waiting()
        self._line.write(unescaped(p.board.start_command))
        self._sampling = True
        return self._await_first(begin_ns)

    def fetch(self) -> Iterator[Batch]:
        first, self._first = self._first, Readings()
        yield first.chunks(self._info.rails, self._plan)
        yield self._arrived(self._line.waiting(), self._clock.now_ns()).chunks(self._info.rails, self._plan)

    def finish(self) -> Iterator[Batch]:
        yield from self.fetch()
        if self._pace is not None:
            self._pace.end()
        self._stop()

    def close(self) -> None:
        if self._sampling:
            quietly(self._stop)
        self._line.close()

    def _stop(self) -> None:
        self._sampling = False
        self._line.write(unescaped(self._plan.board.stop_command))

    # ---- the first line -------------------------------------------------------------------

    def _await_first(self, begin_ns: int) -> Bracket:
        """Return the bracket from the first line whose reading cannot be from before ``begin_ns``.

        A line arrives after the last check of the port that found nothing, and at most ``latency_s`` after its reading.
        """
        p = self._plan
        late_ns, uncertainty_ns = round(p.latency_s * 1e9), round(p.stamp_uncertainty_s * 1e9)
        looked_ns = begin_ns
        until_ns = begin_ns + late_ns + uncertainty_ns + round(p.board.timeout_s * 1e9)
        while looked_ns < until_ns:
            rows, at_ns = list(self._rows(self._line.waiting())), self._clock.now_ns()
            if looked_ns < begin_ns + late_ns + uncertainty_ns:
                self._order = LineOrder(p)  # lines from before the start do not count
            elif took := [(row, found[1]) for row in rows if (found := self._order.take(row, at_ns)) is not None]:
                self._heard_ns = at_ns
                after_ns = self._anchored(*took[-1], at_ns) + uncertainty_ns
                before_ns = looked_ns - late_ns - 2 * uncertainty_ns + after_ns - at_ns
                return Bracket(before_ns, self._last, after_ns)
            looked_ns = at_ns
            time.sleep(POLL_S)
        what = f"printed no reading within {p.board.timeout_s:g} s of its start"
        raise self._line.failed(what, silent=True, remedy="Check start_command, or raise timeout_s")

    def _anchored(self, row: Row, time_ns: int, at_ns: int) -> int:
        """Place the first line; return the latest host time at which the meter's clock can be at ``_last``.

        If lines have no stamps, ``_last`` is the begin of the next reading, and the first line itself is left out.
        """
        p = self._plan
        if p.stamp == "count":
            return at_ns + (round((1.0 / p.board.rate_hz - p.aperture_s) * 1e9) if p.aperture_s else 0)
        self._last = time_ns + round(0.5 * row.time_step_ns)
        self._first.add(self._last, row.value, row.flag)
        return at_ns

    # ---- later lines ----------------------------------------------------------------------

    def _arrived(self, data: bytes, at_ns: int) -> Readings:
        """Return the readings in bytes that had arrived by ``at_ns``, with NaN for missing readings."""
        rows = list(self._rows(data))
        readings = Readings()
        for row in rows:
            took = self._order.take(row, at_ns)
            if took is not None:
                self._place(readings, row, *took)
        if rows:
            self._heard_ns = at_ns
            if self._pace is not None:
                self._pace.add(self._count, at_ns * 1e-9)
        elif (at_ns - self._heard_ns) * 1e-9 > self._plan.board.timeout_s:
            raise self._line.failed(f"printed no reading for {self._plan.board.timeout_s:g} s", silent=True)
        return readings

    def _place(self, readings: Readings, row: Row, missing: int, time_ns: int) -> None:
        """Add one reading, after one NaN for each missing reading before it."""
        tick = time_ns + round(0.5 * row.time_step_ns) if self._plan.stamp == "column" else 0
        readings.fill(self._last, tick, missing, len(row.value))
        readings.add(tick, row.value, row.flag)
        self._last, self._count = tick, self._count + missing + 1

    def _rows(self, data: bytes) -> Iterator[Row]:
        """Yield the readings of the lines that end in these bytes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_MOST:
            raise self._line.failed(f"sent {len(self._rest)} bytes without a line end, at {self._line.baud} baud")
        for raw in lines:
            text = raw.decode("latin-1").replace("\0", "").strip()
            if self._torn:  # the first line may lack its beginning
                self._torn = False
                continue
            if self._plan.layout.ignored(text):
                continue
            try:
                row = self._plan.layout.row(text)
            except LineError as error:
                self._order.bad(f"{error}: {text[:80]!r}")
                continue
            yield row


def unescaped(command: str) -> bytes:
    """Return a command as bytes to send: written ``\\n`` and ``\\r`` become line ends, ``\\t`` a tab."""
    for mark, meant in (("\\n", "\n"), ("\\r", "\r"), ("\\t", "\t")):
        command = command.replace(mark, meant)
    return command.encode("latin-1", "replace")


def first_line(line: SerialLine, layout: Layout, board: Board) -> tuple[str, Row]:
    """Return the text and the row of the first line that is certainly complete. The board may have to boot first.

    The start command is sent every second until data arrives. Raises ``SetupError`` after ``boot_s``.
    """
    start, stop, boot_s = unescaped(board.start_command), unescaped(board.stop_command), board.boot_s
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
        if heard > 1:  # the first line may be torn
            if stop:
                line.write(stop)
            return text, row
    what = f"no line on {line.port} was a reading within {boot_s:g} s: {why}"
    remedy = f"Check columns=, separator= and the baud rate (it is {line.baud}). Give ignore= for comment lines"
    raise SetupError(what, field="columns", value=why, remedy=remedy)
