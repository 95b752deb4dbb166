"""Optimization: solve each problem within a time, or until a cost is reached (NeuroBench, QUBO)."""

from __future__ import annotations

from collections.abc import Iterator

from rig.errors import UsageError
from rig.types import Budget, Issue, Rules, Sample, Step, Workload
from scenarios.steps import at_least, chosen, framed, positive


def optimization(
    workload: Workload,
    rules: Rules,
    *,
    timeout_s: float = 1.0,
    to_gap: float | None = None,
    solves: int = 5,
    repeat: int = 1,
    idle_s: float | None = None,
) -> Iterator[Step]:
    """Idle, each problem ``solves`` times for ``timeout_s`` each, idle. The device draws a new seed for each solve.

    ``to_gap`` ends a solve that comes that close to the problem's target, relative (0.05 for 5 %). ``repeat``
    loops a solve inside one span where the time is too short for the meter.
    """
    idle = chosen(idle_s, rules.idle_s)
    at_least(idle_s=(idle, 0.0), solves=(solves, 1), repeat=(repeat, 1), to_gap=(chosen(to_gap, 0.0), 0.0))
    positive(timeout_s=timeout_s)
    return framed(_solves(workload, timeout_s, to_gap, solves, repeat), workload, idle, 0)


def _solves(workload: Workload, timeout_s: float, to_gap: float | None, solves: int, repeat: int) -> Iterator[Step]:
    for sample in workload.samples:
        budget = Budget(timeout_s, None if to_gap is None else _stop_at(sample, to_gap))
        for _ in range(solves):
            yield Issue((sample,), repeat=repeat, budget=budget)


def _stop_at(sample: Sample, to_gap: float) -> float:
    if sample.target_cost is None:
        raise UsageError(
            f"problem {sample.id} has no target to come close to",
            field="to_gap",
            value=to_gap,
            remedy="Leave to_gap out, or choose a problem of the published grid",
        )
    return sample.target_cost + to_gap * abs(sample.target_cost)
