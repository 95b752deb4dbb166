"""Compute how many samples a run will issue, for the display of progress."""

from collections.abc import Mapping
from typing import Any

BY_TIME = ("duration_s", "stream_s")
"""Options of the scenarios that end after a time, whatever the size of the set."""


def known_total(samples: int, purpose: str, options: Mapping[str, Any], least_s: float) -> int:
    """Return how many samples a run issues, or 0 if unknown; ``least_s`` is the least duration by its rules (s)."""
    if purpose != "accuracy" and (least_s > 0 or any(name in options for name in BY_TIME)):
        return 0
    return samples * int(options.get("solves") or 1)
