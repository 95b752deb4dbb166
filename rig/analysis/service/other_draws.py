"""Simulate other random arrivals at a device that serves one sample at a time, with the recorded service times."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rig.analysis.result.order_statistics import independent, nearest_rank
from rig.analysis.service.queries import Queries
from rig.types import Floats

DRAWS = 64
"""Arrivals are drawn anew this many times."""
NOT_SHOWN = "nothing shows what another draw of arrivals gives"
"""Part of the method of a figure that has no interval because the device holds several samples."""


def service_times_s(due_s: Floats, done_s: Floats) -> Floats:
    """Return how long each sample was served; service begins when it is due and the sample before it is answered."""
    return np.asarray(done_s - np.maximum(due_s, np.concatenate([[-math.inf], done_s[:-1]])))


def drawn_s(rng: np.random.Generator, service_s: Floats, count: int) -> Floats:
    """Return service times, shape (count,), drawn in blocks of successive recorded ones.

    A block is about as long as successive times are correlated.
    """
    n = len(service_s)
    length = round(n / independent(service_s))
    first = rng.integers(n, size=-(-count // length))
    return np.asarray(service_s[(first[:, None] + np.arange(length)).ravel()[:count] % n])


def waited_s(at_s: Floats, each_s: Floats) -> Floats:
    """Return the latency of each sample that arrives at ``at_s`` and is served for ``each_s``, in order."""
    early_s = at_s - (np.cumsum(each_s) - each_s)
    return np.asarray(np.maximum.accumulate(early_s) - early_s + each_s)


def scatter_s(q: Queries, shares: Sequence[float]) -> Floats:
    """Return the scatter of the mean latency, and of percentiles (0 to 1), over other draws of arrivals."""
    service_s = service_times_s(q.due_s[q.completed], q.completed_s[q.completed])
    rng, n, found = np.random.default_rng(0), len(service_s), []
    for _ in range(DRAWS):
        at_s = np.cumsum(rng.exponential(1.0 / q.arrival_hz, n))
        ordered = np.sort(waited_s(at_s, drawn_s(rng, service_s, n)))
        found.append([ordered.mean(), *(nearest_rank(ordered, share) for share in shares)])
    return np.asarray(np.std(found, axis=0, ddof=1))
