"""The normal, Student's t, beta and binomial distributions, to eight digits or more.

``scipy.special`` has them too, but importing it takes longer than computing the figures of a short run.
"""

import math
from statistics import NormalDist

import numpy as np

from rig.types import Floats, Indices

MANY_DOF = 1e5
"""With at least this many degrees of freedom, one correction of the normal quantile gives eight digits."""
STEPS = 200
"""Largest number of Newton steps; about ten are needed."""


def normal_quantile(p: float) -> float:
    """Return the quantile of the standard normal distribution at the probability ``p``."""
    return NormalDist().inv_cdf(p)


def student_quantile(p: float, dof: float) -> float:
    """Return the quantile of Student's t with ``dof`` degrees of freedom at the probability ``p``, above 1/2."""
    if dof < MANY_DOF:
        x = beta_quantile(2.0 * (1.0 - p), 0.5 * dof, 0.5)
        return math.sqrt(dof * (1.0 - x) / x)
    z = normal_quantile(p)
    return z + (z**3 + z) / 4.0 / dof  # Abramowitz and Stegun, 26.7.5


def beta_quantile(p: float, a: float, b: float) -> float:
    """Return the quantile of a beta variable at the probability ``p``, 0 < p < 1; ``a`` and ``b`` are above 0.

    Newton's method works on the logarithms of quantile and probability, which are nearly a straight line in the lower
    tail. The upper tail is not a straight line where ``b`` is below 1, so there the lower tail of 1 - x is used. A
    quantile that is too small for a float is 0.
    """
    if b < 1.0 and p > _beta(a / (a + b), a, b)[0]:
        return 1.0 - _in_lower_tail(1.0 - p, b, a)
    return _in_lower_tail(p, a, b)


def _in_lower_tail(p: float, a: float, b: float) -> float:
    x = a / (a + b)
    for _ in range(STEPS):
        if not 0.0 < x < 1.0:
            return min(x, 1.0)
        below, slope = _beta(x, a, b)
        step = math.log(below / p) * below / slope
        x *= math.exp(-step)
        if abs(step) < 4.0 * math.ulp(1.0):
            break
    return x


def _beta(x: float, a: float, b: float) -> tuple[float, float]:
    """Return the probability that a beta variable is below ``x``, and its derivative by the logarithm of ``x``."""
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(scale + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1.0) / (a + b + 2.0):
        below = front * _fraction(x, a, b) / a
    else:
        below = 1.0 - front * _fraction(1.0 - x, b, a) / b
    return below, front / (1.0 - x)


def _fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction of the incomplete beta function (Abramowitz and Stegun, 26.5.8), by Lentz."""
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    found, m, change = d, 0, 0.0
    while abs(change - 1.0) > 4.0 * math.ulp(1.0):
        m += 1
        at = a + 2.0 * m
        for part in (m * (b - m) * x / ((at - 1.0) * at), -(a + m) * (a + b + m) * x / (at * (at + 1.0))):
            d, c = 1.0 / (1.0 + part * d), 1.0 + part / c
            change = c * d
            found *= change
    return found


def binomial_chances(n: int, p: float) -> tuple[Indices, Floats]:
    """Return the possible counts among ``n`` cases of probability ``p``, and the probability not to exceed each.

    Both have shape (k,). The counts reach twelve standard deviations from the mean.
    """
    reach = 12 + int(12.0 * math.sqrt(n * p * (1.0 - p)))
    count = np.arange(max(int(n * p) - reach, 0), min(int(n * p) + reach, n) + 1)
    odds = max(p, 1e-300) / max(1.0 - p, 1e-300)
    rise = np.concatenate([[0.0], np.cumsum(np.log((n - count[:-1]) / count[1:] * odds))])
    chance = np.cumsum(np.exp(rise - rise.max()))
    return count, chance / chance[-1]
