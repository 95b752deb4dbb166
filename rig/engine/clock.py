"""The host's clock."""

import os
import select
import time

from rig.errors import SetupError

SPIN_NS = 200_000
"""Sleeps on an ordinary kernel overshoot by up to this (ns), so the last part of a wait has no sleep."""


class HostClock:
    """The host's monotonic clock, in integer nanoseconds."""

    spin_ns = SPIN_NS
    now_ns = staticmethod(time.monotonic_ns)

    def sleep_until(self, ns: int) -> None:
        """Wait until ``ns``, or as soon after it as the machine allows; if it is past, only let other threads run."""
        left_ns = ns - time.monotonic_ns()
        if left_ns <= 0:
            _yield_thread()
            return
        if left_ns > SPIN_NS:
            time.sleep((left_ns - SPIN_NS) * 1e-9)
        while time.monotonic_ns() < ns:
            pass


def host_clock() -> HostClock:
    """Return the host's clock. Raises ``SetupError`` if it steps by more than ``SPIN_NS``, as all stamps then would."""
    step_s = min(_step_ns() for _ in range(5)) * 1e-9  # other programs interrupt a few readings
    if step_s > SPIN_NS * 1e-9:
        what, remedy = f"the host's clock steps by {step_s:.2g} s", "On Windows, use Python 3.13 or newer"
        raise SetupError(what, field="clock", value=step_s, remedy=remedy)
    return HostClock()


def _step_ns() -> int:
    begin_ns = end_ns = time.monotonic_ns()
    while end_ns == begin_ns:
        end_ns = time.monotonic_ns()
    return end_ns - begin_ns


def _yield_thread() -> None:
    """Let another thread run, without a timer: ``time.sleep(0)`` takes 50 us of timer slack on Linux."""
    if os.name == "posix":
        select.select((), (), (), 0.0)
    else:
        time.sleep(0.0)
