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
from rig.engine.interrupts import interrupt, on_signals
from rig.errors import DeviceError, Ended, Interrupted, MeterError, SetupError
from rig.recording.reader import Run, open_run
from rig.types import Chunk, Idle, Issue, Mark, Sample, SampleSet, Step
from tests.support.ended_runs import ByHand, Play, leaving
from tests.support.serving import Queue, samples


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


EXITS = (SystemExit(0), SystemExit(3), GeneratorExit(), BaseException("odd"), RuntimeError("cable"))
OWN = (OwnExit("cable"), OwnText("cable"), Bare(), Mute())
whatever = pytest.mark.parametrize("error", [*EXITS, *OWN], ids=lambda error: f"{type(error).__name__}-{error.args}")


def one_by_one(n: int = 6) -> list[Step]:
    return [Mark(), Idle(0.5), *(Issue([s]) for s in samples(n)), Idle(0.5), Mark()]


def caused(ended: Ended, error: BaseException) -> None:
    """The error keeps the driver's as its cause, unless that is one of the rig's itself."""
    assert isinstance(error, DeviceError) or ended.__cause__ is error


def says(run: Run, error: Ended) -> None:
    """The stop line names the error that was raised, and the recording is sealed."""
    assert run.error is not None and (run.error.error, run.error.exit_code) == (type(error).__name__, error.exit_code)
    assert run.sealed


TIMED: list[Step] = [Issue(samples(2), due_ns=k * 1_000_000) for k in range(9)]


@pytest.mark.parametrize(
    ("method", "steps"), [("stage", one_by_one()), ("submit", one_by_one()), ("poll", one_by_one()), ("poll", TIMED)]
)
@whatever
def test_whatever_leaves_a_device_is_its_error(
    play: Play, plant: SimPlant, method: str, steps: list[Step], error: BaseException
) -> None:
    ended, run = play(leaving(Queue(plant.clock), method, error, at=3), steps)

    caused(ended, error)
    assert type(ended) is DeviceError
    assert ended.exit_code == 20
    assert "cable" in str(ended) or type(error).__name__ in str(ended)
    says(run, ended)


@pytest.mark.parametrize("method", ["start", "read", "timer", "stop"])
@whatever
def test_whatever_leaves_a_meter_is_its_error(play: Play, plant: SimPlant, method: str, error: BaseException) -> None:
    meter = leaving(open_meter(plant), method, error)
    ended, run = play(open_device(plant, marks=False), one_by_one(), (meter,))

    caused(ended, error)
    assert type(ended) is (DeviceError if isinstance(error, DeviceError) else MeterError)
    assert "cable" in str(ended) or type(error).__name__ in str(ended)
    says(run, ended)


def failing(error: BaseException) -> Iterator[Step]:
    yield Issue(samples(1))
    raise error  # this line is named


@whatever
def test_what_leaves_a_scenario_is_blamed_on_file_and_line(play: Play, plant: SimPlant, error: BaseException) -> None:
    ended, run = play(Queue(plant.clock), failing(error))

    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "# this line" in text)
    if isinstance(error, DeviceError):
        assert type(ended) is DeviceError
    else:
        where = f"the scenario failed at {Path(__file__).name}, line {line}: {type(error).__name__}"
        assert isinstance(ended, SetupError)
        assert ended.message.startswith(where)
    says(run, ended)


class Lazy(Sequence[Sample]):
    """Samples made when they are read; the third one fails."""

    def __getitem__(self, k: Any) -> Any:
        if k == 2:
            raise OSError("a file is gone")
        return samples(4)[k]

    def __len__(self) -> int:
        return 4


def test_what_leaves_a_workload_is_blamed_on_it_and_not_on_the_device(by_hand: ByHand, plant: SimPlant) -> None:
    device, lazy = Queue(plant.clock), Lazy()
    device.stage = lambda samples: list(lazy)  # type: ignore[assignment,method-assign]
    work = SampleSet("blank", "none", "1", "0" * 64, lazy)
    with pytest.raises(SetupError, match=r"the workload failed at test_ways_out.py, line \d+: OSError: a file is gone"):
        by_hand(device, [Issue(samples(1))], work=work)


def test_a_display_that_fails_costs_no_run(by_hand: ByHand, plant: SimPlant) -> None:
    def broken(done: int, watts: dict[str, float]) -> None:
        raise BrokenPipeError

    assert by_hand(Queue(plant.clock), one_by_one(), progress=broken).error is None


# ---- signals ------------------------------------------------------------------------------


def signalled(meter: MockMeter) -> MockMeter:
    """Let the meter get signals during its ``stop``."""
    stop = meter.stop

    def ended() -> Sequence[Chunk]:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        return stop()

    meter.stop = ended  # type: ignore[method-assign]
    return meter


def test_a_second_ctrl_c_does_not_cost_the_stop_line(play: Play, plant: SimPlant) -> None:
    device = leaving(Queue(plant.clock), "poll", KeyboardInterrupt(), at=3)
    with on_signals(interrupt, signal.SIGTERM):
        ended, run = play(device, one_by_one(), (signalled(open_meter(plant)),))

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
    by_hand: ByHand, plant: SimPlant, tmp_path: Path
) -> None:
    with on_signals(interrupt, signal.SIGTERM), pytest.raises(KeyboardInterrupt):
        by_hand(open_device(plant), one_by_one(), (signalled(open_meter(plant)),))
    run = open_run(tmp_path / "run")
    assert run.sealed
    assert run.error is None
