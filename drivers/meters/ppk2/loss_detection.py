"""Losses that the counter of a PPK2 cannot show, found by the times of arrival. No port or clock is used.

No reading arrives before it was taken. So the *lag*, time of arrival minus count times period, has a lowest value, the
*floor*, which only the drift between the two clocks moves. After a delay the lag comes back to the floor; after a loss
of 64 readings (0.64 ms) it does not. An arrival near the floor therefore proves that nothing is missing up to it. Only
proved readings are released.
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
WINDOW_S = 0.2
WINDOWS = 4
AGREE_S = 2e-4
"""The floor has risen when the lowest lags of ``WINDOWS`` windows in a row agree this well."""
LEARNT_FROM_S, LEARNT_MOST = 5.0, 30
"""The drift is fitted to the lowest lag of each second, over at least 5 and at most 30 seconds."""
CERTAIN = 8
"""A loss is certainly over after this many arrivals at the raised floor without a lower one between them."""
UNCERTAINTY_S, UNCERTAINTY_RATE = 4e-4, 1e-5
"""Uncertainty of the fitted drift: the first divided by the time of the fit, plus the second, which is how much an
oscillator and the adjustment of the host's clock drift within half a minute."""


@dataclass(frozen=True)
class Loss:
    """``missing`` readings were lost, at one place or several, among the readings numbered ``first`` to ``end``."""

    first: int
    end: int
    missing: int


@dataclass(frozen=True)
class Stretch:
    """Consecutive readings from number ``first`` on: the word (uint32), and whether it is known; shapes (n,)."""

    first: int
    word: NDArray[np.uint32]
    known: Bools


class LossDetector:
    """Finds losses by the times of arrival. ``tolerance`` limits the drift of the sample timer (relative).

    For the first ``proved`` readings it is certain how many were lost before each. ``missing`` counts the losses so
    far that the counter did not show.
    """

    def __init__(self, name: str, rate_hz: float, tolerance: float) -> None:
        self._name, self._period_s, self._tolerance = name, 1.0 / rate_hz, tolerance
        self._at_s, self._floor_s = -math.inf, math.inf
        self._lows: deque[tuple[float, float]] = deque(maxlen=LEARNT_MOST)
        self._drift, self._drift_uncertainty = 0.0, tolerance
        self._late: list[tuple[float, int, float]] = []
        self._windows: list[float] = []
        self.proved = 0
        self.missing = 0

    def add(self, count: int, at_s: float) -> Loss | None:
        """Record that ``count`` readings in all had arrived by ``at_s``. Return a loss as soon as it is certain.

        Neither argument may fall from call to call. Raises ``MeterError`` when arrivals were late for too long to find
        or exclude a loss.
        """
        lag_s = at_s - (count + self.missing) * self._period_s
        if math.isinf(self._floor_s):
            self._near(count, at_s, lag_s, lag_s)
            return None
        since_s = at_s - self._at_s
        expected_s, slack_s = self._floor_s + self._drift * since_s, self._drift_uncertainty * since_s
        late_s = lag_s - expected_s
        if slack_s > BLIND_S or since_s > BLIND_MOST_S:
            raise self._blind(since_s, late_s)
        if late_s <= NEAR_S:
            if self.missing and late_s < -0.5 * UNSEEN * self._period_s:
                raise self._contradicted(late_s)
            self._near(count, at_s, lag_s, min(expected_s + slack_s, lag_s))
            return None
        return self._suspect(count, at_s, late_s)

    @property
    def proved_s(self) -> float:
        """Return the time of the last arrival that proved that nothing is missing."""
        return self._at_s

    def tick_at(self, at_s: float) -> float:
        """Return the tick of the sample timer at ``at_s`` minus the floor. Lost readings count as ticks."""
        return (at_s - self._floor_s - self._drift * (at_s - self._at_s)) / self._period_s

    def _near(self, count: int, at_s: float, lag_s: float, floor_s: float) -> None:
        """Record that nothing is missing until now. The floor is the lowest lag plus what drift may have added."""
        self._at_s, self._floor_s, self.proved = at_s, floor_s, count
        self._late.clear()
        self._windows.clear()
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

    def _suspect(self, count: int, at_s: float, late_s: float) -> Loss | None:
        """Add a late arrival; after enough of them, find whether the floor rose by a multiple of 64 readings."""
        number = int((at_s - self._late[0][0]) / WINDOW_S) if self._late else 0
        self._late.append((at_s, count, late_s))
        while len(self._windows) <= number:
            self._windows.append(math.inf)
        self._windows[number] = min(self._windows[number], late_s)
        whole = self._windows[:-1][-WINDOWS:]
        step_s = UNSEEN * self._period_s
        if len(whole) < WINDOWS or max(whole) - min(whole) > AGREE_S:
            return None
        times = round(float(np.mean(whole)) / step_s)
        if times < 1 or max(abs(low - times * step_s) for low in whole) > AGREE_S:
            return None
        return self._lost(times, min(whole))

    def _lost(self, times: int, low_s: float) -> Loss | None:
        """Return a loss of 64 * ``times`` readings once enough arrivals are at the raised floor: few may be a delay."""
        raised_s, late = times * UNSEEN * self._period_s, list(self._late)
        lower = max((k for k, (_, _, late_s) in enumerate(late) if late_s < raised_s - NEAR_S), default=-1)
        at_floor = [k for k in range(lower + 1, len(late)) if late[k][2] <= low_s + 0.5 * NEAR_S]
        if len(at_floor) < CERTAIN:
            return None
        begin = at_floor[CERTAIN - 1]
        loss = Loss(self.proved, late[begin][1], times * UNSEEN)
        self.missing += loss.missing
        self._late.clear()
        self._windows.clear()
        for at_s, count, _ in late[begin:]:
            self.add(count, at_s)
        return loss

    def _blind(self, since_s: float, late_s: float) -> MeterError:
        count = round(late_s / self._period_s)
        return meter_failed(
            f"every reading of meter {self._name} was late for {since_s:.2g} s, at the end by {late_s:.2g} s. About "
            f"{max(0, count)} readings were lost, or this machine was too busy to receive them in time",
            "port",
            count,
            "Run nothing else on this machine while it measures, and use a port without a hub",
        )

    def _contradicted(self, late_s: float) -> MeterError:
        what = f"readings of meter {self._name} were counted as lost and came after all ({-late_s:.2g} s early)"
        remedy = "Run nothing else on this machine while it measures"
        return meter_failed(what, "port", round(-late_s / self._period_s), remedy)


class PendingReadings:
    """Words that have arrived and wait until it is proved how many are missing among them.

    ``count`` is the number of readings as they arrived. ``first`` of a released stretch also counts losses found later.
    """

    def __init__(self) -> None:
        self._word, self._known = np.zeros(0, np.uint32), np.zeros(0, np.bool_)
        self._begin = self._released = 0
        self.count = 0

    def add(self, words: Words) -> None:
        """Add words. Put an unknown reading in the place of each one that the counter shows as lost."""
        at = np.arange(len(words.word)) + np.cumsum(words.lost)
        n = int(at[-1]) + 1 if len(at) else 0
        word, known = np.zeros(n, np.uint32), np.zeros(n, np.bool_)
        word[at], known[at] = words.word, True
        self._word, self._known = np.concatenate([self._word, word]), np.concatenate([self._known, known])
        self.count += n

    def lose(self, loss: Loss) -> None:
        """Mark the loss's stretch as unknown, because its exact place is not known, and lengthen the stretch."""
        first, end = loss.first - self._begin, loss.end - self._begin
        self._known[first:end] = False
        self._word = np.insert(self._word, [end] * loss.missing, 0)
        self._known = np.insert(self._known, [end] * loss.missing, False)
        self._begin -= loss.missing

    def release(self, until: int) -> Stretch:
        """Take out the readings up to number ``until``."""
        n = max(0, until - self._begin)
        stretch = Stretch(self._released, self._word[:n], self._known[:n])
        self._word, self._known = self._word[n:], self._known[n:]
        self._begin += n
        self._released += n
        return stretch
