"""Worker processes on this machine. Each has one task at a time, so that a dead worker names its cell.

    python -P -m rig.sweep.pool     a worker: tasks as JSON lines on standard input, outcomes on standard output

A worker outlives the process that started it by the cell in work.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from rig.engine.interrupts import interrupt
from rig.errors import DeviceError, SetupError
from rig.session.locks import Say
from rig.sweep.cells import Outcome, Task, give_up, perform
from rig.sweep.rows import THREADS

TICK_S = 0.2
DEATHS = 2
"""A cell fails when so many workers have died of it."""
PATIENCE_S = 30.0
"""How long a worker that is told to stop may take to close its device."""


@dataclass
class Brake:
    """How a sweep is to end early: 1 after the cells in work, 2 at once."""

    level: int = 0


@dataclass(eq=False)
class Worker:
    """A process and its task."""

    process: subprocess.Popen[bytes]
    task: Task | None = None
    ear: threading.Thread | None = None
    ready: bool = False
    told_s: float | None = None
    """When it was told to stop."""


@dataclass
class _Crew:
    inbox: queue.SimpleQueue[tuple[Worker, bytes]] = field(default_factory=queue.SimpleQueue)
    workers: list[Worker] = field(default_factory=list)
    deaths: dict[str, int] = field(default_factory=dict)
    died_at_start: int = 0


def spread(
    tasks: Sequence[Task], jobs: int, brake: Brake, say: Say, quiet_cores: bool
) -> Generator[Outcome | None, None, None]:
    """Yield the outcome of each task as it comes, and None now and then. Tasks of one exclusive device never overlap.

    With 0 ``jobs`` they are done in this process. ``quiet_cores`` gives each worker's linear algebra one thread.
    Raises ``SetupError`` when workers cannot start.
    """
    if jobs == 0:
        yield from _here(tasks, brake, say)
        return
    waiting = deque(tasks)
    crew = _Crew()
    try:
        while waiting or any(w.task for w in crew.workers):
            if brake.level == 0:
                _hand_out(crew, waiting, jobs, quiet_cores)
            elif not any(w.task for w in crew.workers):
                return
            elif brake.level > 1:
                _break_off(crew)
            try:
                worker, line = crew.inbox.get(timeout=TICK_S)
            except queue.Empty:
                yield None
                continue
            if not line:
                yield _died(crew, worker, waiting, brake)
            elif outcome := _heard(worker, line, say):
                yield outcome
    finally:
        _dismiss(crew)


def _hand_out(crew: _Crew, waiting: deque[Task], jobs: int, quiet_cores: bool) -> None:
    while waiting:
        busy = {w.task.cell.device for w in crew.workers if w.task and _exclusive(w.task)}
        task = next((t for t in waiting if not (_exclusive(t) and t.cell.device in busy)), None)
        idle = next((w for w in crew.workers if w.task is None), None)
        if task is None or (idle is None and len(crew.workers) >= jobs):
            return
        if idle is None:
            idle = _hired(crew, quiet_cores)
        waiting.remove(task)
        idle.task = task
        with suppress(BrokenPipeError):  # its death is in the inbox
            assert idle.process.stdin is not None
            idle.process.stdin.write(msgspec.json.encode(task) + b"\n")
            idle.process.stdin.flush()


def _exclusive(task: Task) -> bool:
    return task.what == "cell" and task.cell.exclusive


def _hired(crew: _Crew, quiet_cores: bool) -> Worker:
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(dict.fromkeys([root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]))
    environment = {**os.environ, **(THREADS if quiet_cores else {}), "PYTHONPATH": path}
    command = [sys.executable, "-P", "-m", "rig.sweep.pool"]  # -P: no packages of the working directory
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    worker = Worker(process)
    crew.workers.append(worker)

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            crew.inbox.put((worker, line))
        crew.inbox.put((worker, b""))

    worker.ear = threading.Thread(target=listen, daemon=True)
    worker.ear.start()
    return worker


def _heard(worker: Worker, line: bytes, say: Say) -> Outcome | None:
    said = msgspec.json.decode(line)
    worker.ready = True
    if "say" in said:
        if said["say"]:
            say(str(said["say"]))
        return None
    worker.task = None
    return msgspec.convert(said, Outcome)


def _died(crew: _Crew, worker: Worker, waiting: deque[Task], brake: Brake) -> Outcome | None:
    """Try the cell of a dead worker once more; it fails when it kills a second."""
    crew.workers.remove(worker)
    code, task = _buried(worker), worker.task
    if task is None:
        return None
    key = task.cell.key
    if brake.level:
        return Outcome(key, "interrupted")
    if not worker.ready:
        crew.died_at_start += 1
        if crew.died_at_start > DEATHS:
            what = f"workers die before they begin, with exit code {code}"
            remedy = "See what they print above, or use --jobs 0 for none"
            raise SetupError(what, field="jobs", value=code, remedy=remedy)
        waiting.appendleft(task)
        return None
    crew.deaths[key] = crew.deaths.get(key, 0) + 1
    if crew.deaths[key] < DEATHS:
        waiting.appendleft(task)
        return None
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    what = f"{DEATHS} workers died while they worked on it, with {how}"
    if task.what == "row":
        raise SetupError(f"cell {key} cannot be evaluated: {what}", field="cell", value=key, remedy="Try `rig report`")
    return give_up(
        Path(task.folder), task.cell, DeviceError(what, field="cell", value=key, remedy="Correct the driver")
    )


def _break_off(crew: _Crew) -> None:
    now_s = time.monotonic()
    for worker in crew.workers:
        if worker.told_s is None:
            worker.told_s = now_s
            worker.process.terminate()
        elif now_s - worker.told_s > PATIENCE_S:
            worker.process.kill()


def _dismiss(crew: _Crew) -> None:
    """End every worker, a busy one after its task."""
    for worker in crew.workers:
        with suppress(OSError):
            assert worker.process.stdin is not None
            worker.process.stdin.close()
        if worker.task is not None and worker.told_s is None:
            worker.process.terminate()
    for worker in crew.workers:
        try:
            worker.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            worker.process.kill()
        _buried(worker)


def _buried(worker: Worker) -> int:
    """The exit code of a process that has ended, its pipes closed."""
    code = worker.process.wait()
    if worker.ear is not None:
        worker.ear.join()
    for pipe in (worker.process.stdin, worker.process.stdout):
        with suppress(OSError):
            assert pipe is not None
            pipe.close()
    return code


def _here(tasks: Sequence[Task], brake: Brake, say: Say) -> Generator[Outcome | None, None, None]:
    """Do the tasks in this process, one after the other, and yield each outcome."""
    for task in tasks:
        if brake.level:
            return
        yield perform(msgspec.structs.replace(task, rows=True), say)


# ---- the worker's side ----------------------------------------------------------------------


def serve() -> None:
    """Do tasks until standard input ends. Output of drivers goes to standard error."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process decides what Ctrl-C means
    signal.signal(signal.SIGTERM, interrupt)

    def answer(said: Any) -> None:
        out.write(msgspec.json.encode(said) + b"\n")

    with suppress(KeyboardInterrupt, BrokenPipeError):
        answer({"say": ""})  # the worker has started
        for line in sys.stdin.buffer:
            answer(perform(msgspec.json.decode(line, type=Task), lambda text: answer({"say": text})))


if __name__ == "__main__":
    serve()
