"""The data types, steps and protocols of the rig. Of the rig it imports only ``network`` and ``driver_call_timeouts``.

Units are SI and part of the name: ``_s``, ``_w``, ``_j``, ``_hz``. Host time is an integer number of nanoseconds
(``_ns``) on the only host clock of a run. ``_tick`` is a count of the clock that is named with it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, get_args, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from rig.driver_call_timeouts import DEFAULT_TIMEOUT_S
from rig.network.description import Activity, NetworkInfo

Mode = Literal["hardware", "simulator"]
TraceKind = Literal["mean", "point", "cumulative", "edges"]
Pin = Literal["level", "stamp", "toggle"]
Unit = Literal["W", "A", "J", "V"]
MARK_PHASE = "mark"
CLOCK_TOLERANCE = 1e-3
"""The default for the largest relative deviation of a clock's rate from its nominal rate."""
Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]
Indices = NDArray[np.int64]
_MAX = 1e15
Number = Annotated[float, msgspec.Meta(ge=-_MAX, le=_MAX)]
"""A number on a bench, small enough that its powers do not overflow.

The bounds are checked when a recording is read or a rail is declared, not by the constructors.
"""
Size = Annotated[float, msgspec.Meta(ge=0.0, le=_MAX)]
Name = Annotated[str, msgspec.Meta(min_length=1)]


# ---- what is asked ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """One input that a device processes.

    ``payload`` is any array. ``rate_hz`` is set for a time series. ``inferences`` is the number of inferences in the
    sample (a 10 s sequence of 1 s scenes: 10). For a frame of a stream, ``label_age_s`` is how long its label had been
    true when the frame ended (s). ``cut_from`` names the clip of which the sample is a part; in the interval of an
    accuracy, the parts of a clip count as one sample. With ``keep``, the payload is stored with the recording, because
    the answers can only be checked with it. With ``learn``, a device that learns takes the payload, shape (shots, ...),
    as examples of the label, in its phase ``learning``.
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
    cut_from: str | None = None
    keep: bool = False
    learn: bool = False


@dataclass(frozen=True, slots=True)
class Budget:
    """A solver's budget: it stops after ``timeout_s``, or at a cost of ``stop_at_cost`` or less."""

    timeout_s: float | None = None
    stop_at_cost: float | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """The step that reads every clock many times. A device that can pulse its power does so if there is a meter."""


@dataclass(frozen=True, slots=True)
class Idle:
    """The step that leaves the configured device idle for ``seconds``, as an idle window."""

    seconds: float


class Issue(msgspec.Struct, frozen=True, gc=False):
    """The step that hands samples to the device.

    If ``due_ns`` is None, the samples are issued as soon as the device is free, and the step waits for the answers.
    Otherwise the samples are due at ``due_ns``, even if the device is busy, and the scenario continues. The first step
    with a due time is due at once; later steps follow it by the difference of their due times. Samples that are due
    together are issued together, up to the largest batch of the device. ``repeat`` loops the work inside one span.
    ``phase`` restricts it to one phase. Issues with ``warmup`` are recorded but are not part of any result. With
    ``queue``, a sample is dropped if this many samples wait for an answer at its due time.
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

    A field that is None requires nothing. ``percentile``, between 0 and 1, is the share of latencies that an estimate
    or a bound refers to. ``in_time_share`` is the share of frames that must meet their deadline. ``late_share`` limits
    the 99th percentile of the scheduling delay, relative to the latency bound or deadline. ``gap_distance`` limits the
    Kolmogorov distance between the scheduled gaps of samples and the same gaps changed by this delay.
    ``trial_tolerance`` limits how far a trial may be from the mean of the trials, relative to this mean. ``reports``
    names figures (``FigureKey.quantity``) that a result must state.
    """

    name: str
    scenario: str
    source: str
    submittable: bool
    idle_s: float = 2.0
    warmup: int | None = None
    """The largest allowed number of warm-up samples."""
    min_duration_s: float = 0.0
    min_queries: int = 1
    whole_set: bool = False
    percentile: Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)] | None = None
    early_stopping: bool = False
    in_time_share: float | None = None
    late_share: float | None = None
    gap_distance: float | None = None
    trials: int = 1
    trial_tolerance: float | None = None
    hardware_only: bool = False
    session: bool = False
    """A result is a session with runs for performance and for power; a single run is no result."""
    benchmark: bool = False
    """The workload declares its benchmark, and every parameter has a value that this benchmark allows."""
    fresh_seeds: bool = False
    """No two solves of a problem have the same seed."""
    one_tuning: bool = False
    """The solver has the same tuning for all problems of a run, which have one size and density."""
    outline: bool = False
    """The device declares its architecture, its algorithm and the tuning of the algorithm."""
    at_a_time: int | None = None
    """At most this many samples may wait for an answer together."""
    deadline_strides: float | None = None
    """The longest deadline of a frame, in strides of the stream."""
    preprocessing: bool = False
    """Pre-processing is measured separately, or the device declares why there is none."""
    reports: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    """The sentence behind a rule, by field or figure. ``*`` stands for every rule that is not named."""

    def source_of(self, rule: str = "*") -> str:
        """Return the sentence behind a rule, or "" if the set names none."""
        return self.sources.get(rule) or self.sources.get("*", "")


# ---- what comes back ----------------------------------------------------------------------


UNSTAMPED = -(2**63)
"""The value of both ticks of a span that is marked only on a pin (``DeviceInfo.spans_on_pin``)."""


class Span(msgspec.Struct, frozen=True, gc=False):
    """One whole execution of a phase, by the device's clock; ``executions`` is above 1 if the sample ran in a loop."""

    phase: str
    on_tick: int
    off_tick: int
    executions: int = 1


class Progress(msgspec.Struct, frozen=True, gc=False):
    """A solver's claim at a tick: a cost, and its solution packed by ``numpy.packbits``."""

    tick: int
    cost: float
    solution: bytes


class Reply(msgspec.Struct, frozen=True, gc=False):
    """The device's answer to one sample.

    ``output`` is any value that JSON can represent. A simulator of a declared network (``DeviceInfo.network``) adds
    the ``activity`` of one pass over the sample; ``rig.network.counting.count`` computes it. If each sample is a
    network of its own, such as a graph to be solved, the reply includes this ``network``.
    """

    sample_id: str
    output: Any
    spans: tuple[Span, ...] = ()
    progress: tuple[Progress, ...] = ()
    activity: Activity | None = None
    network: NetworkInfo | None = None


@dataclass(frozen=True, slots=True)
class Bracket:
    """One reading of a clock between two host stamps; the clock showed ``tick`` at some moment between them."""

    before_ns: int
    tick: int
    after_ns: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Readings of one rail that became ready together, in the rail's raw unit.

    ``value`` has shape (n,). Without ticks, the readings continue the rail's uniform grid. With ticks (int64, shape
    (n,)), each reading covers ``start_tick`` to ``end_tick`` of the meter's clock. ``flags`` (uint8) is 1 where the
    instrument reported overload. For a logic input (kind ``edges``), a reading is an edge: ``value`` is the level after
    it, 1 or 0, and both ticks are the tick of the edge. The engine copies what a meter returns, so the meter may
    refill its arrays at the next call.
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
    tick_hz: Annotated[float, msgspec.Meta(ge=1e-6, le=1e15)]
    """Nominal ticks per second (Hz)."""
    tolerance: Annotated[float, msgspec.Meta(ge=0.0, le=0.5)] = CLOCK_TOLERANCE
    """The largest relative deviation of the true rate from the nominal rate."""


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """How samples are prepared for inference: in timed phases, by a front end that listens all the time, or not at all.

    The power of a listening front end is part of idle. ``rails`` supply only the front end, so its power is known.
    """

    phases: tuple[str, ...] = ()
    rails: tuple[str, ...] = ()
    none: str = ""
    """Why there is no pre-processing to measure."""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A description of the system under test.

    If ``clock`` is None, spans are stamped in host nanoseconds. ``max_pending`` is the most unanswered samples that the
    device can hold; None means one batch at a time. If a sample is requested twice, the device begins the earlier
    request first.
    """

    name: str
    mode: Mode
    description: str = ""
    clock: ClockInfo | None = None
    phases: tuple[str, ...] = ("inference",)
    max_batch: int = 1
    max_pending: int | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    onboard_meter: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Digest of each thing that affects the result (model, calibration, firmware)."""
    details: Mapping[str, Any] = field(default_factory=dict)
    spans_on_pin: bool = False
    """The device does not stamp spans but marks each on a pin, which a meter must record; ``clock`` is None."""
    schedule_depends_on_budget: bool | None = None
    """Whether the time that a solver gets changes how it works; None means not stated."""
    algorithm: Mapping[str, Any] = field(default_factory=dict)
    """What the device runs: algorithm, model, encoder, network, tuning, training, solver, parameters."""
    preprocessing: Preprocessing | None = None
    """How samples are pre-processed; None means not stated."""
    network: NetworkInfo | None = None
    """The deployed network, from which its complexity is computed; None means not stated."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """The conversion of raw readings to watts: ``p = x * v - x**2 * r`` for amperes, ``p = x`` for watts.

    ``supply_v`` is the voltage before the meter. ``burden_ohm`` is the resistance of the shunt. Instead of a constant
    voltage, ``supply_rail`` can name a rail of volts in the same run; its readings are then multiplied with the
    readings in amperes. From a rail of volts alone, no power is computed. Raises ``ValueError`` for an unknown unit.
    """

    unit: Unit = "W"
    """Unit of a reading. J is for a counter, which starts at any value and does not wrap or reset within a trace."""
    supply_v: Number | None = None
    """For a current: the voltage before the meter (V)."""
    burden_ohm: Size = 0.0
    """For a current: the resistance of the shunt (ohm)."""
    supply_rail: str | None = None
    """For a current: a rail of volts in the same run, averaged over each reading, instead of ``supply_v``."""

    def __post_init__(self) -> None:
        if self.unit not in (units := get_args(Unit)):
            raise ValueError(f"a rail's unit is one of {', '.join(units)}, not {self.unit!r}: convert its readings")


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Limits (not standard deviations) of the error, from the instrument's calibration.

    |error| stays below ``of_reading * |reading| + offset``, with the offset in the rail's raw unit. This holds for each
    reading. How the errors of readings at different levels are related is known only if ``linearity`` is stated.
    """

    of_reading: Size
    """Limit relative to the reading."""
    offset: Size
    """Limit in the raw unit; of a counter, in W."""
    source: str = ""
    """The origin of the limits."""
    linearity: Size | None = None
    """Limit of the error beyond gain and offset, in the raw unit; None: not stated, or ranges change."""


@dataclass(frozen=True, slots=True)
class Rail:
    """One measured supply, or a logic input beside it; times are in seconds.

    ``accuracy`` None means not stated; it is never taken as zero. For a logic input (kind ``edges``),
    ``rate_hz`` is its sampling rate (0: edges are stamped to a tick). The tick of an edge is that of the first sample
    with the new level. Fields about watts have no meaning for a logic input.
    """

    name: Name
    """Name of the supply, unique in the run."""
    kind: TraceKind = "mean"
    """``mean`` from start to end, ``point`` at the end, ``cumulative``: a counter read at the end, or ``edges``."""
    conversion: Conversion = Conversion()
    """How readings become watts."""
    rate_hz: Size = 0.0
    """Nominal readings per second (Hz), 0 if irregular. Readings must mostly be 0.5 to 20 periods apart."""
    aperture_s: Size | None = None
    """Time in each interval during which the meter measures (s); None means the whole interval."""
    filter_tau_s: Size = 0.0
    """Time constant of a single-pole filter before the converter (s)."""
    resolution: Size | None = None
    """The smallest step of a reading, in the raw unit."""
    range_max: Number | None = None
    """Readings of at least this are overload; in the raw unit."""
    accuracy: Accuracy | None = None
    """Limits from the calibration; None means not stated, and the report says so."""
    gain_id: str | None = None
    """One name for all rails that share a gain error (one shunt, one reference)."""
    pin: Pin | None = None
    """How the device uses the pin; None means not stated, and the edges are not used for alignment.

    ``level``: high during each span. ``stamp``: a falling edge when a span begins and when it ends. ``toggle``: the
    level changes when a span begins and when it ends.
    """
    pin_lag_s: Size = 0.0
    """The pin may lag or lead what it marks by at most this; a limit, like the limits of ``Accuracy``."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The certificate of an instrument's last calibration, and its date (ISO 8601)."""

    certificate: str
    date: str | None = None


@dataclass(frozen=True, slots=True)
class MeterInfo:
    """What a meter is, what it measures and what it leaves out."""

    name: str
    mode: Mode
    clock: ClockInfo
    rails: tuple[Rail, ...]
    omitted: tuple[str, ...] = ()
    description: str = ""
    buffer_s: float | None = None
    """Time after which an instrument that is not drained loses readings."""
    versions: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    serial_number: str | None = None
    firmware: str | None = None
    calibration: Calibration | None = None


# ---- what a driver implements -------------------------------------------------------------


class Clock(Protocol):
    """The host's monotonic clock, or the virtual clock of a simulated bench."""

    def now_ns(self) -> int: ...
    def sleep_until(self, ns: int) -> None: ...


class Device(Protocol):
    """A system under test; ``stage`` loads samples and is not timed, and ``submit`` must not block."""

    def info(self) -> DeviceInfo: ...
    def stage(self, samples: Sequence[Sample]) -> None: ...
    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None: ...
    def poll(self, timeout_s: float) -> Sequence[Reply]: ...
    def close(self) -> None: ...


class Meter(Protocol):
    """An instrument.

    ``start`` triggers it and returns the bracket of its first tick. ``read`` returns the readings that are ready,
    possibly none, without waiting. ``stop`` returns the rest.
    """

    def info(self) -> MeterInfo: ...
    def start(self) -> Bracket: ...
    def read(self) -> Sequence[Chunk]: ...
    def stop(self) -> Sequence[Chunk]: ...
    def close(self) -> None: ...


@runtime_checkable
class Clocked(Protocol):
    """A device or meter whose clock can be read at any time outside a span."""

    def timer(self) -> int: ...


@runtime_checkable
class Marks(Protocol):
    """A device that can raise its power for about ``seconds``; it returns this pulse as a span on its own clock."""

    def pulse(self, seconds: float) -> Span: ...


@runtime_checkable
class Repeats(Protocol):
    """A device that can loop a sample, or one phase of it, without the host."""

    def submit_repeated(
        self, samples: Sequence[Sample], times: int, phase: str | None, budget: Budget | None
    ) -> None: ...


class SimulatedBench(Protocol):
    """A simulated bench: what a simulated device does becomes the power that its meter sees."""

    clock: Clock

    def install(self, idle_w: Mapping[str, float], phase_w: Mapping[str, Mapping[str, float]]) -> None:
        """Declare watts at idle by rail, and watts in each phase: ``phase_w[phase][rail]``."""

    def occupy(self, phase: str, on_ns: int, off_ns: int) -> None:
        """Declare that the device is in ``phase`` from ``on_ns`` to ``off_ns`` of true time."""

    def begin(self, phase: str, on_ns: int) -> Callable[[int], None]:
        """Declare that the device is in ``phase`` from ``on_ns``; a call of the returned function declares the end."""

    def meter(self, name: str, rate_hz: float) -> Meter:
        """Return a simulated instrument that measures every installed rail."""

    def energy_j(self, on_ns: int, off_ns: int, rail: str | None = None) -> float:
        """Return the exact energy of one rail, or of all, between two moments."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a benchmark: its values in a workload, the allowed ones, and the sentence that allows them."""

    found: tuple[float | str | None, ...]
    allowed: tuple[float | str | None, ...]
    source: str = ""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The benchmark of a workload: what it allows, and what the workload has.

    ``scenarios`` are those in which the benchmark presents its task. ``options`` has the allowed values of options of
    the scenario; their ``found`` is empty. ``baselines`` has the versions of software that the published baselines
    name, by distribution.
    """

    name: str
    scenarios: Parameter
    parameters: Mapping[str, Parameter]
    options: Mapping[str, Parameter] = field(default_factory=dict)
    baselines: Mapping[str, str] = field(default_factory=dict)


class Workload(Protocol):
    """What is streamed: samples, and what a recording must state about their origin.

    A workload of a benchmark also has the attribute ``benchmark``, a ``Benchmark``.
    """

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
    """A workload that is a sequence of samples and their description; see ``Workload``."""

    name: str
    task: str
    version: str
    digest_sha256: str
    samples: Sequence[Sample]
    details: Mapping[str, Any] = field(default_factory=dict)
    benchmark: Benchmark | None = None


@runtime_checkable
class Streams(Protocol):
    """A workload that can be played as one continuous stream."""

    def stream(
        self, window_s: float, stride_s: float, scene_s: float, duration_s: float, seed: int
    ) -> Sequence[Sample]:
        """Return frames of ``window_s``, one every ``stride_s``, of a stream whose label changes every ``scene_s``.

        Frame k ends ``window_s + k * stride_s`` after the stream began. The label of a frame is the stream's label at
        the end of the frame.
        """


@runtime_checkable
class Sequenced(Protocol):
    """A workload whose samples can be joined into longer sequences, for amortised power."""

    def sequences(self, seconds: float) -> Workload: ...


@runtime_checkable
class Exports(Protocol):
    """The module of a workload that writes one problem to a file, for ``rig workload export``."""

    def export(self, nodes: int, density: float, seed: int, out: Path) -> Mapping[str, Any]:
        """Draw the problem and write it to ``out``, completely or not at all.

        Returns what the command prints about it.
        """


class Problem(Protocol):
    """What a solver must solve.

    The entry point of a workload or task in the group ``rig.problems`` makes the problem from a stored payload.
    """

    def judge(self, solution: str) -> tuple[float, int | None]:
        """Return the cost of the ``solution`` in a reply, and how many constraints of the problem it violates.

        The number is None for a problem without constraints.
        """
