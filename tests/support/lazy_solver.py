"""A solver for tests of grids; it opens but solves nothing."""

from __future__ import annotations

from rig.engine.blocking_device import blocking
from rig.types import Device, Sample


def _nothing(sample: Sample) -> dict[str, object]:
    return {"cost": 0, "solution": ""}


def solver() -> Device:
    """Open it."""
    return blocking(_nothing)
