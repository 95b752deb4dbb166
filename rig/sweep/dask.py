"""Distribute cells over a Dask cluster: workers write to a shared folder, and return outcomes."""

import re
import secrets
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

from rig.errors import SetupError, refused
from rig.plugin_list import text_in
from rig.plugins import imported
from rig.session.locks import Say
from rig.sweep.cells import Outcome, Task, give_up, perform
from rig.sweep.pool import Brake, Outcomes, through
from rig.sweep.row_of_cell import figures_by
from rig.sweep.sweep_folder import PENDING

AHEAD = 2
"""The scheduler gets this many tasks per thread of the cluster at a time."""

TIMEOUT_S = 10.0
"""The longest wait for the scheduler, and for its first worker (s)."""


def over_cluster(tasks: Sequence[Task], address: str, brake: Brake, say: Say) -> Outcomes:
    """Yield the outcome of each task when it is known, and None from time to time.

    After the first Ctrl-C (see ``Brake``), workers only finish the cells in progress. Raises ``MissingExtraError``
    without `distributed`. Raises ``SetupError`` if the scheduler does not answer in ``TIMEOUT_S``, disconnects or has
    no workers, and if workers cannot read the folder or have another version.
    """
    if not tasks:
        return
    with closing(_client(address)) as client:
        threads = _greeted(client, address, Path(tasks[0].folder))
        say(f"{threads} threads at {address}")
        pool = client.get_executor(pure=False, retries=0)
        lost = yield from through(pool, perform, deque(tasks), AHEAD * threads, brake, _recall, _given_up)
        if lost and not brake.level:
            remedy = "Start the scheduler, and run the same command again"
            raise SetupError("the connection to the scheduler was lost", field="scheduler", remedy=remedy)


def check_address(address: str, trust: bool) -> None:
    """Raise ``UsageError`` for a scheduler on another host without TLS, unless ``trust`` is set.

    Without TLS, anyone on the network path could run code here.
    """
    scheme, _, rest = address.rpartition("://")
    host = rest.rpartition(":")[0].strip("[]")
    if trust or scheme in ("tls", "inproc") or host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host):
        return
    remedy = "Start it with TLS, give tls://HOST:PORT (docs/how-to/cluster.md), or --trust in a network of your own"
    raise refused("scheduler", address, remedy, f"the scheduler {address} is on another host and not reached by TLS")


def _client(address: str) -> Any:
    distributed = imported("distributed", "--scheduler", "dask", field="scheduler", value=address)
    try:
        return distributed.Client(address, timeout=TIMEOUT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        what = f"the scheduler {address} does not answer: {error}"
        remedy = "Start it (`dask scheduler`), and give its address as it prints it"
        raise SetupError(what, field="scheduler", value=address, remedy=remedy) from error


def _greeted(client: Any, address: str, folder: Path) -> int:
    """Return how many threads the workers have, after each has shown that it sees the folder and has this version."""
    try:
        client.wait_for_workers(1, timeout=TIMEOUT_S)
    except (OSError, TimeoutError) as error:
        what = f"the scheduler {address} has no worker"
        raise SetupError(what, field="scheduler", value=address, remedy="Start `dask worker`") from error
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
            what = "runs another version of neurorig, numpy or scipy"
            raise _unfit(worker, what, "Install the same versions on every host")
    return int(sum(client.nthreads().values())) or 1


def greet(token: str) -> tuple[str, str]:
    """Return a worker's reply: the content of the file ``token``, and the digest of the worker's estimators."""
    return text_in(Path(token)), figures_by()


def _unfit(worker: str, what: str, remedy: str) -> SetupError:
    return SetupError(f"worker {worker} {what}", field="scheduler", value=worker, remedy=remedy)


def _recall(out: dict[Future[Outcome], Task], level: int) -> None:
    """Cancel the tasks that no worker has begun; at level 2, cancel all tasks."""
    for future, task in out.items():
        if level > 1 or not (Path(task.folder) / PENDING / task.cell.key).exists():
            future.cancel()


def _given_up(task: Task, error: BaseException) -> Outcome:
    """Return the outcome of a task that killed its workers. Raises ``SetupError`` for any other error."""
    key = task.cell.key
    if type(error).__name__ == "KilledWorker":
        return give_up(task, "every worker that measured this cell died")
    what = f"a worker failed with cell {key}: {type(error).__name__}: {error}"
    remedy = "See the worker's log; finished cells are kept. If the scheduler is gone, start it and try again"
    raise SetupError(what, field="scheduler", value=key, remedy=remedy)
