"""Run an examination with a deadline, so that a driver that hangs does not stop the doctor."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress

from rig.doctor.findings import Finding, broken
from rig.doctor.items import Steps, failed
from rig.errors import SetupError

LEAVE_S = 2.0
"""An interrupted examination may take this long (s) to close what it opened."""


def with_deadline(item: str, steps: Steps, patience_s: float, tell: Callable[[str, str], None]) -> Iterator[Finding]:
    """Run an examination in a separate thread, and yield its findings as they come.

    An examination that takes longer than ``patience_s`` becomes a broken finding and is abandoned. Its thread cannot be
    ended, but closes what it opened as soon as the driver returns. ``tell`` is called with the item and each step. An
    error of an examination becomes a finding.
    """
    out: queue.SimpleQueue[Finding | str | BaseException | None] = queue.SimpleQueue()
    left = threading.Event()
    thread = threading.Thread(target=_work, args=(steps, out, left), name=f"doctor {item}", daemon=True)
    until_s = time.monotonic() + patience_s
    step = "beginning"
    try:
        thread.start()
        while True:
            try:
                said = out.get(timeout=max(until_s - time.monotonic(), 0.0))
            except queue.Empty:
                remedy = "Check its power and its cable, and close other programs that use it. "
                remedy += "To wait longer, set patience_s in the bench file, or --timeout"
                yield broken(item, "patience", f"no answer within {patience_s:g} s while {step}", remedy, SetupError)
                return
            if said is None:
                return
            if isinstance(said, Finding):
                yield said
            elif isinstance(said, str):
                step = said
                tell(item, step)
            else:
                yield failed(item, step, said)
    finally:
        left.set()
        if time.monotonic() < until_s:  # Ctrl-C, or the caller wants no more findings
            with suppress(RuntimeError):  # interrupted before the thread started
                thread.join(LEAVE_S)


def _work(steps: Steps, out: queue.SimpleQueue[Finding | str | BaseException | None], left: threading.Event) -> None:
    try:
        for said in steps:
            out.put(said)
            if left.is_set():
                break
    except BaseException as error:
        out.put(error)
    finally:
        if isinstance(steps, Generator):
            steps.close()
        out.put(None)
