"""Bounded waits on conditions, for tests of events in real time."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(true: Callable[[], bool], limit_s: float = 60.0) -> None:
    """Wait until ``true()``; after ``limit_s``, which only a broken program needs, the test fails."""
    deadline_s = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline_s, f"it did not happen within {limit_s} s"
        time.sleep(0.005)
