"""Compute percentiles of a finite sample, with distribution-free intervals from its order statistics.

Successive values may be correlated, as waits in a queue are. They are then worth fewer independent values.
"""

import math

import numpy as np

from rig.analysis.result.distributions import binomial_chances
from rig.analysis.result.quantity import CONFIDENCE, Component, Quantity, coverage_factor, widened
from rig.types import Floats

SURELY = 5.0
"""The autocovariance is summed up to a lag of this many times the number of successive correlated values."""
AT_ONCE = 1 << 14
"""If there are more values, means of successive values are taken first."""
UNBOUND = "nearest rank; too few to bound it"
"""The method of a percentile that has no interval because there are too few values."""


def binomial_quantile(chance: float, n: int, p: float) -> int:
    """Return the quantile of a binomial count of ``n`` cases at the probability ``chance``."""
    count, reached = binomial_chances(n, p)
    return int(count[np.searchsorted(reached, chance)])


def nearest_rank(ordered: Floats, percentile: float) -> float:
    """Return the smallest value for which at least the share ``percentile`` (0 to 1) of all values is no larger.

    The values are sorted, shape (n,).
    """
    return float(ordered[min(len(ordered), max(math.ceil(len(ordered) * percentile), 1)) - 1])


def independent(values: Floats) -> float:
    """Return how many independent values would have a mean as uncertain as the mean of these values.

    The values are in order of time, shape (n,). The variance of their mean is the sum of the autocovariance, up to a
    lag at which values are no longer correlated (Sokal, Monte Carlo Methods in Statistical Mechanics, 1997, section 3).
    """
    each = -(-len(values) // AT_ONCE)
    means = values[: len(values) // each * each].reshape(-1, each).mean(axis=1)
    n, spectrum = len(means), np.abs(np.fft.rfft(means - means.mean(), 2 * len(means))) ** 2
    alike = np.fft.irfft(spectrum)[:n]
    if n < 2 or alike[0] <= 0.0:
        return float(len(values))
    lasts = np.cumsum(2.0 * alike / alike[0]) - 1.0
    until = int(np.argmax(np.append(np.arange(n) >= SURELY * lasts, True)))
    of_mean = alike[0] / n * float(lasts[: until + 1].max()) / n
    return float(np.clip(np.var(values) / of_mean, 1.0, len(values)))


def interval(ordered: Floats, percentile: float, count: float = math.inf) -> tuple[float, float]:
    """Return distribution-free bounds of the true percentile with 95 % confidence, from sorted values, shape (n,).

    The bounds are order statistics whose ranks bound a binomial count (David and Nagaraja, Order Statistics, 7.1). The
    count is of n values, or of ``count`` independent values. If too few values bound a side, it is -inf or inf.
    """
    n, tail = len(ordered), 0.5 * (1.0 - CONFIDENCE)
    of = max(min(round(count), n) if math.isfinite(count) else n, 1)
    low = binomial_quantile(tail, of, percentile) * n // of
    high = -(-(binomial_quantile(1.0 - tail, of, percentile) + 1) * n // of)
    padded = np.concatenate([[-math.inf], ordered, [math.inf]])
    # padded[r] is the value of rank r of n; P(X_(low) <= q) >= 1 - tail needs low <= the binomial quantile
    return float(padded[max(low, 0)]), float(padded[min(high, n + 1)])


def percentile(ordered: Floats, share: float, parts: tuple[Component, ...] = (), count: float = math.inf) -> Quantity:
    """Return the nearest-rank percentile of sorted times, shape (n,), in s, with the interval of its order statistics.

    ``parts`` are the other components of its uncertainty; ``count`` is as in ``interval``. If there are too few times
    to bound both sides, no uncertainty is stated.
    """
    value = nearest_rank(ordered, share)
    low, high = interval(ordered, share, count=count)
    if not math.isfinite(high - low):
        return Quantity(value, "s", (), 0.0, len(ordered), UNBOUND)
    wide = max(high - value, value - low) / coverage_factor(math.inf)
    stated = tuple(c for c in (*parts, Component("finite sample", wide)) if c.u)
    method = "nearest rank; interval from order statistics"
    limits = widened(value, (low, high), math.hypot(*(c.u for c in parts))) if low > 0.0 and stated else None
    return Quantity(value, "s", stated, 0.0, len(ordered), method, limits, positive=low > 0.0)
