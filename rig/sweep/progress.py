"""How far a sweep is and how long the rest may take, as a live line on a terminal, else a line now and then."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from statistics import fmean, linear_regression

from rig.session.live_line import LiveLine
from rig.sweep.cells import Outcome
from rig.sweep.grid import Cell
from rig.terminal import say

PLAIN_EVERY_S = 5.0
TERMINAL_EVERY_S = 0.2


def kind_of(cell: Cell) -> tuple[str, ...]:
    """What cells have in common that take about as long: all but seeds and repetition."""
    return (cell.device, *(f"{k}={v}" for k, v in cell.options.items() if not k.endswith("seed")))


def declared_s(cell: Cell) -> float:
    """The product of the options in seconds of a cell (a budget, a duration); 1 where there are none."""
    found = 1.0
    for key, value in cell.options.items():
        with suppress(ValueError):
            seconds = float(value) if key.endswith("_s") else 1.0
            found *= seconds if 0 < seconds < math.inf else 1.0
    return found


class Progress:
    """Counts outcomes, and estimates how long the open cells take from how long others of their kind took.

    A kind of which none has ended is estimated by a straight line through the other kinds, over the seconds declared.
    ``left`` names the cells that are open, ``took_s`` how long some of the others took.
    """

    def __init__(self, cells: Sequence[Cell], left: Sequence[str], failed: int, took_s: Mapping[str, float]) -> None:
        self._kinds = {cell.key: kind_of(cell) for cell in cells}
        self._left, self._failed, self._total = set(left), failed, len(cells)
        self._declared_s = {kind_of(cell): declared_s(cell) for cell in cells}
        self._sums: dict[tuple[str, ...], tuple[float, int]] = {}
        for key, seconds in took_s.items():
            self._learn(self._kinds[key], seconds)
        self._began_s = time.monotonic()
        self._worked_s, self._noted_s = 0.0, self._began_s
        self._shown_s = float("-inf")
        self._live = LiveLine()

    def note(self, outcome: Outcome) -> None:
        """Count a cell that is done or has failed."""
        if outcome.key not in self._left or outcome.state not in ("done", "failed"):
            return
        self._left.discard(outcome.key)
        self._noted_s = time.monotonic()
        self._failed += outcome.state == "failed"
        if outcome.seconds:
            self._worked_s += outcome.seconds
            self._learn(self._kinds[outcome.key], outcome.seconds)
        if outcome.state == "failed":
            self.say(f"{outcome.key} failed: {(outcome.error or {}).get('message')}")

    def left_s(self) -> float | None:
        """Seconds that the open cells may take with as many at once as until now; None when unknown."""
        if not self._sums or not self._worked_s:
            return None
        means_s = {kind: s / n for kind, (s, n) in self._sums.items()}
        unlike = {self._declared_s[self._kinds[key]] for key in self._left} - {self._declared_s[k] for k in means_s}
        if unlike and len({self._declared_s[kind] for kind in means_s}) < 2:
            return None
        fixed_s, slope = self._line(means_s)
        each_s = sum(
            means_s.get(kind, fixed_s + slope * self._declared_s[kind])
            for kind in (self._kinds[key] for key in self._left)
        )
        at_once = max(self._worked_s / (self._noted_s - self._began_s), 1e-6)
        return max(each_s / at_once - (time.monotonic() - self._noted_s), 0.0)

    def _line(self, means_s: Mapping[tuple[str, ...], float]) -> tuple[float, float]:
        """Fixed seconds, and slope over the declared seconds, by least squares; neither is below 0."""
        x = [self._declared_s[kind] for kind in means_s]
        y = list(means_s.values())
        if len(set(x)) == 1:
            return fmean(y), 0.0
        slope = min(max(linear_regression(x, y).slope, 0.0), fmean(y) / fmean(x))
        return fmean(y) - slope * fmean(x), slope

    def show(self) -> None:
        """Show how far the sweep is, where that is due."""
        now_s = time.monotonic()
        if not self._left or now_s - self._shown_s < (TERMINAL_EVERY_S if self._live.shown else PLAIN_EVERY_S):
            return
        self._shown_s = now_s
        failed = f", {self._failed} failed" if self._failed else ""
        left_s = self.left_s()
        rest = f"; about {span(left_s)} left" if left_s is not None else ""
        line = f"{self._total - len(self._left)}/{self._total} cells{failed}{rest}"
        if self._live.shown:
            self._live.show(line)
        else:
            say(line, error=True)

    def say(self, text: str) -> None:
        """Print one line."""
        self._live.clear()
        say(text, error=True)

    def end(self) -> None:
        """Take the live line away."""
        self._live.clear()

    def _learn(self, kind: tuple[str, ...], seconds: float) -> None:
        total, count = self._sums.get(kind, (0.0, 0))
        self._sums[kind] = (total + seconds, count + 1)


def span(seconds: float) -> str:
    """A readable time: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
