"""How many samples a run will play, for the display of progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BY_TIME = ("duration_s", "stream_s")
"""Options of the scenarios that end after a time, whatever the size of the set."""


def known_total(samples: int, purpose: str, options: Mapping[str, Any], least_s: float) -> int:
    """Return how many samples a run plays, by its scenario's options and its rules' least duration; 0 if unknown."""
    if purpose != "accuracy" and (least_s > 0 or any(name in options for name in BY_TIME)):
        return 0
    return samples * int(options.get("solves") or 1)
