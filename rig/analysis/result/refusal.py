"""A refusal stands for a figure that the recording cannot support."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rig.analysis.result.figure_key import FigureKey, Figures


@dataclass(frozen=True)
class Refusal:
    """What is refused, why, and what to change.

    ``scope`` is one figure or, in words, several figures.
    """

    scope: FigureKey | str
    reason: str
    remedy: str

    def to_json(self) -> dict[str, str]:
        """Return the form of the refusal in ``results.json``."""
        return {"scope": str(self.scope), "reason": self.reason, "remedy": self.remedy}


def for_import(refusals: Iterable[Refusal], options: Mapping[str, object]) -> list[Refusal]:
    """Return refusals of an imported recording; a remedy that names options of ``rig measure`` becomes one for imports.

    ``options`` are those of its importer, by name.
    """
    idle = "The trace must also hold readings while the device was idle"
    if "idle" in options:
        idle = "State when the device was idle, in seconds of the trace, and import again (--option idle=START:END,...)"
    elif "idle_guard_s" in options:
        idle = "Lower the time around the run that counts as work, and import again (--option idle_guard_s=SECONDS)"
    longer = "Record longer windows, or with a faster meter"
    return [replace(r, remedy=idle if "idle_s" in r.remedy else longer) if "--" in r.remedy else r for r in refusals]


def without_number(figures: Figures) -> list[Refusal]:
    """Return a refusal for each figure whose value or interval is not a finite number."""
    remedy = "Look at the readings and the spans for what is too large, too short or missing, and measure again"
    return [
        Refusal(key, "the recording gives no finite number for it", remedy)
        for key, q in figures.items()
        if not all(map(math.isfinite, (q.value, q.bias, *q.interval(), *(c.u for c in q.components))))
    ]
