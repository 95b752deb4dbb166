"""Whether readings were lost where the counter cannot show it: their count against the moments at which they arrived.

No reading arrives before it was taken. So the *lag*, time of arrival less count times period, has a floor that only the
drift between two clocks moves. A delayed arrival comes back to the floor; after a loss of 64 readings (0.64 ms) none
does. An arrival near the floor therefore proves that nothing is missing up to it, and only what is proved is released.
No port and no clock here: counts and times in, losses out.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from drivers.meters.usb_stream import KEPT
from rig.errors import MeterError

UNSEEN = 64
"""The counter has six bits: a loss of a multiple of so many readings leaves no trace in it."""
NEAR_S = 3e-4
"""How late an arrival may be and prove that nothing is missing; 64 readings are 6.4e-4 s."""
BLIND_S = 2e-4
"""What drift may have done to the floor since the last arrival near it, before nothing can be proved any more."""
BLIND_MOST_S = 8.0
WINDOW_S = 0.2
WINDOWS = 4
AGREE_S = 2e-4
"""A raised floor counts as one when the lowest lags of so many windows in a row agree so well."""
LEARNT_FROM_S, LEARNT_MOST = 5.0, 30
"""The drift is learnt from the lowest lag of each second, of 5 s at least and of 30 seconds at most."""
CERTAIN = 8
"""Arrivals at a raised floor, none lower between, before it counts as certain that the loss is past."""
DOUBT_S, DOUBT_RATE = 4e-4, 1e-5
"""The learnt drift is good to the first over the time it was learnt from, and to no better than the second: what an
oscillator, and the discipline of the host's clock, do within half a minute."""


@dataclass(frozen=True)
class Loss:
    """``missing`` readings were lost at a place, or places, among those counted ``first`` to ``end``."""

    first: int
    end: int
    missing: int


class Follower:
    """See the module. ``tolerance`` limits the drift of the sample timer against the host's clock (relative).

    ``proved`` counts the readings of which it is certain how many were lost before each.
    """

    def __init__(self, name: str, rate_hz: float, tolerance: float) -> None:
        self._name, self._period_s, self._tolerance = name, 1.0 / rate_hz, tolerance
        self._at_s, self._floor_s = -math.inf, math.inf
        self._lows: deque[tuple[float, float]] = deque(maxlen=LEARNT_MOST)
        self._drift, self._doubt = 0.0, tolerance
        self._late: list[tuple[float, int, float]] = []
        self._windows: list[float] = []
        self.proved = 0
        self.missing = 0

    def add(self, count: int, at_s: float) -> Loss | None:
        """``count`` readings in all had arrived by ``at_s``; neither goes back. A loss is told once it is certain.

        Raises ``MeterError`` when arrivals were late for so long that a loss can neither be told nor excluded.
        """
        lag_s = at_s - (count + self.missing) * self._period_s
        if math.isinf(self._floor_s):
            self._near(count, at_s, lag_s, lag_s)
            return None
        since_s = at_s - self._at_s
        expected_s, slack_s = self._floor_s + self._drift * since_s, self._doubt * since_s
        late_s = lag_s - expected_s
        if slack_s > BLIND_S or since_s > BLIND_MOST_S:
            raise self._blind(since_s, late_s)
        if late_s <= NEAR_S:
            if self.missing and late_s < -0.5 * UNSEEN * self._period_s:
                raise self._contradicted(at_s, late_s)
            self._near(count, at_s, lag_s, min(expected_s + slack_s, lag_s))
            return None
        return self._suspect(count, at_s, late_s)

    @property
    def proved_s(self) -> float:
        """When the last arrival that proved something came."""
        return self._at_s

    def tick_at(self, at_s: float) -> float:
        """Readings that would have arrived by a moment at the floor's lag, lost ones too; it flies over a stall."""
        return (at_s - self._floor_s - self._drift * (at_s - self._at_s)) / self._period_s

    def _near(self, count: int, at_s: float, lag_s: float, floor_s: float) -> None:
        """Nothing is missing up to here. The floor is the lowest lag, let up by what drift may have done since."""
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
            self._doubt = min(self._tolerance, DOUBT_S / span_s + DOUBT_RATE)

    def _suspect(self, count: int, at_s: float, late_s: float) -> Loss | None:
        """A late arrival; after enough of them, whether the floor has risen by a whole number of 64 readings."""
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
        """Go on from where the raised floor, ``low_s``, was certainly there: a delay can look like it once or twice."""
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
        return MeterError(
            f"every reading of meter {self._name} came late for {since_s:.2g} s, by {late_s:.2g} s in the end: about "
            f"{max(0, round(late_s / self._period_s))} readings were lost, or this machine was too busy to tell",
            field="port",
            value=round(late_s / self._period_s),
            remedy=f"Leave the machine alone while it measures, and use a port without a hub. {KEPT}",
        )

    def _contradicted(self, at_s: float, late_s: float) -> MeterError:
        return MeterError(
            f"readings of meter {self._name} were taken for lost and came after all ({-late_s:.2g} s early)",
            field="port",
            value=round(-late_s / self._period_s),
            remedy=f"Leave the machine alone while it measures. {KEPT}",
        )
