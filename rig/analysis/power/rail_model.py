"""The model of one rail: its idle level, its noise, and the uncertainty of the idle level."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rig.analysis.power.counter import Jitter
from rig.analysis.power.counter import variances as counter_variances
from rig.analysis.power.idle_level import gap_weights, idle_line, idle_weights
from rig.analysis.power.noise import Noise
from rig.analysis.power.noise_variance import variances
from rig.analysis.timing.activity_signal import margin_s, merged, touches
from rig.analysis.timing.readings import Readings
from rig.types import Bools, Floats, Rail

GAP_ALLOWANCE = 1e-3
"""A difference between gaps and idle below this share of dynamic power does not matter."""
CONTRAST = 4.0
"""Standard errors by which gaps must differ from idle to count as another level."""
DIFFERENCE = 1e-6
"""Sum of weights, of the sum of their sizes, below which a sum of readings is a difference of levels."""


@dataclass(frozen=True)
class Single:
    """Single readings of a rail, shapes (n,): which of them are in idle windows, touch a span, and are within one.

    ``beside`` says which follow the one before without a pause, shape (n - 1,), or that all do.
    """

    readings: Readings
    idle: Bools
    busy: Bools
    held: Bools
    beside: Bools | np.bool_


@dataclass(frozen=True)
class GapLevel:
    """Level of the gaps above idle, its uncertainty, and how large it must be to be another level, in watts."""

    level_w: float
    u_w: float
    least_w: float

    @property
    def differs(self) -> bool:
        """Return whether the gaps between spans have another level than idle."""
        return abs(self.level_w) > self.least_w


@dataclass(frozen=True)
class RailModel:
    """One rail with everything that the estimators share; arrays have the shape of the readings, (n,).

    ``sigma_s`` is the uncertainty of the ends of spans on the meter's clock, the step of their stamps included, and
    ``rate_sigma`` the uncertainty of the rate between the meter's clock and the device's. ``idle`` marks the
    readings in the idle windows, ``busy`` the readings that touch a span, and ``held`` the readings wholly inside one.
    ``weight`` is the length of a reading, or 1 if all readings have the same length. It is 0 where a reading is not a
    number.
    """

    readings: Readings
    clock: str
    sigma_s: float
    rate_sigma: float
    idle: Bools
    middle_s: Floats
    weight: Floats
    all_busy_s: Floats
    busy: Bools
    held: Bools
    noise: Noise
    drift_w: float
    drift_u_w: float
    bend_w: float
    """Uncertainty of dynamic power from a bend in the drift of idle; see ``_bend``."""
    jitter: Jitter | None = None
    """The errors of a counter's readings; None for a rail that is not cumulative."""
    at_looks: Floats | None = None
    """For a counter: how busy the device was at each read, 0 to 1, shape (n + 1,)."""
    gap: Bools | None = None
    """Readings between spans, if idle under the spans is taken from them; shape (n,)."""
    load_noise: tuple[float, float] = (0.0, math.inf)
    """Standard uncertainty of dynamic power by noise under load, in watts, and its degrees of freedom."""
    quiet_spans: bool = False
    """Whether spans are quieter than idle, so that their scatter shows what white noise does to them."""
    looked_at: Single | None = None
    """For a long trace: some single readings; None if ``readings`` are single themselves."""

    @property
    def single(self) -> Single:
        """Return single readings, for what means of several do not show: all of a short trace, some of a long one."""
        return self.looked_at or Single(self.readings, self.idle, self.busy, self.held, np.True_)

    @property
    def rail(self) -> Rail:
        """Return what the meter declared of the rail."""
        return self.readings.rail

    @cached_property
    def gaps(self) -> GapLevel:
        """Return the level of the gaps between spans; zeros if it is not known or they are idle itself."""
        gap = self.in_gaps if np.any(self.busy) else self.idle[:0]
        if not np.any(gap) or self.gap is not None:
            return GapLevel(0.0, 0.0, 0.0)
        r = self.readings
        at = float(self.middle_s[gap].mean())
        share = self.weight[gap].sum() if r.uneven else np.count_nonzero(gap)
        weight = np.where(gap, self.weight if r.uneven else 1.0, 0.0) / share - self.idle_weights(at)
        allowance = (
            0.2 * abs(self.drift_w)
            + 1e-12 * abs(float(np.mean(r.watts)))
            + GAP_ALLOWANCE * abs(float(np.mean(r.watts[self.busy]) - r.watts[self.idle].mean()))
        )
        u_w = self.noise_u_w(weight)
        return GapLevel(float(weight @ r.watts), u_w, CONTRAST * u_w + allowance)

    @cached_property
    def in_gaps(self) -> Bools:
        """Return which readings lie wholly between spans and outside the idle windows; shape (n,)."""
        r, spans = self.readings, self.all_busy_s
        guard = merged(spans + margin_s(self.sigma_s, r.tau_s))
        between = (r.start_s > spans[0, 0]) & (r.end_s < spans[-1, 1])
        return np.asarray(between & r.ok & ~touches(guard, r.start_s, r.end_s) & ~self.idle)

    def variances(self, weight: Floats) -> dict[str, float]:
        """Return the variance of ``sum(weight * watts)`` by source; ``weight`` has shape (n,)."""
        noise = self.noise
        # a difference of spans and the gaps beside them owes nothing to the idle windows, but a level does
        if self.gap is not None and abs(weight.sum()) < DIFFERENCE * np.abs(weight).sum():
            noise = noise.between_spans()
        pool = self.readings.pool
        found = variances(noise, weight, self.middle_s, self.busy, None if pool is None else pool.many)
        if self.jitter is None or self.at_looks is None:
            return found
        length = self.readings.end_s - self.readings.start_s
        return found | counter_variances(self.jitter, weight, length, self.at_looks)

    def noise_u_w(self, weight: Floats) -> float:
        """Standard uncertainty of ``sum(weight * watts)`` from noise alone, in watts."""
        return math.sqrt(sum(self.variances(weight).values()))

    def white_u_w(self, weight: Floats) -> float:
        """Standard uncertainty of ``sum(weight * watts)`` from white noise at idle alone, in watts."""
        pool = self.readings.pool
        each = weight if pool is None else weight / np.sqrt(np.maximum(pool.many, 1.0))
        return self.noise.white_w * math.sqrt(float(each @ each))

    def reading_u_w(self, busy: bool) -> float:
        """Return the standard deviation of one reading from noise, in watts."""
        own = self.noise.busy_w if busy else self.noise.white_w
        return own if self.jitter is None else math.hypot(own, self.jitter.watts(self.noise.period_s, busy))

    def idle_weights(self, at_s: float) -> Floats:
        """Return weights that make of the readings the idle level at a moment, by a straight line, shape (n,)."""
        return idle_weights(self.idle, self.weight, self.middle_s, at_s, straight=self.drift_u_w != math.inf)

    def base_weights(self, windows_s: Floats, at_s: float) -> Floats:
        """Return weights that make of the readings the idle level under spans, whose mean moment is ``at_s``.

        It is ``idle_weights``, or the gaps beside each span where these are idle.
        """
        if self.gap is None:
            return self.idle_weights(at_s)
        return gap_weights(self.gap, self.readings.many, self.middle_s, windows_s)

    @cached_property
    def above_w(self) -> Floats:
        """Return the readings above the idle line, in watts, shape (n,)."""
        return np.asarray(self.readings.watts - idle_line(self.readings, self.middle_s, self.idle, self.drift_u_w))

    def idle_level_w(self, at_s: float) -> float:
        """Return idle power at a moment, in watts."""
        return float(self.idle_weights(at_s) @ self.readings.watts)
