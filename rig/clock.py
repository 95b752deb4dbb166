"""The host's clock."""

from __future__ import annotations

import time


class HostClock:
    """CLOCK_MONOTONIC, in integer nanoseconds."""

    def now_ns(self) -> int:
        """Nanoseconds since an arbitrary start."""
        return time.monotonic_ns()

    def sleep_until(self, ns: int) -> None:
        """Sleep; returns at once when ``ns`` is past."""
        wait_ns = ns - time.monotonic_ns()
        if wait_ns > 0:
            time.sleep(wait_ns * 1e-9)
