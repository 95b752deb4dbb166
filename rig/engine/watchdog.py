"""Watch every call of a driver: a call that does not return ends the run, and if necessary the process.

The engine stores the name of each call before it, and None after it. Plain attributes hold the name, because they must
be fast between two queries. A thread reads the attributes, and also notices when the process was stopped or the host
slept.

A call that hangs and holds Python's lock also stops this thread, and is not noticed.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from rig.child_process import Kept, leave
from rig.driver_call_timeouts import AFTER_S, DEFAULT_TIMEOUT_S, GRACE_S, MORE_S, PATIENCE_S, TELL_S, patience_of
from rig.engine.device_errors import guard
from rig.engine.interrupts import on_signals
from rig.errors import DeviceTimeoutError, MeterSilentError, RigError
from rig.recording.traces.readings import started
from rig.terminal import say

T = TypeVar("T")
LOOK_S = 0.25
GAP_S, RESTED = 1.0, 0.5
"""The process was stopped if the thread woke over ``GAP_S`` late, and the process ran for under ``RESTED`` of the time.
"""


def since_boot_ns() -> int:
    """Return the time since boot (ns); unlike the host clock, it goes on while the host sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
    return time.monotonic_ns() if clock is None else time.clock_gettime_ns(clock)


class Watch:
    """A watch over the calls of drivers.

    ``call`` names the running call, such as ``poll() of the device``; it is None between calls. ``issued`` returns a
    number that grows between two calls of the same name. A call may take ``patience_s``; None means the constants of
    ``rig.driver_call_timeouts`` and ``timeout_s``.
    """

    def __init__(self, patience_s: float | None = None, grace_s: float = GRACE_S) -> None:
        self.call: str | None = None
        self.issued: Callable[[], int] = int
        self.times = 1
        """How many times the device repeats a sample by itself."""
        self.timeout_s = DEFAULT_TIMEOUT_S
        self.remedy = "Check its power and link, and its driver"
        """The remedy in the error for a call that does not return."""
        self.gaps_ns: list[tuple[int, int]] = []
        """A pair for each stop of the process or sleep of the host: the last sign of life before it, and this moment
        plus the length of the stop (host ns)."""
        self._count = 0
        self._gaps = False
        self.hung = False
        """Whether a call has lasted too long."""
        self._patience_s, self._grace_s = patience_s, grace_s
        self._error: RigError | None = None

    def guard(self, call: Callable[[], T], kind: type[RigError], what: str, name: str) -> T:
        """Run a driver's call as ``device_errors.guard`` does, and watch it."""
        return self.read(name, lambda _: guard(call, kind, what), None)

    def read(self, name: str, look: Callable[[Any], T], given: Any) -> T:
        """Return ``look(given)``, under watch: ``look`` may run code of a driver. Call it only between two queries."""
        self._count += 1
        self.call = name
        try:
            return look(given)
        finally:
            self.call = None

    @contextmanager
    def watching(self, give_up: Callable[[RigError], object], *, gaps: bool = False) -> Iterator[None]:
        """Watch inside the block.

        In a call that lasts too long, a signal raises a typed error. If this does not end the call, the watch's thread
        calls ``give_up`` with the error, and the process exits. With ``gaps``, the times when the process was stopped
        are appended to ``gaps_ns``.
        """
        self._gaps = gaps
        halt = threading.Event()
        main = threading.get_ident() if threading.current_thread() is threading.main_thread() else None
        thread = threading.Thread(target=self._look, args=(halt, main, give_up), name="watchdog", daemon=True)
        numbers = [signal.SIGUSR1] if hasattr(signal, "SIGUSR1") else []
        with on_signals(self._raise, *numbers), Kept():
            started(thread)
            try:
                yield
            finally:
                halt.set()
                thread.join()

    def _raise(self, *_: object) -> None:
        error, self._error = self._error, None
        if error is not None and self.call is not None:
            raise error

    def _look(self, halt: threading.Event, main: int | None, give_up: Callable[[RigError], object]) -> None:
        seen, since_s, interrupted, told = self._now_in(), time.monotonic(), False, False
        awake_ns, on_ns, worked_s = since_boot_ns(), time.monotonic_ns(), time.process_time()
        look_s = min(LOOK_S, self.allowed_s("") / 4)
        while not halt.wait(look_s):
            before_ns, last_ns, before_s = awake_ns, on_ns, worked_s
            awake_ns, on_ns, worked_s = since_boot_ns(), time.monotonic_ns(), time.process_time()
            late_s = (awake_ns - before_ns) * 1e-9
            if self._gaps and late_s > GAP_S + look_s and worked_s - before_s < RESTED * late_s:
                self.gaps_ns.append((last_ns, last_ns + awake_ns - before_ns))
                since_s += (on_ns - last_ns) * 1e-9
            now = self._now_in()
            if now != seen or now[0] is None:
                seen, since_s, interrupted, told = now, time.monotonic(), False, False
                continue
            lasted_s, allowed_s = time.monotonic() - since_s, self.allowed_s(str(now[0]))
            if lasted_s > TELL_S and not told:
                told = True
                say(f"rig: waiting for {now[0]}, up to {allowed_s:g} s", error=True)
            if lasted_s > allowed_s and not interrupted:
                interrupted = self.hung = True
                self._error = self._unreturned(str(now[0]), lasted_s)
                if main is not None and hasattr(signal, "pthread_kill"):
                    signal.pthread_kill(main, signal.SIGUSR1)
            elif lasted_s > allowed_s + self._grace_s:
                self._end(self._unreturned(str(now[0]), lasted_s), give_up)

    def _now_in(self) -> tuple[str | None, int, int]:
        return self.call, self._count, self.issued()

    def allowed_s(self, call: str) -> float:
        """Return how long a call of this name may take (s)."""
        if self._patience_s is not None:
            return self._patience_s
        if self.hung:
            return AFTER_S
        name = call.partition("(")[0]
        return patience_of(name, self.timeout_s) if name in PATIENCE_S else self.timeout_s * self.times + MORE_S

    def _unreturned(self, call: str, lasted_s: float) -> RigError:
        kind = MeterSilentError if " of meter" in call else DeviceTimeoutError
        what = f"{call} has not returned for {lasted_s:.1f} s"
        return kind(what, field=call, value=lasted_s, remedy=self.remedy)

    def _end(self, error: RigError, give_up: Callable[[RigError], object]) -> None:
        with suppress(Exception):
            give_up(error)
        say(f"rig: {error}", error=True)
        leave(error.exit_code)


def let_go(close: Callable[[], object], name: str, patience_s: float) -> None:
    """Close a driver in a thread, which is abandoned if the call does not return in ``patience_s``.

    Everything is recorded by then. Errors of the driver are ignored.
    """

    def end() -> None:
        with Kept(), suppress(BaseException):
            close()

    thread = threading.Thread(target=end, name=name, daemon=True)
    try:
        started(thread)
    except MemoryError:
        end()
        return
    thread.join(patience_s)
    if thread.is_alive():
        say(f"rig: {name} has not returned for {patience_s:g} s, and is left; the recording is complete", error=True)


def patiently(call: Callable[[], T], kind: type[RigError], what: str, name: str, patience_s: float | None = None) -> T:
    """Run one call of a driver (open, info) outside a run, under a separate watch."""
    watch = Watch(patience_s)
    with watch.watching(lambda error: None):
        return watch.guard(call, kind, what, name)
