"""Cells over a Dask cluster: workers write to the folder that all share, and return outcomes."""

from __future__ import annotations

import queue
import re
import secrets
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from rig.errors import DeviceError, SetupError, refused
from rig.plugins import imported
from rig.session.locks import Say
from rig.sweep.cells import Outcome, Task, give_up, perform
from rig.sweep.pool import TICK_S, Brake
from rig.sweep.rows import figures_by
from rig.sweep.store import PENDING

AHEAD = 2
"""Tasks given out for each thread of the cluster."""


def over_cluster(
    tasks: Sequence[Task], address: str, timeout_s: float, brake: Brake, say: Say
) -> Generator[Outcome | None, None, None]:
    """Yield the outcome of each task as it comes, and None now and then.

    With a brake, workers finish the cells in work. Raises ``MissingExtraError`` without `distributed`,
    ``SetupError`` for a scheduler that does not answer within ``timeout_s`` or goes away, for one without workers,
    and for workers that do not see the folder or run another version.
    """
    if not tasks:
        return
    with closing(_client(address, timeout_s)) as client:
        threads = _greeted(client, address, Path(tasks[0].folder), timeout_s)
        say(f"{threads} threads at {address}")
        yield from _spread(client, deque(tasks), AHEAD * threads, brake)


def check_address(address: str, trust: bool) -> None:
    """Refuse a scheduler on another host that is reached without TLS: anyone on the way could run code here.

    Raises ``UsageError``, unless ``trust`` is set.
    """
    scheme, _, rest = address.rpartition("://")
    host = rest.rpartition(":")[0].strip("[]")
    if trust or scheme in ("tls", "inproc") or host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host):
        return
    remedy = (
        "Start it with TLS and give tls://HOST:PORT (docs/how-to/sweeps.md), or give --trust in a network of your own"
    )
    raise refused("scheduler", address, remedy, f"the scheduler {address} is on another host and not reached by TLS")


def _client(address: str, timeout_s: float) -> Any:
    distributed = imported("distributed", "--scheduler", "dask", field="scheduler", value=address)
    try:
        return distributed.Client(address, timeout=timeout_s, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        what = f"the scheduler {address} does not answer: {error}"
        remedy = "Start it (`dask scheduler`), and give its address as it prints it"
        raise SetupError(what, field="scheduler", value=address, remedy=remedy) from error


def _greeted(client: Any, address: str, folder: Path, timeout_s: float) -> int:
    """How many threads the workers have, after each has shown that it sees the folder and runs this version."""
    try:
        client.wait_for_workers(1, timeout=timeout_s)
    except (OSError, TimeoutError) as error:
        raise SetupError(
            f"the scheduler {address} has no worker", field="scheduler", value=address, remedy="Start `dask worker`"
        ) from error
    token = folder / f".greeting-{secrets.token_hex(4)}"
    token.write_text(token.name)
    try:
        answers = client.run(greet, str(token))
    except Exception as error:
        what = f"the workers of {address} cannot run neurorig: {type(error).__name__}: {error}"
        remedy = "Install the same neurorig where they run"
        raise SetupError(what, field="scheduler", value=address, remedy=remedy) from error
    finally:
        token.unlink(missing_ok=True)
    for worker, (seen, made_of) in answers.items():
        if seen != token.name:
            raise _unfit(worker, f"does not see {folder}", "Use a folder that every worker has under the same path")
        if made_of != figures_by():
            raise _unfit(
                worker, "runs another version of neurorig, numpy or scipy", "Install the same versions on every host"
            )
    return int(sum(client.nthreads().values())) or 1


def greet(token: str) -> tuple[str, str]:
    """A worker's reply: the content of a file, and the digest of its estimators."""
    text = ""
    with suppress(OSError):
        text = Path(token).read_text()
    return text, figures_by()


def _unfit(worker: str, what: str, remedy: str) -> SetupError:
    return SetupError(f"worker {worker} {what}", field="scheduler", value=worker, remedy=remedy)


def _spread(client: Any, waiting: deque[Task], ahead: int, brake: Brake) -> Generator[Outcome | None, None, None]:
    ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
    out: dict[str, tuple[Any, Task]] = {}
    while waiting or out:
        while waiting and len(out) < ahead and not brake.level:
            task = waiting.popleft()
            future = client.submit(perform, task, pure=False, retries=0)
            out[future.key] = (future, task)
            future.add_done_callback(ended.put)
        if brake.level:
            _recall(out)
            if brake.level > 1 or not out:
                return
        try:
            future = ended.get(timeout=TICK_S)
        except queue.Empty:
            yield None
            continue
        held = out.pop(future.key, None)
        if held is not None:
            yield _outcome(future, held[1])


def _recall(out: dict[str, tuple[Any, Task]]) -> None:
    """Cancel the tasks that no worker has claimed; a worker that claims one just now still finishes it."""
    for key, (future, task) in list(out.items()):
        if not (Path(task.folder) / PENDING / task.cell.key).exists():
            del out[key]
            future.cancel()


def _outcome(future: Any, task: Task) -> Outcome:
    if future.status == "finished":
        outcome: Outcome = future.result()
        return outcome
    if future.status == "error":
        error = future.exception()
        if type(error).__name__ == "KilledWorker":
            dead = DeviceError(
                "every worker that measured this cell died",
                field="cell",
                value=task.cell.key,
                remedy="Correct the driver",
            )
            return give_up(Path(task.folder), task.cell, dead)
        what = f"a worker failed with cell {task.cell.key}: {type(error).__name__}: {error}"
        remedy = "See the worker's log; finished cells are kept"
        raise SetupError(what, field="scheduler", value=task.cell.key, remedy=remedy)
    remedy = "Start the scheduler, and run the same command again"
    raise SetupError("the connection to the scheduler was lost", field="scheduler", remedy=remedy)
