"""Run a worker process of a sweep, which ends after its current cell if its parent ends."""

import multiprocessing
import os
import signal
import threading
from typing import Any

from rig.engine.interrupts import interrupt
from rig.terminal import say

_WORKING = threading.Lock()


def begin(environment: dict[str, str]) -> None:
    """Prepare this process, before heavy imports.

    What drivers print goes to standard error. Ctrl-C is ignored, because the parent decides what it does.
    """
    os.environ |= environment  # before numpy is imported
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *given: interrupt(*given) if _WORKING.locked() else None)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def performed(task: Any) -> Any:
    """Do one task of ``rig.sweep.cells``, and return its outcome."""
    from rig.sweep.cells import perform

    with _WORKING:
        return perform(task, lambda text: say(text, error=True))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    with _WORKING:
        os._exit(0)
