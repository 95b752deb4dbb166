"""Apply MLPerf's early stopping to percentiles of latency."""

import math
from bisect import bisect_right

from rig.analysis.result.order_statistics import binomial_quantile
from rig.types import Floats

CONFIDENCE = 0.99
"""Confidence of early stopping: at most one verdict in a hundred may be wrong."""


def needed(over: int, percentile: float) -> int:
    """Return the least number of queries if ``over`` of them may exceed the bound of a ``percentile`` (0 to 1).

    The result is h(t) + t, with t = ``over`` and h(t) the least h for which BinomCDF(t; h + t, 1 - p) <= 1 - CONFIDENCE
    (MLPerf Inference, early stopping for latency percentiles). needed(1, 0.9) is 64: with fewer queries there is no
    estimate.
    """
    counts = range(over, max(4 * over, 64) + 1)
    while _exceeding(counts[-1], percentile) <= over:
        counts = range(over, 2 * counts[-1] + 1)
    return counts[bisect_right(counts, over, key=lambda n: _exceeding(n, percentile))]


def _exceeding(n: int, percentile: float) -> int:
    """Return the least number of ``n`` queries that exceed their true percentile, with 99 % confidence."""
    return binomial_quantile(1.0 - CONFIDENCE, n, 1.0 - percentile)


def allowed(n: int, percentile: float) -> int:
    """Return the largest t with h(t) + t <= n, or 0 if n is too small; h(t) is as in ``needed``.

    The estimate discards t - 1 of the slowest queries.
    """
    return max(_exceeding(n, percentile) - 1, 0)


def estimate(ordered: Floats, percentile: float) -> float:
    """Return the slowest latency that remains after discarding, or NaN if there are too few latencies.

    The latencies are sorted, shape (n,).
    """
    t = allowed(len(ordered), percentile)
    return float(ordered[len(ordered) - t]) if t else math.nan
