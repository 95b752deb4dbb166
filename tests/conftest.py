"""A test that needs real time for itself and fails is repeated once; the summary lists it as RERUN."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("any machine", deadline=None)  # how long an example takes says nothing on a busy one
settings.load_profile("any machine")


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Rows of sweeps are cached in a directory of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEURORIG_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def unsynced() -> Iterator[None]:
    """Recordings of tests need not outlive a power cut: waiting for the disk takes as long as all else.

    ``tests/recording/test_synced.py`` shows that a recording is synced; processes that tests start sync as always.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # refuses what is no open file, as syncing does
        yield


@pytest.fixture(scope="module")
def no_pictures() -> Iterator[None]:
    """Reports hold one empty picture: three quarters of the time of a report, where a test says nothing of pictures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reports.render.draw", lambda result: {"latency": b"<svg />"})
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let every test with the mark ``real_time`` run a second time, a second after it has failed."""
    for item in items:
        if item.get_closest_marker("real_time"):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=1))
