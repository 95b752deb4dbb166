"""Optimization: solve each problem within a time, or until a cost is reached (NeuroBench, QUBO)."""

import math
from collections.abc import Iterator

from rig.analysis.solving.gap_to_target import OFFICIAL, by_preference, cost_at
from rig.bench.settings import positive, within
from rig.errors import refused
from rig.types import Budget, Issue, Rules, Step, Workload
from scenarios.idle_and_warmup import LONGEST_IDLE_S, MOST_REPEAT, chosen, framed


def optimization(
    workload: Workload,
    rules: Rules,
    metered: bool = False,
    *,
    timeout_s: float = 1.0,
    to_gap: float | None = None,
    solves: int = 5,
    repeat: int | None = None,
    window_s: float = 0.5,
    idle_s: float | None = None,
) -> Iterator[Step]:
    """Yield an idle window, each problem ``solves`` times for ``timeout_s`` each, and another idle window.

    ``to_gap`` ends a solve at this relative gap (0.05 for 5 %) to the problem's target. The target is the official one,
    else the specified one, else the best known, else another one. ``repeat`` loops a solve inside one span, which is a
    time between two stamps of the device. Without ``repeat`` and ``to_gap``, a run with a meter (``metered``) loops a
    short solve until the span lasts ``window_s``. A loop keeps the solution and progress of its first solve.

    Raises ``UsageError`` for options out of range, for labelled samples, which are no problems, and for ``to_gap``
    without a target.
    """
    idle = chosen(idle_s, rules.idle_s)
    positive(timeout_s=timeout_s, window_s=window_s)
    times = chosen(repeat, math.ceil(window_s / timeout_s) if metered and to_gap is None else 1)
    within(0, LONGEST_IDLE_S, idle_s=idle)
    within(0, math.inf, to_gap=chosen(to_gap, 0.0))
    within(1, math.inf, solves=solves)
    within(1, MOST_REPEAT, repeat=times)
    check_problems(workload)
    stops = {} if to_gap is None else stop_costs(workload, to_gap)
    return framed(_solves(workload, timeout_s, stops, solves, int(times)), workload, idle, 0)


def _solves(workload: Workload, timeout_s: float, stops: dict[str, float], solves: int, repeat: int) -> Iterator[Step]:
    for sample in workload.samples:
        budget = Budget(timeout_s, stops.get(sample.id))
        for _ in range(solves):
            yield Issue((sample,), repeat=repeat, budget=budget)


def stop_costs(workload: Workload, to_gap: float) -> dict[str, float]:
    """Return, for each sample id, the cost whose relative gap to the target is ``to_gap``.

    The target is the official one, else the target of the specified method, else the best known one, else the first
    other target in the workload's details. Raises ``UsageError``, which names the first problem without a target.
    """
    named = workload.details.get("targets") or {}
    costs: dict[str, float] = {}
    for sample in workload.samples:
        known = {name: float(named[name][sample.id]) for name in sorted(named) if sample.id in named[name]}
        if sample.target_cost is not None:
            known[OFFICIAL] = sample.target_cost
        if not known:
            notes = workload.details.get("notes") or ()
            what = f"problem {sample.id} has no target cost"
            raise refused("to_gap", to_gap, f"Leave to_gap out, or give a target. {' '.join(notes)}".rstrip(), what)
        costs[sample.id] = cost_at(to_gap, known[by_preference(known)[0]])
    return costs


def check_problems(workload: Workload) -> None:
    """Raise ``UsageError`` for a workload of labelled samples, which has nothing to optimize."""
    first = next(iter(workload.samples), None)
    if first is not None and first.label is not None:
        what = f"workload {workload.name} has samples to classify, not problems to optimize"
        raise refused("workload", workload.name, "Use --workload qubo-mis, or another scenario", what)
