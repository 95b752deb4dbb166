"""MLPerf's early stopping for percentiles of latency."""

from __future__ import annotations

import math

from rig.analysis.result.order_statistics import binomial_quantile
from rig.types import Floats

CONFIDENCE = 0.99
"""Confidence of early stopping: at most one verdict in a hundred may be wrong."""


def needed(over: int, percentile: float, confidence: float = CONFIDENCE) -> int:
    """Return the smallest number of queries of which ``over`` may exceed the bound of a ``percentile`` (0 to 1).

    The result is h(t) + t, with t = ``over`` and h(t) the least h for which BinomCDF(t; h + t, 1 - p) <= 1 - confidence
    (MLPerf Inference, early stopping for latency percentiles). needed(1, 0.9) is 64: with fewer queries there is no
    estimate.
    """

    def trusted(n: int) -> bool:
        return binomial_quantile(1.0 - confidence, n, 1.0 - percentile) > over

    low, high = over, max(4 * over, 64)
    while not trusted(high):
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if trusted(middle) else (middle, high)
    return high


def allowed(n: int, percentile: float, confidence: float = CONFIDENCE) -> int:
    """Return the largest t with h(t) + t <= n, or 0 if n is too small.

    This is one more than the number of slowest queries that may be discarded.
    """
    return max(binomial_quantile(1.0 - confidence, n, 1.0 - percentile) - 1, 0)


def discarded(n: int, percentile: float, confidence: float = CONFIDENCE) -> int:
    """Return t - 1, the number of slowest queries that the estimate leaves out.

    The result is -1 if n is too small for an estimate.
    """
    return allowed(n, percentile, confidence) - 1


def estimate(ordered: Floats, percentile: float, confidence: float = CONFIDENCE) -> float:
    """Return the slowest latency that remains after discarding, or NaN if n is too small.

    The latencies are sorted, shape (n,).
    """
    out = discarded(len(ordered), percentile, confidence)
    return float(ordered[len(ordered) - 1 - out]) if out >= 0 else math.nan
