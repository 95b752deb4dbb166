"""The host's clock."""

from __future__ import annotations

import time

SPIN_NS = 200_000
"""What a sleep may overshoot on an ordinary kernel; the last stretch is waited for awake."""


class HostClock:
    """CLOCK_MONOTONIC, in integer nanoseconds."""

    spin_ns = SPIN_NS
    now_ns = staticmethod(time.monotonic_ns)

    def sleep_until(self, ns: int) -> None:
        """Return at ``ns`` or as soon after it as the machine allows; when it is past, only let others run."""
        left_ns = ns - time.monotonic_ns()
        if left_ns <= 0:
            time.sleep(0)
            return
        if left_ns > SPIN_NS:
            time.sleep((left_ns - SPIN_NS) * 1e-9)
        while time.monotonic_ns() < ns:
            pass
