"""The stop line records every way out of the engine correctly, with the owner of the code that caused it."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fixtures.bench.mock_device import open_device
from fixtures.bench.mock_meter import MockMeter, open_meter
from fixtures.bench.true_power import SimPlant
from rig.engine.acquisition import Bench
from rig.engine.interrupts import interrupt, on_signals
from rig.engine.record import record
from rig.errors import DeviceError, Ended, Interrupted, MeterError, SetupError
from rig.recording.reader import Run, open_run
from rig.types import Bracket, Budget, Chunk, Idle, Issue, Mark, Reply, Sample, SampleSet, Step
from tests.support.ended_runs import Play
from tests.support.serving import Queue, samples

EXITS = (SystemExit(0), SystemExit(3), GeneratorExit(), BaseException("odd"), RuntimeError("cable"))
OUT_OF = ("stage", "submit", "poll")
OUT_OF_METER = ("start", "read", "timer", "stop")


class Leaving(Queue):
    """A device whose method ``method`` raises an exception at its third call."""

    def __init__(self, plant: SimPlant, method: str, error: BaseException) -> None:
        super().__init__(plant.clock)
        self.method, self.error, self.calls = method, error, 0

    def _leave(self, method: str) -> None:
        self.calls += method == self.method
        if self.calls >= 3:
            raise self.error

    def stage(self, samples: Sequence[Sample]) -> None:
        self._leave("stage")
        super().stage(samples)

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        self._leave("submit")
        super().submit(samples, budget)

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        self._leave("poll")
        return super().poll(timeout_s)


class LeavingMeter:
    """A meter whose method ``method`` raises an exception."""

    def __init__(self, meter: MockMeter, method: str, error: BaseException) -> None:
        self.meter, self.method, self.error = meter, method, error
        self.info, self.close = meter.info, meter.close

    def _leave(self, method: str) -> None:
        if method == self.method:
            raise self.error

    def start(self) -> Bracket:
        self._leave("start")
        return self.meter.start()

    def timer(self) -> int:
        self._leave("timer")
        return self.meter.timer()

    def read(self) -> Sequence[Chunk]:
        self._leave("read")
        return self.meter.read()

    def stop(self) -> Sequence[Chunk]:
        self._leave("stop")
        return self.meter.stop()


def one_by_one(n: int = 6) -> list[Step]:
    return [Mark(), Idle(0.5), *(Issue([s]) for s in samples(n)), Idle(0.5), Mark()]


def says(run: Run, error: Ended) -> None:
    """The stop line names the error that was raised, and the recording is sealed."""
    assert run.error is not None and (run.error.error, run.error.exit_code) == (type(error).__name__, error.exit_code)
    assert run.sealed


@pytest.mark.parametrize("method", OUT_OF)
@pytest.mark.parametrize("error", EXITS, ids=repr)
def test_whatever_leaves_a_device_is_its_error(play: Play, plant: SimPlant, method: str, error: BaseException) -> None:
    ended, run = play(Leaving(plant, method, error), one_by_one())

    assert isinstance(ended, DeviceError)
    assert type(error).__name__ in ended.message
    says(run, ended)


@pytest.mark.parametrize("error", EXITS, ids=repr)
def test_whatever_leaves_a_device_in_a_batch_on_schedule_is_its_error(
    play: Play, plant: SimPlant, error: BaseException
) -> None:
    steps = [Issue(samples(2), due_ns=k * 1_000_000) for k in range(9)]
    ended, run = play(Leaving(plant, "poll", error), steps)

    assert isinstance(ended, DeviceError)
    says(run, ended)


@pytest.mark.parametrize("method", OUT_OF_METER)
@pytest.mark.parametrize("error", EXITS, ids=repr)
def test_whatever_leaves_a_meter_is_its_error(play: Play, plant: SimPlant, method: str, error: BaseException) -> None:
    meter = LeavingMeter(open_meter(plant), method, error)
    ended, run = play(open_device(plant, marks=False), one_by_one(), (meter,))

    assert isinstance(ended, MeterError)
    assert type(error).__name__ in ended.message
    says(run, ended)


def failing(error: BaseException) -> Iterator[Step]:
    yield Issue(samples(1))
    raise error  # this line is named


@pytest.mark.parametrize("error", [*EXITS, OSError("no such cable")], ids=repr)
def test_whatever_leaves_a_scenario_is_blamed_on_its_file_and_line(
    play: Play, plant: SimPlant, error: BaseException
) -> None:
    ended, run = play(Queue(plant.clock), failing(error))

    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "# this line" in text)
    assert isinstance(ended, SetupError)
    assert ended.message.startswith(
        f"the scenario failed at {Path(__file__).name}, line {line}: {type(error).__name__}"
    )
    says(run, ended)


class Lazy(Sequence[Sample]):
    """Samples made when they are read; the third one fails."""

    def __getitem__(self, k: Any) -> Any:
        if k == 2:
            raise OSError("a file is gone")
        return samples(4)[k]

    def __len__(self) -> int:
        return 4


def test_what_leaves_a_workload_is_blamed_on_it_and_not_on_the_device(plant: SimPlant, tmp_path: Path) -> None:
    class Looking(Queue):
        """A device that reads the samples of a later step."""

        def stage(self, samples: Sequence[Sample]) -> None:
            list(lazy)

    lazy = Lazy()
    work = SampleSet("blank", "none", "1", "0" * 64, lazy)
    with pytest.raises(SetupError, match=r"the workload failed at test_ways_out.py, line \d+: OSError: a file is gone"):
        record(
            tmp_path / "run", Bench(Looking(plant.clock), (), plant.clock), work, [Issue(samples(1))],
            scenario={"name": "by hand"}, argv=[],
        )  # fmt: skip


def test_a_display_that_fails_costs_no_run(plant: SimPlant, tmp_path: Path) -> None:
    def broken(done: int, watts: dict[str, float]) -> None:
        raise BrokenPipeError

    work = SampleSet("blank", "none", "1", "0" * 64, samples(4))
    record(
        tmp_path / "run", Bench(Queue(plant.clock), (), plant.clock), work, one_by_one(),
        scenario={"name": "by hand"}, argv=[], progress=broken,
    )  # fmt: skip
    assert open_run(tmp_path / "run").error is None


# ---- signals ------------------------------------------------------------------------------


class Signalling(LeavingMeter):
    """A meter that gets signals during its ``stop``."""

    def stop(self) -> Sequence[Chunk]:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        return self.meter.stop()


def test_a_second_ctrl_c_does_not_cost_the_stop_line(play: Play, plant: SimPlant) -> None:
    meter = Signalling(open_meter(plant), "", SystemExit())
    with on_signals(interrupt, signal.SIGTERM):
        ended, run = play(Leaving(plant, "poll", KeyboardInterrupt()), one_by_one(), (meter,))

    assert isinstance(ended, Interrupted)
    says(run, ended)


def test_a_signal_that_is_ignored_stays_so() -> None:
    """A run started with nohup survives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with on_signals(interrupt, signal.SIGHUP):
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_ctrl_c_while_a_whole_run_is_closed_ends_what_follows_and_not_the_run(
    plant: SimPlant, tmp_path: Path
) -> None:
    meter = Signalling(open_meter(plant), "", SystemExit())
    work = SampleSet("blank", "none", "1", "0" * 64, samples(4))
    with on_signals(interrupt, signal.SIGTERM), pytest.raises(KeyboardInterrupt):
        record(
            tmp_path / "run", Bench(open_device(plant), (meter,), plant.clock), work, one_by_one(),
            scenario={"name": "by hand"}, argv=[],
        )  # fmt: skip
    run = open_run(tmp_path / "run")
    assert run.sealed
    assert run.error is None


class OwnExit(DeviceError):
    """A driver's own error that claims success."""

    exit_code = 0


class OwnText(DeviceError):
    """Its exit code is no number, and it has no text."""

    exit_code = "eleven"  # type: ignore[assignment]

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.exit_code = 0  # type: ignore[assignment]

    def __str__(self) -> str:
        raise ValueError("no text")

    def to_json(self) -> dict[str, object]:
        raise ValueError("no JSON")


class Bare(DeviceError):
    """An error that keeps nothing of its base class."""

    def __init__(self) -> None:
        self.reason = "cable"


class Mute(Exception):
    """Not an error of the rig; its text cannot be made."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


OWN = (OwnExit("cable"), OwnText("cable"), Bare(), Mute())


@pytest.mark.parametrize("method", OUT_OF)
@pytest.mark.parametrize("error", OWN, ids=lambda error: type(error).__name__)
def test_an_error_of_a_drivers_own_class_ends_as_the_rigs(
    play: Play, plant: SimPlant, method: str, error: Exception
) -> None:
    ended, run = play(Leaving(plant, method, error), one_by_one())

    assert type(ended) is DeviceError
    assert ended.exit_code == 20
    assert "cable" in str(ended) or type(error).__name__ in str(ended)
    says(run, ended)


@pytest.mark.parametrize("method", OUT_OF_METER)
@pytest.mark.parametrize("error", OWN, ids=lambda error: type(error).__name__)
def test_an_error_of_a_meters_own_class_ends_as_the_rigs(
    play: Play, plant: SimPlant, method: str, error: Exception
) -> None:
    meter = LeavingMeter(open_meter(plant), method, error)
    ended, run = play(open_device(plant, marks=False), one_by_one(), (meter,))

    assert ended is not None and type(ended) in (DeviceError, MeterError)
    says(run, ended)


@pytest.mark.parametrize("error", OWN, ids=lambda error: type(error).__name__)
def test_an_error_of_a_scenarios_own_class_has_an_exit_code_of_the_rig(
    play: Play, plant: SimPlant, error: Exception
) -> None:
    ended, run = play(Queue(plant.clock), failing(error))

    assert ended is not None and type(ended) in (DeviceError, SetupError)
    says(run, ended)


def test_of_what_a_driver_says_without_end_the_begin_is_shown(play: Play, plant: SimPlant) -> None:
    ended, run = play(Leaving(plant, "submit", RuntimeError("cable " * 10**6)), one_by_one())

    assert ended is not None and "cable" in str(ended)
    assert len(str(ended)) < 30_000
    assert run.error is not None
