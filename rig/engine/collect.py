"""``collect``: plays a scenario's steps to a device while meters watch. Records; computes nothing.

Between spans is the time to write, drain and read clocks. Inside a span only the device's answer is
awaited, except that a meter whose buffer would overflow is drained. ``rig.engine.dispatcher`` hands samples over.
"""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Iterable
from functools import partial

from rig.engine.acquisition import Bench, Progress, Watch, between, finish, guard, read_clocks, sleep, start_meter
from rig.engine.dispatcher import Line
from rig.errors import DeviceError, Interrupted, RigError, SetupError
from rig.recording.lines import IdleWindow, MarkPulses
from rig.recording.writer import Recorder
from rig.types import MARK_PHASE, DeviceInfo, Idle, Issue, Mark, Marks, MeterInfo, Rail, Step

BRACKETS_PER_MARK = 16
PULSES = 12
NOMINAL_CHIP_S = 2e-3


def collect(steps: Iterable[Step], bench: Bench, recorder: Recorder, progress: Progress | None = None) -> None:
    """Play ``steps`` to the end, or to the first error; the stop line is written either way.

    Raises a ``RigError``: what a device or meter throws is translated here, once.
    """
    w = Watch(bench, recorder, guard(bench.device.info, DeviceError, "the device failed to say what it is"), progress)
    error: RigError | None = None
    line = Line(w)
    gc.freeze()  # what was made until now is never looked through again: a look takes up to tens of milliseconds
    try:
        check_pin(w.device, (meter.info() for meter in w.bench.meters))
        for meter in w.bench.meters:
            start_meter(meter, w)
        play = line.play
        for step in steps:
            if isinstance(step, Issue):
                play(step)
            else:
                line.settle()
                _pause(step, w)
        line.settle()
        between(w, force=True)
    except KeyboardInterrupt:
        error = Interrupted("interrupted", remedy="What was recorded until now is kept; `rig report` reads it")
    except RigError as caught:
        error = caught
    except MemoryError as caught:
        error = SetupError(f"more than memory holds: {caught!r}", remedy="Take a smaller problem, or fewer samples")
    except Exception as caught:
        error = SetupError(
            f"the scenario failed: {caught!r}", remedy="This is a defect of the scenario or its workload"
        )
        error.__cause__ = caught
    finally:
        gc.unfreeze()
        error = finish(w, line.abandon(error))
    if error is not None:
        raise error


def check_pin(device: DeviceInfo, meters: Iterable[MeterInfo]) -> None:
    """Refuse a device that marks its spans on a pin which no meter watches. Raises ``SetupError``."""
    if not device.spans_on_pin:
        return
    pins = [rail.name for info in meters for rail in info.rails if rail.kind == "edges" and rail.pin is not None]
    if len(pins) != 1:
        raise SetupError(
            f"device {device.name} marks its spans on a pin and stamps none, and "
            f"{'no meter watches it' if not pins else 'several inputs are declared as that pin: ' + ', '.join(pins)}",
            field="pin",
            value=", ".join(pins),
            remedy="Wire the pin and its ground to a logic input of the power meter, and declare that input with what "
            "the pin does, as with --meter joulescope --option mark_input=0 --option pin=stamp",
        )
    if device.clock is not None or len(device.phases) != 1 or device.max_batch != 1:
        raise SetupError(
            f"device {device.name} marks its spans on a pin and declares a clock, {len(device.phases)} phases and a "
            f"batch of {device.max_batch}",
            field="spans_on_pin",
            value=True,
            remedy="Such a device has no clock, one phase, and takes one sample at a time",
        )


def _pause(step: Mark | Idle, w: Watch) -> None:
    if isinstance(step, Mark):
        _mark(w)
    elif isinstance(step, Idle):
        _idle(step, w)
    else:
        raise TypeError(f"a scenario yields Mark, Idle and Issue, not {type(step).__name__}")


def _mark(w: Watch) -> None:
    read_clocks(w, BRACKETS_PER_MARK, "mark")
    if w.bench.meters and isinstance(w.bench.device, Marks):
        _pulses(w.bench.device, w)
    between(w, force=True)


def _pulses(device: Marks, w: Watch) -> None:
    """A pseudo-random train of pulses, wide enough for the slowest rail to resolve."""
    rails = [rail for info in w.infos.values() for rail in info.rails if rail.kind != "edges"]
    chip_s = max([NOMINAL_CHIP_S, *(_chip_s(rail) for rail in rails)])
    order = random.Random(127)
    spans = []
    for _ in range(PULSES):
        width_s = chip_s * order.randint(1, 3)
        span = guard(partial(device.pulse, width_s), DeviceError, "the device failed to pulse")
        spans.append((span.on_tick, span.off_tick))
        sleep(w, chip_s * order.randint(1, 3))
    clock = w.device.clock.name if w.device.clock else "host"
    w.recorder.event(MarkPulses(spans=spans, clock=clock, phase=MARK_PHASE))


def _chip_s(rail: Rail) -> float:
    period_s = 1.0 / rail.rate_hz if rail.rate_hz > 0 else 0.0
    return 2.0 * period_s + 5.0 * rail.filter_tau_s


def _idle(step: Idle, w: Watch) -> None:
    if not (step.seconds >= 0 and math.isfinite(step.seconds)):
        raise SetupError(
            f"an idle window of {step.seconds} s", field="seconds", value=step.seconds, remedy="Give a positive number"
        )
    between(w, force=True)
    on_ns = w.bench.clock.now_ns()
    sleep(w, step.seconds)
    w.recorder.event(IdleWindow(on_ns=on_ns, off_ns=w.bench.clock.now_ns()))
