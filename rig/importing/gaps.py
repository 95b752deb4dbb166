"""Defects of an imported trace: readings that are not numbers, and gaps between readings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from rig.types import Chunk, Rail

GAP_PERIODS = 1.5
"""If two successive readings are more than this many periods apart, readings are missing."""


@dataclass
class Gaps:
    """Counts the readings of a trace while they are written, and the gaps, in ticks of the meter's clock."""

    rail: Rail
    tick_hz: float
    readings: int = 0
    not_numbers: int = 0
    gaps: int = 0
    missing: float = 0.0
    longest: float = 0.0
    longest_at: int = 0
    last: int | None = None
    period: float = 0.0

    def count(self, chunk: Chunk) -> None:
        """Count the readings of one chunk, and the gaps between them and after the previous chunk."""
        self.readings += len(chunk.value)
        self.not_numbers += int(np.count_nonzero(~np.isfinite(chunk.value)))
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
        self.missing += float(np.sum(steps[wide] - self.period))
        if len(wide) and float(steps.max()) - self.period > self.longest:
            self.longest = float(steps.max()) - self.period
            self.longest_at = int(start[int(np.argmax(steps))] + round(self.period))

    def notes(self, host_ns: Callable[[int], int]) -> Iterator[str]:
        """Yield a sentence for each defect; ``host_ns`` maps a tick to host time."""
        name, hz = self.rail.name, self.tick_hz
        if self.not_numbers:
            yield f"Rail {name}: {self.not_numbers} of {self.readings} readings are not numbers; they are left out"
        if self.gaps:
            yield (
                f"Rail {name}: {self.gaps} gaps longer than {GAP_PERIODS:g} periods of {self.period / hz:.3g} s, "
                f"{self.missing / hz:.3g} s in all; the longest, {self.longest / hz:.3g} s, begins at "
                f"{host_ns(self.longest_at) * 1e-9:.9g} s"
            )
