"""How far stamps that jitter, lag or step move the total busy time of a phase."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rig.analysis.power.estimators import length_error_s, stamp_jitter_s
from rig.analysis.power.rail_model import RailModel
from rig.analysis.timing.execution_time import StampsU
from rig.analysis.timing.timebase import Timebase
from rig.analysis.timing.timeline import Activity, Phase

FINE_STEP = 5e-5
"""Part of busy time that the step of all stamps together may cost before the trace is asked."""


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
    seen_s = min(length_error_s(model, windows_s, other_s, own_s) for model in models)
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
    jitter = math.sqrt(len(length)) * min([scatter, *(stamp_jitter_s(m, phase.windows_s) for m in models)])
    return math.hypot(jitter, lag)
