"""The proof by the times of arrival that a PPK2's counter hides no loss. No port or clock is used.

No reading arrives before it was taken. So the *lag*, time of arrival minus count times period, has a lowest value, the
*floor*, which only the drift between the two clocks moves. After a delay the lag comes back to the floor; after a loss
of 64 readings (0.64 ms) it does not. An arrival near the floor therefore proves that nothing is missing up to it. Only
proved readings are released, and a run in which nothing can be proved any more ends.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drivers.failures import meter_failed
from drivers.meters.ppk2.words import Words
from rig.errors import MeterError
from rig.types import Bools

UNSEEN = 64
"""The counter has six bits: it does not show the loss of a multiple of this many readings."""
NEAR_S = 3e-4
"""An arrival at most this late still proves that nothing is missing; 64 readings are 6.4e-4 s."""
BLIND_S = 2e-4
"""If drift may have moved the floor by more than this since the last arrival near it, nothing more can be proved."""
BLIND_MOST_S = 8.0
LEARNT_FROM_S, LEARNT_MOST = 5.0, 30
"""The drift is fitted to the lowest lag of each second, over at least 5 and at most 30 seconds."""
UNCERTAINTY_S, UNCERTAINTY_RATE = 4e-4, 1e-5
"""Uncertainty of the fitted drift: the first divided by the time of the fit, plus the second, which is how much an
oscillator and the adjustment of the host's clock drift within half a minute."""


@dataclass(frozen=True)
class Stretch:
    """Consecutive readings from number ``first`` on: the word (uint32), and whether it is known; shapes (n,)."""

    first: int
    word: NDArray[np.uint32]
    known: Bools


class Proof:
    """Follows the times of arrival. ``tolerance`` limits the drift of the sample timer (relative).

    Nothing is missing among the first ``proved`` readings, the last of which arrived by ``proved_s``.
    """

    def __init__(self, name: str, rate_hz: float, tolerance: float) -> None:
        self._name, self._period_s, self._tolerance = name, 1.0 / rate_hz, tolerance
        self._floor_s = math.inf
        self._lows: deque[tuple[float, float]] = deque(maxlen=LEARNT_MOST)
        self._drift, self._drift_uncertainty = 0.0, tolerance
        self.proved, self.proved_s = 0, -math.inf

    def add(self, count: int, at_s: float) -> None:
        """Record that ``count`` readings in all had arrived by ``at_s``. Neither may fall from call to call.

        Raises ``MeterError`` when arrivals were late for too long to exclude a loss.
        """
        lag_s = at_s - count * self._period_s
        if math.isinf(self._floor_s):
            self._near(count, at_s, lag_s, lag_s)
            return
        since_s = at_s - self.proved_s
        expected_s, slack_s = self._floor_s + self._drift * since_s, self._drift_uncertainty * since_s
        if slack_s > BLIND_S or since_s > BLIND_MOST_S:
            raise self._blind(since_s, lag_s - expected_s)
        if lag_s - expected_s <= NEAR_S:
            self._near(count, at_s, lag_s, min(expected_s + slack_s, lag_s))

    def _near(self, count: int, at_s: float, lag_s: float, floor_s: float) -> None:
        """Record that nothing is missing until now. The floor is the lowest lag plus what drift may have added."""
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

    def _blind(self, since_s: float, late_s: float) -> MeterError:
        count = round(late_s / self._period_s)
        return meter_failed(
            f"every reading of meter {self._name} was late for {since_s:.2g} s, at the end by {late_s:.2g} s. About "
            f"{max(0, count)} readings were lost, or this machine was too busy to receive them in time",
            "port",
            count,
            "Run nothing else on this machine while it measures, and use a port without a hub",
        )


class PendingReadings:
    """Words that have arrived and wait until it is proved that none is missing among them; ``count`` of them came."""

    def __init__(self) -> None:
        self._word, self._known = np.zeros(0, np.uint32), np.zeros(0, np.bool_)
        self._first = self.count = 0

    def add(self, words: Words) -> None:
        """Add words. Put an unknown reading in the place of each one that the counter shows as lost."""
        at = np.arange(len(words.word)) + np.cumsum(words.lost)
        n = int(at[-1]) + 1 if len(at) else 0
        word, known = np.zeros(n, np.uint32), np.zeros(n, np.bool_)
        word[at], known[at] = words.word, True
        self._word, self._known = np.concatenate([self._word, word]), np.concatenate([self._known, known])
        self.count += n

    def release(self, until: int) -> Stretch:
        """Take out the readings up to number ``until``."""
        n = max(0, until - self._first)
        stretch = Stretch(self._first, self._word[:n], self._known[:n])
        self._word, self._known = self._word[n:], self._known[n:]
        self._first += n
        return stretch
