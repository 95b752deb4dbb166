"""The loop that a worker runs in its own interpreter. ``drivers/links/worker_link.py`` ships it as source.

It needs Python 3.8 or newer with its standard library, and imports nothing of this project. Only dictionaries, lists,
numbers, texts and bytes cross the channel. The first message contains the sources of the worker's modules by name; each
can be imported by this name. The last source has ``open_worker(options)``, which returns an object with

- ``about``: a dictionary for the hello (versions, details, ...);
- ``stage(samples)``: load the samples, untimed. A sample is ``{"id", "payload": {"dtype", "shape", "data"}, "rate_hz",
  "duration_s", "seed"}``, its data in C order;
- ``run(sample_id, budget)``: process one sample; ``budget`` is None or ``[timeout_s, stop_at_cost]``. Returns
  ``{"output": ..., "spans": [[phase, on_ns, off_ns, executions], ...], "progress": [[ns, cost, packed], ...]}`` in
  nanoseconds of ``time.monotonic_ns()``. A simulator may add ``"network"``, the fields of ``NetworkInfo``, and
  ``"activity"``, ``{layer or connection: {counter: bytes}}``: little-endian 64-bit integers, one for each execution;
- ``close()``.

The object's exceptions are sent back. An exception with a dictionary ``rig`` (kind, message, field, value, remedy)
becomes the error of the rig that is named by ``kind``.
"""

from __future__ import annotations

import os
import platform
import queue
import signal
import sys
import time
import traceback
import types
from typing import Any

PROTOCOL = 1
_END = None
"""Put into the inbox when the host is gone; a message is never None."""
_TRACE_LINES = 12


def serve(channel: Any) -> None:
    """Answer requests until one asks to close, or until the host is gone."""
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    closing: list[bool] = []

    def deliver(message: Any) -> None:
        if message is _END and not closing:
            _end_group()  # from the receiver's thread, because the worker may be in a call that never returns
        inbox.put(message)

    channel.setcallback(deliver, endmarker=_END)
    served = _Served()
    while (message := inbox.get()) is not _END:
        last = message.get("do") == "close"
        if last:
            closing.append(True)
        try:
            answer = served.answer(message)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            answer = _failure(error)
        _send(channel, answer)
        if last:
            return


class _Served:
    """Answers requests with the worker, which the first request opens."""

    def __init__(self) -> None:
        self._worker: Any = None

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request. Raises whatever the worker raises."""
        do = message["do"]
        if do == "run":
            return {"say": "reply", "id": message["id"], **self._worker.run(message["id"], message["budget"])}
        if do == "timer":
            return {"say": "tick", "tick": time.monotonic_ns()}
        if do == "stage":
            self._worker.stage(message["samples"])
            return {"say": "staged"}
        if do == "close":
            if self._worker is not None:
                self._worker.close()
            return {"say": "closed"}
        return self._opened(message)

    def _opened(self, message: dict[str, Any]) -> dict[str, Any]:
        """Load the worker's sources and open it.

        First this process becomes the leader of a group, so that it can be ended with its child processes.
        """
        if os.getpgid(0) != os.getpid():  # over ssh this process leads no group yet
            os.setpgid(0, 0)
        for name, source in message["sources"]:
            module = _shipped(name, source)
        self._worker = module.open_worker(message["options"])
        return {
            "say": "hello",
            "protocol": PROTOCOL,
            "pid": os.getpid(),
            "python": platform.python_version(),
            "about": dict(self._worker.about),
        }


def _shipped(name: str, source: str) -> types.ModuleType:
    """Make a module from its source, so that later modules can import it; its parent packages are empty."""
    parts = name.split(".")
    for k in range(1, len(parts)):
        package = sys.modules.setdefault(".".join(parts[:k]), types.ModuleType(".".join(parts[:k])))
        package.__path__ = []
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, f"<shipped {name}>", "exec"), module.__dict__)
    return module


def _end_group() -> None:
    # not SIGKILL: the process that cleans up its owner's shared memory must survive, and ignores SIGTERM
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGTERM)
    os._exit(1)


def _failure(error: BaseException) -> dict[str, Any]:
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    described = getattr(error, "rig", None)
    return {
        "say": "failed",
        "error": f"{type(error).__name__}: {error}",
        "rig": described if isinstance(described, dict) else None,
        "traceback": "".join(lines[-_TRACE_LINES:]),
    }


def _send(channel: Any, answer: dict[str, Any]) -> None:
    try:
        channel.send(answer)
    except OSError:
        _end_group()
    except Exception as error:  # the answer contains a value that is no builtin
        channel.send(_failure(error))


if __name__ == "__channelexec__":
    serve(channel)  # type: ignore[name-defined]  # noqa: F821
