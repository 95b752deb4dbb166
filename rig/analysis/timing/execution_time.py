"""Execution times: per inference, with means, percentiles and what the clock leaves in doubt."""

from __future__ import annotations

import math

import numpy as np

from rig.analysis.quantity import Component, Quantity
from rig.analysis.timing.timebase import Timebase
from rig.analysis.timing.timeline import Activity, Phase
from rig.types import Floats

PERCENTILES = (50, 90, 99)


def per_inference_s(activity: Activity) -> Floats:
    """Execution time of each inference: all phases of an issue over its inferences, in issue order.

    When phases were issued apart, or spans of several phases overlapped, no issue holds a whole inference;
    then the shape is (0,).
    """
    if not activity.phases or activity.apart or (activity.joined and len(activity.phases) > 1):
        return np.zeros(0)
    total: dict[int, float] = {}
    count: dict[int, int] = {}
    for phase in activity.phases.values():
        seconds: dict[int, int] = {}
        for issue, (on, off), n in zip(phase.issue.tolist(), phase.windows_s, phase.inferences.tolist(), strict=True):
            total[issue] = total.get(issue, 0.0) + float(off - on)
            seconds[issue] = seconds.get(issue, 0) + n
        for issue, n in seconds.items():
            count[issue] = max(count.get(issue, 0), n)
    return np.array([total[i] / count[i] for i in total])


def mean_time(phase: Phase, device: Timebase, jitter_u_s: float, tag: str) -> Quantity:
    """Mean execution time of one phase per inference (spec: averaged over all samples)."""
    mean = phase.busy_s / max(phase.n, 1)
    resolution = math.sqrt(len(phase.windows_s) / 6.0) * device.step_s / max(phase.n, 1)
    parts = (
        Component("clock rate, device to host", mean * device.rate_sigma, shared=f"rate:{device.clock.name}"),
        Component("timer resolution", resolution),
        Component("stamp jitter", jitter_u_s / max(phase.n, 1), shared=tag),
    )
    return Quantity(mean, "s", tuple(p for p in parts if p.u), 0.0, phase.n, "sum of spans over inferences")


def spread(times_s: Floats, device: Timebase, prefix: str, looped: float = 1.0) -> dict[str, Quantity]:
    """Standard error of the mean and percentiles (nearest rank) over inferences; ``looped`` stood in one span."""
    n = len(times_s)
    if n == 0:
        return {}
    resolution = device.step_s / math.sqrt(6.0) / looped
    out: dict[str, Quantity] = {}
    if n > 1:
        se = max(float(np.std(times_s, ddof=1)), resolution) / math.sqrt(n)
        method = "sample deviation over root n, no finer than the timer"
        out[f"{prefix}execution_time_se_s"] = Quantity(se, "s", (), 0.0, n, method)
    ordered = np.sort(times_s)
    for p in PERCENTILES:
        value, finite = _percentile(ordered, p / 100.0)
        parts = (
            Component("clock rate, device to host", value * device.rate_sigma),
            Component("timer resolution", resolution),
            Component("finite sample", finite),
        )
        out[f"{prefix}execution_time_p{p}_s"] = Quantity(
            value, "s", tuple(c for c in parts if c.u), 0.0, n, "nearest rank; doubt from order statistics"
        )
    return out


def _percentile(ordered: Floats, share: float) -> tuple[float, float]:
    """Nearest-rank percentile, and its sampling doubt: half the distance between the order statistics one

    binomial standard deviation of ranks to either side (David and Nagaraja, Order Statistics, 7.1).
    """
    n = len(ordered)
    wide = math.sqrt(n * share * (1.0 - share))
    rank = min(n - 1, math.ceil(n * share) - 1)
    low = max(min(math.ceil(n * share - wide) - 1, rank - 1), 0)
    high = min(max(math.ceil(n * share + wide) - 1, rank + 1), n - 1)
    # beyond the last sample nothing bounds it from above: the distance below stands for both sides
    sides = 0.5 if high > rank or low == rank else 1.0
    return float(ordered[rank]), sides * float(ordered[high] - ordered[low])
