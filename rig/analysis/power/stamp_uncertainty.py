"""How far stamps that jitter, lag or step move the total busy time of a phase."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rig.analysis.power.estimators import TooShort, core, touched, whole
from rig.analysis.power.rail_model import RailModel
from rig.analysis.timing.activity_signal import edges_of, margin_s, mean_signal, merged, touches
from rig.analysis.timing.execution_time import StampsU
from rig.analysis.timing.timebase import Timebase
from rig.analysis.timing.timeline import Activity, Phase
from rig.types import Floats

FINE_STEP = 5e-5
"""Part of busy time that the step of all stamps together may cost before the trace is asked."""
LEAST = 8
"""Spans from whose scatter jitter is taken."""
WHOLE = 0.999
"""Part of a reading that a span fills, from which the reading shows the power of this span alone."""


def stamps_u_s(activity: Activity, device: Timebase, models: Sequence[RailModel]) -> dict[str, StampsU]:
    """Return the uncertainty of the total busy time of each phase.

    It comes from the jitter of stamps with the lag of a pin, and from the step of stamps.
    """
    return {
        name: StampsU(_stamp_jitter_u_s(phase, device, models), _stamp_step_u_s(activity, name, device, models))
        for name, phase in activity.phases.items()
    }


def _stamp_step_u_s(activity: Activity, name: str, device: Timebase, models: Sequence[RailModel]) -> float:
    """The step of the stamps averages over spans, unless spans keep step with the clock of their stamps.

    Stamps do not show this. The trace does: energy over power is the length of the spans, whatever their stamps.
    """
    windows_s = activity.phases[name].windows_s
    count = len(windows_s)
    own_s, most_s = math.sqrt(count / 6.0) * device.step_s, count * device.step_s / math.sqrt(3.0)
    if count < 2 or not models or most_s < FINE_STEP * activity.phases[name].busy_s:
        return most_s
    others = [p.windows_s for n, p in activity.phases.items() if n != name]
    other_s = np.concatenate([activity.excluded_s(), *others])
    seen_s = min(_length_error_s(model, windows_s, other_s, own_s) for model in models)
    return math.hypot(own_s, min(seen_s, most_s))


def _stamp_jitter_u_s(phase: Phase, device: Timebase, models: Sequence[RailModel]) -> float:
    """Jitter is the scatter of the spans that no trace confirms; a pin's lag is the same in every span."""
    length = phase.windows_s[:, 1] - phase.windows_s[:, 0]
    lag = len(length) * device.lag_s * math.sqrt(2.0 / 3.0)
    if len(length) < 3:
        return lag
    scatter = float(np.std(length, ddof=1))
    if scatter <= device.step_s:
        return lag
    jitter = math.sqrt(len(length)) * min([scatter, *(_jitter_s(m, phase.windows_s) for m in models)])
    return math.hypot(jitter, lag)


def _length_error_s(model: RailModel, windows_s: Floats, other_s: Floats, known_s: float) -> float:
    """Return by how much the length of all windows together may be wrong beyond ``known_s``, in seconds.

    Energy above idle is power times length, so it shows the true length of spans of even power. What the noise of both
    estimates hides remains in the result. It is inf if the windows have no such estimates.
    """
    idle = model.trace.idle_under(merged(windows_s))
    cut, of = core(model, windows_s, idle), touched(model, windows_s, other_s, idle)
    if isinstance(cut, TooShort) or of is None or cut.value_w == 0.0:
        return math.inf
    full = whole(model, of, idle)
    per_w = float(np.sum(windows_s[:, 1] - windows_s[:, 0])) / abs(cut.value_w)
    seen_s = abs(full.value_w - cut.value_w) * per_w
    return math.sqrt(max(seen_s**2 - known_s**2, 0.0) + (model.noise_u_w(full.level - cut.level) * per_w) ** 2)


def _jitter_s(model: RailModel, windows_s: Floats) -> float:
    """Return the jitter of the stamped length of one span in seconds, from energy that the stamps do not explain.

    If a stamp is late by t, an energy of dynamic power times t remains unexplained near the span. A true change of the
    span's length leaves no unexplained energy. The meter's noise does; its known size is subtracted, but the
    uncertainty of this size remains in the result. The jitter is inf if there are too few spans.
    """
    r = model.readings
    if len(windows_s) < LEAST:
        return math.inf
    spans = windows_s[np.argsort(windows_s[:, 0])]
    fill = mean_signal(edges_of(merged(spans)), r.start_s, r.end_s, r.tau_s)
    near = touches(merged(spans + margin_s(model.sigma_s, r.tau_s)), r.start_s, r.end_s) & r.ok
    many, above = r.many[near], model.above_w[near]
    power = float(np.sum(many * above) / np.sum(many * fill[near])) if np.any(fill[near] > 0) else 0.0
    if power == 0.0:
        return math.inf
    owner = np.searchsorted(0.5 * (spans[1:, 0] + spans[:-1, 1]), model.middle_s[near])
    each_s = r.end_s - r.start_s if r.counter else r.many * r.period_s

    def unexplained(level: Floats | float) -> float:
        left = (above - level * fill[near]) * (each_s[near] / power)
        return float(np.var(np.bincount(owner, weights=left, minlength=len(spans)), ddof=1))

    # spans of one power, or each of its own above the gaps; what is not so in truth only adds to what is left
    scatter = unexplained(power)
    within = (fill[near] > WHOLE) * many
    count = np.bincount(owner, weights=within, minlength=len(spans))
    if np.all(count > 0):
        above = above - model.trace.gaps_w[0] * (1.0 - fill[near])
        own = np.bincount(owner, weights=above * within, minlength=len(spans)) / count
        scatter = min(scatter, unexplained(own[owner]))
    typical = np.zeros(len(r.watts))
    mine = np.flatnonzero(near)[owner == len(spans) // 2]
    typical[mine] = each_s[mine] / power
    noise = sum(model.variances(typical).values())
    return math.sqrt(max(scatter - noise, 0.0) + noise * math.sqrt(2.0 / len(spans)))
