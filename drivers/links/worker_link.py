"""The link to a worker in another interpreter: requests, answers with a deadline, and errors that name the cause.

``drivers/workers/serve.py`` is the other end. It describes what a worker's module must define.

The worker's Python interpreter starts within a deadline, and ends with all its child processes. execnet's own
``makegateway`` has no deadline and does not expose the process. Here the process starts first and the handshake
follows, so a process that never answers can be ended.
"""

import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import resources
from typing import IO, Any

import rig.errors
from drivers.failures import KEPT, raising, released_on_error
from rig.errors import DeviceError, DeviceTimeoutError, RigError, SetupError, missing_extra, refused

Process = subprocess.Popen[bytes]
_HOST = re.compile(r"(?:[A-Za-z0-9_][\w.-]*@)?[A-Za-z0-9_\[][\w.:%\]-]*", re.ASCII)
_APART = "import sys;sys.path[:]=[p for p in sys.path if p];"
"""Python 3 code that removes the working directory from the path, because it may contain unrelated modules."""
PROTOCOL = 1
_GONE = None
"""Put into the inbox when the worker is gone. A message is never None."""
_LOG_TAIL = 1500
_ENDING_S = 0.5
"""After the link has ended, the worker's process may take this long to end (s)."""


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


class WorkerLink:
    """A worker that has sent its hello. ``hello`` has its protocol, process id, Python version and ``about``."""

    def __init__(self, worker: Worker) -> None:
        """Start the worker and wait for its hello.

        Raises ``MissingExtraError`` without execnet, ``SetupError`` if the worker cannot be started or ends at once,
        ``DeviceTimeoutError`` if it hangs, and whatever the worker raises while it opens.
        """
        self.worker = worker
        self.hello: Mapping[str, Any] = {}
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._closed = False
        until_s = time.monotonic() + worker.start_s
        with tempfile.TemporaryFile() as log:
            self._process, self._gateway = started(worker, log, until_s - time.monotonic())
            self._log = os.dup(log.fileno())
        with released_on_error(lambda: self.close(0.0)):
            with raising(lambda _: self._ended_early(), OSError):
                self._channel = self._gateway.remote_exec(shipped("serve")[1])
            self._channel.setcallback(self._inbox.put, endmarker=_GONE)
            self.hello = self._greeted(until_s - time.monotonic())

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a request. Raises ``DeviceError`` when the worker is gone."""
        with raising(lambda _: self._ended_early(), OSError):
            self._channel.send(dict(message))

    def next(self, timeout_s: float) -> Mapping[str, Any] | None:
        """Return the next answer, or None if there is none within ``timeout_s``.

        Raises what the worker raised, as an error of the rig, and ``DeviceError`` for a message of another protocol.
        If the worker is gone, raises ``SetupError`` before its hello and ``DeviceError`` after it.
        """
        try:
            message = self._inbox.get(timeout=max(timeout_s, 0.0))
        except queue.Empty:
            return None
        if message is _GONE:
            self._inbox.put(_GONE)
            raise self._ended_early()
        if not isinstance(message, dict) or not isinstance(message.get("say"), str):
            raise self._not_understood(f"said {message!r:.80}")
        if message["say"] == "failed":
            raise self._told(message)
        return message

    def expect(self, say: str, within_s: float, doing: str) -> Mapping[str, Any]:
        """Return the next answer, which must be a ``say``. Raises as ``next``, and ``DeviceTimeoutError`` if late."""
        message = self.next(within_s)
        if message is None:
            raise self.given_up(within_s, doing)
        if message["say"] != say:
            raise self._not_understood(f"sent {message['say']!r} when {say!r} was expected")
        return message

    def given_up(self, within_s: float, doing: str) -> DeviceTimeoutError:
        """End a worker that hangs, because a late answer could be taken for the next one; return the error to raise."""
        what = f"the worker of {self.worker.name} did not answer within {within_s:.3g} s while {doing}{self._tail()}"
        remedy = "The recording up to here is kept; give the worker more time, or check its interpreter"
        self.close(0.0)
        return DeviceTimeoutError(what, field="timeout_s", value=within_s, remedy=remedy)

    def close(self, grace_s: float = 2.0) -> None:
        """End the worker and all processes that it started, if they still run after ``grace_s``. Never raises."""
        if self._closed:
            return
        self._closed = True
        left_s = 0.0
        if grace_s > 0:
            with suppress(RigError):
                self.send({"do": "close"})
                self.expect("closed", grace_s, "closing")
                left_s = 0.2
        ended(self._process, left_s)
        with suppress(OSError):
            self._gateway.join(1.0)
        os.close(self._log)
        self._log = -1

    def _greeted(self, within_s: float) -> Mapping[str, Any]:
        sources = [list(source) for source in self.worker.sources]
        self.send({"do": "open", "sources": sources, "options": dict(self.worker.options)})
        hello = self.expect("hello", within_s, "starting")
        if hello.get("protocol") != PROTOCOL or not isinstance(hello.get("about"), dict):
            raise self._not_understood(f"uses protocol {hello.get('protocol')!r}, not {PROTOCOL}")
        return hello

    def _told(self, message: Mapping[str, Any]) -> RigError:
        """Return the worker's exception as an error of the rig."""
        described = message.get("rig")
        if isinstance(described, dict):
            kind = getattr(rig.errors, str(described.get("kind")), DeviceError)
            kind = kind if isinstance(kind, type) and issubclass(kind, RigError) else DeviceError
            what, field, remedy = (str(described.get(key) or "") for key in ("message", "field", "remedy"))
            told: RigError = kind(what, field=field, value=described.get("value"), remedy=remedy)
            return told
        what = f"the worker of {self.worker.name} failed: {message.get('error')}{self._tail()}"
        return DeviceError(what, value=str(message.get("traceback")), remedy=KEPT)

    def _not_understood(self, what: str) -> DeviceError:
        remedy, name = f"The worker must follow protocol {PROTOCOL}, as drivers/workers/serve.py does", self.worker.name
        return DeviceError(f"the worker of {name} {what}", field="worker", value=name, remedy=remedy)

    def _ended_early(self) -> RigError:
        where = self.worker.host or "this computer"
        if not self.hello:
            what = f"the worker of {self.worker.name} on {where} ended before its first message{self._end()}"
            remedy = "Check its interpreter, or give another (option interpreter)"
            return SetupError(what, field="interpreter", value=self.worker.interpreter, remedy=remedy)
        what = f"the worker of {self.worker.name} on {where} ended unexpectedly{self._end()}"
        remedy = "The recording up to here is kept; check its interpreter, and whether memory ran out"
        return DeviceError(what, field="worker", value=self.worker.name, remedy=remedy)

    def _end(self) -> str:
        """Say how the worker's process ended, with its last output."""
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(_ENDING_S)
            name = next((s.name for s in signal.Signals if s == -code), str(-code))
            how = f"killed by {name}" if code < 0 else f"exit code {code}"
            return f" ({how}){self._tail()}"
        return self._tail()

    def _tail(self) -> str:
        """Return the last lines of the worker's stderr, without those of Python's ``resource_tracker``."""
        with suppress(OSError):
            size = os.fstat(self._log).st_size
            text = os.pread(self._log, _LOG_TAIL, max(0, size - _LOG_TAIL)).decode("utf-8", errors="replace")
            if lines := [line for line in text.strip().splitlines() if "resource_tracker" not in line]:
                return "; its last output: " + " | ".join(lines[-3:])
        return ""
