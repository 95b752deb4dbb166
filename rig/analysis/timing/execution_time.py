"""Compute execution times per inference: means and percentiles, with the uncertainty of the device's clock."""

import math
from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rig.analysis.result.order_statistics import independent, nearest_rank, percentile
from rig.analysis.result.quantity import Component, FigureKey, Figures, Quantity, linear
from rig.analysis.timing.counted_spans import Activity, Phase
from rig.analysis.timing.timebase import Timebase
from rig.types import Floats

PERCENTILES = (50, 90, 99)


class StampsU(Struct, frozen=True):
    """The uncertainty of a phase's total busy time from the jitter and the step of its stamps, in seconds."""

    jitter_s: float
    step_s: float

    def components(self, per_s: float, phase: str, *, shared: bool = True) -> list[Component]:
        """Return the components of jitter and step for a figure that changes by ``per_s`` per second of busy time.

        If ``shared``, they are correlated with the components of other figures that use the same stamps.
        """
        parts = (("stamp jitter", self.jitter_s, "stamps"), ("timer resolution", self.step_s, "ticks"))
        return [Component(name, per_s * u, shared=f"{tag}:{phase}" if shared else None) for name, u, tag in parts]


class BusyTime(Struct, frozen=True):
    """The total busy time of counted windows, its uncertainty from their stamps by phase, and their inferences."""

    seconds: float
    stamps: Mapping[str, StampsU]
    n: int


def busy_times(activity: Activity, stamps: Mapping[str, StampsU]) -> dict[str, BusyTime]:
    """Return the busy time of each phase, and of all phases under the name ""; ``stamps`` is by phase."""
    if not activity.phases:
        return {}
    busy = {name: BusyTime(p.busy_s, {name: stamps[name]}, p.n) for name, p in activity.phases.items()}
    together_s = float(np.sum(np.diff(activity.busy_windows_s())))
    return busy | {"": BusyTime(together_s, dict(stamps), activity.inferences)}


def time_figures(
    activity: Activity, device: Timebase, busy: Mapping[str, BusyTime], stamps: Mapping[str, StampsU]
) -> Figures:
    """Return execution times by phase and in total, and the time in which the device was busy if samples overlapped.

    ``stamps`` holds the uncertainty of the stamps of spans, by phase.
    """
    if not activity.phases:
        return Figures()
    figures, spans, late_s = Figures(), activity.spans, {name: p.goes_on_s for name, p in activity.phases.items()}
    for name, phase in spans.items():
        own, told = BusyTime(phase.busy_s, {name: stamps[name]}, phase.n), "sum of spans over inferences"
        figures |= {FigureKey("execution_time_s", name): mean_time(own, device, late_s[name], told)}
        figures |= spread(phase.each_s, device, name, float(np.median(phase.inferences)), phase.looped)
    # an inference may lack a phase, as in a cascade
    n = None if activity.per_phase else max(activity.inferences, 1)
    means = [(1.0 if n is None else p.n / n, figures[FigureKey("execution_time_s", k)]) for k, p in spans.items()]
    told = "sum over phases, each by its share of the inferences; overlapping phases of one sample count once"
    total = linear(means, "s", told, n)
    spent_s = {name: p.busy_s for name, p in spans.items()} | {"": float(np.sum(_issues(spans)[0]))}
    if n is not None:
        total = replace(total, value=spent_s[""] / n)
    figures |= {FigureKey("execution_time_s"): total}
    held = min(float(np.median(p.inferences)) for p in spans.values())
    figures |= spread(per_inference_s(activity), device, held=held, loops=any(p.looped for p in spans.values()))
    for name, b in busy.items():
        if not math.isclose(b.seconds, spent_s[name]):  # less if samples overlap
            told = "time in which any sample ran, over inferences: different samples overlapped"
            each = mean_time(b, device, sum(late_s[phase] for phase in b.stamps), told)
            figures |= {FigureKey("busy_time_per_inference_s", name): each}
    return figures


def per_inference_s(activity: Activity) -> Floats:
    """Return the execution time per inference of each issue, in issue order, shape (n,).

    It is the time of all phases of an issue over the inferences of the issue. The shape is (0,) if phases were issued
    one at a time, or if an issue lacks a phase, as in a cascade or if only some phases are batched.
    """
    times_s, inferences = _issues(activity.spans)
    whole = not activity.per_phase and all(len(np.unique(p.issue)) == len(times_s) for p in activity.spans.values())
    return times_s / np.maximum(inferences, 1.0) if whole else np.zeros(0)


def _issues(spans: Mapping[str, Phase]) -> tuple[Floats, Floats]:
    """Return, in issue order, the time in which any span of each issue ran, and its inferences; shapes (n,)."""
    phases = list(spans.values())
    if not phases:
        return np.zeros(0), np.zeros(0)
    issues, at = np.unique(np.concatenate([p.issue for p in phases]), return_inverse=True)
    mine = np.split(at, np.cumsum([len(p.issue) for p in phases[:-1]]))
    held = [np.bincount(k, p.inferences, len(issues)) for k, p in zip(mine, phases, strict=True)]
    windows_s = np.concatenate([p.windows_s for p in phases])
    order = np.lexsort((windows_s[:, 0], at))
    at, (on, off), ends = at[order], windows_s[order].T, np.sort(windows_s[:, 1])
    # the latest end so far within an issue, as a rank: each issue's ranks are raised above those of earlier issues
    rank = np.maximum.accumulate(np.searchsorted(ends, off) + at * len(ends)) - at * len(ends)
    reach = np.where(np.diff(at) == 0, ends[rank[:-1]], -np.inf)
    times_s = np.maximum(off - np.maximum(on, np.append(-np.inf, reach)), 0.0)
    return np.asarray(np.bincount(at, times_s, len(issues)), float), np.asarray(np.max(held, axis=0), float)


def mean_time(busy: BusyTime, device: Timebase, late_s: float, method: str) -> Quantity:
    """Return the mean time per inference; all spans together may be too short by ``late_s``, which becomes a bias."""
    mean, each = busy.seconds / max(busy.n, 1), 1.0 / max(busy.n, 1)
    parts = [Component("clock rate, device to host", mean * device.rate_sigma, shared=f"rate:{device.clock.name}")]
    parts += [c for name, u in busy.stamps.items() for c in u.components(each, name)]
    return Quantity(mean, "s", tuple(p for p in parts if p.u), late_s * each, busy.n, method)


def spread(times_s: Floats, device: Timebase, phase: str = "", held: float = 1.0, loops: bool = False) -> Figures:
    """Return the standard error of the mean, and nearest-rank percentiles; ``times_s`` are in order of time.

    In the interval of a percentile, correlated successive times count as fewer. ``held`` is the number of
    inferences in one span. If spans are ``loops``, only the mean of their executions is known, so there are no
    percentiles.
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
        value = nearest_rank(ordered, p / 100.0)
        count = independent((times_s > value + resolution).astype(float))  # equal times differ by rounding
        clock = Component("clock rate, device to host", value * device.rate_sigma)
        key = FigureKey("execution_time_p{percentile}_s", phase, percentile=p)
        found = percentile(ordered, p / 100.0, (clock, Component("timer resolution", resolution)), count)
        out[key] = found if held == 1.0 else replace(found, method=f"{found.method}; over means of several inferences")
    return Figures(out)
