"""Define the names of target costs, their order of preference, and the gap between a cost and its target."""

import math
from collections.abc import Iterable

from rig.errors import refused

OFFICIAL, SPECIFIED, BEST_KNOWN = "official", "specified", "best_known"
THRESHOLDS = (0.1, 0.05, 0.01)
"""The gaps for which time to solution is reported (NeuroBench, QUBO task and metrics)."""


def by_preference(names: Iterable[str]) -> list[str]:
    """Return each name once: first the official, specified and best known targets, then the others.

    The others are in the order in which they were given.
    """
    given, known = dict.fromkeys(names), (OFFICIAL, SPECIFIED, BEST_KNOWN)
    return [name for name in known if name in given] + [name for name in given if name not in known]


def gap(cost: float, target: float) -> float:
    """Return BKS-Gap = (c - c_target) / |c_target|, which is 0 at the target and positive for a worse cost.

    The published formula (NeuroBench, eq. 24) divides by c_target itself. c_target is negative, so by the formula a
    worse solution has a negative gap. The text beside the formula says the opposite: a solution that beats the target
    has a negative gap. The magnitude is the same; the sign here follows the text.

    Compare it with a threshold as ``gap(cost, target) <= 0.05``. For whole costs with a gap of exactly 0.05, the
    division gives the same floating-point number as 0.05. Raises ``UsageError`` for a target of 0, or for numbers that
    are not finite.
    """
    if not (math.isfinite(target) and target != 0):
        what = f"a gap to a target cost of {target} is not defined"
        remedy = "Give the cost of the best known solution: -1 or less for any graph with a node"
        raise refused("target", target, remedy, what)
    if not math.isfinite(cost):
        what = f"the gap of a cost of {cost} is not defined"
        raise refused("cost", cost, "Give the cost of a solution; the cost of the empty set is 0", what)
    return (cost - target) / abs(target)


def cost_at(gap: float, target: float) -> float:
    """Return the cost whose gap to ``target`` is ``gap``."""
    return target + gap * abs(target)
