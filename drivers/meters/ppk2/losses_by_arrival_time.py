"""Proves from arrival times that no loss of readings stays hidden behind a PPK2's counter. Uses no port and no clock.

No reading arrives before it was taken. So the *lag* (arrival time minus count times sampling period) has a lowest
value, the *floor*. Only drift between the kit's clock and the host's moves the floor. After a delay the lag returns to
the floor. After a loss of 64 readings (0.64 ms) it does not. An arrival near the floor therefore proves that no reading
before it is missing. Only proved readings are released. If nothing can be proved any more, the run ends.
"""

import math
from collections import deque

import numpy as np

from drivers.failures import meter_failed

UNSEEN = 64
"""The counter has six bits, so it cannot reveal the loss of a multiple of this many readings."""
NEAR_S = 3e-4
"""An arrival at most this late (s) still proves that nothing is missing; 64 readings last 6.4e-4 s."""
BLIND_S = 2e-4
"""Nothing more can be proved if drift may have moved the floor by more than this since the last arrival near it (s).

With a tolerance of 1e-4, this happens after 2 s at the start of a run, and after 9 s once the drift is known best.
"""
LEARNT_FROM_S, LEARNT_MOST = 5.0, 30
"""The drift is fitted to the lowest lag of each second, over 5 to 30 seconds."""
UNCERTAINTY_S, UNCERTAINTY_RATE = 4e-4, 1e-5
"""The relative uncertainty of the fitted drift is the first value (s) over the length of the fit, plus the second
value. The second value is how much an oscillator and the adjusted host clock may drift within half a minute.
"""


class Proof:
    """Follows the arrival times. ``tolerance`` limits the drift of the sample timer (relative).

    None of the first ``proved`` readings is missing, and the last of them had arrived by ``proved_s``.
    """

    def __init__(self, name: str, rate_hz: float, tolerance: float) -> None:
        self._name, self._period_s, self._tolerance = name, 1.0 / rate_hz, tolerance
        self._floor_s = math.inf
        self._lows: deque[tuple[float, float]] = deque(maxlen=LEARNT_MOST)
        self._drift, self._drift_uncertainty = 0.0, tolerance
        self.proved, self.proved_s = 0, -math.inf

    def add(self, count: int, at_s: float) -> None:
        """Record that ``count`` readings in all had arrived by ``at_s``. Neither value may fall from call to call.

        Raises ``MeterError`` if arrivals were late for so long that a loss cannot be excluded.
        """
        lag_s = at_s - count * self._period_s
        if math.isinf(self._floor_s):
            self._near(count, at_s, lag_s, lag_s)
            return
        since_s = at_s - self.proved_s
        expected_s, slack_s = self._floor_s + self._drift * since_s, self._drift_uncertainty * since_s
        if slack_s > BLIND_S:
            late_s = lag_s - expected_s
            count = round(late_s / self._period_s)
            what = f"every reading of meter {self._name} was late for {since_s:.2g} s, at the end by {late_s:.2g} s. "
            what += f"About {max(0, count)} readings were lost, or this machine was too busy to receive them in time"
            remedy = "Run nothing else on this machine while it measures, and use a port without a hub"
            raise meter_failed(what, "port", count, remedy)
        if lag_s - expected_s <= NEAR_S:
            self._near(count, at_s, lag_s, min(expected_s + slack_s, lag_s))

    def _near(self, count: int, at_s: float, lag_s: float, floor_s: float) -> None:
        """Record that nothing is missing so far. The floor is the lowest lag plus what drift may have added."""
        self.proved_s, self._floor_s, self.proved = at_s, floor_s, count
        if self._lows and at_s < self._lows[-1][0] + 1.0:
            begun_s, low_s = self._lows[-1]
            self._lows[-1] = begun_s, min(low_s, lag_s)
            return
        self._lows.append((at_s, lag_s))
        span_s = at_s - self._lows[0][0]
        if span_s >= LEARNT_FROM_S:
            t, low = np.array(self._lows)[:-1].T  # the last second has only begun
            slope = float(np.polyfit(t - t[0], low - low[0], 1)[0])
            self._drift = min(max(slope, -self._tolerance), self._tolerance)
            self._drift_uncertainty = min(self._tolerance, UNCERTAINTY_S / span_s + UNCERTAINTY_RATE)
