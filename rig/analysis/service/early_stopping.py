"""Percentiles of a finite sample: MLPerf's early stopping, and intervals from order statistics."""

from __future__ import annotations

import math

import numpy as np

from rig.types import Floats

CONFIDENCE = 0.99
"""Confidence of early stopping: at most one verdict in a hundred may be wrong."""


def needed(over: int, percentile: float, confidence: float = CONFIDENCE) -> int:
    """Return the smallest number of queries that allows ``over`` queries above the bound of a ``percentile`` (0 to 1).

    The result is h(t) + t, with t = ``over`` and h(t) the least h for which BinomCDF(t; h + t, 1 - p) <= 1 - confidence
    (MLPerf Inference, early stopping for latency percentiles). needed(1, 0.9) is 64: with fewer queries there is no
    estimate.
    """
    from scipy.special import bdtr

    low, high = over, max(4 * over, 64)
    while float(bdtr(over, high, 1.0 - percentile)) > 1.0 - confidence:
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if float(bdtr(over, middle, 1.0 - percentile)) <= 1.0 - confidence else (middle, high)
    return high


def allowed(n: int, percentile: float, confidence: float = CONFIDENCE) -> int:
    """Return the largest t with h(t) + t <= n, or 0 if n is too small.

    This is one more than the number of slowest queries that may be discarded.
    """
    return max(_quantile(1.0 - confidence, n, 1.0 - percentile) - 1, 0)


def _quantile(chance: float, n: int, p: float) -> int:
    """Return the least number that a binomial count of ``n`` exceeds with a chance of no more than 1 - ``chance``."""
    from scipy.special import bdtr

    low, high = -1, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if float(bdtr(middle, n, p)) >= chance else (middle, high)
    return high


def discarded(n: int, percentile: float, confidence: float = CONFIDENCE) -> int:
    """Return how many of the slowest queries the estimate leaves out, t - 1.

    The result is -1 if n is too small for an estimate.
    """
    return allowed(n, percentile, confidence) - 1


def estimate(ordered: Floats, percentile: float, confidence: float = CONFIDENCE) -> float:
    """Return the slowest latency that remains after discarding, or NaN if n is too small.

    The latencies are sorted, shape (n,).
    """
    out = discarded(len(ordered), percentile, confidence)
    return float(ordered[len(ordered) - 1 - out]) if out >= 0 else math.nan


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
    low = _quantile(tail, n, percentile)
    high = _quantile(1.0 - tail, n, percentile) + 1
    padded = np.concatenate([[-math.inf], ordered, [math.inf]])
    # rank r of n stands at padded[r]; P(X_(low) <= q) >= 1 - tail needs low <= the binomial quantile
    return float(padded[max(low, 0)]), float(padded[min(high, n + 1)])
