"""A QUBO solver on this computer as a device: a worker thread that keeps budgets and tracks costs.

The span runs from the loaded graph to the end of the solver, so that evaluating costs counts as solving. A solution
that is found after the deadline does not count; its cost and the overrun are reported separately.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from rig.errors import DeviceError, UsageError
from rig.types import Budget, DeviceInfo, Progress, Reply, Sample, Span
from scenarios.workloads.qubo_mis.graph import Graph, from_payload

T = TypeVar("T")
PHASE = "solve"
NOTHING_LEFT = -math.inf


class Tally:
    """One solve: its deadline, its best solution so far, and the progress to it.

    It starts with the empty set, which costs 0. ``seed`` is the solver's for this solve. The solver writes its
    parameters into ``tuning``, which is recorded with the answer.
    """

    def __init__(self, nodes: int, budget: Budget, seed: int, closing: threading.Event) -> None:
        self.seed, self._budget, self._closing = seed, budget, closing
        self.tuning: dict[str, Any] = {}
        self._packed = np.packbits(np.zeros(nodes, np.uint8)).tobytes()
        self._late_cost: int | None = None
        self._cost = 0
        self._on_ns = time.monotonic_ns()
        self._deadline_ns = self._on_ns + round((budget.timeout_s or 0.0) * 1e9)
        self._progress = [Progress(self._on_ns, 0.0, self._packed)]

    @property
    def stop_at_cost(self) -> float:
        """The cost that ends the solve; minus infinity when none does."""
        return -math.inf if self._budget.stop_at_cost is None else self._budget.stop_at_cost

    def left_s(self) -> float:
        """Seconds left; minus infinity once the cost to stop at is reached or the device closes."""
        if self._cost <= self.stop_at_cost or self._closing.is_set():
            return NOTHING_LEFT
        return (self._deadline_ns - time.monotonic_ns()) * 1e-9

    def offer(self, cost: int, solution: NDArray[Any]) -> None:
        """Keep a solution (0/1, shape (nodes,)) with its cost if it is the best so far and in time."""
        if cost >= self._cost:
            return
        packed = np.packbits(solution).tobytes()
        now_ns = time.monotonic_ns()
        if now_ns > self._deadline_ns:
            self._late_cost = cost if self._late_cost is None else min(cost, self._late_cost)
            return
        self._cost, self._packed = cost, packed
        self._progress.append(Progress(now_ns, float(cost), packed))

    def reply(self, sample_id: str, schedule_depends_on_budget: bool) -> Reply:
        """The answer; the span ends now."""
        off_ns = time.monotonic_ns()
        output = {
            "cost": self._cost,
            "solution": self._packed.hex(),
            "budget_s": self._budget.timeout_s,
            "overrun_s": max(0, off_ns - self._deadline_ns) * 1e-9,
            "late_cost": self._late_cost,
            "seed": self.seed,
            "tuning": self.tuning,
            "schedule_depends_on_budget": schedule_depends_on_budget,
        }
        return Reply(sample_id, output, (Span(PHASE, self._on_ns, off_ns),), tuple(self._progress))


class SolverDevice(Generic[T]):
    """A device of two functions: ``load`` prepares a graph, ``solve`` offers solutions until no time is left.

    ``info.details`` states ``schedule_depends_on_budget``. ``longest_s`` is the longest budget, ``default_s`` that of a
    solve with neither a timeout nor a cost to stop at. See ``solve_seed`` for the seeds.
    """

    def __init__(
        self,
        info: DeviceInfo,
        load: Callable[[Graph], T],
        solve: Callable[[T, Tally], None],
        *,
        seed: int,
        default_s: float,
        longest_s: float,
    ) -> None:
        self._info, self._load, self._solve = info, load, solve
        self._seed, self._default_s, self._longest_s = seed, default_s, longest_s
        self._loaded: dict[str, tuple[int, T, Any]] = {}
        self._todo: queue.SimpleQueue[tuple[str, tuple[int, T, Any], Budget, int] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Reply | Exception] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._worker: threading.Thread | None = None

    def info(self) -> DeviceInfo:
        """What was declared."""
        return self._info

    def stage(self, samples: Sequence[Sample]) -> None:
        """Load these graphs in place of the previous ones. Raises ``DataError`` for a payload that is not a graph."""
        before, self._loaded = self._loaded, {}
        for sample in samples:  # a loaded graph is not loaded again: that would be work just before the span
            known = before.get(sample.id)
            same = known is not None and known[2] is sample.payload
            self._loaded[sample.id] = known if known and same else self._prepared(sample)

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        """Queue the samples. Raises ``UsageError`` for a budget that cannot be kept, ``DeviceError`` unless staged."""
        self.submit_repeated(samples, 1, None, budget)

    def submit_repeated(self, samples: Sequence[Sample], times: int, phase: str | None, budget: Budget | None) -> None:
        """Queue the samples, each to be solved ``times`` times in one span; the answer is that of the first solve.

        Raises ``UsageError`` also for a phase that is not the only one.
        """
        if phase not in (None, PHASE):
            raise UsageError(f"there is no phase {phase!r}", field="phase", value=phase, remedy=f"Known: {PHASE}")
        kept = self._checked(budget)
        unknown = [sample.id for sample in samples if sample.id not in self._loaded]
        if unknown:
            raise DeviceError(
                f"sample {unknown[0]} was not staged", field="sample_id", value=unknown[0], remedy="Stage it first"
            )
        if self._worker is None:
            # a daemon, so that a solver that hangs cannot keep the process alive
            self._worker = threading.Thread(target=self._work, name=f"device {self._info.name}", daemon=True)
            self._worker.start()
        for sample in samples:
            self._todo.put((sample.id, self._loaded[sample.id], kept, times))

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        """Wait up to ``timeout_s`` for the next reply. Raises the solver's exception, if there was one."""
        try:
            item = self._done.get(timeout=max(timeout_s, 0.0))
        except queue.Empty:
            return []
        if isinstance(item, Exception):
            raise item
        return [item]

    def close(self) -> None:
        """End the running solve at its next look at the time, and the worker; a solver that hangs is abandoned."""
        self._closing.set()
        self._todo.put(None)
        if self._worker is not None:
            self._worker.join(timeout=0.05)

    def _prepared(self, sample: Sample) -> tuple[int, T, Any]:
        graph = from_payload(sample.payload)
        return graph.nodes, self._load(graph), sample.payload

    def _checked(self, budget: Budget | None) -> Budget:
        """The budget, with a timeout in any case. Raises ``UsageError`` for one that cannot be kept."""
        timeout_s, stop = (None, None) if budget is None else (budget.timeout_s, budget.stop_at_cost)
        if timeout_s is not None and not 0 < timeout_s <= self._longest_s:
            remedy = f"Give seconds above 0 and up to {self._longest_s:g} (option longest_s)"
            raise UsageError(
                f"the budget timeout_s is {timeout_s} s", field="timeout_s", value=timeout_s, remedy=remedy
            )
        if stop is not None and not math.isfinite(stop):
            raise UsageError(
                f"the cost to stop at, stop_at_cost, is {stop}",
                field="stop_at_cost",
                value=stop,
                remedy="Give a finite number",
            )
        unbound_s = self._default_s if stop is None else self._longest_s
        return Budget(unbound_s if timeout_s is None else timeout_s, stop)

    def _work(self) -> None:
        depends = bool(self._info.details["schedule_depends_on_budget"])
        solves = 0
        while (job := self._todo.get()) is not None and not self._closing.is_set():
            sample_id, (nodes, loaded, _), budget, times = job
            replies = []
            try:
                for k in range(times):
                    tally = Tally(nodes, budget, solve_seed(self._seed, solves + k), self._closing)
                    self._solve(loaded, tally)
                    replies.append(tally.reply(sample_id, depends))
                self._done.put(_on_end(replies))
            except Exception as error:
                self._done.put(error)
            solves += times


def _on_end(replies: Sequence[Reply]) -> Reply:
    """The reply of the first of several solves in a row, with one span over all of them."""
    first, last = replies[0], replies[-1]
    if first is last:
        return first
    output = {**first.output, "repeated": len(replies), "overrun_s": max(r.output["overrun_s"] for r in replies)}
    span = Span(PHASE, first.spans[0].on_tick, last.spans[0].off_tick, len(replies))
    return Reply(first.sample_id, output, (span,), first.progress)


def solve_seed(seed: int, k: int) -> int:
    """A seed of 31 bits for the k-th solve of a device opened with ``seed``."""
    return int(np.random.SeedSequence([seed, k]).generate_state(1)[0]) >> 1


def checked_options(seed: int, default_s: float, longest_s: float) -> None:
    """Raises ``UsageError`` for options of a solver that are out of range."""
    if not 0 <= seed < 2**31:
        raise UsageError(f"seed {seed}", field="seed", value=seed, remedy="Give a whole number from 0 to 2^31 - 1")
    for field, value, most in (("longest_s", longest_s, 1e6), ("default_s", default_s, longest_s)):
        if not 0 < value <= most:
            raise UsageError(
                f"{field} is {value}", field=field, value=value, remedy=f"Give seconds above 0 and up to {most:g}"
            )
