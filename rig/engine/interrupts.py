"""What Ctrl-C and SIGTERM do while something is recorded."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def on_signals(handler: Callable[[int, object], None], *numbers: int) -> Iterator[None]:
    """Call ``handler`` for these signals inside the block; outside the main thread, leave them as they are."""
    try:
        before = {number: signal.signal(number, handler) for number in numbers}
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextmanager
def deferred() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM inside the block, and deliver them when it ends, so that a stop line is written."""
    held: list[int] = []
    try:
        with on_signals(lambda number, _: held.append(number), signal.SIGINT, signal.SIGTERM):
            yield
    finally:
        for number in dict.fromkeys(held):
            signal.raise_signal(number)


def interrupt(*_: object) -> None:
    """Handle a signal as Ctrl-C."""
    raise KeyboardInterrupt
