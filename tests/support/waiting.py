"""Bounded waits on conditions, for tests of events in real time."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def until(true: Callable[[], bool], limit_s: float = 60.0) -> None:
    """Wait until ``true()``; after ``limit_s``, which only a broken program needs, the test fails."""
    deadline_s = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline_s, f"it did not happen within {limit_s} s"
        time.sleep(0.005)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail unless the block ends in less than this many seconds."""
    began_s = time.monotonic()
    yield
    assert time.monotonic() - began_s < seconds
