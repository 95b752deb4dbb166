"""Evaluate the runs of a session; with two cores and a long run, some of them in a second process."""

import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import BinaryIO

from rig.analysis.result.result import Result
from rig.engine.interrupts import ENDING
from rig.errors import RigError
from rig.recording.reader import Run

LONG = 200_000
"""Evaluating a run of this many readings takes several times as long as starting a second process."""


Evaluate = Callable[[Run], Result]


def results_of(runs: Sequence[Run], evaluate: Evaluate, long: int = LONG) -> Iterator[Result]:
    """Yield the result of each run, in order, as ``evaluate`` computes it.

    If one of several runs has ``long`` readings or more, a second process evaluates some of the runs. If it fails at a
    run, this process evaluates the run again, so that the error of ``evaluate`` is raised here.
    """
    others = _others([sum(len(t.value) for t in run.traces.values()) for run in runs], long)
    found = dict[int, Result]()
    if others:
        with TemporaryFile() as file:
            process = _begun({k: runs[k] for k in others}, evaluate, file)
            try:
                with suppress(RigError):
                    found |= {k: evaluate(run) for k, run in enumerate(runs) if k not in others}
                os.waitpid(process, 0)
            except BaseException:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                raise
            file.seek(0)
            with suppress(EOFError, pickle.UnpicklingError):
                while True:
                    k, result = pickle.load(file)
                    found[k] = result
    for k, run in enumerate(runs):
        yield found.pop(k) if k in found else evaluate(run)


def _others(readings: Sequence[int], long: int) -> frozenset[int]:
    """Return which runs a second process evaluates; none if that is not faster or not safe."""
    by_length = sorted(range(len(readings)), key=lambda k: -readings[k])
    # the copy may wait for ever for a lock of another Python thread; outside Linux, libraries fail after a fork
    safe = sys.platform == "linux" and threading.active_count() == 1
    if not safe or len(readings) < 2 or max(readings) < long or len(os.sched_getaffinity(0)) < 2:
        return frozenset()
    chosen, ours, theirs = set[int](), 0, 0
    for k in by_length:
        if theirs < ours:
            chosen.add(k)
            theirs += readings[k]
        else:
            ours += readings[k]
    return frozenset(chosen)


def _begun(runs: dict[int, Run], evaluate: Evaluate, file: BinaryIO) -> int:
    """Start a copy of this process that evaluates ``runs`` and writes their numbers and results; return its id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of Arrow's thread that frees memory
        process = os.fork()
    if process:
        return process
    try:
        for number in ENDING:
            signal.signal(number, signal.SIG_DFL)
        for k, run in runs.items():
            pickle.dump((k, evaluate(run)), file)
            file.flush()
    finally:
        os._exit(0)
