"""Fit the power of spans to all readings near them, if no reading lies inside one span alone.

A span is a time in which the device works, by its stamps, and a gap is the time between two spans. Stamps, the meter's
aperture and its filter determine which part of each reading spans and gaps fill. The fit finds the levels of spans and
gaps, the delay of spans against the meter, and the filter's time constant. The filter is one pole or a moving mean of
the same delay, whichever fits better.
"""

import math
from collections.abc import Callable

import numpy as np

from rig.analysis.power.clipped_and_missing import PLACES, covered_share
from rig.analysis.power.estimators import MIN_SHARE, Estimate, Idle, Margin, estimate_of
from rig.analysis.power.model.rail_model import RailModel
from rig.analysis.result.quantity import Component
from rig.analysis.timing.activity_signal import count_before, edges_of, margin_s, mean_signal, merged, touches
from rig.types import Floats, Indices

LEAST = 4
"""At least this many spans, and twice as many readings, are needed to separate spans from the power beside them."""
STEPS = 6
"""Number of Gauss-Newton steps for delay and filter."""
LARGEST = 0.5
"""Largest step of the delay in periods, and of the time constant as a part of itself."""
SINGULAR = 1e8
"""Above this condition number, spans and gaps fill all readings too equally for a fit."""
WORST = 0.5
"""A fit is not used if its uncertainty is above this part of dynamic power."""

Parts = Callable[[float, float], Floats]
"""A function of delay and time constant that returns the parts of readings that spans, gaps and other work fill."""


def fitted(model: RailModel, windows_s: Floats, other_s: Floats, idle: Idle) -> tuple[Estimate, Margin] | None:
    """Return the power of windows, shape (k, 2), with the margin of the fit.

    The result is None if there are too few spans or readings, or if the fit is too uncertain.

    A residual that recurs at the same place of all spans may be power of spans or of gaps, so it becomes a bias.
    """
    r, spans = model.readings, merged(windows_s)
    near = np.array([[spans[0, 0], spans[-1, 1]]]) + margin_s(model.sigma_s, r.tau_s) + [-r.period_s, r.period_s]
    use = np.flatnonzero(r.ok & (model.weight > 0.0) & touches(near, r.start_s, r.end_s))
    if len(spans) < LEAST or len(use) < 2 * LEAST or covered_share(r, spans) < MIN_SHARE:
        return None
    y, root = model.above_w[use], np.sqrt(model.weight[use] / float(np.mean(model.weight[use])))
    found = [_converged(parts, y, root, r.tau_s, r.period_s) for parts in _shapes(model, spans, other_s, use)]
    design, left = min(found, key=lambda pair: float(pair[1] @ pair[1]))
    size = np.linalg.norm(design, axis=0)
    design = design / np.where(size > 0.0, size, 1.0)
    gram = design.T @ design
    if not size.all() or np.linalg.cond(gram) > SINGULAR:
        return None
    each = np.linalg.solve(gram, design.T)[0] / size[0]
    u_w, bias_w = _left_over(each, left, model.middle_s[use], spans)
    level = np.zeros(len(r.watts))
    level[use] = each * root
    e = estimate_of(model, level + (1.0 - level.sum()) * idle[0], idle)
    if math.hypot(u_w, bias_w) > WORST * abs(e.value_w):
        return None
    return e, Margin(0.0, bias_w, (Component("spans and gaps in one reading", u_w),))


def _shapes(model: RailModel, spans: Floats, other_s: Floats, use: Indices) -> list[Parts]:
    """Return the functions for the parts of readings, with a filter of one pole and with a moving mean."""
    r, start, end = model.readings, model.readings.start_s[use], model.readings.end_s[use]
    others = merged(other_s)
    signals = [spans, np.array([[spans[0, 0], spans[-1, 1]]])]
    if touches(signals[1], *others.T).any():
        signals.append(others)

    def parts(late_s: float, tau_s: float, width_s: float) -> Floats:
        held = [mean_signal(edges_of(s + late_s), start - width_s, end, tau_s) for s in signals]
        held[1] = held[1] - held[0] - sum(held[2:])
        return np.column_stack(held)

    shapes: list[Parts] = [lambda late_s, tau_s: parts(late_s, tau_s, 0.0)]
    return shapes + [lambda late_s, tau_s: parts(late_s, 0.0, 2.0 * tau_s)] * (r.tau_s > 0.0)


def _converged(parts: Parts, y: Floats, root: Floats, tau_s: float, period_s: float) -> tuple[Floats, Floats]:
    """Return the weighted design at the best delay and time constant, and the residuals; shapes (n, p) and (n,)."""
    late_s, slow, step_s = 0.0, tau_s > 0.0, 0.05 * period_s
    for _ in range(STEPS):
        columns = parts(late_s, tau_s)
        levels = np.linalg.lstsq(columns * root[:, None], y * root, rcond=None)[0]
        moves = [(parts(late_s + step_s, tau_s) - parts(late_s - step_s, tau_s)) @ levels / (2.0 * step_s)]
        if slow:
            less_s, more_s = 0.98 * tau_s, 1.02 * tau_s
            moves.append((parts(late_s, more_s) - parts(late_s, less_s)) @ levels / (more_s - less_s))
        design = np.column_stack([columns, *moves]) * root[:, None]
        found = np.linalg.lstsq(design, y * root, rcond=None)[0]
        by = found[columns.shape[1] :]
        late_s += float(np.clip(by[0], -LARGEST * period_s, LARGEST * period_s))
        tau_s += float(np.clip(by[1], -LARGEST * tau_s, LARGEST * tau_s)) if slow else 0.0
    return design, y * root - design @ found


def _left_over(each: Floats, left: Floats, middle_s: Floats, spans: Floats) -> tuple[float, float]:
    """Return the uncertainty of a level from residuals that vary between spans, and its bias from those that recur."""
    of = np.clip(count_before(spans[:, 0], middle_s) - 1, 0, len(spans) - 1)
    u_w = math.sqrt(float(np.sum(np.bincount(of, each * left) ** 2)))
    pitch_s = float(np.median(np.diff(spans[:, 0])))
    place = np.clip((middle_s - spans[of, 0]) / pitch_s * PLACES, -1, 2 * PLACES).astype(np.int64) + 1
    count = np.maximum(np.bincount(place), 1)
    mean_w = np.bincount(place, left) / count
    own_w2 = np.bincount(place, left**2) / count - mean_w**2
    alike_w2 = float(np.sum(np.maximum(count * mean_w**2 - own_w2 * count / np.maximum(count - 1, 1), 0.0)))
    return u_w, math.sqrt(alike_w2 * float(each @ each))
