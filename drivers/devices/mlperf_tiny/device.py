"""Any board that speaks the MLPerf Tiny device protocol over a serial port.

    rig measure --device mlperf-tiny --option port=/dev/ttyACM0 --option labels=down,go,left,...

A sample is loaded with ``db`` commands while it is staged, which is not timed. ``infer`` is the query: its two time
stamps, from the board's own microsecond clock, are the span, and a loop of N inferences is one span of N executions.
In energy mode the board stamps by falling edges of a pin, which the power meter must watch.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from drivers.cleanup import released_on_error
from drivers.devices.mlperf_tiny.clock import BoardClock
from drivers.devices.mlperf_tiny.greeting import introduced
from drivers.devices.mlperf_tiny.model import model_of
from drivers.devices.mlperf_tiny.protocol import COMMAND_MOST, Board, Inferred, Talk
from drivers.links.serial_line import DEVICE, open_line
from rig.bench.options import limits, one_of, positive
from rig.errors import DeviceError, refused
from rig.types import UNSTAMPED, Budget, ClockInfo, Device, DeviceInfo, Reply, Sample, Span

MODES = ("hardware",)

PHASE = "inference"
TICK_HZ = 1e6
BAUDS = {"performance": 115200, "energy": 9600}
CHUNK_MOST = (COMMAND_MOST - len("db %")) // 2


class Coding(Protocol):
    """How a sample becomes the bytes that are loaded, and scores an answer."""

    def encoded(self, sample: Sample) -> bytes: ...
    def answer(self, scores: tuple[float, ...]) -> dict[str, Any]: ...


class Between(Protocol):
    """What is said to the board once a sample is loaded, and before it runs a phase."""

    def loaded(self) -> Talk[None]: ...
    def before(self, phase: str) -> Talk[None]: ...


class Nothing:
    """A board of the reference has one phase, and needs to be told nothing."""

    def loaded(self) -> Talk[None]:
        """Say nothing."""
        yield from ()

    def before(self, phase: str) -> Talk[None]:
        """Say nothing."""
        yield from ()


@dataclass(frozen=True)
class QueryPlan:
    """How a query is issued, and how its span is stamped.

    It has ``iterations`` inferences in a span after ``warmups`` outside of it, each within ``timeout_s``; a sample is
    loaded with ``chunk`` bytes a command. With ``prints_first`` the board prints its first time stamp before it begins;
    with ``on_pin`` it stamps by a pin in place of text.
    """

    iterations: int
    warmups: int
    chunk: int
    timeout_s: float
    prints_first: bool
    on_pin: bool = False


@dataclass
class _Query:
    """A query under way: its conversation, and the time by which it must end."""

    sample: Sample
    talk: Talk[Reply]
    allowed_s: float
    until_s: float = 0.0


class TinyDevice:
    """The Device protocol over a board: ``stage`` waits, ``submit`` only writes a command, ``poll`` reads answers.

    A board of several phases runs them one after another, and gives one span for each.
    """

    def __init__(
        self, board: Board, info: DeviceInfo, model: Coding, plan: QueryPlan, between: Between | None = None
    ) -> None:
        self._board, self._info, self._model, self._plan = board, info, model, plan
        self._between = between or Nothing()
        self._loaded: bytes | None = None
        self._queries: deque[_Query] = deque()
        self._running = False

    def info(self) -> DeviceInfo:
        """What the board stated when it was opened."""
        return self._info

    def stage(self, samples: Sequence[Sample]) -> None:
        """Load the first sample; the board has room for one. Raises ``DataError`` for one that does not fit."""
        data = [self._model.encoded(sample) for sample in samples]
        if not self._queries:
            self._board.converse(self._load(data[0]))

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        """Begin the inference."""
        self.submit_repeated(samples, 1, None, budget)

    def submit_repeated(self, samples: Sequence[Sample], times: int, phase: str | None, budget: Budget | None) -> None:
        """Begin ``times`` inferences between two time stamps. Raises ``UsageError`` for another phase."""
        phases = self._info.phases if phase is None else (phase,)
        if not set(phases) <= set(self._info.phases):
            remedy = f"Use {' or '.join(self._info.phases)}"
            raise refused("phase", phase, remedy, f"the board has no phase {phase!r}")
        data = [self._model.encoded(sample) for sample in samples]
        for sample, own in zip(samples, data, strict=True):
            count = times * self._plan.iterations
            loading_s = 0.0 if own == self._loaded else self._board.line.wire_s(4 * len(own))
            allowed_s = self._plan.timeout_s * (count + self._plan.warmups) * len(phases) + loading_s
            self._queries.append(_Query(sample, self._conversation(sample, own, count, phases), allowed_s))
        self._begin()

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        """Read on until an answer is whole, or ``timeout_s`` has passed. After an error nothing is under way."""
        try:
            return self._read(time.monotonic() + timeout_s)
        except BaseException:
            self._queries.clear()
            self._running = False
            raise

    def timer(self) -> int:
        """The board's microseconds since it started, unwrapped. Raises ``DeviceError`` in energy mode."""
        if self._plan.on_pin:
            raise DeviceError(
                "in energy mode the board sends no time", field="timer", value="energy", remedy="Give mode=performance"
            )
        if self._queries:
            what = "the board's clock cannot be read during an inference"
            remedy = "Wait for the answer of this sample first"
            raise DeviceError(what, field="timer", value=self._queries[0].sample.id, remedy=remedy)
        return self._board.converse(self._board.timestamp())

    def close(self) -> None:
        """Close the port. May be called twice."""
        self._queries.clear()
        self._board.line.close()

    def _begin(self) -> None:
        if self._queries and not self._running:
            query = self._queries[0]
            self._running = True
            query.until_s = time.monotonic() + query.allowed_s
            next(query.talk)

    def _read(self, until_s: float) -> Sequence[Reply]:
        while self._queries:
            query = self._queries[0]
            line = self._board.line.line(min(until_s, query.until_s))
            if line is None:
                if time.monotonic() >= query.until_s:
                    raise self._board.silent(query.allowed_s)
                return ()
            try:
                if line:
                    query.talk.send(line)
            except StopIteration as end:
                self._queries.popleft()
                self._running = False
                self._begin()
                return (end.value,)
        return ()

    def _conversation(self, sample: Sample, data: bytes, times: int, phases: Sequence[str]) -> Talk[Reply]:
        yield from self._load(data)
        spans = []
        for phase in phases:
            yield from self._between.before(phase)
            found = yield from self._board.infer(times, self._plan.warmups)
            spans.append(self._span(phase, found, times))
        prepares = self._info.preprocessing.phases if self._info.preprocessing else ()
        output = {"label": None} if set(phases) <= set(prepares) else self._model.answer(found.scores)
        return Reply(sample.id, output, tuple(spans))

    def _span(self, phase: str, found: Inferred, times: int) -> Span:
        if self._plan.on_pin:
            return Span(phase, UNSTAMPED, UNSTAMPED, times)
        late = round(found.printed_s * TICK_HZ) if self._plan.prints_first else 0
        if found.on_tick + late > found.off_tick:
            raise self._board.failed(
                f"inferred for {found.off_tick - found.on_tick} us, less than the printing of its first time stamp",
                "Give prints_first=false, or more iterations",
            )
        return Span(phase, found.on_tick + late, found.off_tick, times)

    def _load(self, data: bytes) -> Talk[None]:
        if data != self._loaded:
            self._loaded = None
            yield from self._board.load(data, self._plan.chunk)
            yield from self._between.loaded()
            self._loaded = data


def open_device(
    *,
    port: str = "",
    mode: str = "performance",
    baud: int | None = None,
    name: str = "mlperf-tiny",
    input_type: str = "int8",
    input_scale: float | None = None,
    input_zero_point: int = 0,
    labels: str = "",
    threshold: float | None = None,
    iterations: int = 1,
    warmups: int = 0,
    timeout_s: float = 10.0,
    boot_s: float = 5.0,
    chunk_bytes: int = 31,
    timer_bits: int = 32,
    clock_tolerance: float = 1e-3,
    prints_first: bool = False,
    dtr: bool = True,
    firmware: str | None = None,
    network: str = "",
    tuning: str = "",
) -> Device:
    """The board on a serial ``port``; pyserial opens it (extra ``serial``).

    ``mode`` is what its firmware was built for: ``performance`` (115200 baud) or ``energy`` (9600 baud; stamps by
    falling edges of a pin, wired to a logic input of the meter); ``baud`` for another rate.
    ``input_type`` is int8, uint8, int16 or float32 (little-endian). With ``input_scale`` a payload is quantised:
    round(x / scale) + zero point; without it, it must already be whole numbers that fit. ``labels`` are the model's
    outputs in order, separated by commas (default 0, 1, ...); with one output the label is the second of two from
    ``threshold`` on. ``iterations`` inferences make one span, after ``warmups`` that no span holds. Each inference
    may take ``timeout_s``, the board ``boot_s`` to say its name. ``chunk_bytes`` are sent in one command (38 at
    most). ``timer_bits`` is the width of its microsecond counter, ``clock_tolerance`` the limit of its rate
    (relative). With ``prints_first`` a span begins when the line with the first time stamp has been sent, as is so
    with the reference firmware, which prints and then infers; without it at that stamp, as MLPerf Tiny counts.
    ``dtr=false`` leaves a line low that resets some boards. ``firmware`` names a file whose digest is kept. ``network``
    and ``tuning`` say for the report what the firmware runs, and how that was trained and tuned.

    Raises ``UsageError`` for options that do not fit, ``SetupError`` for a port without such a board.
    """
    one_of(BAUDS, mode=mode)
    on_pin, baud = mode == "energy", BAUDS[mode] if baud is None else baud
    model = model_of(input_type, input_scale, input_zero_point, labels, threshold)
    positive(timeout_s=timeout_s, boot_s=boot_s, clock_tolerance=clock_tolerance)
    limits(iterations=(iterations, 1, 10**9), warmups=(warmups, 0, 10**9))
    limits(chunk_bytes=(chunk_bytes, 1, CHUNK_MOST), timer_bits=(timer_bits, 16, 64))
    digest = {} if firmware is None else {"firmware": digest_of(firmware)}
    line = open_line(port, baud, DEVICE, dtr=dtr)
    with released_on_error(line.close):
        board, said = introduced(line, partial(BoardClock, timer_bits), boot_s, timeout_s, on_pin)
        maker = said.get("name", "")
        info = DeviceInfo(
            name=name,
            mode="simulator" if maker.startswith("SIM") else "hardware",
            description=f"{'SIMULATED ' if maker.startswith('SIM') else ''}{maker}, MLPerf Tiny protocol, model "
            f"{said.get('model', 'not stated')}",
            clock=None if on_pin else ClockInfo(name, TICK_HZ, clock_tolerance),
            spans_on_pin=on_pin,
            phases=(PHASE,),
            timeout_s=timeout_s * (iterations + warmups),
            versions={k: v for k, v in said.items() if k != "name"} | {"pyserial": version("pyserial")},
            artifacts=digest,
            algorithm={"model": said.get("model"), "network": network, "tuning": tuning},
            details={
                "port": port,
                "baud": baud,
                "input": {"type": input_type, "scale": input_scale, "zero_point": input_zero_point},
                "labels": list(model.labels),
                "iterations": iterations,
                "warmups": warmups,
                "prints_first": prints_first,
                "mode": mode,
                "span_begins": _begins(on_pin, prints_first),
            },
        )
        plan = QueryPlan(iterations, warmups, chunk_bytes, timeout_s, prints_first and not on_pin, on_pin)
        return TinyDevice(board, info, model, plan)


def _begins(on_pin: bool, prints_first: bool) -> str:
    if on_pin:
        return "at the falling edge of the pin"
    return "when the first time stamp is on the wire" if prints_first else "at the first time stamp"


def digest_of(path: str) -> str:
    """SHA-256 of a file that was flashed. Raises ``UsageError`` for one that cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        what = f"cannot read the firmware {path}: {error.strerror}"
        raise refused("firmware", path, "Name the file that was flashed", what) from error
