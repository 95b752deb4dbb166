"""Find lost lines of text, lines that came twice, and clocks and counters that jump.

``LineOrder`` compares the printed values of each line (a counter, a time, a count of joules) with the previous line's.
``Pace`` is for lines without times: it compares their count with the host's clock.
"""

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from drivers.failures import meter_failed
from drivers.meters.serial_text.lines import Plan, Row
from rig.errors import MeterError

FREE = 3
"""This many lines may be dropped in addition to the allowed share: a port that was just opened delivers torn lines."""
UNSEEN_S = 5e-3
"""On any host, lines are sometimes this late (s): ``Pace`` cannot distinguish a delay up to this from a loss."""
WINDOW_S, WINDOW_LINES = 0.5, 8
"""The lowest lag (see ``Pace``) is searched in windows of at least this many seconds and lines."""
FIT, KNOWN = 4, 40
"""The drift is fitted to at least ``FIT`` and at most ``KNOWN`` windows."""
LATE_WINDOWS, EARLY_WINDOWS = 3, 2
"""This many consecutive windows must deviate: a loss makes lines late, an extra line makes them early."""
JUMP_S = 0.1
"""A line's time may be at most this far ahead of a busy host's clock (s), beyond its latency and tolerance."""


@dataclass(frozen=True)
class _Line:
    row: Row
    time_ns: int
    at_ns: int


class LineOrder:
    """Compares each line with the previous one. Of ``lines`` so far, ``dropped`` were not readings."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._board, self._name = plan, plan.board, plan.board.own.name
        self._tolerance = plan.board.own.clock_tolerance
        self._rises = tuple(column.si == "J" for column in plan.layout.rails)
        self._last: _Line | None = None
        self._odd: _Line | None = None
        self._bad = 0
        self._lead_ns = -math.inf
        self.lines = self.dropped = 0

    def bad(self, why: str) -> None:
        """Count a line that is not a reading. Raises ``MeterError`` if there were too many."""
        self.lines += 1
        self.dropped += 1
        self._bad += 1
        if self.dropped > FREE + self._board.bad_share * self.lines:
            what = f"{self.dropped} of {self.lines} lines of meter {self._name} were not readings; the last one {why}"
            remedy = "Check columns= with the unit of the time (ms, us), the baud rate and the cable"
            raise meter_failed(what, "bad_share", self.dropped, remedy)

    def take(self, row: Row, at_ns: int) -> tuple[int, int] | None:
        """Add a reading that arrived at ``at_ns``. Return how many are missing before it, and its unwrapped time.

        The time is in ns, and 0 for a line without a time. None means that the line contradicts the previous line and
        is dropped. Raises ``MeterError`` if the next line continues a dropped line: then the board has restarted.
        """
        last = self._last
        if last is None:
            return self._accept(_Line(row, row.time_ns or 0, at_ns), 0)
        why = self._contradiction(last, row, at_ns)
        if why is None:
            line = _Line(row, self._unwrapped(last, row), at_ns)
            return self._accept(line, self._gap(last, line))
        odd = self._odd
        if odd is not None and self._contradiction(odd, row, at_ns, follow=True) is None:
            what = f"meter {self._name} {why}, and continued from there: it restarted, or it exceeds clock_tolerance"
            remedy = "Check its supply; let it print a time or a counter that never starts again"
            raise meter_failed(what, "columns", why, remedy)
        self._odd = _Line(row, row.time_ns or 0, at_ns)
        self.bad(why)
        return None

    def _accept(self, line: _Line, missing: int) -> tuple[int, int]:
        self._last, self._odd, self._bad = line, None, 0
        self._lead_ns = max(self._lead_ns, line.time_ns * (1.0 - self._tolerance) - line.at_ns)
        self.lines += 1
        return missing, line.time_ns

    def _unwrapped(self, last: _Line, row: Row) -> int:
        """Return the time of a line after ``last``. If the time fell by more than half of its range, it has wrapped."""
        if row.time_ns is None:
            return 0
        by = row.time_ns - (last.row.time_ns or 0)
        wrap = self._plan.wrap_ns
        return last.time_ns + (by + wrap if wrap and by < -wrap // 2 else by)

    def _contradiction(self, last: _Line, row: Row, at_ns: int, *, follow: bool = False) -> str | None:
        """Return why ``row`` cannot come after ``last``, or None. With ``follow``, no line came between the two."""
        since_s = (at_ns - last.at_ns) * 1e-9
        if row.time_ns is not None:
            time_ns = self._unwrapped(last, row)
            lead_ns = time_ns * (1.0 - self._tolerance) - at_ns
            limit_s = self._plan.latency_s + JUMP_S
            if time_ns == last.time_ns:
                return f"has the same time as the line before, {time_ns * 1e-9:.6g} s: the column of time stands still"
            ahead = lead_ns - (last.time_ns * (1.0 - self._tolerance) - last.at_ns if follow else self._lead_ns)
            if time_ns < last.time_ns or ahead * 1e-9 > limit_s:
                return f"went from {last.time_ns * 1e-9:.6g} s to {row.time_ns * 1e-9:.6g} s within {since_s:.3g} s"
        if row.count is not None and not 0 <= self._skipped(last, row) <= self._most(since_s):
            return f"counted from {last.row.count} to {row.count} within {since_s:.3g} s"
        for value, before, rises in zip(row.value, last.row.value, self._rises, strict=True):
            if rises and value < before:
                return f"counted joules from {before:.6g} back to {value:.6g}"
        return None

    def _skipped(self, last: _Line, row: Row) -> int:
        step = (row.count or 0) - (last.row.count or 0) - 1
        return step % self._board.counter_wrap if self._board.counter_wrap else step

    def _most(self, since_s: float) -> float:
        """Return the largest number of readings that may be missing at once."""
        if not self._board.rate_hz:
            return 100.0
        return 2.0 + 1.1 * (since_s + self._plan.latency_s + JUMP_S) * self._board.rate_hz

    def _gap(self, last: _Line, line: _Line) -> int:
        """Return how many readings are missing between two lines: by counter, else by time or by dropped lines."""
        if line.row.count is not None:
            return self._skipped(last, line.row)
        by_time = 0
        if line.row.time_ns is not None:
            since_s = (line.time_ns - last.time_ns) * 1e-9
            if since_s > self._board.timeout_s:
                what = f"the time of meter {self._name} advanced by {since_s:.3g} s between two lines"
                raise meter_failed(what, "timeout_s", since_s, "Check what keeps it from printing")
            by_time = max(0, round(since_s * self._board.rate_hz) - 1)
        return max(by_time, self._bad)


class Pace:
    """Compares the count of lines on a steady grid with the host's clock.

    A line's lag is its arrival time minus its due time at the nominal rate. No line arrives before it was printed. So
    the lowest lags of the windows follow a straight line. Its slope is the drift of the board's timer, which is within
    ``tolerance``. A loss raises the lag for good, an extra line lowers it. A change of up to ``unseen_s`` is not found.
    """

    def __init__(self, name: str, rate_hz: float, tolerance: float) -> None:
        self._name, self._rate_hz, self._tolerance = name, rate_hz, tolerance
        self._window_s = max(WINDOW_S, WINDOW_LINES / rate_hz)
        self._until_s = 0.0
        self._low: tuple[float, float] | None = None
        self._lows: deque[tuple[float, float]] = deque(maxlen=KNOWN)
        self._off: list[float] = []
        self.unseen_s = max(0.6 / rate_hz, UNSEEN_S)

    def add(self, count: int, at_s: float) -> None:
        """Record that ``count`` lines in all came by ``at_s``. Raises ``MeterError`` for lost or extra lines."""
        lag_s = at_s - count / self._rate_hz
        if self._low is None:
            self._low, self._until_s = (at_s, lag_s), at_s + self._window_s
        elif at_s < self._until_s:
            self._low = min(self._low, (at_s, lag_s), key=lambda low: low[1])
        else:
            self._judge(*self._low)
            self._low, self._until_s = (at_s, lag_s), at_s + self._window_s

    def end(self) -> None:
        """Judge the end of the stream. Here two consecutive windows that deviate are enough."""
        if self._low is not None and self._off:
            self._judge(*self._low, last=True)

    def _judge(self, at_s: float, low_s: float, *, last: bool = False) -> None:
        if not self._lows:
            self._lows.append((at_s, low_s))
            return
        off_s = low_s - self._due(at_s)
        if abs(off_s) <= self._slack(at_s):
            self._lows.append((at_s, low_s))
            self._off.clear()
            return
        if self._off and (off_s > 0) != (self._off[-1] > 0):
            self._off.clear()
        self._off.append(off_s)
        if len(self._off) >= (2 if last else LATE_WINDOWS if off_s > 0 else EARLY_WINDOWS):
            raise self._told(off_s, at_s)

    def _due(self, at_s: float) -> float:
        """Return the expected lowest lag."""
        if len(self._lows) < FIT:
            return self._lows[0][1]
        t, low = np.array(self._lows).T
        slope, level = np.polyfit(t - t[-1], low, 1)
        slope = min(max(float(slope), -self._tolerance), self._tolerance)
        return float(level) + slope * (at_s - float(t[-1]))

    def _slack(self, at_s: float) -> float:
        if len(self._lows) < FIT:
            return self.unseen_s + self._tolerance * (at_s - self._lows[0][0])
        return self.unseen_s

    def _told(self, off_s: float, at_s: float) -> MeterError:
        lines, took_s = abs(off_s) * self._rate_hz, at_s - self._lows[0][0]
        missing = "are missing" if off_s > 0 else "were too many"
        what = f"about {lines:.3g} lines of meter {self._name} {missing} against the host's clock after {took_s:.3g} s "
        what += f"at {self._rate_hz:g} Hz: some were lost or garbled, or its rate is not rate_hz, or not steady"
        remedy = "Correct rate_hz or clock_tolerance; or let the board print a time or a counter"
        return meter_failed(what, "rate_hz", round(lines), remedy)
