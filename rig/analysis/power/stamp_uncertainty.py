"""Compute how much jitter, lag and step of the stamps may change the total busy time of a phase.

A span is a time in which the device works, by its stamps.
"""

import math
from collections.abc import Sequence

import numpy as np

from rig.analysis.power.estimators import LEAST
from rig.analysis.power.model.rail_model import RailModel
from rig.analysis.timing.activity_signal import count_before, edges_of, margin_s, mean_signal, merged, touches
from rig.analysis.timing.counted_spans import Activity, Phase
from rig.analysis.timing.execution_time import StampsU
from rig.analysis.timing.timebase import Timebase
from rig.analysis.warmup import counted_replies
from rig.recording.columns.buffers import array_of, without_null
from rig.recording.reader import Run
from rig.types import Floats


def stamps_u_s(run: Run, activity: Activity, device: Timebase, models: Sequence[RailModel] = ()) -> dict[str, StampsU]:
    """Return the uncertainty of the total busy time of each phase.

    It comes from the jitter of stamps, the lag of a pin, and the step of stamps. The jitter has an upper bound: with a
    trace, from energy that the stamps do not explain; without a trace, from stamps of the host.
    """
    by_host_s = math.inf if models else _host_jitter_s(run, device)
    found = {}
    for name, phase in activity.phases.items():
        seen = [_unexplained_s(model, phase.windows_s) for model in models]
        jitter_s = [by_host_s, *(each_s for each_s, _ in seen)]
        # the error of many stamps averages out, unless spans are in step with the clock of the stamps; the trace shows
        # whether they are, because energy over power is the length of the spans
        n = len(phase.windows_s)
        own_s, most_s = math.sqrt(n / 6.0) * device.step_s, n * device.step_s / math.sqrt(3.0)
        step_s = min([most_s, *(math.hypot(own_s, all_s) for _, all_s in seen)])
        found[name] = StampsU(_stamp_jitter_u_s(phase, device, jitter_s), step_s)
    return found


def _host_jitter_s(run: Run, device: Timebase) -> float:
    """Return an upper bound for the jitter of the stamped length of spans in seconds, from stamps of the host.

    For each issue (one request to the device), the length of its spans is subtracted from the host's time from issue to
    answer. The bound is the scatter of this difference. It is inf if the host has too few stamps, or if the run was
    imported.
    """
    table = without_null(counted_replies(run, "issue", "issued_ns", "completed_ns", "on_tick", "off_tick"))
    issue, issued, completed, on, off = map(array_of, table.columns)
    which, of = np.unique(issue, return_inverse=True)
    if len(which) < LEAST or run.start.imported is not None:
        return math.inf
    host_s = np.full((2, len(which)), np.inf)
    np.minimum.at(host_s[0], of, (issued - run.start.t0_ns) * 1e-9)
    np.minimum.at(host_s[1], of, -(completed - run.start.t0_ns) * 1e-9)
    span_s = np.bincount(of, device.seconds(off) - device.seconds(on), len(which))
    return float(np.std(-host_s.sum(axis=0) - span_s, ddof=1))


def _stamp_jitter_u_s(phase: Phase, device: Timebase, jitter_s: Sequence[float]) -> float:
    """Return the uncertainty of busy time in seconds from jitter and from a pin's fixed lag.

    The jitter is the scatter of the spans' lengths, or the smallest bound ``jitter_s`` for it.
    """
    length = phase.windows_s[:, 1] - phase.windows_s[:, 0]
    lag = len(length) * device.lag_s * math.sqrt(2.0 / 3.0)
    if len(length) < 3:
        return lag
    scatter = float(np.std(length, ddof=1))
    if scatter <= device.step_s:
        return lag
    return math.hypot(math.sqrt(len(length)) * min(scatter, *jitter_s), lag)


def _unexplained_s(model: RailModel, windows_s: Floats) -> tuple[float, float]:
    """Return the jitter of the stamped length of one span, and the error of all together, in seconds.

    They come from energy that the stamps do not explain. If a stamp is late by t, the stamps do not explain an energy
    of dynamic power times t near the span. If a span really is longer than others, its stamps explain all its energy.
    The meter's noise also causes unexplained energy, which counts as jitter. Noise may also cancel an error, so the
    scatter of the spans adds to the error of all. If there are too few spans or readings, the result is inf.
    """
    r = model.readings
    if len(windows_s) < LEAST:
        return math.inf, math.inf
    spans = windows_s[np.argsort(windows_s[:, 0])]
    near = np.flatnonzero(touches(merged(spans + margin_s(model.sigma_s, r.tau_s)), r.start_s, r.end_s) & r.ok)
    fill = mean_signal(edges_of(merged(spans)), r.start_s[near], r.end_s[near], r.tau_s)
    many, above = r.many[near], model.above_w[near]
    power = float(np.sum(many * above) / np.sum(many * fill)) if np.any(fill > 0) else 0.0
    if power == 0.0:
        return math.inf, math.inf
    between_s = np.maximum.accumulate(0.5 * (spans[1:, 0] + spans[:-1, 1]))  # a span may end before the previous span
    owner = count_before(between_s, model.middle_s[near])
    each_s = r.end_s[near] - r.start_s[near] if r.counter else many * r.period_s

    def left_s(level: Floats | float) -> Floats:
        left = (above - level * fill) / power * each_s
        return np.asarray(np.bincount(owner, left, len(spans)), np.float64)

    # all spans have the same power, or each has its own above gaps; a wrong assumption only raises the scatter
    jitter_s, all_s = float(np.std(left_s(power), ddof=1)), math.inf
    within = (1.0 - fill < 1e-3) * many
    count = np.bincount(owner, weights=within, minlength=len(spans))
    if np.all(count > 0):
        above = above - model.trace.gaps_w[0] * (1.0 - fill)
        own = np.bincount(owner, weights=above * within, minlength=len(spans)) / count
        own_s = left_s(own[owner])
        scatter_s = float(np.std(own_s, ddof=1))
        jitter_s, all_s = min(jitter_s, scatter_s), math.hypot(float(np.sum(own_s)), math.sqrt(len(spans)) * scatter_s)
    return jitter_s, all_s
