"""The host's clock."""

from __future__ import annotations

import os
import select
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
            _let_others_run()
            return
        if left_ns > SPIN_NS:
            time.sleep((left_ns - SPIN_NS) * 1e-9)
        while time.monotonic_ns() < ns:
            pass


def _let_others_run() -> None:
    """Hand over the interpreter, without a timer: ``time.sleep(0)`` takes the timer's slack, 50 us on Linux."""
    if os.name == "posix":
        select.select((), (), (), 0.0)
    else:
        time.sleep(0.0)
