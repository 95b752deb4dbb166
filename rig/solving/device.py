"""A QUBO solver on this computer as a device: a worker thread that keeps to budgets and tracks costs.

The span runs from the loaded problem to the end of the solver, so it includes the evaluation of costs. A solution
found after the deadline is not valid; its cost and the overrun are reported separately. The processor time of the
solver is reported too: on a busy host, other programs used the rest of the span.
"""

import math
import platform
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from rig.engine.blocking_device import BlockingDevice, Power
from rig.errors import DeviceError, DeviceTimeoutError, refused
from rig.types import Budget, DeviceInfo, Progress, Reply, Sample, Span

T = TypeVar("T")
PHASE = "solve"
NOTHING_LEFT = -math.inf
_TURN_S = 0.01
"""About one time slice (s) of the host's scheduler: a shorter step may be delayed by this much."""
_REMEMBERED_S = 3.0
"""Time constant (s of steps) with which the known pace fades."""
_LOOK_S = 0.5
"""Interval (s) at which a solve that may hang is checked."""
_MOST_RESERVED = 0.2
"""At most this share of a budget is reserved for a delay, so that one long delay does not spoil all later solves."""


class Pace:
    """Keeps the worst delay of a solver's last steps, relative to their expected duration.

    The delay is kept from one solve to the next, because a busy host stays busy.
    """

    def __init__(self) -> None:
        self._delay = 0.0  # seconds per second of work

    def step(self, expected_s: float, took_s: float) -> None:
        """Take the delay of a step into account, by its expected and its actual duration."""
        delay = (took_s - expected_s) / max(expected_s, _TURN_S)
        self._delay = max(delay, (1.0 - min(1.0, took_s / _REMEMBERED_S)) * self._delay)

    def spare_s(self, left_s: float, budget_s: float) -> float:
        """Return the expected duration of a step that ends within ``left_s`` even at the worst known pace."""
        return (left_s - min(self._delay * _TURN_S, _MOST_RESERVED * budget_s)) / (1.0 + self._delay)


class Tally:
    """One solve: its deadline, its best solution so far, and the progress to it.

    It starts with the empty set, which costs ``empty_cost``; without ``from_empty``, the empty set is the answer only
    if the solver offers nothing in time. ``seed`` is the solver's seed for this solve. The solver writes its parameters
    into ``tuning``, which is recorded with the answer. ``pace`` is the pace of earlier solves.
    """

    def __init__(
        self,
        nodes: int,
        budget: Budget,
        seed: int,
        closing: threading.Event,
        pace: Pace | None = None,
        empty_cost: float = 0,
        from_empty: bool = True,
    ) -> None:
        self._pace = pace or Pace()
        self._step: tuple[float | None, int, int] | None = None
        self.seed, self._budget, self._closing = seed, budget, closing
        self.tuning: dict[str, Any] = {}
        self._packed = np.packbits(np.zeros(nodes, np.uint8)).tobytes()
        self._late_cost: float | None = None
        self._stated_cost: float | None = None
        self._empty_cost = empty_cost
        self._cost = empty_cost if from_empty else math.inf
        self._processor_ns = time.thread_time_ns()
        self._on_ns = time.monotonic_ns()
        self._deadline_ns = self._on_ns + round((budget.timeout_s or 0.0) * 1e9)
        self._progress = [Progress(self._on_ns, float(empty_cost), self._packed)] if from_empty else []

    @property
    def stop_at_cost(self) -> float:
        """Return the cost at which the solve ends; minus infinity if there is none."""
        return -math.inf if self._budget.stop_at_cost is None else self._budget.stop_at_cost

    def left_s(self) -> float:
        """Return the seconds left; minus infinity once the cost to stop at is reached or the device closes."""
        if self._cost <= self.stop_at_cost or self._closing.is_set():
            return NOTHING_LEFT
        return (self._deadline_ns - time.monotonic_ns()) * 1e-9

    def past_s(self) -> float:
        """Return the seconds since the deadline; below zero before it."""
        return (time.monotonic_ns() - self._deadline_ns) * 1e-9

    def spare_s(self) -> float:
        """Return the longest expected duration (s) of a next step that ends in time even at the worst known pace.

        The first step of a solve may take all the time left, so that a solve has a step even on a slow host.
        """
        if self._step is None:
            return self.left_s()
        expected_s, began_ns, worked_ns = self._step
        if expected_s is None:
            expected_s = (time.thread_time_ns() - worked_ns) * 1e-9
        self._pace.step(expected_s, (time.monotonic_ns() - began_ns) * 1e-9)
        return self._pace.spare_s(self.left_s(), self._budget.timeout_s or 0.0)

    def begin(self, step_s: float | None = None) -> None:
        """Declare the expected duration of the step that begins now and ends at the next call of ``spare_s``.

        None means a step that watches the clock itself; its expected duration is its processor time.
        """
        self._step = step_s, time.monotonic_ns(), time.thread_time_ns()

    def offer(self, cost: float, solution: NDArray[Any], stated_cost: float | None = None) -> None:
        """Keep a solution (0/1, shape (nodes,)) with its cost if it is the best so far and in time.

        ``stated_cost`` is the cost that the solver states, if it differs from ``cost``; it is recorded with the answer.
        """
        if cost >= self._cost:
            return
        packed = np.packbits(solution).tobytes()
        now_ns = time.monotonic_ns()
        if now_ns > self._deadline_ns:
            self._late_cost = cost if self._late_cost is None else min(cost, self._late_cost)
            return
        self._cost, self._packed, self._stated_cost = cost, packed, stated_cost
        self._progress.append(Progress(now_ns, float(cost), packed))

    def reply(self, sample_id: str, schedule_depends_on_budget: bool, own_thread: bool = True) -> Reply:
        """Return the answer; the span ends now. Processor time is known only in the solver's ``own_thread``."""
        off_ns = time.monotonic_ns()
        processor_s = (time.thread_time_ns() - self._processor_ns) * 1e-9
        if not self._progress:
            self._cost = self._empty_cost
            self._progress.append(Progress(off_ns, float(self._cost), self._packed))
        output = {
            "cost": self._cost, "solution": self._packed.hex(), "budget_s": self._budget.timeout_s,
            "overrun_s": max(0, off_ns - self._deadline_ns) * 1e-9, "processor_s": processor_s if own_thread else None,
            "late_cost": self._late_cost, "seed": self.seed, "tuning": self.tuning,
            "schedule_depends_on_budget": schedule_depends_on_budget,
        }  # fmt: skip
        if self._stated_cost is not None:
            output["stated_cost"] = self._stated_cost
        return Reply(sample_id, output, (Span(PHASE, self._on_ns, off_ns),), tuple(self._progress))


@dataclass(frozen=True, slots=True)
class _Loaded(Generic[T]):
    nodes: int
    empty_cost: float
    value: T
    payload: Any


class SolverDevice(Generic[T]):
    """A device made of two functions: ``load`` prepares a problem, ``solve`` offers solutions until no time is left.

    ``problem_of`` makes the problem from a payload. ``fresh``, which is not timed, prepares the loaded problem for each
    solve. ``info.details`` states ``schedule_depends_on_budget``. ``longest_s`` is the longest budget, and
    ``default_s`` the budget of a solve with neither a timeout nor a cost to stop at. See ``solve_seed`` for the seeds,
    ``Tally`` for ``from_empty`` and ``blocking`` for ``power``. If a solve has not ended ``patience_s`` after its time,
    its best offer is the answer, and the device cannot be used any more. Raises ``UsageError`` for options out of
    range.
    """

    def __init__(
        self,
        info: DeviceInfo,
        load: Callable[[Any], T],
        solve: Callable[[T, Tally], None],
        *,
        seed: int,
        default_s: float,
        longest_s: float,
        problem_of: Callable[[NDArray[Any]], Any],
        fresh: Callable[[T], T] = lambda loaded: loaded,
        from_empty: bool = True,
        power: Power | None = None,
        patience_s: float = math.inf,
    ) -> None:
        checked_options(seed, default_s, longest_s)
        self._patience_s = patience_s
        self._solving: tuple[str, list[Reply], Tally] | None = None
        self._stuck: DeviceTimeoutError | None = None
        self._info, self._load, self._solve = info, load, solve
        self._problem_of, self._fresh, self._from_empty = problem_of, fresh, from_empty
        self._seed, self._default_s, self._longest_s = seed, default_s, longest_s
        self._loaded: dict[str, _Loaded[T]] = {}
        self._jobs: deque[tuple[_Loaded[T], Budget, int]] = deque()
        self._solves = 0
        self._pace = Pace()
        self._closing = threading.Event()
        self._worker = BlockingDevice(self._solved, info, None, power=power)
        self.power, self.draw_from = self._worker.power, self._worker.draw_from

    def info(self) -> DeviceInfo:
        return self._info

    def stage(self, samples: Sequence[Sample]) -> None:
        """Load these problems, replacing the previous ones. Raises ``DataError`` for a payload that is no problem."""
        before, self._loaded = self._loaded, {}
        for sample in samples:  # a loaded problem is not loaded again, to avoid work just before the span
            known = before.get(sample.id)
            same = known is not None and known.payload is sample.payload
            self._loaded[sample.id] = known if known and same else self._prepared(sample)

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        """Queue the samples. Raises ``UsageError`` for a budget that cannot be kept, ``DeviceError`` unless staged."""
        self.submit_repeated(samples, 1, None, budget)

    def submit_repeated(self, samples: Sequence[Sample], times: int, phase: str | None, budget: Budget | None) -> None:
        """Queue the samples, each to be solved ``times`` times in one span; the answer is that of the first solve.

        Also raises ``UsageError`` for a phase other than ``solve``, and ``DeviceTimeoutError`` after a solve that did
        not end.
        """
        if self._stuck is not None:
            raise self._stuck
        if phase not in (None, PHASE):
            raise refused("phase", phase, f"Known: {PHASE}")
        kept = kept_budget(budget, self._default_s, self._longest_s)
        unknown = [sample.id for sample in samples if sample.id not in self._loaded]
        if unknown:
            what = f"sample {unknown[0]} was not staged"
            raise DeviceError(what, field="sample_id", value=unknown[0], remedy="Stage it first")
        self._jobs.extend((self._loaded[sample.id], kept, times) for sample in samples)
        self._worker.submit(samples, None)

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        """Wait up to ``timeout_s`` for a reply. Raises the solver's exception, if there was one."""
        ready = self._worker.poll(min(timeout_s, _LOOK_S))
        if ready or self._solving is None or self._solving[-1].past_s() < self._patience_s:
            return ready
        return self._given_up(*self._solving)

    def _given_up(self, sample_id: str, replies: Sequence[Reply], tally: Tally) -> Sequence[Reply]:
        """Return the best answer of a solve that does not end. Its thread goes on, so the next solve is refused."""
        what = f"the solver has yielded nothing for {tally.past_s():.1f} s since its time was up, on sample {sample_id}"
        remedy = "Let it go on yielding, or return, within timeout_s"
        self._stuck, self._solving = DeviceTimeoutError(what, field="timeout_s", value=sample_id, remedy=remedy), None
        return [_on_end([*replies, tally.reply(sample_id, False, own_thread=False)])]

    def close(self) -> None:
        """End the worker, and the running solve when it next checks the time; a solver that hangs is abandoned."""
        self._closing.set()
        self._worker.close()

    def _prepared(self, sample: Sample) -> _Loaded[T]:
        problem = self._problem_of(sample.payload)
        empty_cost = problem.cost(np.zeros(problem.nodes, np.uint8))
        return _Loaded(problem.nodes, empty_cost, self._load(problem), sample.payload)

    def _solved(self, sample: Sample) -> Reply:
        """Solve a loaded problem within its budget, as often as its job states."""
        loaded, budget, times = self._jobs.popleft()
        first, self._solves = self._solves, self._solves + times
        replies: list[Reply] = []
        more = loaded.empty_cost, self._from_empty
        fresh = [self._fresh(loaded.value) for _ in range(times)]  # the span of a loop is over all of its solves
        for k, own in enumerate(fresh, first):
            tally = Tally(loaded.nodes, budget, solve_seed(self._seed, k), self._closing, self._pace, *more)
            self._solving = sample.id, replies, tally
            self._solve(own, tally)
            self._solving = None
            replies.append(tally.reply(sample.id, bool(self._info.details["schedule_depends_on_budget"])))
        return _on_end(replies)


def _on_end(replies: Sequence[Reply]) -> Reply:
    """Return the reply of the first of several solves in a row, with one span over all of them."""
    first, last = replies[0], replies[-1]
    if first is last:
        return first
    output = {**first.output, "repeated": len(replies), "overrun_s": max(r.output["overrun_s"] for r in replies)}
    had_s = [r.output["processor_s"] for r in replies]
    output["processor_s"] = None if None in had_s else sum(had_s)
    span = Span(PHASE, first.spans[0].on_tick, last.spans[0].off_tick, len(replies))
    return Reply(first.sample_id, output, (span,), first.progress)


def solve_seed(seed: int, k: int) -> int:
    """Return a seed of 31 bits for the k-th solve of a device opened with ``seed``."""
    return int(np.random.SeedSequence([seed, k]).generate_state(1)[0]) >> 1


def checked_options(seed: int, default_s: float, longest_s: float) -> None:
    """Raise ``UsageError`` for options of a solver that are out of range."""
    if not 0 <= seed < 2**31:
        raise refused("seed", seed, "Give a whole number from 0 to 2^31 - 1")
    for name, value, most in (("longest_s", longest_s, 1e6), ("default_s", default_s, longest_s)):
        if not 0 < value <= most:
            raise refused(name, value, f"Give seconds above 0 and up to {most:g}")


def solver_info(name: str, description: str, packages: Sequence[str], longest_s: float, **details: Any) -> DeviceInfo:
    """Return the info of a solver on this computer that uses ``packages``, with these ``details``."""
    details |= {"processor": platform.processor() or platform.machine()}
    more: dict[str, Any] = {"versions": {package: version(package) for package in packages}, "details": details}
    return DeviceInfo(name, "hardware", description, phases=(PHASE,), timeout_s=1.1 * longest_s + 30.0, **more)


def kept_budget(budget: Budget | None, default_s: float, longest_s: float) -> Budget:
    """Return the budget, always with a timeout. Raises ``UsageError`` for a budget that cannot be kept."""
    timeout_s, stop = (None, None) if budget is None else (budget.timeout_s, budget.stop_at_cost)
    if timeout_s is not None and not 0 < timeout_s <= longest_s:
        remedy = f"Give seconds above 0 and up to {longest_s:g} (option longest_s)"
        raise refused("timeout_s", timeout_s, remedy, f"the budget timeout_s is {timeout_s} s")
    if stop is not None and not math.isfinite(stop):
        raise refused("stop_at_cost", stop, "Give a finite number", f"the cost to stop at, stop_at_cost, is {stop}")
    unbound_s = default_s if stop is None else longest_s
    return Budget(unbound_s if timeout_s is None else timeout_s, stop)
