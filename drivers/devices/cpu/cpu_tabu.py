"""D-Wave's multistart tabu search (dwave-samplers) on this computer as a QUBO solver with a deadline.

The sampler's timeout is in whole milliseconds and limits the search of each read. It does not limit the set-up, which
grows with the square of the number of nodes and is measured when the graph is loaded. Each call makes one read, with
twice the time of the read before, or with the time that is left. If less time is left than the first read takes, the
read is one tabu search with the number of updates that fit, by a measured rate.
"""

from dataclasses import dataclass, replace
from typing import Any

from drivers.devices.cpu import dwave
from drivers.devices.cpu.dwave import Problem
from rig.solving.device import Tally
from rig.types import Device
from scenarios.workloads.qubo_mis.graph import Graph

NAME = "cpu-tabu"
TUNING = "tenure a quarter of the nodes and at most 20; reads of 0.02 s, then twice as long"
_FIRST_READ_MS = 20
_LONGEST_READ_MS = 2**30
_SHARE = 0.5
"""A read that is limited by updates is planned for this share of the remaining time: updates may be slower than
measured."""
_MEASURED_UPDATES = 100_000
_TICK_S = 1e-3
"""The step of the sampler's timeout; the sampler may exceed the timeout by one step."""


def open_device(*, seed: int = 0, default_s: float = 1.0, longest_s: float = 120.0) -> Device:
    """Open tabu search. The seed of solve number k is drawn from ``seed`` and k.

    ``default_s`` is the budget of a solve that has none. ``longest_s`` is the longest budget.
    Raises ``UsageError`` for options out of range, ``MissingExtraError`` without dwave-samplers.
    """
    return dwave.opened(
        NAME, "multistart tabu search", TUNING, lambda samplers: _Tabu(samplers.TabuSampler()),
        seed, default_s, longest_s,
    )  # fmt: skip


def tenure(nodes: int) -> int:
    """Return for how many updates a flip is forbidden: dwave-samplers' rule, a quarter of the nodes, at most 20."""
    return min(20, nodes // 4)


@dataclass(frozen=True)
class _Tabu:
    sampler: Any

    def load(self, graph: Graph) -> Problem:
        """Return the model, and the times of a call and of an update in its search."""
        problem = Problem(graph, graph.to_bqm())
        short_s = dwave.timed(lambda: self._read(problem, 0, None, updates=1))
        long_s = dwave.timed(lambda: self._read(problem, 0, None, updates=_MEASURED_UPDATES))
        # a delayed short call would make updates seem to take no time, and the last read too long
        return replace(problem, call_s=short_s, step_s=max(long_s - short_s, 0.25 * long_s) / _MEASURED_UPDATES)

    def solve(self, problem: Problem, tally: Tally) -> None:
        """Make longer and longer reads until the time left is too short for another read."""
        read_ms, read = _FIRST_READ_MS, 0
        tally.tuning = {"tenure": tenure(problem.graph.nodes), "first_read_s": read_ms * 1e-3, "reads_grow_by": 2}
        threshold = tally.stop_at_cost if tally.stop_at_cost > float("-inf") else None
        while (spare_s := tally.spare_s() - dwave.MARGIN * problem.call_s) >= 0:
            seed, fitting_ms = (tally.seed * 1009 + read) % 2**31, int((spare_s - _TICK_S) * 1e3)
            if fitting_ms >= _FIRST_READ_MS:
                tally.begin()
                found = self._read(problem, seed, threshold, timeout_ms=min(read_ms, fitting_ms))
            else:
                updates = 1 + int(_SHARE * spare_s / problem.step_s)
                tally.begin(problem.call_s + updates * problem.step_s)
                found = self._read(problem, seed, threshold, updates=updates)
            tally.offer(*found)
            read_ms, read = min(2 * read_ms, _LONGEST_READ_MS), read + 1

    def _read(
        self, problem: Problem, seed: int, threshold: float | None, *, timeout_ms: int | None = None, updates: int = 0
    ) -> tuple[int, Any]:
        """Make one read: of ``timeout_ms``, or without a timeout, of about the given number of updates."""
        short = {"num_restarts": 0, "coefficient_z_first": 0, "lower_bound_z": updates} if timeout_ms is None else {}
        options = {"timeout": timeout_ms, "seed": seed, "energy_threshold": threshold, **short}
        return dwave.read(self.sampler, problem, tenure=tenure(problem.graph.nodes), **options)
