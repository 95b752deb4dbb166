"""Data that no reader could use are refused during recording; the author is named, and earlier data are reported."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import rig
from fixtures.bench.mock_device import open_device
from fixtures.bench.mock_meter import MockMeter, open_meter
from fixtures.bench.true_power import SimPlant
from rig.analysis.result.quantity import FigureKey
from rig.engine.play_steps import check_wiring
from rig.errors import DataError, DeviceError, Ended, MeterError, RigError, SetupError, StoreError
from rig.recording import write_events
from rig.recording.disk.size_limits import START_BYTES, TEXT_CHARACTERS
from tests.support.ended_runs import ByHand, Play, leaving
from tests.support.raised import Patch, raised
from tests.support.serving import Queue, samples

Bracket: Any = rig.Bracket
GOOD = 20
"""How often a faulty driver works well first."""
LONG, WIDE = "y" * (TEXT_CHARACTERS + 1), "ä" * (TEXT_CHARACTERS // 2)
STEPS = [rig.Issue([s]) for s in samples(3)]


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 0


def reported(run: rig.Run, error: Ended) -> None:
    """Check that the stop line names the error, and the rest of the recording has its figures."""
    assert run.error is not None and error.message.startswith(run.error.message[:1000])
    assert run.left_out == ()
    assert rig.evaluate(run).quantities[FigureKey("execution_time_s")].n >= GOOD - 1


# ---- devices ------------------------------------------------------------------------------


def altered(plant: SimPlant, good: int, alter: Callable[[rig.Reply], Any]) -> Any:
    """Return a device that alters its replies after ``good`` ones."""
    device: Any = Queue(plant.clock, 0.01)
    poll = device.poll
    device.poll = lambda timeout_s: [r if device.count <= good else alter(r) for r in poll(timeout_s)]
    return device


def answering(plant: SimPlant, **change: Any) -> Any:
    """Return a device whose replies from the third on have other values."""
    return altered(plant, 2, lambda reply: msgspec.structs.replace(reply, **change))


SPANS: dict[str, Callable[[rig.Span], Any]] = {
    "no execution": lambda s: rig.Span("inference", s.on_tick, s.off_tick, 0),
    "executions of 40 bits": lambda s: rig.Span("inference", s.on_tick, s.off_tick, 2**40),
    "a tick of 62 bits": lambda s: rig.Span("inference", s.on_tick, 2**62),
    "a tick of 64 bits": lambda s: rig.Span("inference", s.on_tick, 2**64),
    "a span that runs backwards": lambda s: rig.Span("inference", s.off_tick, s.on_tick),
    "a float tick": lambda s: rig.Span("inference", float(s.on_tick), s.off_tick),  # type: ignore[arg-type]
    "a tick that is no number": lambda s: rig.Span("inference", float("nan"), s.off_tick),  # type: ignore[arg-type]
    "half a span": lambda s: rig.Span("inference", -(2**63), s.off_tick),
    "a span in the future": lambda s: rig.Span("inference", s.on_tick, s.off_tick + 5_000_000_000),
    "a phase that is no text": lambda s: rig.Span(7, s.on_tick, s.off_tick),  # type: ignore[arg-type]
    "a phase that is half a character": lambda s: rig.Span("\ud800", s.on_tick, s.off_tick),
    "no phase": lambda s: rig.Span(None, s.on_tick, s.off_tick),  # type: ignore[arg-type]
    "no begin": lambda s: rig.Span("inference", None, s.off_tick),  # type: ignore[arg-type]
    "no span": lambda s: (s.on_tick, s.off_tick),
}


@pytest.mark.parametrize("what", SPANS)
def test_an_impossible_span_ends_the_run(play: Play, plant: SimPlant, what: str) -> None:
    steps = [rig.Issue([s]) for _ in range(30) for s in samples(2)]
    device = altered(plant, GOOD, lambda r: rig.Reply(r.sample_id, r.output, tuple(map(SPANS[what], r.spans))))
    ended, run = play(device, steps)

    assert isinstance(ended, DeviceError)
    assert "queue" in ended.message or "sample s" in ended.message
    reported(run, ended)


SPAN = rig.Span("inference", 1, 2)
ANSWERS: dict[str, dict[str, Any]] = {
    "an integer of 401 digits": {"output": {"x": 10**400}},
    "a negative one": {"output": -(10**400)},
    "an output that is nested 65 deep": {"output": nested(65)},
    "two spans of one execution": {"spans": (rig.Span("inference", 1, 2), rig.Span("inference", 2, 3))},
    "a phase that is too long": {"spans": (rig.Span(LONG, 1, 2),)},
    "a tick of progress beyond 2^62": {"progress": (rig.Progress(2**62, 1.0, b""),)},
    "a solution that is a text": {"progress": (rig.Progress(1, 1.0, "text"),)},  # type: ignore[arg-type]
    "a layer that is too long": {"activity": {LONG: {"spikes": np.array([5])}}},
    "a counter that is half a character": {"activity": {"hidden": {"\ud800": np.array([5])}}},
}


@pytest.mark.parametrize("what", ANSWERS)
def test_an_invalid_answer_ends_the_run(play: Play, plant: SimPlant, what: str) -> None:
    ended, run = play(answering(plant, **ANSWERS[what]), STEPS)
    assert isinstance(ended, DeviceError)
    assert run.replies["output"].to_pylist()[:2] == ["0", "1"]


def test_an_output_may_be_nested_to_a_limit(by_hand: ByHand, plant: SimPlant) -> None:
    run = by_hand(answering(plant, output=nested(64)), STEPS)
    assert run.replies["output"][2].as_py() == "[" * 64 + "0" + "]" * 64


def test_a_solver_may_reuse_its_buffer_after_the_answer(by_hand: ByHand, plant: SimPlant) -> None:
    buffer = bytearray(1)
    device = answering(plant, spans=(SPAN,), progress=(rig.Progress(1, 1.0, buffer),))  # type: ignore[arg-type]
    submit = device.submit

    def solve(*given: Any) -> None:
        submit(*given)
        buffer[0] = device.count

    device.submit = solve
    run = by_hand(device, [rig.Issue([s]) for s in samples(4)])
    assert run.progress["solution"].to_pylist() == [b"\3", b"\4"]


TIMERS: dict[str, Callable[[int], Any]] = {
    "nan": lambda tick: float("nan"), "a float": float, "nothing": lambda tick: None, "2^62": lambda tick: 2**62,
    "backwards": lambda tick: tick - 10**12,
}  # fmt: skip


@pytest.mark.parametrize("what", TIMERS)
def test_an_impossible_timer_ends_the_run(play: Play, plant: SimPlant, what: str) -> None:
    steps = [rig.Mark(), *(rig.Issue([s]) for _ in range(15) for s in samples(2)), rig.Mark()]
    device = open_device(plant, marks=False, inference_s=0.01)
    timer, reads = device.timer, iter(range(100))
    device.timer = lambda: timer() if next(reads) < GOOD else TIMERS[what](timer())  # type: ignore[method-assign]
    ended, run = play(device, steps)

    assert isinstance(ended, DeviceError)
    assert "clock device" in ended.message
    reported(run, ended)


def test_a_backward_pulse_is_a_device_error(play: Play, plant: SimPlant) -> None:
    device: Any = open_device(plant)
    device.pulse = lambda seconds: rig.Span("mark", 2, 1)
    ended, _ = play(device, [rig.Mark()], (open_meter(plant),))
    assert isinstance(ended, DeviceError)
    assert "pulse" in ended.message


DECLARED: dict[str, dict[str, Any]] = {
    "an integer of 401 digits": {"details": {"x": 10**400}},
    "too much": {"details": {str(k): "z" * 90_000 for k in range(START_BYTES // 90_000 + 1)}},
    "half a character": {"details": {"x": "\udfff"}},
    "a name that is half a character": {"name": "\ud800"},
    "a text that is too long": {"description": LONG},
}


@pytest.mark.parametrize("what", DECLARED)
def test_a_false_declaration_is_refused_first(by_hand: ByHand, plant: SimPlant, tmp_path: Path, what: str) -> None:
    device = Queue(plant.clock)
    device.facts = rig.DeviceInfo(**{"name": "odd", "mode": "simulator"} | DECLARED[what])
    raised(StoreError, by_hand, device, STEPS, says=r"what the device .* declares")
    assert not (tmp_path / "run").exists()


# ---- meters -------------------------------------------------------------------------------


class AlteredMeter:
    """The mock meter, with ticks; it alters its chunks after ten good reads."""

    def __init__(self, meter: MockMeter, alter: Callable[[rig.Chunk], Any]) -> None:
        self.meter, self.alter, self.reads, self.at = meter, alter, 0, 0
        self.info, self.start, self.timer, self.close = meter.info, meter.start, meter.timer, meter.close

    def _ticked(self, chunk: rig.Chunk) -> rig.Chunk:
        ticks = 10_000 * (self.at + np.arange(len(chunk.value) + 1, dtype=np.int64))
        self.at += len(chunk.value)
        return replace(chunk, start_tick=ticks[:-1], end_tick=ticks[1:])

    def read(self) -> Sequence[Any]:
        self.reads += 1
        good = [self._ticked(chunk) for chunk in self.meter.read()]
        return good if self.reads <= 10 else [self.alter(chunk) for chunk in good]

    def stop(self) -> Sequence[Any]:
        return [self._ticked(chunk) for chunk in self.meter.stop()]


def ticks(chunk: Any) -> tuple[Any, Any]:
    return chunk.start_tick, chunk.end_tick


READINGS: dict[str, Callable[[rig.Chunk], Any]] = {
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
def test_impossible_readings_end_the_run(play: Play, plant: SimPlant, what: str) -> None:
    steps = [rig.Idle(0.5), *(rig.Issue([s]) for _ in range(200) for s in samples(2))]
    meter: Any = AlteredMeter(open_meter(plant, rate_hz=1000.0), READINGS[what])
    ended, run = play(open_device(plant, marks=False, inference_s=0.01), steps, (meter,))

    assert isinstance(ended, MeterError)
    assert "meter mock" in ended.message or "meter meter" in ended.message
    assert "core" in ended.message
    assert ("not a column of whole numbers, such as int64" in ended.message) == (what == "float ticks")
    assert ("overload in Chunk.flags" in ended.message) == (what in ("1e308 W", "infinite"))
    assert "line" not in ended.remedy
    assert len(run.traces["core"].value) > 1000
    reported(run, ended)


@pytest.mark.parametrize("bracket", [Bracket(5, 5, 4), Bracket(1, 2.5, 3), 7, None], ids=str)
def test_a_malformed_trigger_bracket_is_a_meter_error(play: Play, plant: SimPlant, bracket: Any) -> None:
    meter: Any = AlteredMeter(open_meter(plant), lambda chunk: chunk)
    meter.start = lambda: bracket
    ended, _ = play(Queue(plant.clock), [rig.Idle(1.0)], (meter,))
    assert isinstance(ended, MeterError)


RAILS: dict[str, tuple[type[RigError], list[Callable[[rig.Rail], rig.Rail]]]] = {
    "volts that no meter has": (SetupError, [lambda r: replace(r, conversion=rig.Conversion("A", supply_rail="x"))]),
    "a source whose JSON is too long": (StoreError, [lambda r: replace(r, accuracy=rig.Accuracy(0, 0, source=WIDE))]),
    "a period beyond 2^62 ticks": (StoreError, [lambda r: replace(r, rate_hz=1e-15)]),
    "another description when it is asked again": (StoreError, [lambda r: r, lambda r: replace(r, resolution=1.0)]),
}  # fmt: skip


@pytest.mark.parametrize("what", RAILS)
def test_an_impossible_meter_declaration_is_refused_first(play: Play, plant: SimPlant, what: str) -> None:
    """The description may change when it is requested again."""
    kind, rails = RAILS[what]
    meter = open_meter(plant)
    info = meter.info()
    given = [replace(info, rails=tuple(map(rail, info.rails))) for rail in rails]
    meter.info = lambda: given.pop(0) if len(given) > 1 else given[0]  # type: ignore[method-assign]
    ended, run = play(Queue(plant.clock), [rig.Idle(1.0), *STEPS], (meter,))
    assert type(ended) is kind
    assert "core" in ended.message
    assert run.replies.num_rows == 0


# ---- scenarios and workloads --------------------------------------------------------------

DUE: dict[str, list[Any]] = {
    "a float": [0, 1e7], "not a number": [0, float("nan")], "negative": [-1], "decreasing": [0, 5, 4],
    "far": [0, 2**62],
}  # fmt: skip


@pytest.mark.parametrize("what", DUE)
def test_an_impossible_due_time_is_a_scenario_error(play: Play, plant: SimPlant, what: str) -> None:
    steps = [rig.Issue([samples(1)[0]], due_ns=at) for at in DUE[what]]
    ended, run = play(Queue(plant.clock, 1e-10), steps)

    assert isinstance(ended, SetupError)
    assert "due_ns" in ended.message
    assert run.error is not None
    assert run.replies.num_rows == len(DUE[what]) - 1


@pytest.mark.parametrize("odd", [
    {"repeat": 0}, {"repeat": -1}, {"repeat": 1.5}, {"samples": []}, {"samples": samples(1)[0]},
])  # fmt: skip
def test_an_impossible_step_is_a_scenario_error(play: Play, plant: SimPlant, odd: dict[str, Any]) -> None:
    ended, _ = play(Queue(plant.clock), [rig.Issue(**{"samples": samples(1)} | odd)])
    assert isinstance(ended, SetupError)
    assert next(iter(odd)) in ended.message


BAD_SAMPLES: dict[str, dict[str, Any]] = {
    "negative duration": {"duration_s": -1.0}, "no duration": {"duration_s": float("nan")}, "rate": {"rate_hz": -5.0},
    "inferences": {"inferences": 0}, "half an inference": {"inferences": 0.5}, "an age": {"label_age_s": -1.0},
    "a label": {"label": 3}, "an id": {"id": ""}, "a payload": {"payload": [1, 2]}, "a seed": {"seed": 2**63},
    "a long id": {"id": LONG}, "a long label": {"label": LONG}, "a target": {"target_cost": "low"},
    "a duration of None": {"duration_s": None}, "a text as rate": {"rate_hz": "fast"},
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_SAMPLES)
def test_an_impossible_sample_is_a_workload_error(play: Play, plant: SimPlant, what: str) -> None:
    good = [rig.Issue([s]) for _ in range(10) for s in samples(2)]
    odd = replace(samples(1)[0], **{"id": "odd"} | BAD_SAMPLES[what])
    ended, run = play(Queue(plant.clock, 0.01), [*good, rig.Issue([odd])])

    assert isinstance(ended, DataError)
    assert next(iter(BAD_SAMPLES[what])) in ended.message
    reported(run, ended)


@pytest.mark.parametrize(("ids", "says"), [(("s0", "s0"), "have the id 's0'"), (("a/b", "A_b"), "'A_b' or 'a/b'")])
def test_two_samples_with_one_id_or_one_file_are_refused_before_the_run(
    by_hand: ByHand, plant: SimPlant, tmp_path: Path, ids: tuple[str, str], says: str
) -> None:
    twice = rig.SampleSet("blank", "none", "1", "0" * 64, [rig.Sample(name, np.zeros(1), keep=True) for name in ids])
    raised(DataError, by_hand, Queue(plant.clock), [], says=says, work=twice)
    assert not (tmp_path / "run").exists()


# ---- the log ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["x" * 70_000_000, "half a character: \ud800"], ids=["70 MB", "half a character"])
def test_the_stop_line_is_written_for_any_exception(play: Play, plant: SimPlant, text: str) -> None:
    ended, run = play(leaving(Queue(plant.clock), "poll", ValueError(text)), STEPS)
    assert text[:9] in str(ended) and len(str(ended)) < 30_000
    assert run.error is not None and run.error.message.startswith("the device failed on sample s0: ValueError: ")
    assert len(run.error.message) < 11_000


@pytest.mark.parametrize("error", [KeyError(), RecursionError("deep")])
def test_a_driver_exception_is_reported_with_its_place(play: Play, plant: SimPlant, error: Exception) -> None:
    ended, _ = play(leaving(Queue(plant.clock), "poll", error), STEPS)
    assert re.search(r"Error(: deep)?\. See [a-z_]+\.py, line \d+\. What was", str(ended))


def test_a_too_long_log_ends_the_run(play: Play, plant: SimPlant, monkeypatch: Patch) -> None:
    monkeypatch.setattr(write_events, "EVENTS_BYTES", 200_000)
    ended, run = play(Queue(plant.clock), [rig.Idle(1e-9)] * 5000)
    assert isinstance(ended, StoreError)
    assert "200000 bytes at most" in ended.message
    assert run.sealed


def test_a_phase_named_mark_is_refused(plant: SimPlant) -> None:
    named = replace(open_device(plant).info(), phases=("mark", "inference"))
    raised(SetupError, check_wiring, named, (), says="declares a phase 'mark'")
