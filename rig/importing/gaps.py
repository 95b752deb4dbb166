"""What an imported trace lacks: readings that are no number, and gaps between readings. Counted while it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from rig.types import Chunk, Rail

GAP_PERIODS = 1.5
"""Periods from one reading to the next beyond which readings are missing."""


@dataclass
class Lacks:
    """The count of a trace's readings and of what it lacks, in ticks of the meter's clock."""

    rail: Rail
    tick_hz: float
    readings: int = 0
    no_number: int = 0
    gaps: int = 0
    lost: float = 0.0
    longest: float = 0.0
    at: int = 0
    last: int | None = None
    period: float = 0.0

    def see(self, chunk: Chunk) -> None:
        """Count the readings of one chunk."""
        self.readings += len(chunk.value)
        self.no_number += int(np.count_nonzero(~np.isfinite(chunk.value)))
        if chunk.start_tick is None or self.rail.kind == "edges":
            return
        start = chunk.start_tick if self.last is None else np.concatenate([[self.last], chunk.start_tick])
        self.last = int(start[-1])
        steps = np.diff(start)
        if not len(steps):
            return
        if not self.period:
            self.period = self.tick_hz / self.rail.rate_hz if self.rail.rate_hz > 0 else float(np.median(steps))
        wide = np.flatnonzero(steps > GAP_PERIODS * self.period)
        self.gaps += len(wide)
        self.lost += float(np.sum(steps[wide] - self.period))
        if len(wide) and float(steps.max()) - self.period > self.longest:
            self.longest = float(steps.max()) - self.period
            self.at = int(start[int(np.argmax(steps))] + round(self.period))

    def notes(self, place: Callable[[int], int]) -> Iterator[str]:
        """A sentence for each; ``place`` gives the host's ns of a tick."""
        name, hz = self.rail.name, self.tick_hz
        if self.no_number:
            yield f"Rail {name}: {self.no_number} of {self.readings} readings are no number; they are left out"
        if self.gaps:
            yield (
                f"Rail {name}: {self.gaps} gaps longer than {GAP_PERIODS:g} periods of {self.period / hz:.3g} s, "
                f"{self.lost / hz:.3g} s in all; the longest, {self.longest / hz:.3g} s, begins at "
                f"{place(self.at) * 1e-9:.9g} s"
            )
