"""A refusal stands for a figure that the recording cannot support."""

from __future__ import annotations

from dataclasses import dataclass

from rig.analysis.figure_key import FigureKey


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
