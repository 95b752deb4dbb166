"""The MLPerf Tiny device protocol on a serial line: commands that end in ``%``, answers that end in ``m-ready``.

Source: mlcommons/tiny, ``benchmark/api/internally_implemented.cpp`` and ``.h`` (command size 80, ``infer`` warms up
ten times unless it is told how often), and the ``th_timestamp`` and ``th_results`` of its reference submissions.

A conversation is a generator: it writes to the line, yields for the next line, and returns what it was after, so
that the same one can be waited for (``converse``) or polled.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from drivers.devices.mlperf_tiny.clock import BoardClock
from drivers.links.serial_line import SerialLine
from rig.errors import RigError, SetupError
from rig.types import UNSTAMPED

T = TypeVar("T")
Talk = Generator[None, str, T]

READY = "m-ready"
COMMAND_MOST = 80
"""Characters of a command that the firmware keeps (``EE_CMD_SIZE``)."""
LINE_END = len("\r\n")
HELLO_S = 1.0
QUIET_S = 0.05

_LAP = re.compile(r"m-lap-us-(\d+)")
_RESULTS = re.compile(r"m-results-\[([^\[\]]*)\]")
_ERROR = re.compile(r"e-\[(.*)\]?")
_NAME = re.compile(r"m-name-[^\[]*\[(.*)\]")
_FACT = re.compile(r"m-(profile|model)-\[(.*)\]")
_BOOT = ("m-init-done", "m-timestamp-mode-")


@dataclass(frozen=True)
class Inferred:
    """What ``infer`` answered: the board's clock before and after, unwrapped, and the scores of the last inference.

    ``printed_s`` is how long the line with the first time stamp took on the wire, after that stamp was taken. In
    energy mode, where a pin stamps, both ticks are ``UNSTAMPED``.
    """

    on_tick: int
    off_tick: int
    scores: tuple[float, ...]
    printed_s: float


class Board:
    """One board, which stamps in text, or with ``on_pin`` by a pin. Methods that return a ``Talk`` say nothing until

    it is run.
    """

    def __init__(self, line: SerialLine, clock: BoardClock, answer_s: float, on_pin: bool = False) -> None:
        self.line, self._clock, self._answer_s, self._on_pin = line, clock, answer_s, on_pin
        self._owes_ready = False

    # ---- conversations --------------------------------------------------------------------

    def asked(self, command: str) -> Talk[list[str]]:
        """Send a command; its lines up to ``m-ready``."""
        yield from self._ready()
        self._send(command)
        lines: list[str] = []
        while (line := (yield)) != READY:
            self._neutral(line)
            lines.append(line)
        return lines

    def hello(self) -> Talk[dict[str, str]]:
        """Who it is: ``name``, ``profile`` and ``model``, as far as it says."""
        found: dict[str, str] = {}
        for command in ("name", "profile"):
            for line in (yield from self.asked(command)):
                if name := _NAME.fullmatch(line):
                    found["name"] = name[1]
                elif fact := _FACT.fullmatch(line):
                    found[fact[1]] = fact[2]
        return found

    def load(self, data: bytes, chunk: int) -> Talk[None]:
        """Put bytes into its buffer, ``chunk`` at a time, and see that it counted as many."""
        size = len(data)
        lines = yield from self.asked(f"db load {size}")
        if f"m-[Expecting {size} bytes]" not in lines:
            raise self.failed(
                f"did not agree to load {size} bytes: it said {_said(lines)}",
                "Check that the model's input is of this size (MAX_DB_INPUT_SIZE in its firmware)",
            )
        for at in range(0, size, chunk):
            lines = yield from self.asked("db " + data[at : at + chunk].hex())
            done, last = "m-load-done" in lines, at + chunk >= size
            if done != last:
                what = "was full too early" if done else f"has not counted {size} bytes"
                raise self.failed(f"{what}: bytes were lost on the line", "Lower the baud rate")

    def infer(self, times: int, warmups: int) -> Talk[Inferred]:
        """``warmups`` inferences, then ``times`` between two laps. Raises ``DeviceError`` for any other answer."""
        began_ns = time.monotonic_ns()
        yield from self._ready()
        self._send(f"infer {times} {warmups}")
        laps: list[int] = []
        scores: tuple[float, ...] | None = None
        printed_s = 0.0
        started = done = False
        while (line := (yield)) != READY:
            if lap := _LAP.fullmatch(line):
                if not started or done:
                    raise self._out_of_order(line)
                printed_s = printed_s or self.line.wire_s(len(line) + LINE_END)
                laps.append(self._tick(int(lap[1]), began_ns))
            elif results := _RESULTS.fullmatch(line):
                if not done or scores is not None:
                    raise self._out_of_order(line)
                scores = self._scores(results[1])
            elif line.startswith("m-infer-start-"):
                if line != f"m-infer-start-{times}":
                    raise self.failed(f"began {line[14:40]} inferences when it was asked for {times}")
                started = True
            elif line == "m-infer-done":
                if len(laps) != self._due:
                    raise self._laps_missing(len(laps))
                done = True
            else:
                self._neutral(line)
        return self._inferred(laps, done, scores, printed_s)

    def timestamp(self) -> Talk[int]:
        """Its clock, unwrapped. Returns with the stamp, so that its ``m-ready`` does not widen the round trip."""
        yield from self._ready()
        began_ns = time.monotonic_ns()
        self._send("timestamp")
        while not (lap := _LAP.fullmatch(line := (yield))):
            if line == READY:
                raise self._laps_missing(0)
            self._neutral(line)
        self._owes_ready = True
        return self._tick(int(lap[1]), began_ns)

    def stamps(self) -> Talk[bool]:
        """Whether it answers ``timestamp`` with a time in text."""
        began_ns = time.monotonic_ns()
        for line in (yield from self.asked("timestamp")):
            if lap := _LAP.fullmatch(line):
                self._tick(int(lap[1]), began_ns)
                return True
        return False

    def converse(self, talk: Talk[T], allowed_s: float | None = None) -> T:
        """Run a conversation to its end. Every line must come within ``allowed_s`` of the one before."""
        try:
            next(talk)
            while True:
                line = self.line.line(time.monotonic() + (allowed_s or self._answer_s))
                if line is None:
                    raise self.silent(allowed_s or self._answer_s)
                if line:
                    talk.send(line)
        except StopIteration as end:
            value: T = end.value
            return value

    # ---- errors ---------------------------------------------------------------------------

    def failed(self, what: str, remedy: str = "") -> RigError:
        """The board did something it must not; the line is broken from now on."""
        return self.line.failed(what, remedy=remedy)

    def silent(self, allowed_s: float) -> RigError:
        """The board said nothing for too long."""
        return self.line.failed(f"gave no answer within {allowed_s:g} s", silent=True)

    def _out_of_order(self, line: str) -> RigError:
        return self.failed(f"said {line[:60]!r} where that cannot be: lines were lost or came out of order")

    def _laps_missing(self, count: int) -> RigError:
        if self._on_pin:
            return self.failed(
                "gave m-lap-us time stamps in energy mode" if count else "answered without m-infer-done",
                "Give mode=performance to a board that stamps in text",
            )
        return self.failed(
            f"stamped {count} times where 2 are due" if count else "gave no m-lap-us time stamp",
            "A board built for energy mode stamps by a pin and not in text: give mode=energy, or rebuild its firmware",
        )

    # ---- parts ----------------------------------------------------------------------------

    @property
    def _due(self) -> int:
        """Time stamps in text between the beginning and the end of an ``infer``."""
        return 0 if self._on_pin else 2

    def _inferred(
        self, laps: Sequence[int], done: bool, scores: tuple[float, ...] | None, printed_s: float
    ) -> Inferred:
        if len(laps) != self._due or not done:
            raise self._laps_missing(len(laps))
        if scores is None:
            raise self.failed("gave no m-results-[...]")
        if self._on_pin:
            return Inferred(UNSTAMPED, UNSTAMPED, scores, 0.0)
        if laps[1] < laps[0]:
            raise self.failed(f"stamped the end {laps[0] - laps[1]} us before the beginning")
        return Inferred(laps[0], laps[1], scores, printed_s)

    def _ready(self) -> Talk[None]:
        """Take the ``m-ready`` that an earlier answer still owes."""
        while self._owes_ready:
            line = yield
            if line == READY:
                self._owes_ready = False
            else:
                self._neutral(line)

    def _send(self, command: str) -> None:
        assert len(command) < COMMAND_MOST
        self.line.write(command.encode("ascii") + b"%")

    def _neutral(self, line: str) -> None:
        """Raise for a line that is an error, a boot message or no line of this protocol."""
        if error := _ERROR.fullmatch(line):
            raise self.failed(f"reports an error: {error[1].rstrip(']')[:120]!r}", "Look the text up in its firmware")
        if line.startswith(_BOOT):
            raise self.failed(f"has restarted: it said {line[:60]!r}", "Check its power supply and its watchdog")
        if not line.startswith("m-") or _broken_known(line) or not line.isprintable():
            raise self.failed(f"said {line[:80]!r}, which is not of the protocol")

    def _tick(self, raw: int, began_ns: int) -> int:
        try:
            return self._clock.unwrap(raw, began_ns, time.monotonic_ns())
        except ValueError as error:
            remedy = "It restarted, the line was garbled, or timer_bits is not its own"
            raise self.failed(f"cannot be believed: {error}", remedy) from error

    def _scores(self, text: str) -> tuple[float, ...]:
        try:
            scores = tuple(float(part) for part in text.split(",") if part.strip())
        except ValueError:
            scores = ()
        if not scores or not all(math.isfinite(score) for score in scores):
            raise self.failed(f"gave results that are no numbers: {text[:80]!r}")
        return scores


def _broken_known(line: str) -> bool:
    """Whether a line begins as one that is understood and goes on as none."""
    if line.startswith(("m-lap-us-", "m-results-")):
        return not (_LAP.fullmatch(line) or _RESULTS.fullmatch(line))
    return False


def _said(lines: Sequence[str]) -> str:
    return "; ".join(line[:60] for line in lines) or "nothing"


def introduced(
    line: SerialLine, bits: int, boot_s: float, answer_s: float, on_pin: bool = False
) -> tuple[Board, dict[str, str]]:
    """The board on a line, and what it says it is. It may be booting, or in the middle of a command of an earlier run.

    Raises ``SetupError`` when none introduces itself within ``boot_s``, or when it stamps otherwise than ``on_pin``
    says.
    """
    until_s = time.monotonic() + boot_s
    last = "it said nothing"
    while (left_s := until_s - time.monotonic()) > 0:
        board = Board(line, BoardClock(bits), answer_s, on_pin)
        allowed_s = min(HELLO_S, left_s)
        try:
            line.quiet(QUIET_S)
            said = board.converse(board.hello(), allowed_s)
            line.quiet(QUIET_S)
            if "name" in said:
                if board.converse(board.stamps(), allowed_s) == on_pin:
                    raise _other_mode(on_pin)
                return board, said
            last = "it gave no name"
        except SetupError:
            raise
        except RigError as error:
            last = error.message
            if " is gone" in last:
                break
    raise SetupError(
        f"no MLPerf Tiny board answers on {line.port} at {line.baud} baud: {last}",
        field="port",
        value=line.port,
        remedy="Check the port and the baud rate (115200; 9600 means energy mode), and that its firmware runs",
    )


def _other_mode(on_pin: bool) -> SetupError:
    """A board that stamps in text where a pin was announced, or the other way round."""
    found, asked = ("performance", "energy") if on_pin else ("energy", "performance")
    return SetupError(
        f"the board's firmware was built for {found} mode: it {'answers' if on_pin else 'gives'} `timestamp` "
        f"{'in text' if on_pin else 'no text, and stamps by a falling edge of a pin'}",
        field="mode",
        value=asked,
        remedy="Give mode=performance"
        if on_pin
        else "Give mode=energy, with its pin on a logic input of the power "
        "meter; or build its firmware for performance mode",
    )
