"""Numbered readings that never arrived are NaN in the trace, so that no average hides them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from drivers.failures import meter_failed
from rig.types import Floats


@dataclass
class GapFiller:
    """Readings numbered from 0 on as a grid without silent gaps; at most ``most`` may be missing in a row."""

    name: str
    most: int
    next: int = 0

    def take(self, index: int, value: Floats) -> Floats:
        """Return readings from number ``index`` on in their own type, after one NaN for each missing one before them.

        Raises ``MeterError`` for readings that come twice, and for more than ``most`` missing at once.
        """
        gap = index - self.next
        if not 0 <= gap <= self.most:
            what = f"{gap} readings are missing at once" if gap > 0 else f"{-gap} readings arrived twice"
            raise meter_failed(f"meter {self.name}: {what}", "meter", gap, "Check its cable")
        self.next = index + len(value)
        return np.concatenate([np.full(gap, np.nan, value.dtype), value]) if gap else value
