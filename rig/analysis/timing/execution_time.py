"""Execution times per inference: means and percentiles, with the uncertainty of the device's clock."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rig.analysis.result.figure_key import FigureKey, Figures
from rig.analysis.result.order_statistics import nearest_rank, percentile
from rig.analysis.result.quantity import Component, Quantity, linear
from rig.analysis.timing.activity_signal import merged
from rig.analysis.timing.timebase import Timebase
from rig.analysis.timing.timeline import Activity, Phase
from rig.types import Floats

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class StampsU:
    """The uncertainty of a phase's total busy time from the jitter and the step of its stamps, in seconds."""

    jitter_s: float
    step_s: float

    def components(self, per_s: float, phase: str, *, shared: bool = True) -> list[Component]:
        """Return the components of jitter and step for a figure that changes by ``per_s`` per second of busy time.

        Figures that are ``shared`` take busy time from the same stamps.
        """
        parts = (("stamp jitter", self.jitter_s, "stamps"), ("timer resolution", self.step_s, "ticks"))
        return [Component(name, per_s * u, shared=f"{tag}:{phase}" if shared else None) for name, u, tag in parts]


@dataclass(frozen=True)
class BusyTime:
    """The total busy time of counted windows, its uncertainty from their stamps by phase, and their inferences."""

    seconds: float
    stamps: Mapping[str, StampsU]
    n: int


def busy_times(activity: Activity, stamps: Mapping[str, StampsU]) -> dict[str, BusyTime]:
    """Return the busy time of each phase, and of all phases under the name ""; ``stamps`` is by phase."""
    if not activity.phases:
        return {}
    busy = {name: BusyTime(p.busy_s, {name: stamps[name]}, p.n) for name, p in activity.phases.items()}
    seconds, n = sum(b.seconds for b in busy.values()), max(b.n for b in busy.values())
    windows_s = activity.busy_windows_s()
    union = merged(windows_s) if len(activity.phases) > 1 else windows_s
    together_s = float(np.sum(union[:, 1] - union[:, 0]))
    overlap = together_s < seconds * (1.0 - 1e-9)
    return busy | {"": BusyTime(together_s if overlap else seconds, dict(stamps), n)}


def time_figures(activity: Activity, device: Timebase, busy: Mapping[str, BusyTime]) -> Figures:
    """Return execution times by phase and in total."""
    figures, means = Figures(), {}
    if not activity.phases:
        return figures
    for name, phase in activity.phases.items():
        means[name] = mean_time(phase, device, busy[name].stamps[name], name)
        figures |= {FigureKey("execution_time_s", name): means[name]}
        figures |= spread(phase.each_s, device, name, float(np.median(phase.inferences)), phase.looped)
    figures |= {FigureKey("execution_time_s"): linear([(1.0, q) for q in means.values()], "s", "sum over phases")}
    held = min(float(np.median(p.inferences)) for p in activity.phases.values())
    loops = any(p.looped for p in activity.phases.values())
    figures |= spread(per_inference_s(activity), device, held=held, loops=loops)
    whole = busy[""]
    if whole.seconds < sum(b.seconds for name, b in busy.items() if name):
        method = "time in which any phase ran, over inferences: phases of different samples overlapped"
        value = Quantity(whole.seconds / max(whole.n, 1), "s", (), 0.0, whole.n, method)
        figures |= {FigureKey("busy_time_per_inference_s"): value}
    return figures


def per_inference_s(activity: Activity) -> Floats:
    """Return the execution time of each inference in issue order, shape (n,).

    It is the time of all phases of an issue over the inferences of the issue. The shape is (0,) if no issue holds a
    whole inference, because phases were issued one at a time or spans of several phases overlapped.
    """
    if not activity.phases or activity.per_phase or (activity.joined and len(activity.phases) > 1):
        return np.zeros(0)
    phases = list(activity.phases.values())
    issue, at = np.unique(np.concatenate([p.issue for p in phases]), return_inverse=True)
    total, count = np.zeros(len(issue)), np.zeros(len(issue))
    for p, mine in zip(phases, np.split(at, np.cumsum([len(p.issue) for p in phases[:-1]])), strict=True):
        total += np.bincount(mine, p.windows_s[:, 1] - p.windows_s[:, 0], len(issue))
        count = np.maximum(count, np.bincount(mine, p.inferences, len(issue)))
    return np.asarray(total / np.maximum(count, 1.0))


def mean_time(phase: Phase, device: Timebase, stamps: StampsU, name: str) -> Quantity:
    """Return the mean execution time of one phase per inference, averaged over all samples."""
    mean = phase.busy_s / max(phase.n, 1)
    parts = (
        Component("clock rate, device to host", mean * device.rate_sigma, shared=f"rate:{device.clock.name}"),
        *stamps.components(1.0 / max(phase.n, 1), name),
    )
    bias = phase.goes_on_s / max(phase.n, 1)
    return Quantity(mean, "s", tuple(p for p in parts if p.u), bias, phase.n, "sum of spans over inferences")


def spread(times_s: Floats, device: Timebase, phase: str = "", held: float = 1.0, loops: bool = False) -> Figures:
    """Return the standard error of the mean, and nearest-rank percentiles over inferences.

    ``held`` is the number of inferences that one span held. Of ``loops``, only the mean of their executions is known,
    so there are no percentiles.
    """
    n = len(times_s)
    if n == 0:
        return Figures()
    resolution = device.step_s / math.sqrt(6.0) / held
    out: dict[FigureKey, Quantity] = {}
    if n > 1:
        se = max(float(np.std(times_s, ddof=1)), resolution) / math.sqrt(n)
        method = "sample deviation over root n, no finer than the timer"
        out[FigureKey("execution_time_se_s", phase)] = Quantity(se, "s", (), 0.0, n, method)
    ordered = np.sort(times_s)
    for p in () if loops else PERCENTILES:
        clock = Component("clock rate, device to host", nearest_rank(ordered, p / 100.0) * device.rate_sigma)
        key = FigureKey("execution_time_p{percentile}_s", phase, percentile=p)
        out[key] = percentile(ordered, p / 100.0, (clock, Component("timer resolution", resolution)))
    return Figures(out)
