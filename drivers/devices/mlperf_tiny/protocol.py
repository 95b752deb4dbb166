"""The MLPerf Tiny device protocol on a serial line: commands that end in ``%``, answers that end in ``m-ready``.

Source: mlcommons/tiny, ``benchmark/api/internally_implemented.cpp`` and ``.h`` (command size 80, ``infer`` warms up
ten times by default), and the ``th_timestamp`` and ``th_results`` of its reference submissions.

The board's counter of microseconds wraps around; the host's clock tells how often.
"""

import math
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from drivers.links.serial_line import SerialLine
from rig.errors import RigError
from rig.types import UNSTAMPED

SLACK_TICKS = 20_000
"""The largest distance (us) of a reading from its expected host time, beyond the tolerance of the rate."""
RATE_SLACK = 0.01
"""This relative rate error of a counter is always accepted."""
READY = "m-ready"
COMMAND_MOST = 80
"""The longest command that the firmware accepts, in characters (``EE_CMD_SIZE``)."""
LINE_END = len("\r\n")

_STAMP = "m-lap-us-"
_KNOWN = (_STAMP, "m-infer-start-", "m-infer-done", "m-results-")
"""Beginnings of the lines that come in a fixed order in an inference. Other lines may come anywhere."""
_LAP = re.compile(rf"{_STAMP}(\d+)")
_RESULTS = re.compile(r"m-results-\[([^\[\]]*)\]")
_ERROR = re.compile(r"e-\[(.*)\]?")
_NAME = re.compile(r"m-name-[^\[]*\[(.*)\]")
_FACT = re.compile(r"m-(profile|model)-\[(.*)\]")
_BROKEN = re.compile(r"m-lap-us-(?!\d+\Z)|m-results-(?!\[[^\[\]]*\]\Z)")
"""A line that begins like a known line, but is malformed."""
_BOOT = ("m-init-done", "m-timestamp-mode-")
_SIZE_REMEDY = "Check that the model's input is of this size (MAX_DB_INPUT_SIZE in its firmware)"


class Unwraps(Protocol):
    """Converts readings of a counter that wraps around to ticks that only grow."""

    def unwrap(self, raw: int, before_ns: int, after_ns: int) -> int: ...


class BoardClock:
    """Unwraps the board's microsecond counter by the host's clock, and detects jumps of the counter.

    The counter of the reference firmware has 32 bits and wraps every 71.6 minutes. The time between two readings may be
    longer, but a command may not: both stamps of ``infer`` come at its end, and nothing tells how often the counter
    wrapped between them. ``tolerance`` is the largest relative error of the counter's rate.
    """

    def __init__(self, bits: int, tolerance: float = 0.0) -> None:
        self._modulus, self._slack = 1 << bits, max(RATE_SLACK, tolerance)
        self._last: tuple[int, int, int] | None = None

    def unwrap(self, raw: int, before_ns: int, after_ns: int) -> int:
        """Return the ticks of a reading between two host stamps. Raises ``ValueError`` for an impossible reading."""
        if raw >= self._modulus:
            bits = self._modulus.bit_length() - 1
            raise ValueError(f"its clock reads {raw}, which does not fit the {bits} bits of its counter")
        if (after_ns - before_ns) * 1e-3 * (1.0 + self._slack) >= self._modulus:
            wraps, took = f"{self._modulus * 1e-6:.3g} s", f"{(after_ns - before_ns) * 1e-9:.3g} s"
            raise ValueError(f"its counter wraps every {wraps} and the command took {took}: give shorter spans")
        tick = raw
        if self._last is not None:
            last_tick, last_before_ns, last_after_ns = self._last
            shortest_us = max(before_ns - last_after_ns, 0) * 1e-3 * (1.0 - self._slack) - SLACK_TICKS
            longest_us = (after_ns - last_before_ns) * 1e-3 * (1.0 + self._slack) + SLACK_TICKS
            middle = last_tick + 0.5 * (shortest_us + longest_us)
            tick = raw + self._modulus * round((middle - raw) / self._modulus)
            if not last_tick + shortest_us <= tick <= last_tick + longest_us:
                board, host = f"{(tick - last_tick) * 1e-6:.6f}", f"{shortest_us * 1e-6:.3f} to {longest_us * 1e-6:.3f}"
                raise ValueError(f"its clock advanced by {board} s while the host measured {host} s")
        self._last = (tick, before_ns, after_ns)
        return tick


@dataclass(frozen=True)
class Inferred:
    """The answer to ``infer``: the board's clock before and after, unwrapped, and the scores that the board sent.

    ``printed_s`` is the time in which the line with the first time stamp was sent, after the stamp was taken. In energy
    mode a pin marks the times, and both ticks are ``UNSTAMPED``.
    """

    on_tick: int
    off_tick: int
    scores: tuple[float, ...]
    printed_s: float


class Board:
    """One board. It sends time stamps in text or, with ``on_pin``, marks times by a pin.

    A line may take ``answer_s``.
    """

    def __init__(self, line: SerialLine, clock: Unwraps, answer_s: float, on_pin: bool = False) -> None:
        self.line, self.answer_s, self._clock, self._on_pin = line, answer_s, clock, on_pin
        self._until: tuple[float, float] | None = None
        self._ready_is_due, self._due = False, 0 if on_pin else 2
        """Whether an ``m-ready`` must come, and the number of time stamps in text that an ``infer`` gives."""

    # ---- conversations --------------------------------------------------------------------

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Let this block take ``seconds`` in all, in place of ``answer_s`` for each line."""
        self._until = time.monotonic() + seconds, seconds
        try:
            yield
        finally:
            self._until = None

    def ask(self, command: str) -> list[str]:
        """Send a command; return the lines that come before ``m-ready``."""
        self._send(command)
        return list(iter(self._line, READY))

    def hello(self) -> dict[str, str]:
        """Return the ``name``, ``profile`` and ``model`` of the board, as far as it states them."""
        found: dict[str, str] = {}
        for command in ("name", "profile"):
            for line in self.ask(command):
                if name := _NAME.fullmatch(line):
                    found["name"] = name[1]
                elif fact := _FACT.fullmatch(line):
                    found[fact[1]] = fact[2]
        return found

    def load(self, data: bytes, chunk: int) -> None:
        """Put bytes into the board's buffer, ``chunk`` at a time, and check that the board counts all of them."""
        size = len(data)
        lines = self.ask(f"db load {size}")
        if f"m-[Expecting {size} bytes]" not in lines:
            what = f"did not confirm that it will load {size} bytes: it said {_said(lines)}"
            raise self.line.failed(what, remedy=_SIZE_REMEDY)
        for at in range(0, size, chunk):
            lines = self.ask("db " + data[at : at + chunk].hex())
            done, last = "m-load-done" in lines, at + chunk >= size
            if done != last:
                what = "reported the end of the data too early" if done else f"did not report the end of {size} bytes"
                raise self.line.failed(f"{what}: bytes were lost on the line", remedy="Lower the baud rate")

    def infer(self, times: int) -> Inferred:
        """Run ``times`` inferences between two time stamps. Raises ``DeviceError`` for an answer against the protocol.

        The command could also ask for warm-up inferences. It does not, because the span would include them.
        """
        began_ns = time.monotonic_ns()
        lines = [line for line in self.ask(f"infer {times} 0") if line.startswith(_KNOWN)]
        stamps = [line for line in lines if line.startswith(_STAMP)]
        if len(stamps) != self._due:
            raise self._laps_missing(len(stamps))
        wanted, results = [f"m-infer-start-{times}", *stamps, "m-infer-done"], _RESULTS.fullmatch((lines or [""])[-1])
        if lines[:-1] != wanted or results is None:
            what = f"said {_said(lines)} where the protocol allows {_said(wanted)} and results alone"
            raise self.line.failed(f"{what}: lines were lost or came out of order")
        scores = self._scores(results[1])
        if self._on_pin:
            return Inferred(UNSTAMPED, UNSTAMPED, scores, 0.0)
        on_tick, off_tick = (self._tick(int(line.removeprefix(_STAMP)), began_ns) for line in stamps)
        if off_tick < on_tick:
            raise self.line.failed(f"stamped the end {on_tick - off_tick} us before the beginning")
        return Inferred(on_tick, off_tick, scores, self.line.wire_s(len(stamps[0]) + LINE_END))

    def timestamp(self) -> int:
        """Read the board's clock, unwrapped. Return before ``m-ready`` comes, so that the round trip stays short."""
        self._ready()
        began_ns = time.monotonic_ns()
        self._send("timestamp")
        while not (lap := _LAP.fullmatch(line := self._line())):
            if line == READY:
                raise self._laps_missing(0)
        self._ready_is_due = True
        return self._tick(int(lap[1]), began_ns)

    def stamps(self) -> bool:
        """Return whether the board answers ``timestamp`` with a time in text."""
        began_ns = time.monotonic_ns()
        for line in self.ask("timestamp"):
            if lap := _LAP.fullmatch(line):
                self._tick(int(lap[1]), began_ns)
                return True
        return False

    # ---- errors ---------------------------------------------------------------------------

    def _laps_missing(self, count: int) -> RigError:
        if self._on_pin:
            remedy = "Give mode=performance, because this board prints its time stamps"
            return self.line.failed("gave m-lap-us time stamps in energy mode", remedy=remedy)
        what = f"stamped {count} times instead of 2 times" if count else "gave no m-lap-us time stamp"
        remedy = "In energy mode a board marks times on a pin and prints none: give mode=energy or rebuild its firmware"
        return self.line.failed(what, remedy=remedy)

    # ---- parts ----------------------------------------------------------------------------

    def _line(self) -> str:
        """Return the next line that is not empty.

        Raises ``DeviceTimeoutError`` if none comes in time, and ``DeviceError`` for a line that is an error, a boot
        message or not of this protocol.
        """
        until_s, allowed_s = self._until or (time.monotonic() + self.answer_s, self.answer_s)
        while not (line := self.line.line(until_s)):
            if line is None:
                raise self.line.failed(f"gave no answer within {allowed_s:g} s", silent=True)
        if error := _ERROR.fullmatch(line):
            what = f"reports an error: {error[1].rstrip(']')[:120]!r}"
            raise self.line.failed(what, remedy="Look up this text in the source of its firmware")
        if line.startswith(_BOOT):
            what = f"has restarted: it said {line[:60]!r}"
            raise self.line.failed(what, remedy="Check its power supply and its watchdog")
        if not line.startswith("m-") or _BROKEN.match(line) or not line.isprintable():
            remedy = _SIZE_REMEDY if "exceeds maximum" in line else ""  # the answer to a ``db load`` that is too large
            raise self.line.failed(f"said {line[:80]!r}, which is not part of the protocol", remedy=remedy)
        return line

    def _ready(self) -> None:
        """Discard the ``m-ready`` that ends an earlier answer."""
        while self._ready_is_due:
            self._ready_is_due = self._line() != READY

    def _send(self, command: str) -> None:
        self._ready()
        self.line.write(command.encode("ascii") + b"%")

    def _tick(self, raw: int, began_ns: int) -> int:
        try:
            return self._clock.unwrap(raw, began_ns, time.monotonic_ns())
        except ValueError as error:
            remedy = "It restarted, the line was garbled, or timer_bits does not fit its counter"
            raise self.line.failed(f"sent a time that cannot be right: {error}", remedy=remedy) from error

    def _scores(self, text: str) -> tuple[float, ...]:
        try:
            scores = tuple(float(part) for part in text.split(",") if part.strip())
        except ValueError:
            scores = ()
        if not scores or not all(math.isfinite(score) for score in scores):
            raise self.line.failed(f"sent results that are not numbers: {text[:80]!r}")
        return scores


def _said(lines: Sequence[str]) -> str:
    return "; ".join(line[:60] for line in lines) or "nothing"
