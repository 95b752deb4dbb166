"""Make a device of one blocking function, with timeouts, overlap and batches."""

import math
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from rig.errors import DeviceError, refused, unfit
from rig.network.description import Activity
from rig.types import Budget, DeviceInfo, Reply, Sample, SimulatedBench, Span

Run = Callable[..., Any]
"""A function of a sample. For batches, it takes samples and the number of repetitions, and returns a sequence."""
Load = Callable[[Sequence[Sample]], None]
Count = Callable[[Sample], Activity]
Power = Mapping[str, tuple[float, float]]
"""The power that a device would use, by rail: (idle_w, busy_w)."""


class BlockingDevice:
    """A device that runs a function in a worker thread, so that the rig can abandon a call that hangs.

    The function takes a sample and returns its output, or a ``Reply`` with its own spans. For an output alone, the span
    is the call, in host nanoseconds. If the device declares several phases, an output alone has no span, because only
    the function knows when each phase began.

    ``info`` is by default the name of the function, in hardware mode. ``load`` gets the samples beforehand, and is not
    timed. ``count`` is called after ``run``, outside the span, and returns the network's activity for the same sample.
    With ``batches``, ``run`` takes the samples that are issued together, up to ``info.max_batch``, and how many times
    to run them without a pause. It returns an output or a reply for each sample; the span of each output is the call.
    ``close`` calls ``end`` once. ``power`` states by rail the power that the device would use, (idle_w, busy_w), for
    the simulated meter ``mock``; it is reported as SIMULATED. Raises ``UsageError`` for watts that are not valid.

    Example::

        import rig

        def open_device() -> rig.Device:
            return rig.blocking(lambda sample: {"label": "park"}, rig.DeviceInfo("parks", mode="hardware"))
    """

    def __init__(
        self,
        run: Run,
        info: DeviceInfo | None = None,
        load: Load | None = None,
        count: Count | None = None,
        *,
        batches: bool = False,
        end: Callable[[], None] | None = None,
        power: Power | None = None,
    ) -> None:
        self._run = run if batches else partial(_looped, run)
        self._info = info or DeviceInfo(name=getattr(run, "__name__", "function"), mode="hardware")
        self._load, self._count, self._batches = load, count, batches
        self._end = end
        self.power = None if power is None else checked_power(power)
        self._bench: SimulatedBench | None = None
        self._todo: queue.SimpleQueue[tuple[Sequence[Sample], int] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Reply | Exception] = queue.SimpleQueue()
        self._error: Exception | None = None
        self._worker: threading.Thread | None = None

    def info(self) -> DeviceInfo:
        return self._info

    def draw_from(self, bench: SimulatedBench) -> None:
        """Simulate ``power`` on a simulated bench in real time: busy during each call and idle otherwise."""
        power = self.power or {}
        busy_w = {rail: busy for rail, (_, busy) in power.items()}
        bench.install({rail: idle for rail, (idle, _) in power.items()}, dict.fromkeys(self._info.phases, busy_w))
        self._bench = bench

    def stage(self, samples: Sequence[Sample]) -> None:
        """Give the samples to the ``load`` function, if there is one."""
        if self._load is not None:
            self._load(samples)

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        """Queue the samples for the worker, which the first call starts."""
        self.submit_repeated(samples, 1, None, budget)

    def submit_repeated(self, samples: Sequence[Sample], times: int, phase: str | None, budget: Budget | None) -> None:
        """Queue the samples, each to run ``times`` times without a pause.

        Raises ``UsageError`` for a phase that is not the device's only one: a function cannot run a part of itself.
        """
        if phase is not None and (phase,) != self._info.phases:
            remedy = "A function runs all its phases at each call. Leave --per-phase out, or write a class"
            raise refused("phase", phase, remedy, f"device {self._info.name} cannot run the phase {phase!r} alone")
        if self._worker is None:
            # a daemon: a vendor's call that never returns must not keep the process alive
            self._worker = threading.Thread(target=self._work, name=f"device {self._info.name}", daemon=True)
            self._worker.start()
        for batch in (tuple(samples),) if self._batches else ((sample,) for sample in samples):
            self._todo.put((batch, times))

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        """Wait up to ``timeout_s`` for the first reply, and return all replies that are ready.

        If the function raised an error, it is raised here after the earlier replies were returned.
        """
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        ready: list[Reply] = []
        try:
            item = self._done.get(timeout=max(timeout_s, 0.0))
            while isinstance(item, Reply):
                ready.append(item)
                item = self._done.get_nowait()
        except queue.Empty:
            return ready
        if not ready:
            raise item
        self._error = item
        return ready

    def close(self) -> None:
        """Let the worker end after the queued calls, without waiting for it, and call ``end``."""
        self._todo.put(None)
        if self._end is not None:
            end, self._end = self._end, None
            end()

    def _work(self) -> None:
        while (job := self._todo.get()) is not None:
            batch, times = job
            try:
                for reply in self._replies(batch, times):
                    self._done.put(reply)
            except Exception as error:
                self._done.put(error)
            except BaseException as error:  # sys.exit() in the function must end the run, not the worker
                what = f"the function ended with {type(error).__name__} on sample {batch[0].id}"
                remedy = "Let it return its output or raise an Exception"
                self._done.put(DeviceError(what, field="sample_id", value=batch[0].id, remedy=remedy))

    def _replies(self, batch: Sequence[Sample], times: int) -> Sequence[Reply]:
        on_ns = time.monotonic_ns()
        rest = None if self._bench is None else self._bench.begin(self._info.phases[0], on_ns)
        outputs = self._run(batch, times)
        off_ns = time.monotonic_ns()
        if rest is not None:
            rest(off_ns)
        if len(outputs) != len(batch):
            what = f"the function gave {len(outputs)} outputs for {len(batch)} samples"
            remedy = "Return an output or a Reply for each sample, in their order"
            raise DeviceError(what, field="outputs", value=len(outputs), remedy=remedy)
        phases = self._info.phases
        call = (Span(phases[0], on_ns, off_ns, times),) if len(phases) == 1 else ()
        return [self._reply(sample, output, call) for sample, output in zip(batch, outputs, strict=True)]

    def _reply(self, sample: Sample, output: Any, call: tuple[Span, ...]) -> Reply:
        activity = None if self._count is None else self._count(sample)
        if not isinstance(output, Reply):
            return Reply(sample.id, output, call, activity=activity)
        if output.sample_id != sample.id:
            what = f"the function replied to {output.sample_id!r} when given {sample.id!r}"
            remedy = "Return a Reply with the sample's own id"
            raise DeviceError(what, field="sample_id", value=output.sample_id, remedy=remedy)
        return replace(output, activity=activity or output.activity)


def _looped(run: Run, batch: Sequence[Sample], times: int) -> tuple[Any]:
    """Run one sample ``times`` times, and return the last output; a ``Reply`` gets the spans of all runs."""
    spans: list[Span] = []
    for _ in range(times):
        output = run(batch[0])
        if isinstance(output, Reply):
            spans.extend(output.spans)
    return (replace(output, spans=tuple(spans)) if isinstance(output, Reply) else output,)


def checked_power(power: Power) -> dict[str, tuple[float, float]]:
    """Return the watts of each rail. Raises ``UsageError`` unless each is a pair of finite watts of at least 0."""
    remedy = 'Give each rail a pair of watts: power={"core": (idle_w, busy_w)}'
    if not power:
        raise unfit("power", power, "names no rail", remedy)
    for rail, watts in power.items():
        pair = watts if isinstance(watts, (tuple, list)) and len(watts) == 2 else (math.nan,)
        if not all(isinstance(w, (int, float)) and 0 <= w < math.inf for w in pair):
            raise unfit(f"power of {rail}", watts, "is not a pair of watts", remedy)
    return {rail: (float(idle), float(busy)) for rail, (idle, busy) in power.items()}


blocking = BlockingDevice
