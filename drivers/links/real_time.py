"""Instruments live in real time: they cannot watch a run whose clock is a plant's."""

from __future__ import annotations

import time

from rig.errors import SetupError
from rig.types import Clock

APART_NS = 1_000_000_000
"""By which a clock that is not the host's differs from it."""


def check_real_time(clock: Clock, name: str) -> None:
    """Raise ``SetupError`` where ``clock`` is not the host's, for the meter ``name``."""
    if abs(clock.now_ns() - time.monotonic_ns()) > APART_NS:
        raise SetupError(
            f"meter {name} measures in real time, and this run lives in simulated time",
            field="meter",
            value=name,
            remedy="Use it with a real device, or take the simulated device's own meter",
        )
