"""Handle Ctrl-C, SIGTERM and a closed terminal during a recording."""

import _thread
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

ENDING = (signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
"""Signals that act like Ctrl-C; SIGHUP comes when the command's terminal is closed."""

AGAIN_S = 0.01


@contextmanager
def on_signals(handler: Callable[[int, object], None], *numbers: int) -> Iterator[None]:
    """Call ``handler`` for these signals inside the block.

    An ignored signal stays ignored, as SIGHUP does under nohup. Outside the main thread, no handler is changed.
    """
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before: dict[int, Any] = {}
    with suppress(ValueError):  # not the main thread
        before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextmanager
def deferred() -> Iterator[None]:
    """Hold back signals that end a command until the block ends, so that the block can write the stop line."""
    held: list[int] = []
    try:
        with on_signals(lambda number, _: held.append(number), signal.SIGINT, *ENDING):
            yield
    finally:
        for number in dict.fromkeys(held):
            signal.raise_signal(number)


@contextmanager
def unheard() -> Iterator[None]:
    """Inside the block, which reports an interruption, ignore further signals that end a command."""
    with on_signals(lambda *_: None, signal.SIGINT, *ENDING):
        yield


def again(found: Any) -> None:
    """Deliver a Ctrl-C again if it came where Python only prints it, as in a callback; print other errors as usual.

    This is a function for ``sys.unraisablehook``.
    """
    if found.exc_type is KeyboardInterrupt:
        import threading  # takes a millisecond

        threading.Timer(AGAIN_S, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(found)


def interrupt(*_: object) -> None:
    """Raise ``KeyboardInterrupt``, so that a signal acts like Ctrl-C."""
    raise KeyboardInterrupt
