"""Compute shares of counts, with the interval of Clopper and Pearson.

The interval is exact: it contains the true share in at least 95 % of all cases, even if every answer is right (Clopper
and Pearson, Biometrika 26 (1934) 404). It is computed from quantiles of the beta distribution (Brown, Cai and DasGupta,
Statistical Science 16 (2001) 101).
"""

import math
from collections.abc import Sequence

import numpy as np

from rig.analysis.result.distributions import beta_quantile
from rig.analysis.result.quantity import CONFIDENCE, Component, Quantity, coverage_factor

NAMED = "Clopper-Pearson interval"


def clopper_pearson(count: float, n: float) -> tuple[float, float]:
    """Return the 95 % interval of the share ``count / n``; ``count`` may be a mean of counts."""
    tail = 0.5 * (1.0 - CONFIDENCE)
    low = beta_quantile(tail, count, n - count + 1.0) if count > 0 else 0.0
    high = 1.0 - beta_quantile(tail, n - count, count + 1.0) if count < n else 1.0
    return low, high


def proportion(count: float, n: float, method: str) -> Quantity:
    """Return the share ``count / n`` with its Clopper-Pearson interval; without cases, no uncertainty is stated."""
    if n < 1:
        return Quantity(0.0, "1", (), 0.0, 0, method)
    return _stated(count / n, clopper_pearson(count, n), round(n), f"{method}; {NAMED}")


def independent(right: Sequence[float], data: Sequence[str], weights: Sequence[float] = ()) -> tuple[float, float]:
    """Return the count of right samples and the count of all samples, both as independent samples.

    ``data`` names the data of each sample. Samples with the same data get the same answer, so together they give no
    more information than one sample. Every sample counts in the share, by its weight or all equally. The count of all
    is Kish's effective number for clusters (Journal of Official Statistics 8 (1992) 183). It is the number of distinct
    data if all data weigh the same.
    """
    each, weights = dict[str, float](), weights or [1.0] * len(data)
    for name, weight in zip(data, weights, strict=True):
        each[name] = each.get(name, 0.0) + weight
    n = sum(weights) ** 2 / sum(k * k for k in each.values())
    return float(np.dot(right, weights)) * n / sum(weights), n


def mean_proportion(counts: Sequence[tuple[float, float]], method: str) -> Quantity:
    """Return the mean of several shares ``count / n``, each with at least one case.

    The distances of the Clopper-Pearson limits from each share are added in quadrature, separately for each side (Zou
    and Donner, Statistics in Medicine 27 (2008) 1693).
    """
    shares = [count / n for count, n in counts]
    apart = np.array([clopper_pearson(count, n) for count, n in counts]) - np.array(shares)[:, None]
    mean = sum(shares) / len(shares)
    below, above = (np.sqrt(np.sum(apart**2, axis=0)) / len(shares)).tolist()
    total = sum(n for _, n in counts)
    return _stated(mean, (mean - below, mean + above), round(total), f"{method}; from {NAMED}s")


def paired_difference(lost: float, won: float, n: float) -> tuple[float, float]:
    """Return the interval of ``(won - lost) / n`` for two systems that answered the same ``n`` cases.

    ``won`` counts the cases that only the second system has right, ``lost`` those that only the first has right. The
    Clopper-Pearson limits of both are combined with the correlation of two counts of one sample (Zou and Donner,
    Statistics in Medicine 27 (2008) 1693). If no case differs, the true difference may still be above or below 0. The
    interval then reaches, on both sides, as far as the interval of a count of 0 in n.
    """
    down, up = lost / n, won / n
    (down_low, down_high), (up_low, up_high) = clopper_pearson(lost, n), clopper_pearson(won, n)
    r = -math.sqrt(down * up / ((1.0 - down) * (1.0 - up))) if down < 1.0 and up < 1.0 else 0.0
    below = _apart(up - up_low, down_high - down, r)
    above = _apart(up_high - up, down - down_low, r)
    return max(up - down - below, -1.0), min(up - down + above, 1.0)


def _apart(one: float, other: float, r: float) -> float:
    return math.sqrt(one**2 + other**2 - 2.0 * r * one * other)


def _stated(value: float, limits: tuple[float, float], n: int, method: str) -> Quantity:
    u = 0.5 * (limits[1] - limits[0]) / coverage_factor(math.inf)
    return Quantity(value, "1", (Component("finite sample", u),), 0.0, n, method, limits)
