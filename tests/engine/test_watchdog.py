"""A driver's call that does not return is named and ends the run, and the process if it cannot be interrupted."""

import re
import sys
import threading
import time
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from fixtures.bench.live_plant import LivePlant
from fixtures.bench.mock_meter import MockMeter, open_meter
from rig import driver_call_timeouts
from rig.engine import watchdog
from rig.engine.acquisition import Bench
from rig.engine.clock import HostClock
from rig.engine.record import record
from rig.engine.watchdog import Watch, let_go, patiently
from rig.errors import DeviceTimeoutError, MeterSilentError, RigError, SetupError
from rig.recording.reader import Run, open_run
from rig.session import setup
from rig.session.setup import opened
from rig.types import ClockInfo, DeviceInfo, Idle, Issue, Mark, Reply, Span, Step
from tests.support.ended_runs import before
from tests.support.processes import python
from tests.support.raised import raised, raising
from tests.support.serving import Blank, Queue
from tests.support.waiting import until

pytestmark = pytest.mark.real_time

PATIENCE_S = 0.6
FOREVER_S = 60.0


def device() -> Queue:
    """Return a device on the host's clock that answers at once and has a timer."""
    made: Any = Queue(HostClock(), 0.0)
    made.facts = DeviceInfo("stuck", "simulator", clock=ClockInfo("device", 1e9))
    made.timer = time.monotonic_ns
    return cast(Queue, made)


D = TypeVar("D")


def hang() -> None:
    time.sleep(FOREVER_S)


def stuck(driver: D, method: str, at: int = 2) -> D:
    """Let the call number ``at`` of a driver's method, and each later one, hang."""
    return before(driver, method, hang, at)


def played(path: Path, device: Queue, meter: MockMeter | None, watch: Watch) -> None:
    work = Blank(5)
    bench = Bench(device, () if meter is None else (meter,), HostClock())
    steps: list[Step] = [Mark(), *(Issue([s]) for s in work.samples), Idle(0.01)]
    record(path, bench, work, steps, scenario={"name": "by hand"}, argv=[], watch=watch)


def named(run: Run, error: RigError, call: str) -> None:
    assert error.message.startswith(f"{call}() of ")
    assert re.search(r"has not returned for [\d.]+ s", error.message)
    assert run.error is not None and run.error.message == error.message
    assert run.sealed


@pytest.mark.parametrize("call", ["stage", "submit", "poll", "timer"])
def test_a_hanging_device_call_is_named(tmp_path: Path, call: str) -> None:
    error = raised(DeviceTimeoutError, played, tmp_path / "run", stuck(device(), call), None, Watch(PATIENCE_S))
    run = open_run(tmp_path / "run")
    named(run, error, call)
    if call != "timer":
        assert run.replies["completed_ns"].is_valid().to_pylist()[:1] == [True]


class Lazy:
    """A part of an answer that is computed only when it is read, like an array on another processor."""

    def tolist(self) -> list[int]:
        return [1]

    def items(self) -> Any:
        return {}.items()


@pytest.mark.parametrize("spans", [1, 2])
@pytest.mark.parametrize("part", ["output", "activity"])
def test_an_answer_that_hangs_on_access_ends_the_run(tmp_path: Path, part: str, spans: int) -> None:
    answer: dict[str, Any] = {"output": None, "spans": (Span("inference", 1, 2), Span("more", 1, 2))[:spans]}
    answer[part] = stuck(Lazy(), "tolist" if part == "output" else "items")
    lazy: Any = device()
    poll = lazy.poll
    lazy.poll = lambda timeout_s: [Reply(r.sample_id, **answer) for r in poll(timeout_s)]
    with pytest.raises(DeviceTimeoutError, match=f"reading the {part} of a reply of the device has not returned"):
        played(tmp_path / "run", lazy, None, Watch(PATIENCE_S))
    run = open_run(tmp_path / "run")
    assert run.sealed
    assert run.replies["completed_ns"].is_valid().to_pylist()[:1] == [True]


@pytest.mark.parametrize("call", ["start", "read", "timer", "stop"])
def test_a_hanging_meter_call_is_named(tmp_path: Path, call: str) -> None:
    with pytest.raises(MeterSilentError) as caught:
        played(tmp_path / "run", device(), stuck(open_meter(LivePlant()), call, 1), Watch(PATIENCE_S))
    named(open_run(tmp_path / "run"), caught.value, call)


def test_opening_may_last_as_long_as_its_option_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(driver_call_timeouts.PATIENCE_S, "open", 0.05)
    monkeypatch.setattr(setup, "MORE_S", 0.05)

    def slow(*, lasts_s: float, start_s: float = 0.0) -> str:
        time.sleep(lasts_s)
        return "open"

    assert opened(slow, {}, {"lasts_s": "0.3", "start_s": str(FOREVER_S)}, "device", "x") == "open"
    with pytest.raises(DeviceTimeoutError, match=r"open\(\) of device x has not returned"):
        opened(slow, {}, {"lasts_s": str(FOREVER_S)}, "device", "x")


def test_a_driver_that_does_not_close_is_abandoned(capsys: pytest.CaptureFixture[str]) -> None:
    let_go(threading.Event().wait, "close() of device x", 0.1)
    assert "close() of device x has not returned for 0.1 s, and is left" in capsys.readouterr().err


def test_a_failed_close_is_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    let_go(lambda: sys.exit(3), "close() of device x", 60.0)
    assert capsys.readouterr().err == ""


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python raises ``RuntimeError`` if the system starts no thread; the reason is missing memory."""
    monkeypatch.setattr(threading.Thread, "start", raising(RuntimeError("can't start new thread")))


@pytest.mark.usefixtures("no_threads")
def test_a_driver_is_closed_without_threads() -> None:
    closed: list[bool] = []
    let_go(lambda: closed.append(True), "close() of device x", 60.0)
    assert closed == [True]


@pytest.mark.usefixtures("no_threads")
def test_an_unwatchable_run_is_refused_and_sealed(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="needs more memory than is free"):
        played(tmp_path / "run", device(), open_meter(LivePlant()), Watch(PATIENCE_S))
    run = open_run(tmp_path / "run")
    assert (run.sealed, run.error is not None) == (True, True)


@pytest.mark.parametrize(("call", "undeclared_s", "declared_s"), [
    ("open", 60, 200), ("info", 30, 200), ("stop", 30, 200), ("close", 30, 200), ("stage", 600, 600), ("poll", 90, 230),
])  # fmt: skip
def test_calls_have_their_expected_time_limits(call: str, undeclared_s: float, declared_s: float) -> None:
    watch = Watch()
    assert watch.allowed_s(f"{call}() of the device") == undeclared_s
    watch.timeout_s = 200.0
    assert watch.allowed_s(f"{call}() of the device") == declared_s


def test_a_second_hung_call_is_not_awaited_as_long() -> None:
    watch = Watch()
    watch.hung = True
    assert watch.allowed_s("stop() of meter stuck") == driver_call_timeouts.AFTER_S


def test_a_long_call_is_named_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "TELL_S", 0.05)
    patiently(lambda: time.sleep(1.0), SetupError, "it failed", "stage() of the device", 60.0)
    assert capsys.readouterr().err == "rig: waiting for stage() of the device, up to 60 s\n"


def test_a_sleep_of_the_host_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    slept_s = iter([0.0, 0.0])
    monkeypatch.setattr(watchdog, "since_boot_ns", lambda: time.monotonic_ns() + round(next(slept_s, 30.0) * 1e9))
    watch = Watch(patience_s=0.04)
    with watch.watching(lambda error: None, gaps=True):
        until(lambda: bool(watch.gaps_ns))
    [(on_ns, off_ns)] = watch.gaps_ns
    assert 30e9 <= off_ns - on_ns < 60e9


def test_calls_that_return_in_time_are_left_alone(tmp_path: Path) -> None:
    """Each call takes a quarter of the patience, and all five together take longer than the patience."""
    slow = before(device(), "submit", lambda: time.sleep(PATIENCE_S / 2))
    played(tmp_path / "run", slow, None, Watch(2.0 * PATIENCE_S))
    assert open_run(tmp_path / "run").error is None


STUBBORN = """
import sys, time
from pathlib import Path
sys.path.insert(0, {folder!r})
from test_watchdog import PATIENCE_S, before, device, played
from rig.engine.watchdog import Watch

def stubborn():
    while True:
        try:
            time.sleep(1)
        except BaseException:
            pass

played(Path(sys.argv[1]), before(device(), "poll", stubborn, at=4), None, Watch(PATIENCE_S, grace_s=0.3))
"""


def test_an_uninterruptible_call_ends_the_process(tmp_path: Path) -> None:
    done = python(STUBBORN.format(folder=str(Path(__file__).parent)), tmp_path / "run")
    assert done.returncode == DeviceTimeoutError.exit_code, done.stderr
    assert done.stderr.startswith("rig: poll() of the device has not returned for "), done.stderr
    run = open_run(tmp_path / "run")
    assert run.sealed
    assert run.error is not None and run.error.error == "DeviceTimeoutError"
    assert run.replies["completed_ns"].is_valid().to_pylist() == [True] * 3
