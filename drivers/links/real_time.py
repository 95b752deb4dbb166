"""Instruments measure in real time: they cannot measure a run in simulated time."""

from __future__ import annotations

import time

from rig.errors import SetupError
from rig.types import Clock

APART_NS = 1_000_000_000
"""A clock that differs from the host's by more than this is simulated."""


def check_real_time(clock: Clock, name: str) -> None:
    """Raise ``SetupError`` for the meter ``name`` if ``clock`` is not the host's."""
    if abs(clock.now_ns() - time.monotonic_ns()) > APART_NS:
        what = f"meter {name} measures in real time, but this run is in simulated time"
        remedy = "Use it with a real device, or use the meter of the simulated device"
        raise SetupError(what, field="meter", value=name, remedy=remedy)
