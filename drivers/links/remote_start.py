"""Start a worker's Python interpreter within a deadline, and end it with all its child processes.

execnet's own ``makegateway`` has no deadline and does not expose the process. Here the process starts first and the
handshake follows, so a process that never answers can be ended.
"""

from __future__ import annotations

import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import resources
from typing import IO, Any

from drivers.failures import released_on_error
from rig.errors import SetupError, missing_extra, refused

Process = subprocess.Popen[bytes]
_HOST = re.compile(r"(?:[A-Za-z0-9_][\w.-]*@)?[A-Za-z0-9_\[][\w.:%\]-]*", re.ASCII)
_APART = "import sys;sys.path[:]=[p for p in sys.path if p];"
"""Python 3 code that removes the working directory from the path, because it may contain unrelated modules."""


@dataclass(frozen=True)
class Worker:
    """A worker's program, and where it runs.

    ``sources`` are modules by name and text, as ``drivers/workers/serve.py`` takes them. ``interpreter`` is the path of
    a Python interpreter ("" for the one that runs this code). ``host`` is "" for this computer, else the computer's
    name for ssh. ``options`` contains builtins only. Start, imports and opening together may take ``start_s``.
    ``extra`` names this project's extra that installs execnet.
    """

    name: str
    sources: Sequence[tuple[str, str]]
    interpreter: str = ""
    host: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    start_s: float = 60.0
    extra: str = "loihi2"


def shipped(module: str) -> tuple[str, str]:
    """Return the full name and the text of a module of ``drivers/workers``."""
    name = f"drivers.workers.{module}"
    return name, resources.files("drivers.workers").joinpath(f"{module}.py").read_text(encoding="utf-8")


def started(worker: Worker, log: IO[bytes], within_s: float) -> tuple[Process, Any]:
    """Start the worker's process; return it with its execnet gateway. The process writes its stderr to ``log``.

    Raises ``MissingExtraError`` without execnet, and ``UsageError`` for a host that is no name. Raises ``SetupError``
    if the interpreter is missing, is older than Python 3.8, or does not answer in time.
    """
    try:
        import execnet
        from execnet import gateway_base, gateway_bootstrap, gateway_io
    except ImportError as error:
        raise missing_extra(f"device {worker.name}", error, worker.extra, field="device", value=worker.name) from error
    python = shlex.quote(os.path.normpath(worker.interpreter or sys.executable))
    if not worker.host and shutil.which(worker.interpreter or sys.executable) is None:
        raise unstartable(worker, "there is no such program")
    where = f"ssh={checked_host(worker.host)}" if worker.host else "popen"
    spec = execnet.XSpec(f"{where}//python={python}//id=worker//execmodel=main_thread_only")
    args = gateway_io.ssh_args(spec) if worker.host else gateway_io.popen_args(spec)
    args[1:1] = ["-o", "BatchMode=yes"] if worker.host else []
    args[-1] = args[-1].replace("import sys;", _APART, 1)
    # without the variables that would lead another Python to this Python's packages
    elsewhere = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        process: Process = subprocess.Popen(
            args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
            env=elsewhere if worker.interpreter else None,
        )  # fmt: skip
    except OSError as caught:
        raise unstartable(worker, str(caught)) from caught
    io: Any = gateway_base.Popen2IO(process.stdin, process.stdout, gateway_base.get_execmodel("thread"))
    io.wait, io.kill, io.remoteaddress = process.wait, process.kill, worker.host
    made: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def shake() -> None:
        try:
            made.put(gateway_bootstrap.bootstrap(io, spec))
        except BaseException as error:
            made.put(error)

    threading.Thread(target=shake, name=f"start {worker.name}", daemon=True).start()
    with released_on_error(lambda: ended(process, 0.0)):
        try:
            gateway = made.get(timeout=max(within_s, 0.0))
        except queue.Empty:
            raise unstartable(worker, f"it did not answer within {within_s:.3g} s") from None
        if isinstance(gateway, BaseException) or process.poll() is not None:
            log.seek(0)
            why = log.read().decode(errors="replace").strip()[-300:] or f"it is not Python 3.8 or newer: {gateway!r}"
            raise unstartable(worker, why)
    return process, gateway


def ended(process: Process, grace_s: float) -> None:
    """End a process that leads its session, and its whole group, if they still run after ``grace_s``."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
    # SIGTERM first: the process that cleans up shared memory ignores it, and ends after the processes that it serves
    if _signalled(process.pid, signal.SIGTERM):
        until_s = time.monotonic() + 1.0
        while (process.poll() is None or _signalled(process.pid, 0)) and time.monotonic() < until_s:
            time.sleep(0.002)
        _signalled(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # nobody reads the remaining data
                pipe.close()


def checked_host(host: str) -> str:
    """Check and return a host for ssh: a name or address, with a user before it if needed.

    Raises ``UsageError`` for text that ssh would read as an option or as several words.
    """
    if not _HOST.fullmatch(host):
        remedy = "Give NAME or USER@NAME; write ports, keys and proxies into ~/.ssh/config"
        raise refused("host", host, remedy, f"host {host!r} is not the name of a host")
    return host


def unstartable(worker: Worker, why: str) -> SetupError:
    """Return the error for an interpreter that cannot be used."""
    where = f" on {worker.host}" if worker.host else ""
    what = f"no worker can be started with {worker.interpreter or sys.executable}{where}: {why}"
    remedy = "Give the path of a Python that can run it (option interpreter), or see `rig doctor`"
    return SetupError(what, field="interpreter", value=worker.interpreter, remedy=remedy)


def _signalled(group: int, number: int) -> bool:
    """Send a signal to a group of processes; return whether the group existed."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
