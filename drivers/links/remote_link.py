"""The link to a worker in another interpreter: requests, answers with a deadline, and errors that name the cause.

``drivers/workers/serve.py`` is the other end. It describes what a worker's module must define.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import rig.errors
from drivers.failures import KEPT, raising, released_on_error
from drivers.links.remote_start import Worker, ended, shipped, started
from rig.errors import DeviceError, DeviceTimeoutError, RigError, SetupError

PROTOCOL = 1
_GONE = None
"""Put into the inbox when the worker is gone. No message is None."""
_LOG_TAIL = 1500
_ENDING_S = 0.5
"""After the link has ended, the worker's process may take this long to end (s)."""


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
