"""Define the series of a result, from which pictures are drawn and figures of a session are computed."""

import math
from collections.abc import Mapping

from msgspec import Struct, field

from rig.analysis.result.quantity import FigureKey, Quantity
from rig.types import Floats


class RailSeries(Struct, frozen=True):
    """One rail for a picture: seconds since the run's start, and watts, shapes (n,)."""

    rail: str
    start_s: Floats
    end_s: Floats
    watts: Floats


class RateProbe(Struct, frozen=True):
    """One rate that a search tried, in samples per second, and whether its run kept the rules."""

    rate_hz: float
    held: bool
    latency: Quantity | None
    """The percentile of latency that the rules name; None if they name none, or if the run has no such figure."""


class Stream(Struct, frozen=True):
    """The answers of a stream in the order of completion, and its scenes.

    ``said`` holds the answers and ``at_s`` their times, shape (k,). ``probability`` has shape (k, classes). Scene
    ``scene[j]`` begins at ``onset_s[j]``, shape (m,). The first frame is due at ``begin_s``, and the stream ends at
    ``end_s``. Times are in seconds since the run's start.
    """

    at_s: Floats
    said: tuple[str, ...]
    classes: tuple[str, ...]
    probability: Floats
    onset_s: Floats
    scene: tuple[str, ...]
    begin_s: float
    end_s: float


class Solve(Struct, frozen=True):
    """One solve; ``seconds`` is its time, or the mean time if it was repeated in a loop.

    A claim is a better cost that the solver reports while it runs. ``at_s`` and ``cost_at``, shape (k,), are the times
    and costs of its claims. Times begin when the graph is loaded. ``cost`` is computed from the solution in the answer.
    It is NaN if it cannot be computed. ``honest`` is False if a cost in the answer or in a claim differs from the cost
    of its solution. ``budget_s`` is the scenario's budget, or NaN without one. ``over_s`` is the time by which the
    stamped span exceeded the budget. The span of a loop contains several solves, so ``over_s`` is then the overrun of
    the longest solve, if the answer states it. ``processor_s`` is the processor time within ``seconds`` that the answer
    states, or NaN. A claim does not count if it is later than the budget by more than a solve may overrun. ``astray``
    is True if a claim is stamped outside the span of the solve, or if a claim that counts is better than the answer.
    ``late_cost`` is the cost of the best solution found after the deadline. ``on_s`` is when the solve begins, in
    seconds since the run's start; NaN if it was repeated in a loop.
    """

    sample_id: str
    seconds: float
    budget_s: float
    claimed: float
    cost: float
    conflicts: int | None
    honest: bool
    at_s: Floats
    cost_at: Floats
    targets: Mapping[str, float]
    over_s: float = 0.0
    processor_s: float = math.nan
    astray: bool = False
    late_cost: float = math.inf
    on_s: float = math.nan


class Series(Struct, frozen=True):
    """Arrays for pictures; windows have shape (k, 2), in seconds since the run's start."""

    rails: tuple[RailSeries, ...]
    phase_windows_s: Mapping[str, Floats]
    warmup_windows_s: Floats
    idle_windows_s: Floats
    mark_windows_s: Floats
    execution_times_s: Floats
    """Execution time per inference of each issue, in the order of issue; shape (n,)."""
    requested_s: Floats
    """When each completed sample was requested; shape (n,)."""
    latency_s: Floats
    """Time from request to completion of the same samples; shape (n,)."""
    stream: Stream | None
    solves: tuple[Solve, ...]
    clock_reads: Mapping[str, Floats] = field(default_factory=dict)
    """For each clock that was read, shape (k, 3), in seconds: time, difference from the fit, half of the round trip."""
    trials: Mapping[FigureKey, tuple[Quantity, ...]] = field(default_factory=dict)
    """The figures that the rules compare between trials, one for each trial."""
    probes: tuple[RateProbe, ...] = ()
    """The rates that the search for the highest rate tried, in order."""
    executions: Mapping[str, Floats] = field(default_factory=dict)
    """For each phase, shape (k, 2 + rails): issue, seconds per inference, and mean watts of each rail, of each span."""
