"""Data that no reader could use are refused during recording; the author is named, and earlier data are reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures.bench.mock_device import open_device
from fixtures.bench.mock_meter import MockMeter, open_meter
from fixtures.bench.true_power import SimPlant
from rig.analysis.evaluate import evaluate
from rig.analysis.result.figure_key import FigureKey
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.errors import DataError, DeviceError, MeterError, RigError, SetupError
from rig.recording.reader import Run
from rig.types import Bracket, Chunk, Idle, Issue, Mark, Reply, Sample, SampleSet, Span
from tests.support.ended_runs import Play
from tests.support.serving import Queue, samples

GOOD = 20
"""How often a faulty driver works well first."""


def reported(run: Run, error: RigError) -> None:
    """The stop line names the error, and the rest of the recording has its figures."""
    assert run.error is not None and run.error.message == error.message
    assert run.left_out == ()
    assert evaluate(run).quantities[FigureKey("execution_time_s")].n >= GOOD - 1


# ---- devices ------------------------------------------------------------------------------


class Altered(Queue):
    """A device that alters its replies after ``GOOD`` good ones."""

    def __init__(self, plant: SimPlant, alter: Callable[[Span], Any]) -> None:
        super().__init__(plant.clock, 0.01)
        self.alter = alter

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        ready = super().poll(timeout_s)
        if self.count <= GOOD:
            return ready
        return [Reply(r.sample_id, r.output, tuple(self.alter(span) for span in r.spans)) for r in ready]


SPANS: dict[str, Callable[[Span], Any]] = {
    "no execution": lambda s: Span("inference", s.on_tick, s.off_tick, 0),
    "executions of 40 bits": lambda s: Span("inference", s.on_tick, s.off_tick, 2**40),
    "a tick of 62 bits": lambda s: Span("inference", s.on_tick, 2**62),
    "a tick of 64 bits": lambda s: Span("inference", s.on_tick, 2**64),
    "a span that runs backwards": lambda s: Span("inference", s.off_tick, s.on_tick),
    "a float tick": lambda s: Span("inference", float(s.on_tick), s.off_tick),  # type: ignore[arg-type]
    "a tick that is no number": lambda s: Span("inference", float("nan"), s.off_tick),  # type: ignore[arg-type]
    "half a span": lambda s: Span("inference", -(2**63), s.off_tick),
    "a span in the future": lambda s: Span("inference", s.on_tick, s.off_tick + 5_000_000_000),
    "a phase that is no text": lambda s: Span(7, s.on_tick, s.off_tick),  # type: ignore[arg-type]
    "no span": lambda s: (s.on_tick, s.off_tick),
}


@pytest.mark.parametrize("what", SPANS)
def test_a_span_that_cannot_be_ends_the_run_and_costs_only_itself(play: Play, plant: SimPlant, what: str) -> None:
    steps = [Issue([s]) for _ in range(30) for s in samples(2)]
    ended, run = play(Altered(plant, SPANS[what]), steps)

    assert isinstance(ended, DeviceError)
    assert "queue" in ended.message or "sample s" in ended.message
    reported(run, ended)


class OddTimer:
    """The mock device with a timer of its own."""

    def __init__(self, device: Any, odd: Callable[[int], Any]) -> None:
        self.device, self.odd, self.reads = device, odd, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    def timer(self) -> Any:
        self.reads += 1
        return self.device.timer() if self.reads <= 20 else self.odd(self.device.timer())


TIMERS: dict[str, Callable[[int], Any]] = {
    "nan": lambda tick: float("nan"), "a float": float, "nothing": lambda tick: None, "2^62": lambda tick: 2**62,
    "backwards": lambda tick: tick - 10**12,
}  # fmt: skip


@pytest.mark.parametrize("what", TIMERS)
def test_a_timer_that_cannot_be_ends_the_run(play: Play, plant: SimPlant, what: str) -> None:
    steps = [Mark(), *(Issue([s]) for _ in range(15) for s in samples(2)), Mark()]
    device: Any = OddTimer(open_device(plant, marks=False, inference_s=0.01), TIMERS[what])
    ended, run = play(device, steps)

    assert isinstance(ended, DeviceError)
    assert "clock device" in ended.message
    reported(run, ended)


def test_a_pulse_that_runs_backwards_is_the_devices_error(play: Play, plant: SimPlant) -> None:
    class Backwards(OddTimer):
        def pulse(self, seconds: float) -> Span:
            span: Span = self.device.pulse(seconds)
            return Span(span.phase, span.off_tick, span.on_tick)

    device: Any = Backwards(open_device(plant), lambda tick: tick)
    ended, _ = play(device, [Mark()], (open_meter(plant),))
    assert isinstance(ended, DeviceError)
    assert "pulse" in ended.message


# ---- meters -------------------------------------------------------------------------------


class AlteredMeter:
    """The mock meter, with ticks, that alters its chunks after ten good ones."""

    def __init__(self, meter: MockMeter, alter: Callable[[Chunk], Any]) -> None:
        self.meter, self.alter, self.reads, self.at = meter, alter, 0, 0
        self.info, self.start, self.timer, self.close = meter.info, meter.start, meter.timer, meter.close

    def _ticked(self, chunk: Chunk) -> Chunk:
        ticks = 10_000 * (self.at + np.arange(len(chunk.value) + 1, dtype=np.int64))
        self.at += len(chunk.value)
        return replace(chunk, start_tick=ticks[:-1], end_tick=ticks[1:])

    def read(self) -> Sequence[Any]:
        self.reads += 1
        good = [self._ticked(chunk) for chunk in self.meter.read()]
        return good if self.reads <= 10 else [self.alter(chunk) for chunk in good]

    def stop(self) -> Sequence[Any]:
        return [self._ticked(chunk) for chunk in self.meter.stop()]


def ticks(chunk: Chunk) -> tuple[Any, Any]:
    assert chunk.start_tick is not None
    assert chunk.end_tick is not None
    return chunk.start_tick, chunk.end_tick


READINGS: dict[str, Callable[[Chunk], Any]] = {
    "1e308 W": lambda c: replace(c, value=np.append(c.value[:-1], 1e308)),
    "infinite": lambda c: replace(c, value=np.append(c.value[:-1], -np.inf)),
    "backwards": lambda c: replace(c, start_tick=ticks(c)[1], end_tick=ticks(c)[0]),
    "float ticks": lambda c: replace(c, start_tick=ticks(c)[0] * 1.0, end_tick=ticks(c)[1] * 1.0),
    "far ticks": lambda c: replace(c, end_tick=np.append(ticks(c)[1][:-1], 2**62)),
    "repeated": lambda c: replace(c, start_tick=ticks(c)[0] - 10**6, end_tick=ticks(c)[1] - 10**6),
    "fewer ticks": lambda c: replace(c, end_tick=ticks(c)[1][:-1]),
    "one kind of tick": lambda c: replace(c, end_tick=None),
    "another type": lambda c: replace(c, value=c.value.astype(np.float16)),
    "no ticks": lambda c: replace(c, start_tick=None, end_tick=None),
    "two dimensions": lambda c: replace(c, value=c.value.reshape(-1, 1)),
    "a list": lambda c: replace(c, value=c.value.tolist()),
}


@pytest.mark.parametrize("what", READINGS)
def test_readings_that_cannot_be_end_the_run_and_cost_only_themselves(play: Play, plant: SimPlant, what: str) -> None:
    steps = [Idle(0.5), *(Issue([s]) for _ in range(200) for s in samples(2))]
    meter: Any = AlteredMeter(open_meter(plant, rate_hz=1000.0), READINGS[what])
    ended, run = play(open_device(plant, marks=False, inference_s=0.01), steps, (meter,))

    assert isinstance(ended, MeterError)
    assert "meter mock" in ended.message or "meter meter" in ended.message
    assert "core" in ended.message
    assert len(run.traces["core"].value) > 1000
    reported(run, ended)


@pytest.mark.parametrize("bracket", [Bracket(5, 5, 4), Bracket(1, 2.5, 3), 7, None], ids=str)  # type: ignore[arg-type]
def test_a_trigger_that_is_no_bracket_is_the_meters_error(play: Play, plant: SimPlant, bracket: Any) -> None:
    meter: Any = AlteredMeter(open_meter(plant), lambda chunk: chunk)
    meter.start = lambda: bracket
    ended, _ = play(Queue(plant.clock), [Idle(1.0)], (meter,))
    assert isinstance(ended, MeterError)


# ---- scenarios and workloads --------------------------------------------------------------

DUE: dict[str, list[Any]] = {
    "a float": [0, 1e7], "not a number": [0, float("nan")], "negative": [-1], "decreasing": [0, 5, 4],
    "far": [0, 2**62],
}  # fmt: skip


@pytest.mark.parametrize("what", DUE)
def test_a_due_time_that_cannot_be_is_the_scenarios_error(play: Play, plant: SimPlant, what: str) -> None:
    steps = [Issue([samples(1)[0]], due_ns=at) for at in DUE[what]]
    ended, run = play(Queue(plant.clock, 1e-10), steps)

    assert isinstance(ended, SetupError)
    assert "due_ns" in ended.message
    assert run.error is not None
    assert run.replies.num_rows == len(DUE[what]) - 1


@pytest.mark.parametrize("repeat", [0, -1, 1.5])
def test_a_loop_that_cannot_be_is_the_scenarios_error(play: Play, plant: SimPlant, repeat: Any) -> None:
    ended, _ = play(Queue(plant.clock), [Issue(samples(1), repeat=repeat)])
    assert isinstance(ended, SetupError)


BAD_SAMPLES: dict[str, dict[str, Any]] = {
    "negative duration": {"duration_s": -1.0}, "no duration": {"duration_s": float("nan")}, "rate": {"rate_hz": -5.0},
    "inferences": {"inferences": 0}, "half an inference": {"inferences": 0.5}, "an age": {"label_age_s": -1.0},
    "a label": {"label": 3}, "an id": {"id": ""}, "a payload": {"payload": [1, 2]}, "a seed": {"seed": 2**63},
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_SAMPLES)
def test_a_sample_that_cannot_be_is_the_workloads_error(play: Play, plant: SimPlant, what: str) -> None:
    good = [Issue([s]) for _ in range(10) for s in samples(2)]
    ended, run = play(
        Queue(plant.clock, 0.01), [*good, Issue([replace(samples(1)[0], **{"id": "odd"} | BAD_SAMPLES[what])])]
    )

    assert isinstance(ended, DataError)
    assert next(iter(BAD_SAMPLES[what])) in ended.message
    reported(run, ended)


def test_two_samples_with_one_id_are_refused_before_anything_is_recorded(plant: SimPlant, tmp_path: Path) -> None:
    twice = [Sample("s0", np.zeros(1)), Sample("s0", np.ones(1))]
    with pytest.raises(DataError, match="have the id 's0'"):
        record(
            tmp_path / "run", Bench(Queue(plant.clock), (), plant.clock),
            SampleSet("blank", "none", "1", "0" * 64, twice), [], scenario={"name": "by hand"}, argv=[],
        )  # fmt: skip
    assert not (tmp_path / "run").exists()
