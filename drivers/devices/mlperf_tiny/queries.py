"""A board of the MLPerf Tiny protocol as a device: it loads a sample, runs the phases, and answers.

When the driver opens the board, the board may be booting, or still working on a command of an earlier run.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Protocol

from drivers.devices.mlperf_tiny.protocol import COMMAND_MOST, Board, Inferred, Unwraps
from drivers.links.serial_line import SerialLine
from rig.bench.settings import Positive, within
from rig.engine.blocking_device import BlockingDevice
from rig.errors import DeviceError, RigError, SetupError, refused
from rig.types import UNSTAMPED, Budget, DeviceInfo, Reply, Sample, Span

TICK_HZ = 1e6
CHUNK_MOST = (COMMAND_MOST - len("db %")) // 2
HELLO_S = 1.0
QUIET_S = 0.05


class Coding(Protocol):
    """Converts a sample to the bytes to load, and scores to an answer."""

    def encoded(self, sample: Sample) -> bytes: ...
    def answer(self, scores: tuple[float, ...]) -> dict[str, Any]: ...


Before = Callable[[str, bool], object]
"""Tells the board which phase it runs next. The flag is true until a phase has run on the loaded sample."""


@dataclass(frozen=True)
class QueryPlan:
    """How a query (one request for inferences) is sent, and how its span is stamped.

    A span has ``iterations`` inferences, each within ``timeout_s``; a command loads ``chunk_bytes`` of a sample. With
    ``prints_first`` the board prints its first time stamp before it begins.
    """

    iterations: Annotated[int, partial(within, 1, 10**9)] = 1
    chunk_bytes: Annotated[int, partial(within, 1, CHUNK_MOST)] = 31
    timeout_s: Positive = 10.0
    prints_first: bool = False


class TinyDevice:
    """A board as a Device. A thread runs the queries.

    A board with several phases runs them one after another, with one span for each. ``before``, if given, is called
    before each phase.
    """

    def __init__(
        self, board: Board, info: DeviceInfo, model: Coding, plan: QueryPlan, before: Before | None = None
    ) -> None:
        self._board, self._info, self._model, self._plan = board, info, model, plan
        self._before, self._loaded, self._fresh = before, b"", True
        self._queries: deque[tuple[bytes, int, Sequence[str]]] = deque()
        """For each query that has not ended: its bytes, how many inferences it makes, and its phases."""
        self._worker = BlockingDevice(self._answered, info, None)
        self.poll = self._worker.poll

    def info(self) -> DeviceInfo:
        """Return what the board stated when it was opened."""
        return self._info

    def stage(self, samples: Sequence[Sample]) -> None:
        """Check all samples. If no query runs, load the first: the board has room for one.

        Raises ``DataError`` for a sample that does not fit.
        """
        data = [self._model.encoded(sample) for sample in samples]
        if not self._queries:
            self._load(data[0])

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        """Begin the plan's inferences in each phase."""
        self.submit_repeated(samples, 1, None, budget)

    def submit_repeated(self, samples: Sequence[Sample], times: int, phase: str | None, budget: Budget | None) -> None:
        """Begin ``times`` times the plan's inferences in a phase, or in each phase if ``phase`` is None.

        Raises ``UsageError`` for a phase that the board does not have, ``DataError`` for a sample that does not fit.
        """
        phases = self._info.phases if phase is None else (phase,)
        if not set(phases) <= set(self._info.phases):
            raise refused("phase", phase, f"Use {' or '.join(self._info.phases)}", f"the board has no phase {phase!r}")
        data = [self._model.encoded(sample) for sample in samples]
        self._queries.extend((own, times * self._plan.iterations, phases) for own in data)
        self._worker.submit(samples, None)

    def timer(self) -> int:
        """Return the board's counter (us), unwrapped. Raises ``DeviceError`` in energy mode and during a query."""
        if self._info.spans_on_pin:
            what = "in energy mode the board sends no time"
            raise DeviceError(what, field="timer", value="energy", remedy="Give mode=performance")
        if self._queries:
            what = "the board's clock cannot be read during an inference"
            raise DeviceError(what, field="timer", value="busy", remedy="Wait for the answer of the sample first")
        return self._board.timestamp()

    def close(self) -> None:
        """Close the port, which ends a running query. May be called twice."""
        self._worker.close()
        self._board.line.close()

    def _answered(self, sample: Sample) -> Reply:
        """Run the oldest query within its time limit."""
        data, times, phases = self._queries[0]
        loading_s = 0.0 if data == self._loaded else self._board.line.wire_s(4 * len(data))
        try:
            with self._board.within(self._plan.timeout_s * times * len(phases) + loading_s):
                return self._run(sample, data, times, phases)
        finally:
            self._queries.popleft()

    def _run(self, sample: Sample, data: bytes, times: int, phases: Sequence[str]) -> Reply:
        self._load(data)
        spans = []
        for phase in phases:
            if self._before is not None:
                self._before(phase, self._fresh)
            self._fresh = False
            found = self._board.infer(times)
            spans.append(self._span(phase, found, times))
        prepares = self._info.preprocessing.phases if self._info.preprocessing else ()
        output = {"label": None} if set(phases) <= set(prepares) else self._model.answer(found.scores)
        return Reply(sample.id, output, tuple(spans))

    def _span(self, phase: str, found: Inferred, times: int) -> Span:
        if self._info.spans_on_pin:
            return Span(phase, UNSTAMPED, UNSTAMPED, times)
        late = round(found.printed_s * TICK_HZ) if self._plan.prints_first else 0
        if found.on_tick + late > found.off_tick:
            what = f"inferred for {found.off_tick - found.on_tick} us, less than the printing of its first time stamp"
            raise self._board.line.failed(what, remedy="Give prints_first=false, or more iterations")
        return Span(phase, found.on_tick + late, found.off_tick, times)

    def _load(self, data: bytes) -> None:
        if data != self._loaded:
            self._loaded, self._fresh = b"", True
            self._board.load(data, self._plan.chunk_bytes)
            self._loaded = data


def introduced(
    line: SerialLine, clock: Callable[[], Unwraps], boot_s: float, answer_s: float, on_pin: bool = False
) -> tuple[Board, dict[str, str]]:
    """Return the board on a line, and the facts that it states.

    ``clock`` makes the object that unwraps the board's counter. Later lines of the board may take ``answer_s``. Raises
    ``SetupError`` if no board states its name within ``boot_s``, or if ``on_pin`` does not match how the board marks
    times.
    """
    until_s = time.monotonic() + boot_s
    last = "it said nothing"
    while (left_s := until_s - time.monotonic()) > 0:
        board = Board(line, clock(), min(HELLO_S, left_s), on_pin)
        try:
            line.quiet(QUIET_S)
            said = board.hello()
            line.quiet(QUIET_S)
            if "name" in said:
                if board.stamps() == on_pin:
                    raise _other_mode(on_pin)
                board.answer_s = answer_s
                return board, said
            last = "it gave no name"
        except SetupError:
            raise
        except RigError as error:
            last = error.message
            if " is gone" in last:
                break
    what = f"no MLPerf Tiny board answers on {line.port} at {line.baud} baud: {last}"
    remedy = "Check the port and the baud rate (115200; 9600 means energy mode), and that its firmware runs"
    raise SetupError(what, field="port", value=line.port, remedy=remedy)


def _other_mode(on_pin: bool) -> SetupError:
    """Return the error for a board that stamps in text instead of by a pin, or by a pin instead of in text."""
    found, asked = ("performance", "energy") if on_pin else ("energy", "performance")
    how = "answers" if on_pin else "marks times by a falling edge of a pin, and does not answer"
    remedy = f"Give mode={found}"
    if not on_pin:
        remedy += ", with its pin on a logic input of the power meter; or build its firmware for performance mode"
    what = f"the board's firmware was built for {found} mode: it {how} `timestamp` in text"
    return SetupError(what, field="mode", value=asked, remedy=remedy)
