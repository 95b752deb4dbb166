"""What all tests share: no waiting for the disk, directories of their own, and a second try in real time."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import settings

from scenarios.workloads.asc.scenes import synthesize

settings.register_profile("any machine", deadline=None, max_examples=25)  # no deadline: it may be a busy one
settings.register_profile("thorough", deadline=None, max_examples=2000)  # pytest --hypothesis-profile thorough
settings.load_profile("any machine")

LONG = {
    "test_wheel.py", "test_sweep_workers.py", "test_arduino_in_qemu.py", "test_firmware.py", "test_docs.py",
    "test_startup.py", "test_xylo_first_light.py", "test_xylo_chip.py",
}  # fmt: skip
"""Files of few tests that take long."""


def pytest_configure() -> None:
    """Ctrl-C reaches tests and what they start, though a shell that starts them in the background ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Rows of sweeps are cached, and devices locked, in directories of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEURORIG_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("NEURORIG_RUNTIME_DIR", str(tmp_path_factory.mktemp("locks")))
        yield


@pytest.fixture(autouse=True, scope="session")
def unsynced() -> Iterator[None]:
    """Recordings of tests need not outlive a power cut: waiting for the disk takes as long as all else.

    ``tests/recording/test_synced.py`` shows that a recording is synced; processes that tests start sync as always.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # refuses what is no open file, as syncing does
        yield


@pytest.fixture(autouse=True, scope="session")
def scenes() -> Iterator[None]:
    """A synthetic scene is a function of its four arguments: a worker makes each of the last 500 once."""

    @lru_cache(500)
    def once(*arguments: Any) -> Any:
        scene = synthesize(*arguments)
        scene.setflags(write=False)
        return scene

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scenarios.workloads.asc.workload.synthesize", once)
        yield


@pytest.fixture(autouse=True, scope="module")
def drawing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Pictures are empty but in modules marked ``pictures``: they take three quarters of the time of a report."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.node.get_closest_marker("pictures"):
            patch.setattr("reports.figures.draw.draw", lambda result: {"latency": b"<svg />"})
            patch.setattr("reports.figures.sweep.sweep_figure", lambda *columns: b"<svg />")
        yield


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests of torch are skipped where it is not installed."""
    if item.get_closest_marker("torch") and find_spec("torch") is None:
        pytest.skip("needs neurorig[torch]")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many tests of torch ran, since no machine of CI need have it."""
    kinds = (terminalreporter.stats.get(kind, ()) for kind in ("passed", "failed", "error", "skipped"))
    of_torch = [report for kind in kinds for report in kind if "torch" in getattr(report, "keywords", ())]
    if of_torch:
        ran = sum(report.outcome != "skipped" for report in of_torch)
        how = "" if find_spec("torch") else "; pip install 'neurorig[torch,peers,nir]' lets them run"
        terminalreporter.write_line(f"torch: {ran} of {len(of_torch)} tests ran{how}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a test with the mark ``real_time`` that failed alone run a second time; the summary lists it as RERUN.

    Those that fail in company are run again by ``make test``, alone. In company, files that take long come first, and
    then those of many tests, so that no worker is left with one of them when the others have ended.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        count = Counter(item.path for item in items)
        items.sort(key=lambda item: (item.path.name not in LONG, -count[item.path], item.path))
        return
    for item in items:
        if item.get_closest_marker("real_time"):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=1))
