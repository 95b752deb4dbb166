"""Percentiles of a finite sample, with distribution-free intervals from its order statistics."""

from __future__ import annotations

import math

import numpy as np

from rig.analysis.result.distributions import binomial_chances
from rig.analysis.result.quantity import Component, Quantity
from rig.types import Floats

UNBOUND = "nearest rank; too few to bound it"
"""The method of a percentile if there are too few values for an interval."""


def binomial_quantile(chance: float, n: int, p: float) -> int:
    """Return the quantile of a binomial count of ``n`` cases at the probability ``chance``."""
    count, reached = binomial_chances(n, p)
    return int(count[np.searchsorted(reached, chance)])


def nearest_rank(ordered: Floats, percentile: float) -> float:
    """Return the smallest value that is not exceeded by at least ``percentile`` (0 to 1) of all values.

    The values are sorted, shape (n,).
    """
    return float(ordered[min(len(ordered), max(math.ceil(len(ordered) * percentile), 1)) - 1])


def interval(ordered: Floats, percentile: float, confidence: float = 0.95) -> tuple[float, float]:
    """Return distribution-free bounds of the true percentile, from sorted values, shape (n,).

    The bounds are order statistics whose ranks bound a binomial count (David and Nagaraja, Order Statistics, 7.1). If n
    is too small to bound a side, this side is -inf or inf.
    """
    n, tail = len(ordered), 0.5 * (1.0 - confidence)
    low = binomial_quantile(tail, n, percentile)
    high = binomial_quantile(1.0 - tail, n, percentile) + 1
    padded = np.concatenate([[-math.inf], ordered, [math.inf]])
    # padded[r] is the value of rank r of n; P(X_(low) <= q) >= 1 - tail needs low <= the binomial quantile
    return float(padded[max(low, 0)]), float(padded[min(high, n + 1)])


def percentile(ordered: Floats, share: float, parts: tuple[Component, ...] = ()) -> Quantity:
    """Return the nearest-rank percentile of sorted times, shape (n,), in s, with the interval of its order statistics.

    ``parts`` are the other components of its uncertainty. If n is too small to bound a side, no uncertainty is stated.
    """
    value = nearest_rank(ordered, share)
    u = max(abs(side - value) for side in interval(ordered, share)) / 1.959964
    if not math.isfinite(u):
        return Quantity(value, "s", (), 0.0, len(ordered), UNBOUND)
    stated = tuple(c for c in (*parts, Component("finite sample", u)) if c.u)
    return Quantity(value, "s", stated, 0.0, len(ordered), "nearest rank; interval from order statistics")
