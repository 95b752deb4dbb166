"""How far a cost is from its target, as a share of the target."""

from __future__ import annotations

import math

from rig.errors import UsageError

THRESHOLDS = (0.1, 0.05, 0.01)
"""The gaps for which time to solution is reported (NeuroBench, QUBO task and metrics)."""


def gap(cost: float, target: float) -> float:
    """BKS-Gap = (c - c_target) / |c_target|: 0 at the target, positive when worse, negative when better.

    The published formula (NeuroBench, eq. 24) divides by c_target itself, which is negative, so read literally a
    worse solution comes out negative; the sentences beside it want negative for a solution that beats the target.
    The magnitude is the same, the sign here is the one that those sentences mean.

    Compare it with a threshold as ``gap(cost, target) <= 0.05``: for whole costs the division rounds to the very
    number that 0.05 is when the gap is exactly that. Raises ``UsageError`` for a target of 0, or for numbers that
    are not finite.
    """
    if not (math.isfinite(target) and target != 0):
        raise UsageError(
            f"a gap to a target cost of {target} is not defined",
            field="target",
            value=target,
            remedy="Give the cost of the best known solution; a graph with any node has one of -1 or less",
        )
    if not math.isfinite(cost):
        raise UsageError(
            f"the gap of a cost of {cost} is not defined",
            field="cost",
            value=cost,
            remedy="Give the cost of a solution; the cost of the empty set is 0",
        )
    return (cost - target) / abs(target)
