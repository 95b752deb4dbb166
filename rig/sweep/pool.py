"""Run the tasks of a sweep in an executor: worker processes on this machine, or a cluster."""

import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from rig.errors import SetupError
from rig.session.locks import Say
from rig.sweep.cells import Outcome, Task, give_up, perform
from rig.sweep.row_of_cell import THREADS
from rig.sweep.worker import begin, performed

TICK_S = 0.2
PATIENCE_S = 30.0
"""A worker that is told to stop may take this long to close its device."""
Outcomes = Generator[Outcome | None, None, None]


@dataclass
class Brake:
    """When to end a sweep: at level 0 after all cells, at level 1 after the cells in progress, at level 2 at once."""

    level: int = 0


def spread(tasks: Sequence[Task], jobs: int, brake: Brake, say: Say, quiet_cores: bool) -> Outcomes:
    """Yield the outcome of each task when it is known, and None from time to time.

    Tasks of one exclusive device never overlap. With 0 ``jobs``, this process does all tasks. With ``quiet_cores``, the
    linear algebra of each worker has one thread. If a worker dies, all workers end, and their tasks are done again, one
    at a time. A cell that kills its second worker fails. Raises ``SetupError`` if workers cannot start, or if a row
    kills its second worker.
    """
    if jobs == 0:
        for task in tasks:
            if not brake.level:
                yield perform(msgspec.structs.replace(task, rows=True), say)
        return
    waiting, suspects = deque(tasks), deque[Task]()
    while (waiting or suspects) and not brake.level:
        alone = bool(suspects)
        own = deque([suspects.popleft()]) if alone else waiting
        with _local(1 if alone else jobs, quiet_cores) as pool:
            lost = yield from through(pool, performed, own, 1 if alone else jobs, brake, _broken_off())
        if alone and not brake.level:
            yield from map(_killed, lost)
        elif not brake.level:
            suspects += lost


def through(
    pool: Executor, work: Callable[[Task], Outcome], waiting: deque[Task], at_once: int, brake: Brake,
    recall: Callable[[dict[Future[Outcome], Task], int], None],
    given_up: Callable[[Task, BaseException], Outcome] | None = None,
) -> Generator[Outcome | None, None, list[Task]]:  # fmt: skip
    """Yield the outcomes of the tasks in ``waiting``, and None from time to time.

    Return the tasks that were cancelled or whose worker died.

    While the brake's level is not 0, ``recall`` is called repeatedly with this level; it cancels or interrupts tasks.
    ``given_up`` makes the outcome of a task that raised an exception.
    """
    out: dict[Future[Outcome], Task] = {}
    lost: list[Task] = []
    while out or (waiting and not brake.level and not lost):
        while len(out) < at_once and not brake.level and not lost and (task := _next(waiting, out.values())):
            try:
                out[pool.submit(work, task)] = task
            except BrokenProcessPool:
                lost.append(task)
        if brake.level:
            recall(out, brake.level)
        done, _ = wait(out, TICK_S, FIRST_COMPLETED)
        if not done:
            yield None
        for future in done:
            task = out.pop(future)
            if future.cancelled() or isinstance(future.exception(), BrokenProcessPool):
                lost += [task]
                if brake.level:
                    yield Outcome(task.cell.key, "interrupted")
            elif given_up is not None and (error := future.exception()) is not None:
                yield given_up(task, error)
            else:
                yield future.result()
    return lost


def _next(waiting: deque[Task], out: Any) -> Task | None:
    """Take the first task whose device is free."""
    busy = {task.cell.device for task in out if _exclusive(task)}
    task = next((t for t in waiting if not (_exclusive(t) and t.cell.device in busy)), None)
    if task is not None:
        waiting.remove(task)
    return task


def _exclusive(task: Task) -> bool:
    return task.what == "cell" and task.cell.exclusive


@contextmanager
def _local(jobs: int, quiet_cores: bool) -> Iterator[Executor]:
    """Yield a pool of processes that import nothing from the working directory; at the end, interrupt busy ones."""
    environment = THREADS if quiet_cores else {}
    try:
        pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), begin, (environment,))
    except OSError as error:  # no shared memory, as in some containers
        what = f"workers cannot begin ({error.strerror}); they need shared memory, /dev/shm"
        raise _no_workers(what, jobs) from error
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        try:
            pool.submit(os.getpid).result()
        except BrokenProcessPool as error:
            raise _no_workers("workers die before they begin, see their output above", jobs) from error
        yield pool
    finally:
        os.environ.pop("PYTHONSAFEPATH")
        if before is not None:
            os.environ["PYTHONSAFEPATH"] = before
        for process in multiprocessing.active_children():
            process.terminate()
        pool.shutdown(cancel_futures=True)


def _no_workers(what: str, jobs: int) -> SetupError:
    return SetupError(what, field="jobs", value=jobs, remedy="Correct this, or use --jobs 0 for no processes")


def _broken_off() -> Callable[[dict[Future[Outcome], Task], int], None]:
    """Return a function that interrupts the workers at level 2, and kills those that take too long to end."""
    told_s: list[float] = []

    def recall(out: dict[Future[Outcome], Task], level: int) -> None:
        if level > 1 and not told_s:
            told_s.append(time.monotonic())
            for process in multiprocessing.active_children():
                process.terminate()
        elif told_s and time.monotonic() - told_s[0] > PATIENCE_S:
            for process in multiprocessing.active_children():
                process.kill()

    return recall


def _killed(task: Task) -> Outcome:
    """Return the outcome of a task that killed two workers."""
    key, what = task.cell.key, "2 workers died while they worked on it"
    if task.what == "row":
        raise SetupError(f"cell {key} cannot be evaluated: {what}", field="cell", value=key, remedy="Try `rig report`")
    return give_up(task, what)
