"""Goals for figures, and functions that combine and print the figures of turns."""

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.runs import CALM, Row, disturbance


@dataclass(frozen=True)
class Goal:
    """A found value, and its largest or smallest allowed value."""

    name: str
    found: float
    limit: float
    at_least: bool = False

    @property
    def held(self) -> bool:
        """Return whether the goal was reached; nan never reaches it."""
        return bool(self.found >= self.limit if self.at_least else self.found <= self.limit)

    def __str__(self) -> str:
        side = "least" if self.at_least else "most"
        return f"{'held  ' if self.held else 'MISSED'} {self.name:58} {self.found:.4g} (at {side} {self.limit:g})"


Say = Callable[[str], None]
Found = tuple[dict[str, Any], list[Goal]]
Turn = dict[str, Row]


def values(found: list[float]) -> str:
    """Return the median, and in parentheses every value, or the range if there are more than five values."""
    each = " ".join(f"{v:.4g}" for v in found) if len(found) <= 5 else f"{min(found):.4g} .. {max(found):.4g}"
    return f"{statistics.median(found):.4g} ({each})"


def ratio(turns: list[Turn], one: str, other: str, key: str) -> float:
    """Return the median of the turns' ratios; a slowdown of a whole turn cancels."""
    return statistics.median(turn[one][key] / turn[other][key] for turn in turns)


def crowd(turns: list[Turn]) -> str:
    """Describe how much other processes used the machine."""
    used = [disturbance(turn) for turn in turns]
    over = sum(u > CALM for u in used)
    return f"others used {values(used)} CPUs, {over} of {len(turns)} turns disturbed, load {os.getloadavg()[0]:.1f}"
