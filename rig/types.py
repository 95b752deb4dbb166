"""The nouns, the steps and the protocols. Imports nothing of ours.

Units are SI and stand in the name: ``_s``, ``_w``, ``_j``, ``_hz``; host time is an integer of
nanoseconds (``_ns``) on the run's one host clock; ``_tick`` counts on the clock named beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

Mode = Literal["hardware", "simulator"]
TraceKind = Literal["mean", "point", "cumulative", "edges"]
Pin = Literal["level", "stamp", "toggle"]
MARK_PHASE = "mark"
Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]
Indices = NDArray[np.int64]


# ---- what is asked ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """One thing to process. ``payload`` is any array; ``rate_hz`` is set when it is a time series.

    ``inferences`` is how many inferences the sample stands for (a 10 s sequence of 1 s scenes: 10).
    ``label_age_s``, for a frame of a stream: how long its label had been true when the frame ended.
    ``keep``: the payload is kept with the recording, since answers can only be checked against it.
    """

    id: str
    payload: NDArray[Any]
    label: str | None = None
    target_cost: float | None = None
    duration_s: float = 0.0
    rate_hz: float | None = None
    inferences: int = 1
    seed: int | None = None
    label_age_s: float | None = None
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Budget:
    """When a solver stops: after ``timeout_s``, or at a cost no greater than ``stop_at_cost``."""

    timeout_s: float | None = None
    stop_at_cost: float | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Read every clock many times and, where the device can, pulse the power trace."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Leave the configured device alone for ``seconds``; the window is an idle window."""

    seconds: float


class Issue(msgspec.Struct, frozen=True, gc=False):
    """Hand samples to the device: with ``due_ns`` None as soon as it is free, and wait for the answers;

    else ``due_ns`` after the first issue that has one, whether it is free or not, and go on. What is due
    together is handed over together, up to the device's batch. ``repeat`` loops the work inside one span, ``phase``
    restricts it to one phase, ``warmup`` issues are recorded but enter no result, and with ``queue`` a
    sample is dropped when so many wait unanswered at the moment it is due.
    """

    samples: Sequence[Sample]
    due_ns: int | None = None
    repeat: int = 1
    phase: str | None = None
    budget: Budget | None = None
    warmup: bool = False
    queue: int | None = None


Step = Mark | Idle | Issue


@dataclass(frozen=True, slots=True)
class Rules:
    """What makes a result of one scenario valid under a named, versioned set; see ``scenarios/rules.py``.

    What is None is not asked for. ``percentile`` (0 to 1) is the share of latencies that an estimate or a
    bound speaks of, ``in_time_share`` of frames that must meet their deadline. ``late_share`` is how large
    the 99th percentile of slip may be against the latency bound or deadline, ``gap_distance`` the
    Kolmogorov distance between the gaps scheduled and kept. ``trial_tolerance`` is relative to the mean.
    """

    name: str
    scenario: str
    source: str
    submittable: bool
    idle_s: float = 2.0
    warmup: int | None = None
    """Warm-up samples allowed at most."""
    min_duration_s: float = 0.0
    min_queries: int = 1
    whole_set: bool = False
    percentile: float | None = None
    early_stopping: bool = False
    in_time_share: float | None = None
    late_share: float | None = None
    gap_distance: float | None = None
    trials: int = 1
    trial_tolerance: float | None = None
    hardware_only: bool = False


# ---- what comes back ----------------------------------------------------------------------


UNSTAMPED = -(2**63)
"""Both ticks of a span whose times stand on a pin (``DeviceInfo.spans_on_pin``) and nowhere else."""


class Span(msgspec.Struct, frozen=True, gc=False):
    """One stretch of one phase, on the device's own clock; ``executions`` > 1 when it looped."""

    phase: str
    on_tick: int
    off_tick: int
    executions: int = 1


class Progress(msgspec.Struct, frozen=True, gc=False):
    """A solver's claim at a tick: its cost, and the solution packed by ``numpy.packbits``."""

    tick: int
    cost: float
    solution: bytes


class Reply(msgspec.Struct, frozen=True, gc=False):
    """The device's answer to one sample. ``output`` is anything JSON can hold."""

    sample_id: str
    output: Any
    spans: tuple[Span, ...] = ()
    progress: tuple[Progress, ...] = ()


@dataclass(frozen=True, slots=True)
class Bracket:
    """One reading of a clock between two host stamps: it showed ``tick`` at some moment between."""

    before_ns: int
    tick: int
    after_ns: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Readings of one rail that became ready together, in the rail's raw unit.

    ``value`` has shape (n,). Without ticks the readings continue the rail's uniform grid; with
    them (int64, shape (n,)) each reading covers ``start_tick`` to ``end_tick`` of the meter clock.
    ``flags`` (uint8) is 1 where the instrument reported overload. Of a logic input (kind ``edges``) a
    reading is an edge: ``value`` the level after it, 1 or 0, both ticks that of the edge.
    """

    rail: str
    value: NDArray[Any]
    start_tick: NDArray[np.int64] | None = None
    end_tick: NDArray[np.int64] | None = None
    flags: NDArray[np.uint8] | None = None


# ---- what a driver declares ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClockInfo:
    """A tick counter: its name in the recording, and its nominal rate."""

    name: str
    tick_hz: float
    tolerance: float = 1e-3
    """Relative; how far the true rate may be from nominal."""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What a system under test is. ``clock`` None means spans are stamped in host nanoseconds.

    ``max_pending`` is how many samples it can hold unanswered; None: one batch at a time.
    """

    name: str
    mode: Mode
    description: str = ""
    clock: ClockInfo | None = None
    phases: tuple[str, ...] = ("inference",)
    max_batch: int = 1
    max_pending: int | None = None
    timeout_s: float = 60.0
    onboard_meter: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Digest of each thing the result depends on (model, calibration, firmware)."""
    details: Mapping[str, Any] = field(default_factory=dict)
    spans_on_pin: bool = False
    """It stamps no span but marks each on a pin, which a meter on the bench must watch; ``clock`` is None."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """Raw readings to watts: ``p = x * v - x**2 * r`` for amperes, ``p = x`` for watts.

    ``supply_v`` is the voltage before the meter, ``burden_ohm`` the shunt's resistance. In place of a constant voltage
    ``supply_rail`` names a rail of volts in the same run, whose readings are then multiplied one by one. A rail of
    volts is no power by itself.
    """

    unit: Literal["W", "A", "J", "V"] = "W"
    supply_v: float | None = None
    burden_ohm: float = 0.0
    supply_rail: str | None = None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Limits (not standard deviations) from the instrument's calibration: |error| stays below

    ``of_reading * |reading| + offset`` with the offset in the rail's raw unit.
    """

    of_reading: float
    offset: float
    source: str = ""


@dataclass(frozen=True, slots=True)
class Rail:
    """One measured supply, or a logic input beside it. Times in seconds; ``accuracy`` None: not stated, never zero.

    Of a logic input (kind ``edges``) ``rate_hz`` is how often it is looked at (0: it stamps edges to a tick), an
    edge's tick is that of the first look that saw it, and what speaks of watts means nothing.
    """

    name: str
    kind: TraceKind = "mean"
    conversion: Conversion = Conversion()
    rate_hz: float = 0.0
    aperture_s: float | None = None
    filter_tau_s: float = 0.0
    resolution: float | None = None
    range_max: float | None = None
    accuracy: Accuracy | None = None
    gain_id: str | None = None
    """Rails that share one gain error (one shunt, one reference) share this name."""
    pin: Pin | None = None
    """What the device does with the pin: ``level``: high during each span; ``stamp``: a falling edge when a span
    begins and when it ends; ``toggle``: another level then. None: nobody said, and the edges place nothing."""
    pin_lag_s: float = 0.0
    """How far the pin may at most follow or lead what it marks; a limit, as those of ``Accuracy``."""


@dataclass(frozen=True, slots=True)
class MeterInfo:
    """What a meter is, what it sees and what it leaves out."""

    name: str
    mode: Mode
    clock: ClockInfo
    rails: tuple[Rail, ...]
    omitted: tuple[str, ...] = ()
    description: str = ""
    buffer_s: float | None = None
    """How long the instrument can go undrained before it loses readings."""
    versions: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)


# ---- what a driver implements -------------------------------------------------------------


class Clock(Protocol):
    """The host's monotonic time, or a plant's virtual one."""

    def now_ns(self) -> int: ...
    def sleep_until(self, ns: int) -> None: ...


class Device(Protocol):
    """A system under test. ``stage`` loads samples and is not timed; ``submit`` must not block."""

    def info(self) -> DeviceInfo: ...
    def stage(self, samples: Sequence[Sample]) -> None: ...
    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None: ...
    def poll(self, timeout_s: float) -> Sequence[Reply]: ...
    def close(self) -> None: ...


class Meter(Protocol):
    """An instrument. ``start`` triggers it and returns the bracket of its first tick; ``read``
    returns what is ready, perhaps nothing, without waiting; ``stop`` returns the rest."""

    def info(self) -> MeterInfo: ...
    def start(self) -> Bracket: ...
    def read(self) -> Sequence[Chunk]: ...
    def stop(self) -> Sequence[Chunk]: ...
    def close(self) -> None: ...


@runtime_checkable
class Clocked(Protocol):
    """A device or meter whose clock can be read at any time between spans."""

    def timer(self) -> int: ...


@runtime_checkable
class Marks(Protocol):
    """A device that can draw visibly more power for about ``seconds``, stamped by its own clock."""

    def pulse(self, seconds: float) -> Span: ...


@runtime_checkable
class Repeats(Protocol):
    """A device that can loop a sample, or one phase of it, without the host in between."""

    def submit_repeated(
        self, samples: Sequence[Sample], times: int, phase: str | None, budget: Budget | None
    ) -> None: ...


@runtime_checkable
class Inspects(Protocol):
    """A simulator that can count: integer activity counters by layer and step, for one sample id."""

    def activity(self) -> Mapping[str, Mapping[str, NDArray[np.int64]]]: ...


class Plant(Protocol):
    """Simulated surroundings: what a simulated device does becomes the power its meter sees."""

    clock: Clock

    def install(self, idle_w: Mapping[str, float], phase_w: Mapping[str, Mapping[str, float]]) -> None:
        """Declare watts at idle by rail, and watts while in each phase: ``phase_w[phase][rail]``."""
        ...

    def occupy(self, phase: str, on_ns: int, off_ns: int) -> None:
        """Say that the device is in ``phase`` from ``on_ns`` to ``off_ns`` of true time."""
        ...

    def meter(self, name: str, rate_hz: float) -> Meter:
        """A simulated instrument that watches every installed rail."""
        ...


class Workload(Protocol):
    """What is streamed: samples, and what a recording says of where they come from."""

    @property
    def name(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def digest_sha256(self) -> str: ...
    @property
    def samples(self) -> Sequence[Sample]: ...
    @property
    def details(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True, eq=False)
class SampleSet:
    """A workload that is its samples and no more; see ``Workload``."""

    name: str
    task: str
    version: str
    digest_sha256: str
    samples: Sequence[Sample]
    details: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Streams(Protocol):
    """A workload that can be heard as one continuous stream."""

    def stream(
        self, window_s: float, stride_s: float, scene_s: float, duration_s: float, seed: int
    ) -> Sequence[Sample]:
        """Frames of ``window_s``, one every ``stride_s``, of a stream whose label changes every ``scene_s``.

        Frame k ends ``window_s + k * stride_s`` after the stream began; its label is what is heard at its end.
        """
        ...


@runtime_checkable
class Sequenced(Protocol):
    """A workload whose samples can be joined to longer sequences, for amortised power."""

    def sequences(self, seconds: float) -> Workload: ...


@runtime_checkable
class Exports(Protocol):
    """The module of a workload that writes one problem to a file, for ``rig workload export``."""

    def export(self, nodes: int, density: float, seed: int, out: Path) -> Mapping[str, Any]:
        """Draw the problem and write it to ``out``, whole or not at all; returns what the command says of it."""
        ...


class Problem(Protocol):
    """What a solver is given. The group ``rig.problems`` holds, by workload, a function from a kept payload to it."""

    def judge(self, solution: str) -> tuple[float, int]:
        """The cost of the ``solution`` that a reply states, and how many of the problem's constraints it violates."""
        ...
