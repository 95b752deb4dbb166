"""Probe a worker's interpreter, start it within a deadline, and end it with all its child processes.

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

from rig.errors import SetupError, missing_extra, refused

Process = subprocess.Popen[bytes]
_HOST = re.compile(r"(?:[A-Za-z0-9_][\w.-]*@)?[A-Za-z0-9_\[][\w.:%\]-]*", re.ASCII)
_MARK = "worker interpreter: "
_APART = "import sys;sys.path[:]=[p for p in sys.path if p];"
"""Python 3 code that removes the working directory from the path, because it may contain foreign modules."""
_PROBE = f"""{_APART}
import platform
print()
print("{_MARK}" + platform.python_version())
"""


@dataclass(frozen=True)
class Worker:
    """The program of a worker, and its place.

    ``sources`` are modules by name and text, as ``drivers/workers/serve.py`` takes them.
    ``interpreter`` is a path ("" for the one that runs this); ``host`` is "" for this computer, else ssh's name of it.
    ``options`` holds builtins. Start, imports and opening together may take ``start_s``. ``extra`` names the
    extra of this project that installs execnet.
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


def probe(interpreter: str, host: str = "", within_s: float = 20.0) -> str:
    """Return the version of an interpreter.

    Raises ``SetupError`` if it is missing, is older than Python 3.8, or does not answer in time.
    """
    args = [interpreter or sys.executable, "-c", _PROBE]
    if host:
        args = ["ssh", "-o", "BatchMode=yes", checked_host(host), shlex.join(args)]
    elif shutil.which(args[0]) is None:
        raise unstartable(interpreter, host, "there is no such program")
    try:
        text, error = _output(args, within_s)
    except OSError as caught:
        raise unstartable(interpreter, host, str(caught)) from caught
    except subprocess.TimeoutExpired as caught:
        raise unstartable(interpreter, host, f"it did not answer within {within_s:g} s") from caught
    lines = [line for line in text.splitlines() if line.startswith(_MARK)]
    if not lines:
        raise unstartable(interpreter, host, error.strip()[-300:] or "it is not Python 3.8 or newer")
    return lines[-1].removeprefix(_MARK)


def started(worker: Worker, log: IO[bytes], within_s: float) -> tuple[Process, Any]:
    """Start the worker's process and return it with an execnet gateway to it; its stderr goes to ``log``.

    Raises ``MissingExtraError`` without execnet, ``SetupError`` if the handshake does not end in time.
    """
    try:
        import execnet
        from execnet import gateway_base, gateway_bootstrap, gateway_io
    except ImportError as error:
        raise missing_extra(f"device {worker.name}", error, worker.extra, field="device", value=worker.name) from error
    python = shlex.quote(os.path.normpath(worker.interpreter or sys.executable))
    where = f"ssh={checked_host(worker.host)}" if worker.host else "popen"
    spec = execnet.XSpec(f"{where}//python={python}//id=worker//execmodel=main_thread_only")
    args = gateway_io.ssh_args(spec) if worker.host else gateway_io.popen_args(spec)
    args[-1] = args[-1].replace("import sys;", _APART, 1)
    try:
        process: Process = subprocess.Popen(
            args,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            env=_environment() if worker.interpreter else None,
        )
    except OSError as caught:
        raise unstartable(worker.interpreter, worker.host, str(caught)) from caught
    io: Any = gateway_base.Popen2IO(process.stdin, process.stdout, gateway_base.get_execmodel("thread"))
    io.wait, io.kill, io.remoteaddress = process.wait, process.kill, worker.host
    try:
        return process, _shaken(lambda: gateway_bootstrap.bootstrap(io, spec), worker, within_s)
    except BaseException:
        ended(process, 0.0)
        raise


def ended(process: Process, grace_s: float) -> None:
    """End a process that leads its session, and all of its group, if they do not end in ``grace_s`` by themselves."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
    # SIGTERM first: the cleaner of shared memory ignores it, and ends after the processes that it serves
    if _signalled(process.pid, signal.SIGTERM):
        until_s = time.monotonic() + 1.0
        while (process.poll() is None or _signalled(process.pid, 0)) and time.monotonic() < until_s:
            time.sleep(0.002)
        _signalled(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # nobody reads the rest
                pipe.close()


def checked_host(host: str) -> str:
    """Return a host for ssh: a name or address, with a user before it if needed.

    Raises ``UsageError`` for text that ssh would read as an option or as several words.
    """
    if not _HOST.fullmatch(host):
        remedy = "Give NAME or USER@NAME; write ports, keys and proxies into ~/.ssh/config"
        raise refused("host", host, remedy, f"host {host!r} is not the name of a host")
    return host


def unstartable(interpreter: str, host: str, why: str) -> SetupError:
    """Return the error for an interpreter that cannot be used."""
    where = f" on {host}" if host else ""
    what = f"no worker can be started with {interpreter or sys.executable}{where}: {why}"
    remedy = "Give the path of a Python that can run it (option interpreter), or see `rig doctor`"
    return SetupError(what, field="interpreter", value=interpreter, remedy=remedy)


def _shaken(shake: Any, worker: Worker, within_s: float) -> Any:
    """Make the gateway of a handshake in a separate thread, and return it."""
    made: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def make() -> None:
        try:
            made.put(shake())
        except BaseException as error:
            made.put(error)

    threading.Thread(target=make, name=f"start {worker.name}", daemon=True).start()
    try:
        gateway = made.get(timeout=max(within_s, 0.0))
    except queue.Empty:
        raise unstartable(worker.interpreter, worker.host, "the handshake did not end in time") from None
    if isinstance(gateway, BaseException):
        why = f"{type(gateway).__name__}: {gateway}"
        raise unstartable(worker.interpreter, worker.host, why) from gateway
    return gateway


def _output(args: Sequence[str], within_s: float) -> tuple[str, str]:
    """Return standard output and error of a program; kill it and its children if it takes too long."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        args,
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
        errors="replace",
        start_new_session=True,
        env=_environment(),
    ) as process:
        try:
            return process.communicate(timeout=max(within_s, 0.0))
        except BaseException:
            _signalled(process.pid, signal.SIGKILL)
            raise


def _environment() -> dict[str, str]:
    """Return this process's environment, without variables that lead another Python to this one's packages."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def _signalled(group: int, number: int) -> bool:
    """Send a signal to a group of processes; return whether the group existed."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
