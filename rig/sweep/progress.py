"""Show the progress of a sweep and the time left, as a live line on a terminal, otherwise as a line now and then."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rig.status_line import StatusLine
from rig.sweep.cells import Outcome
from rig.terminal import say


class Progress:
    """Counts outcomes, and estimates the time left from the time of the cells that have ended.

    ``left`` names the open cells of ``total``, and ``failed`` is the number of cells that failed before.
    """

    def __init__(self, total: int, left: Sequence[str], failed: int) -> None:
        self._total, self._left, self._failed = total, set(left), failed
        self._open, self._began_s = len(left), time.monotonic()
        self._live = StatusLine()

    def note(self, outcome: Outcome) -> None:
        """Count a cell that is done or has failed."""
        if outcome.key in self._left and outcome.state in ("done", "failed"):
            self._left.discard(outcome.key)
            if outcome.state == "failed":
                self._failed += 1
                self.say(f"{outcome.key} failed: {(outcome.error or {}).get('message')}")

    def left_s(self) -> float | None:
        """Return the seconds that the open cells may take; None before the first has ended."""
        ended = self._open - len(self._left)
        return (time.monotonic() - self._began_s) / ended * len(self._left) if ended else None

    def show(self) -> None:
        """Show the progress of the sweep, if an update is due."""
        failed = f", {self._failed} failed" if self._failed else ""
        left_s = self.left_s()
        rest = f"; about {span(left_s)} left" if left_s is not None else ""
        if self._left:
            self._live.pace(f"{self._total - len(self._left)}/{self._total} cells{failed}{rest}")

    def say(self, text: str) -> None:
        """Print one line."""
        self._live.clear()
        say(text, error=True)

    def end(self) -> None:
        """Remove the live line."""
        self._live.clear()


def span(seconds: float) -> str:
    """Return a readable time: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
