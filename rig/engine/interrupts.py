"""What Ctrl-C, SIGTERM and a terminal that is closed do while something is recorded."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

ENDING = (signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
"""What ends a command beside Ctrl-C: SIGHUP comes where its terminal is closed."""

AGAIN_S = 0.01


@contextmanager
def on_signals(handler: Callable[[int, object], None], *numbers: int) -> Iterator[None]:
    """Call ``handler`` for these signals inside the block.

    A signal that is ignored stays so, as SIGHUP under nohup. Outside the main thread all are left as they are.
    """
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    try:
        before = {number: signal.signal(number, handler) for number in heard}
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
    """Hold back what ends a command inside the block, and deliver it when it ends, so that a stop line is written."""
    held: list[int] = []
    try:
        with on_signals(lambda number, _: held.append(number), signal.SIGINT, *ENDING):
            yield
    finally:
        for number in dict.fromkeys(held):
            signal.raise_signal(number)


@contextmanager
def unheard() -> Iterator[None]:
    """Leave out what ends a command inside the block, which says that it was interrupted."""
    with on_signals(lambda *_: None, signal.SIGINT, *ENDING):
        yield


def again(found: Any) -> None:
    """Deliver Ctrl-C once more that fell into a callback, where it is no more than printed; print all else as usual.

    It is for ``sys.unraisablehook``.
    """
    if found.exc_type is KeyboardInterrupt:
        threading.Timer(AGAIN_S, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(found)


def interrupt(*_: object) -> None:
    """Handle a signal as Ctrl-C."""
    raise KeyboardInterrupt
