"""Run a worker process of a sweep, which ends after its current cell if it is told to, or if its parent ends."""

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from rig.engine.interrupts import interrupt
from rig.terminal import say

SENDING_S = 1.0
"""The outcome of the last task is sent within this time (s)."""
_WORKING = threading.Lock()
_TOLD = queue.SimpleQueue[None]()  # safe if a second signal interrupts a ``put`` of the handler


def begin(environment: dict[str, str]) -> None:
    """Prepare this process, before heavy imports.

    What drivers print goes to standard error. Ctrl-C is ignored, because the parent decides what it does.
    """
    os.environ |= environment  # before numpy is imported
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def end(*given: Any) -> None:
        _TOLD.put(None)
        if _WORKING.locked():
            interrupt(*given)

    signal.signal(signal.SIGTERM, end)
    for wait in (_TOLD.get, *([parent.join] if parent is not None else [])):
        threading.Thread(target=_end_after, args=(wait,), daemon=True).start()


def performed(task: Any) -> Any:
    """Do one task of ``rig.sweep.cells``, and return its outcome."""
    from rig.sweep.cells import perform

    with _WORKING:
        outcome = perform(task, lambda text: say(text, error=True))
    if outcome.state == "interrupted":  # by a handler of the recording
        _TOLD.put(None)
    return outcome


def _end_after(wait: Callable[[], Any]) -> None:
    """End this process after ``wait``: a pool that lost a worker does not tell idle workers to end (Python 3.12)."""
    wait()
    with _WORKING:
        pass
    time.sleep(SENDING_S)
    with _WORKING:  # held briefly, because a signal that finds the lock held raises an interruption
        os._exit(0)
