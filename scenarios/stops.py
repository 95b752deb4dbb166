"""Compute the cost at which a solver may stop, because the cost is close enough to the target of the problem."""

from __future__ import annotations

from rig.analysis.solving.targets import OFFICIAL, by_preference
from rig.errors import refused
from rig.types import Workload


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
        target = known[by_preference(known)[0]]
        costs[sample.id] = target + to_gap * abs(target)
    return costs


def check_problems(workload: Workload) -> None:
    """Raise ``UsageError`` for a workload of labelled samples, which has nothing to optimize."""
    first = next(iter(workload.samples), None)
    if first is not None and first.label is not None:
        what = f"workload {workload.name} has samples to classify, not problems to optimize"
        raise refused("workload", workload.name, "Use --workload qubo-mis, or another scenario", what)
