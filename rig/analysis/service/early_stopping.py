"""Percentiles of a finite sample: MLPerf's early stopping, and intervals from order statistics."""

from __future__ import annotations

import math

import numpy as np

from rig.types import Floats

CONFIDENCE = 0.99
"""Of early stopping: one verdict in a hundred may be wrong."""


def needed(over: int, percentile: float, confidence: float = CONFIDENCE) -> int:
    """Least number of queries of which ``over`` may exceed a bound that ``percentile`` (0 to 1) of all keep.

    h(t) + t with h(t) the least h for which BinomCDF(t; h + t, 1 - p) <= 1 - confidence (MLPerf Inference,
    early stopping for latency percentiles). needed(1, 0.9) is 64: below it there is no estimate.
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
    """Largest t with h(t) + t <= n: one more than the slowest that may be discarded; 0 when n is too small."""
    from scipy.special import bdtr

    low, high = 0, n  # bdtr rises with t; find the last that is small enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if float(bdtr(middle, n, 1.0 - percentile)) <= 1.0 - confidence else (low, middle)
    return low


def discarded(n: int, percentile: float, confidence: float = CONFIDENCE) -> int:
    """How many of the slowest queries the estimate leaves out, t - 1; -1 if n is too small for an estimate."""
    return allowed(n, percentile, confidence) - 1


def estimate(ordered: Floats, percentile: float, confidence: float = CONFIDENCE) -> float:
    """The slowest latency that is left of sorted latencies, shape (n,); NaN if n is too small."""
    out = discarded(len(ordered), percentile, confidence)
    return float(ordered[len(ordered) - 1 - out]) if out >= 0 else math.nan


def nearest_rank(ordered: Floats, percentile: float) -> float:
    """The smallest value that at least ``percentile`` of all do not exceed; sorted values, shape (n,)."""
    return float(ordered[min(len(ordered), max(math.ceil(len(ordered) * percentile), 1)) - 1])


def interval(ordered: Floats, percentile: float, confidence: float = 0.95) -> tuple[float, float]:
    """Distribution-free bounds of the true percentile, from sorted values, shape (n,).

    Order statistics whose ranks bound a binomial count (David and Nagaraja, Order Statistics, 7.1). Where n
    is too small to bound a side it is -inf or inf.
    """
    from scipy.stats import binom

    n, tail = len(ordered), 0.5 * (1.0 - confidence)
    low = int(binom.ppf(tail, n, percentile))
    high = int(binom.isf(tail, n, percentile)) + 1
    padded = np.concatenate([[-math.inf], ordered, [math.inf]])
    # rank r of n stands at padded[r]; P(X_(low) <= q) >= 1 - tail needs low <= the binomial quantile
    return float(padded[max(low, 0)]), float(padded[min(high, n + 1)])
