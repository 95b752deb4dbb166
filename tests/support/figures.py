"""Keys of a result's figures, and what tests ask of a figure."""

import re

from rig.analysis.result.quantity import LITERAL, TRIMMED, FigureKey, Quantity
from rig.analysis.result.result import Result

POWER, ACTIVE, IDLE = (FigureKey(f"{level}_power_w") for level in ("dynamic", "active", "idle"))
ENERGY, TIME = FigureKey("energy_per_inference_j"), FigureKey("execution_time_s")
CORE, TEXT = (FigureKey("dynamic_power_w", method=method) for method in (TRIMMED, LITERAL))


def held(q: Quantity, real: float, confidence: float = 0.95) -> bool:
    """Return whether the interval of a figure contains the truth."""
    low, high = q.interval(confidence)
    return low <= real <= high


def u_of(q: Quantity, source: str) -> float:
    """Return the standard uncertainty from one source."""
    return sum(abs(c.u) for c in q.components if c.source == source)


def said(result: Result, words: str) -> bool:
    """Return whether a note contains these words; alternatives are separated by ``|``."""
    return any(re.search(words, note) for note in result.notes)


def refused(result: Result, words: str = "") -> bool:
    """Return whether dynamic power is refused, for a reason with these words."""
    return POWER not in result.quantities and any(re.search(words, r.reason) for r in result.refusals)
