"""However a run ends early, its stop line names the error and whose code caused it.

For each such end, the command has its own exit code and prints one line, and the recording can be read.
"""

import json
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from fixtures.bench.mock_device import open_device
from fixtures.bench.mock_meter import MockMeter, open_meter
from fixtures.bench.true_power import SimPlant
from rig.analysis.evaluate import evaluate
from rig.commands.shell.main import main
from rig.engine.interrupts import interrupt, on_signals
from rig.errors import DeviceError, Ended, Interrupted, MeterError, SetupError
from rig.recording.columns.arrow_files import ArrowFiles
from rig.recording.reader import Run, open_run
from rig.types import Chunk, Idle, Issue, Mark, Sample, SampleSet, Step
from tests.support.ended_runs import ByHand, Play, leaving
from tests.support.processes import MAIN, begun, options
from tests.support.raised import raising
from tests.support.serving import Queue, samples


class OwnExit(DeviceError):
    """A driver's own error that claims success."""

    exit_code = 0


class OwnText(DeviceError):
    """An error whose class has a text as exit code, and whose instance claims success.

    Its message and its JSON form cannot be made.
    """

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
    """An error that is not the rig's, and whose text cannot be made."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


EXITS = (SystemExit(0), SystemExit(3), GeneratorExit(), BaseException("odd"), RuntimeError("cable"))
OWN = (OwnExit("cable"), OwnText("cable"), Bare(), Mute())
whatever = pytest.mark.parametrize("error", [*EXITS, *OWN], ids=lambda error: f"{type(error).__name__}-{error.args}")


def one_by_one(n: int = 6) -> list[Step]:
    return [Mark(), Idle(0.5), *(Issue([s]) for s in samples(n)), Idle(0.5), Mark()]


def caused(ended: Ended, error: BaseException) -> None:
    """Check that the error has the driver's error as its cause, unless that is already an error of the rig."""
    assert isinstance(error, DeviceError) or ended.__cause__ is error


def says(run: Run, error: Ended) -> None:
    """Check that the stop line names the error that was raised, and the recording is sealed."""
    assert run.error is not None and (run.error.error, run.error.exit_code) == (type(error).__name__, error.exit_code)
    assert run.sealed


TIMED: list[Step] = [Issue(samples(2), due_ns=k * 1_000_000) for k in range(9)]


@pytest.mark.parametrize(
    ("method", "steps"), [("stage", one_by_one()), ("submit", one_by_one()), ("poll", one_by_one()), ("poll", TIMED)]
)
@whatever
def test_any_device_exception_is_an_error(
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
def test_any_meter_exception_is_an_error(play: Play, plant: SimPlant, method: str, error: BaseException) -> None:
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
def test_an_exception_of_a_scenario_names_file_and_line(play: Play, plant: SimPlant, error: BaseException) -> None:
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


def test_a_workload_exception_is_not_blamed_on_the_device(by_hand: ByHand, plant: SimPlant) -> None:
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


def test_a_second_ctrl_c_keeps_the_stop_line(play: Play, plant: SimPlant) -> None:
    device = leaving(Queue(plant.clock), "poll", KeyboardInterrupt(), at=3)
    with on_signals(interrupt, signal.SIGTERM):
        ended, run = play(device, one_by_one(), (signalled(open_meter(plant)),))

    assert isinstance(ended, Interrupted)
    says(run, ended)


def test_an_ignored_signal_stays_ignored() -> None:
    """A run started with nohup survives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with on_signals(interrupt, signal.SIGHUP):
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_at_the_end_keeps_the_run_whole(by_hand: ByHand, plant: SimPlant, tmp_path: Path) -> None:
    with on_signals(interrupt, signal.SIGTERM), pytest.raises(KeyboardInterrupt):
        by_hand(open_device(plant), one_by_one(), (signalled(open_meter(plant)),))
    run = open_run(tmp_path / "run")
    assert run.sealed
    assert run.error is None


# ---- as the command tells of it ----------------------------------------------------------------

PATIENT_S = 60.0
"""A subprocess may take this long; only a broken one makes a test wait for it."""
MEASURE = (
    "measure", "--quiet", "--device", "mock", "--mode", "together", "--option", "idle_s=0.5", "--option",
    "workload.samples=40",
)  # fmt: skip
FAILURES = {
    "a device that hangs": (
        21, "DeviceTimeoutError", 4, ("fail_at=6", "fail=hang", "timeout_s=1"),
        "device mock gave no answer to SAMPLE within 1 s. Check its power and link",
    ),
    "a device that raises": (
        20, "DeviceError", 4, ("fail_at=6", "fail=raise"),
        "the device failed on sample SAMPLE: RuntimeError: the mock device failed",
    ),
    "a meter that falls silent": (
        23, "MeterSilentError", 20, ("silent_after_s=1", "inference_s=0.2"),
        "meter mock gave no reading of rail core for",
    ),
    "a meter that raises": (
        22, "MeterError", 10, ("raise_after_s=3",),
        "meter mock failed while it was read: OSError: the instrument closed the connection",
    ),
}  # fmt: skip
"""By failure: exit code, kind of error, least number of answers, options of the mock, and what is said."""


@dataclass(frozen=True)
class Outcome:
    """The results of a command."""

    code: int
    out: str
    err: str
    path: Path


def rig(path: Path, *argv: str) -> Outcome:
    """Run a command in this process, like the command line."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(argv)
    return Outcome(code, out.getvalue(), err.getvalue(), path)


def answered(path: Path) -> int:
    """Return the number of answered samples, without warm-up."""
    replies = open_run(path).replies
    rows = zip(replies["output"].to_pylist(), replies["warmup"].to_pylist(), strict=True)
    return sum(output is not None and not warmup for output, warmup in rows)


# ---- a device or a meter that fails -------------------------------------------------------


@pytest.mark.parametrize("what", FAILURES)
def test_a_failure_has_its_exit_code_and_line(tmp_path: Path, what: str) -> None:
    code, kind, least, texts, says = FAILURES[what]
    path = tmp_path / "run"
    ended = rig(path, *MEASURE, *options(*texts), "--out", str(path))
    run = open_run(path)

    (line,) = ended.err.splitlines()
    assert ended.code == code
    assert line.startswith(f"rig: {says.replace('SAMPLE', run.samples['id'].to_pylist()[-1])}")
    assert "`rig report`" in line
    assert str(path) in line
    assert run.error is not None and (run.error.error, run.error.exit_code) == (kind, code)
    assert run.sealed
    assert answered(path) >= least

    report = rig(path, "report", str(path))
    assert report.code == (30 if what == "a meter that falls silent" else 31)
    assert "INCOMPLETE" in report.out
    assert json.loads((path / "derived" / "results.json").read_text())["complete"] is False


def test_a_lack_of_file_handles_names_the_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ArrowFiles, "check_there", raising(OSError(24, "Too many")))
    ended = rig(tmp_path, *MEASURE, "--out", str(tmp_path / "run"))
    assert ended.code == SetupError.exit_code
    assert "Too many" in ended.err and f"Recorded until then: {tmp_path / 'run'}" in ended.err


def test_a_failure_before_any_reply_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "run"
    rig(path, *MEASURE, *options("fail_at=1", "fail=hang"), "--out", str(path))
    report = rig(path, "report", str(path))

    assert report.code == 30
    assert "no span was recorded" in report.out


def test_a_meter_silent_near_the_end_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    ended = rig(path, *MEASURE, *options("silent_after_s=3"), "--out", str(path))

    assert ended.code == 23
    assert answered(path) == 40


# ---- a run that is stopped from outside ---------------------------------------------------


def stopped(path: Path, number: signal.Signals, *more: str) -> tuple[Outcome, int]:
    """Measure in another process at four times real time, and signal it once it has written some replies.

    Return how it ended, and how many answered samples were on disk before the signal.
    """
    unshielded = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"  # the suite may run under nohup
    argv = [*MEASURE[:6], *options("workload.samples=2000", "bench.speed=4", "idle_s=0.1"), "--out", str(path), *more]
    running = begun(f"{unshielded}; {MAIN}", *argv)
    try:
        seen, deadline = 0, time.monotonic() + PATIENT_S
        while seen < 3 and running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
            seen = answered(path) if (path / "replies.arrows").exists() else 0
        running.send_signal(number)
        out, err = running.communicate(timeout=PATIENT_S)
    finally:
        running.kill()
    return Outcome(running.returncode, out, err, path), seen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["ctrl-c", "sigterm", "hang-up"])
def test_an_interrupted_run_keeps_every_reply(tmp_path: Path, number: signal.Signals) -> None:
    ended, seen = stopped(tmp_path / "run", number, "--json")
    run = open_run(ended.path)

    (line,) = ended.err.splitlines()
    assert ended.code == 130
    assert line.startswith("rig: interrupted. What was recorded until now is kept; `rig report` reads it")
    said = json.loads(ended.out)
    assert (said["error"], said["exit_code"]) == ("Interrupted", 130)
    assert str(ended.path) in said["remedy"]
    assert answered(ended.path) >= seen >= 3
    assert run.sealed
    assert run.error is not None and run.error.error == "Interrupted"

    report = rig(ended.path, "report", str(ended.path))
    assert report.code in (30, 31)
    assert "INCOMPLETE" in report.out


def test_a_killed_run_keeps_its_whole_batches(tmp_path: Path) -> None:
    ended, seen = stopped(tmp_path / "run", signal.SIGKILL)
    run = open_run(ended.path)
    report = rig(ended.path, "report", str(ended.path))

    assert ended.code == -signal.SIGKILL
    assert run.stop is None
    assert answered(ended.path) >= seen >= 3
    (trace,) = run.traces.values()
    assert 0 < run.arrivals(trace.rail.name)[-1, 0] <= len(trace.value)
    assert report.code in (30, 31)
    assert not evaluate(run).complete
    assert "it ended in a crash" in " ".join(report.out.split())
