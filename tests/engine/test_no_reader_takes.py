"""Data that no reader accepts are refused during recording, with the name of their origin: no run fails at its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures.bench.mock_meter import MockMeter, open_meter
from fixtures.bench.true_power import SimPlant
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.errors import DataError, DeviceError, RigError, SetupError, StoreError
from rig.recording import lines
from rig.recording.disk.bounded import START_BYTES, TEXT_CHARACTERS
from rig.recording.reader import open_run
from rig.types import Accuracy, Conversion, DeviceInfo, Idle, Issue, MeterInfo, Progress, Rail, Reply, SampleSet, Span
from tests.support.ended_runs import Play
from tests.support.serving import Queue, samples

LONG = "y" * (TEXT_CHARACTERS + 1)
STEPS = [Issue([s]) for s in samples(3)]


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


# ---- answers ------------------------------------------------------------------------------


class Answering(Queue):
    """A device with an altered third reply."""

    def __init__(self, plant: SimPlant, **change: Any) -> None:
        super().__init__(plant.clock, 0.01)
        self.change = change

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        ready = super().poll(timeout_s)
        if self.count < 3:
            return ready
        return [Reply(**{f: getattr(r, f) for f in r.__struct_fields__} | self.change) for r in ready]


SPAN = Span("inference", 1, 2)
ANSWERS: dict[str, dict[str, Any]] = {
    "an integer of 401 digits": {"output": {"x": 10**400}},
    "a negative one": {"output": -(10**400)},
    "an output that is nested 65 deep": {"output": nested(65)},
    "a phase that is too long": {"spans": (Span(LONG, 1, 2),)},
    "a tick of progress beyond 2^62": {"progress": (Progress(2**62, 1.0, b""),)},
    "a solution that is a text": {"progress": (Progress(1, 1.0, "text"),)},  # type: ignore[arg-type]
    "a layer that is too long": {"activity": {LONG: {"spikes": np.array([5])}}},
    "a counter that is half a character": {"activity": {"hidden": {"\ud800": np.array([5])}}},
}


@pytest.mark.parametrize("what", ANSWERS)
def test_an_answer_ends_the_run_and_the_answers_before_it_are_read(play: Play, plant: SimPlant, what: str) -> None:
    ended, run = play(Answering(plant, **ANSWERS[what]), STEPS)
    assert isinstance(ended, DeviceError)
    assert run.replies["output"].to_pylist()[:2] == ["0", "1"]


def test_an_output_may_be_nested_as_deep_as_a_reader_goes(plant: SimPlant, tmp_path: Path) -> None:
    record_by_hand(tmp_path / "run", plant, Answering(plant, output=nested(64)))
    assert open_run(tmp_path / "run").replies["output"][2].as_py() == "[" * 64 + "0" + "]" * 64


def test_a_solver_may_fill_its_buffer_again_once_it_has_answered(plant: SimPlant, tmp_path: Path) -> None:
    buffer = bytearray(1)

    class Solving(Answering):
        def submit(self, *given: Any) -> None:
            super().submit(*given)
            buffer[0] = self.count

    device = Solving(plant, spans=(SPAN,), progress=(Progress(1, 1.0, buffer),))  # type: ignore[arg-type]
    record_by_hand(tmp_path / "run", plant, device, [Issue([s]) for s in samples(4)])
    assert open_run(tmp_path / "run").progress["solution"].to_pylist() == [b"\3", b"\4"]


@pytest.mark.parametrize("field", ["id", "label"])
def test_a_sample_with_a_text_that_is_too_long_is_the_workloads_error(play: Play, plant: SimPlant, field: str) -> None:
    change: dict[str, Any] = {"id": "odd"} | {field: LONG}
    ended, run = play(Queue(plant.clock), [*STEPS, Issue([replace(samples(1)[0], **change)])])
    assert isinstance(ended, DataError)
    assert run.replies.num_rows == 3


# ---- what is declared ---------------------------------------------------------------------


def record_by_hand(path: Path, plant: SimPlant, device: Any, steps: Any = STEPS, meters: tuple[Any, ...] = ()) -> None:
    work = SampleSet("blank", "none", "1", "0" * 64, samples(4))
    record(path, Bench(device, meters, plant.clock), work, steps, scenario={"name": "by hand"}, argv=[])


DECLARED: dict[str, dict[str, Any]] = {
    "an integer of 401 digits": {"details": {"x": 10**400}},
    "too much": {"details": {str(k): "z" * 90_000 for k in range(START_BYTES // 90_000 + 1)}},
    "half a character": {"details": {"x": "\udfff"}},
    "a name that is half a character": {"name": "\ud800"},
    "a text that is too long": {"description": LONG},
}


@pytest.mark.parametrize("what", DECLARED)
def test_what_a_device_declares_is_refused_before_anything_is_written(
    plant: SimPlant, tmp_path: Path, what: str
) -> None:
    device = Queue(plant.clock)
    device.facts = DeviceInfo(**{"name": "odd", "mode": "simulator"} | DECLARED[what])
    with pytest.raises(StoreError, match=r"what the device .* declares"):
        record_by_hand(tmp_path / "run", plant, device)
    assert not (tmp_path / "run").exists()


class Described:
    """The mock meter with its own description, which may change when requested again."""

    def __init__(self, meter: MockMeter, *rails: Callable[[Rail], Rail]) -> None:
        self.meter, self.rails = meter, list(rails)
        self.start, self.read, self.stop, self.timer, self.close = (
            meter.start, meter.read, meter.stop, meter.timer, meter.close,
        )  # fmt: skip

    def info(self) -> MeterInfo:
        info, rail = self.meter.info(), self.rails.pop(0) if len(self.rails) > 1 else self.rails[0]
        return replace(info, rails=tuple(rail(r) for r in info.rails))


RAILS: dict[str, tuple[type[RigError], list[Callable[[Rail], Rail]]]] = {
    "volts that no meter has": (
        SetupError, [lambda r: replace(r, conversion=Conversion("A", supply_rail="nowhere"))],
    ),
    "a source whose JSON is too long": (
        StoreError, [lambda r: replace(r, accuracy=Accuracy(0.0, 0.0, source="ä" * (TEXT_CHARACTERS // 2)))],
    ),
    "a period beyond 2^62 ticks": (StoreError, [lambda r: replace(r, rate_hz=1e-15)]),
    "another description when it is asked again": (StoreError, [lambda r: r, lambda r: replace(r, resolution=1.0)]),
}  # fmt: skip


@pytest.mark.parametrize("what", RAILS)
def test_what_a_meter_declares_is_refused_before_anything_is_measured(play: Play, plant: SimPlant, what: str) -> None:
    kind, rails = RAILS[what]
    meter: Any = Described(open_meter(plant), *rails)
    ended, run = play(Queue(plant.clock), [Idle(1.0), *STEPS], (meter,))
    assert type(ended) is kind
    assert "core" in ended.message
    assert run.replies.num_rows == 0


# ---- the log ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["x" * 70_000_000, "half a character: \ud800"], ids=["70 MB", "half a character"])
def test_whatever_an_exception_says_the_stop_line_is_written_and_read(play: Play, plant: SimPlant, text: str) -> None:
    class Failing(Queue):
        def poll(self, timeout_s: float) -> Sequence[Reply]:
            raise ValueError(text)

    _, run = play(Failing(plant.clock), STEPS)
    assert run.error is not None and run.error.message.startswith("the device failed on sample s0: ValueError: ")
    assert len(run.error.message) < 11_000


def test_a_log_longer_than_a_reader_takes_ends_the_run(
    play: Play, plant: SimPlant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "EVENTS_BYTES", 200_000)
    ended, run = play(Queue(plant.clock), [Idle(1e-9)] * 5000)
    assert isinstance(ended, StoreError)
    assert "200000 bytes at most" in ended.message
    assert run.sealed
