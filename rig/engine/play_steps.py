"""Play the steps of a scenario to a device, and record what the meters read; nothing is computed.

Writing, draining and reading of clocks happen between spans. Inside a span the host only waits for the reply, and
drains a meter only if its buffer would overflow. ``rig.engine.dispatcher`` issues the samples.
"""

import gc
import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from functools import partial

from rig.child_process import Kept
from rig.driver_call_timeouts import SIMULATED_S
from rig.engine.acquisition import Acquisition, Bench, Progress, close, finish, housekeep, read_clocks, sleep, start
from rig.engine.clock import HostClock
from rig.engine.device_errors import Owners, bad_step, ended_by, guard
from rig.engine.dispatcher import Dispatcher
from rig.engine.interrupts import deferred
from rig.engine.watchdog import Watch
from rig.errors import KEPT, DeviceError, Ended, Interrupted, RigError, SetupError
from rig.recording.events import IdleWindow, MarkPulses
from rig.recording.layout import trace_path
from rig.recording.validation import check_span
from rig.recording.writer import Recorder
from rig.types import MARK_PHASE, DeviceInfo, Idle, Issue, Mark, Marks, MeterInfo, Span, Step

BRACKETS_PER_MARK = 16
PULSES = 12
NOMINAL_CHIP_S = 2e-3


def collect(
    steps: Iterable[Step],
    bench: Bench,
    recorder: Recorder,
    progress: Progress | None = None,
    *,
    workload: object = None,
    watch: Watch | None = None,
) -> None:
    """Play ``steps`` to the end, or to the first error, and write the stop line in both cases.

    Raises a ``RigError`` for every failure of a device, a meter, the scenario or its ``workload``, ``Interrupted``
    if a signal ended the run, and ``KeyboardInterrupt`` if a signal came only while the stop line was written. If a
    driver's call does not return and cannot be interrupted, the process ends.
    """
    real = isinstance(bench.clock, HostClock)
    watch = watch or Watch(None if real else SIMULATED_S)
    try:
        info = guard(bench.device.info, DeviceError, "the device failed to describe itself")
    except RigError as caught:
        recorder.stop(caught)
        raise
    watch.timeout_s = info.timeout_s
    watch.remedy += "; what was recorded until now is kept (`rig report`)"
    acquisition = Acquisition(bench, recorder, info, progress, watch)
    dispatcher = Dispatcher(acquisition)
    owners = Owners(steps, workload, (bench.device, *bench.meters))

    def give_up(error: RigError) -> None:
        close(acquisition, dispatcher.abandon(error))

    try:
        with watch.watching(give_up, gaps=real):
            error = _to_the_end(steps, acquisition, dispatcher, owners)
    except MemoryError as caught:  # the watch's thread could not start
        recorder.stop(error := ended_by(caught, owners))
    if error is not None:
        raise error


def _to_the_end(
    steps: Iterable[Step], acquisition: Acquisition, dispatcher: Dispatcher, owners: Owners
) -> Ended | None:
    error: Ended | None = Interrupted("the run was left in an unknown way", remedy=KEPT)
    gc.freeze()  # a garbage collection that also visits these objects would take up to tens of milliseconds
    try:
        with Kept():
            _play(steps, acquisition, dispatcher)
        error = None
    except BaseException as caught:  # a driver may raise SystemExit, and an incomplete run must not look complete
        error = ended_by(caught, owners)
    finally:
        gc.unfreeze()
        with suppress(KeyboardInterrupt) if error else nullcontext(), deferred():
            error = finish(acquisition, dispatcher.abandon(error))
    return error


def _play(steps: Iterable[Step], acquisition: Acquisition, dispatcher: Dispatcher) -> None:
    check_wiring(acquisition.device, [meter.info() for meter in acquisition.bench.meters])
    start(acquisition)
    play = dispatcher.play
    for step in steps:
        if isinstance(step, Issue):
            try:
                play(step)
            except (TypeError, ValueError):
                if isinstance(step.samples, Sequence) and step.samples:
                    raise
                raise bad_step("samples", str(step.samples)[:40], "it is no list of one or more") from None
        else:
            dispatcher.settle()
            _pause(step, acquisition)
    dispatcher.settle()
    housekeep(acquisition, force=True)


def check_wiring(device: DeviceInfo, meters: Sequence[MeterInfo]) -> None:
    """Check that the meters have the pin and the voltages that are needed, and that no two rails share a file.

    No phase of the device may have the name of its pulses at a mark. Raises ``SetupError``.
    """
    if MARK_PHASE in device.phases:
        what = f"device {device.name} declares a phase {MARK_PHASE!r}, which is the name of its pulses at a mark"
        raise SetupError(what, field="phases", value=MARK_PHASE, remedy="Give the phase another name")
    _check_pin(device, meters)
    rails = [rail for info in meters for rail in info.rails]
    for path, count in Counter(trace_path(rail.name).casefold() for rail in rails).items():
        if count > 1:
            remedy = "Give every rail of every meter a name of its own, by an option of its driver (`rig list METER`)"
            raise SetupError(f"{count} rails would share the file {path}", field="rail", value=path, remedy=remedy)
    volts = [rail.name for rail in rails if rail.conversion.unit == "V"]
    for rail in rails:
        name = rail.conversion.supply_rail
        if name is not None and name not in volts:
            what = f"rail {rail.name} names {name} as its supply, and no meter has such a rail in V"
            remedy = "Name a rail of volts, or state the voltage as supply_v"
            raise SetupError(what, field="supply_rail", value=name, remedy=remedy)


def _check_pin(device: DeviceInfo, meters: Iterable[MeterInfo]) -> None:
    """Check a device that marks its spans on a pin: exactly one meter input watches the pin, and the device fits.

    The device must have no clock, one phase, and batches of one sample. Raises ``SetupError``.
    """
    if not device.spans_on_pin:
        return
    pins = [rail.name for info in meters for rail in info.rails if rail.kind == "edges" and rail.pin is not None]
    if len(pins) != 1:
        found = "no meter watches it" if not pins else f"several inputs are declared as that pin: {', '.join(pins)}"
        what = f"device {device.name} marks its spans only on a pin, but {found}"
        remedy = "Wire the pin and its ground to a logic input of the power meter, and declare that input with what "
        remedy += "the pin does, as with --meter joulescope --option mark_input=0 --option pin=stamp"
        raise SetupError(what, field="pin", value=", ".join(pins), remedy=remedy)
    if device.clock is not None or len(device.phases) != 1 or device.max_batch != 1:
        what = f"device {device.name} marks its spans on a pin and declares a clock, {len(device.phases)} phases "
        what += f"and a batch of {device.max_batch}"
        remedy = "Such a device has no clock, one phase, and takes one sample at a time"
        raise SetupError(what, field="spans_on_pin", value=True, remedy=remedy)


def _pause(step: Mark | Idle, acquisition: Acquisition) -> None:
    if isinstance(step, Mark):
        read_clocks(acquisition, BRACKETS_PER_MARK, "mark")
        if acquisition.bench.meters and isinstance(acquisition.bench.device, Marks):
            _pulses(acquisition.bench.device, acquisition)
        housekeep(acquisition, force=True)
    elif isinstance(step, Idle):
        if not (step.seconds >= 0 and math.isfinite(step.seconds)):
            what = f"an idle window of {step.seconds} s"
            raise SetupError(what, field="seconds", value=step.seconds, remedy="Give a finite number, 0 or more")
        housekeep(acquisition, force=True)
        on_ns = acquisition.bench.clock.now_ns()
        sleep(acquisition, step.seconds)
        acquisition.recorder.event(IdleWindow(on_ns=on_ns, off_ns=acquisition.bench.clock.now_ns()))
    else:
        what = f"the scenario yielded a {type(step).__name__}, not Mark, Idle or Issue"
        raise SetupError(what, field="step", value=type(step).__name__, remedy="Correct the scenario")


def _pulses(device: Marks, acquisition: Acquisition) -> None:
    """Record a pseudo-random train of pulses, each wide enough for the slowest rail."""
    rails = [rail for info in acquisition.infos.values() for rail in info.rails if rail.kind != "edges"]
    chip_s = max([NOMINAL_CHIP_S, *(2.0 / (rail.rate_hz or math.inf) + 5.0 * rail.filter_tau_s for rail in rails)])
    widths = random.Random(127)
    spans = []
    for _ in range(PULSES):
        width_s = chip_s * widths.randint(1, 3)
        call, what = partial(_pulse, device, width_s), "the device failed to pulse"
        span = acquisition.watch.guard(call, DeviceError, what, "pulse() of the device")
        spans.append((span.on_tick, span.off_tick))
        sleep(acquisition, chip_s * widths.randint(1, 3))
    clock = acquisition.device.clock.name if acquisition.device.clock else "host"
    acquisition.recorder.event(MarkPulses(spans=spans, clock=clock, phase=MARK_PHASE))


def _pulse(device: Marks, seconds: float) -> Span:
    return check_span(device.pulse(seconds))
