"""Settings of all tests: no waiting for the disk, separate directories, and a second try of tests in real time."""

import gc
import os
import signal
from collections import Counter
from collections.abc import Generator, Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import settings

from rig.analysis.evaluate import evaluate
from rig.analysis.result.result import Result
from rig.recording.reader import Run
from scenarios.workloads.asc.scenes import synthesize

# for every property test: no deadline, because the machine may be busy; the same examples each time, unless the
# profile "thorough" is chosen
settings.register_profile("any machine", deadline=None, max_examples=25, derandomize=True, database=None)
settings.register_profile("thorough", deadline=None, max_examples=2000)  # pytest --hypothesis-profile thorough
settings.load_profile("any machine")

LONG = {
    "test_wheel.py", "test_sweep_workers.py", "test_arduino_in_qemu.py", "test_firmware.py", "test_docs.py",
    "test_startup.py", "test_xylo_first_light.py", "test_xylo_chip.py", "test_hostile_drivers.py", "test_truth.py",
}  # fmt: skip
"""Files with few tests that take long."""


BUSY = 3.0
"""Above this load per core, tests in real time cannot tell a fault from a machine without time for them."""


def pytest_configure() -> None:
    """Let Ctrl-C reach tests and their processes, even if a shell in the background ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are collected, because collected tests stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, which is the working directory of the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def torch() -> Any:
    """The package torch, which is not imported to collect tests."""
    return pytest.importorskip("torch")


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Cache rows of sweeps, and lock devices, in the tests' own directories."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEURORIG_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("NEURORIG_RUNTIME_DIR", str(tmp_path_factory.mktemp("locks")))
        yield


@pytest.fixture(autouse=True, scope="session")
def unsynced() -> Iterator[None]:
    """Do not sync recordings of tests: none has to survive a power cut, and the disk would double the time of tests.

    ``tests/recording/test_run_writer.py`` shows that a recording is synced; processes started by tests always sync.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # refuses anything but an open file, as syncing does
        yield


@pytest.fixture(autouse=True, scope="session")
def scenes() -> Iterator[None]:
    """A synthetic scene depends only on its four arguments: each worker keeps the last 500."""

    @lru_cache(500)
    def once(*arguments: Any) -> Any:
        scene = synthesize(*arguments)
        scene.setflags(write=False)
        return scene

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scenarios.workloads.asc.workload.synthesize", once)
        yield


@pytest.fixture(autouse=True, scope="session")
def results() -> Iterator[None]:
    """Keep up to 101 results of sealed recordings in a worker, then forget all: the same recording has the same result.

    ``tests/commands/test_startup.py`` shows this, in separate processes.
    """
    made: dict[Any, Any] = {}

    def once(run: Run, *more: Any) -> Result:
        if not run.sealed:
            return evaluate(run, *more)
        if len(made) > 100:
            made.clear()
        if (run.digest, more) not in made:
            made[run.digest, more] = evaluate(run, *more)
        return cast(Result, made[run.digest, more])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rig.session.report.evaluate", once)
        yield


@pytest.fixture(autouse=True, scope="module")
def drawing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave pictures empty except in modules marked ``pictures``: they take three quarters of a report's time."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.node.get_closest_marker("pictures"):
            patch.setattr("reports.pictures.draw.draw", lambda result: {"latency": b"<svg />"})
            patch.setattr("reports.sweeps.picture.sweep_figure", lambda *columns: b"<svg />")
        yield


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests of torch if it is not installed."""
    if item.get_closest_marker("torch") and find_spec("torch") is None:
        pytest.skip("needs neurorig[torch]")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip a ``real_time`` test that failed alone, and again, on a machine that is too busy for it."""
    report = yield
    load = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    again = getattr(item, "execution_count", 1) > 1  # counted by pytest-rerunfailures
    if report.failed and again and item.get_closest_marker("real_time") and load > BUSY:
        report.outcome = "skipped"
        where = item.location[1] or 0
        report.longrepr = (item.location[0], where, f"Skipped: failed twice beside a load of {load:.1f} per core")
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many tests of torch ran, because CI machines may lack torch."""
    kinds = (terminalreporter.stats.get(kind, ()) for kind in ("passed", "failed", "error", "skipped"))
    of_torch = [report for kind in kinds for report in kind if "torch" in getattr(report, "keywords", ())]
    if of_torch:
        ran = sum(report.outcome != "skipped" for report in of_torch)
        how = "" if find_spec("torch") else "; pip install 'neurorig[torch,peers,nir]' lets them run"
        terminalreporter.write_line(f"torch: {ran} of {len(of_torch)} tests ran{how}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a failed ``real_time`` test that ran alone run a second time; the summary lists it as RERUN.

    ``make test`` runs tests that failed beside others again, alone. In parallel runs, files that take long come first,
    and then files with many tests, so that no worker still has such a file when the others have ended.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        count = Counter(item.path for item in items)
        items.sort(key=lambda item: (item.path.name not in LONG, -count[item.path], item.path))
        return
    for item in items:
        if item.get_closest_marker("real_time"):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=1))
