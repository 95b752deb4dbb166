"""A test that needs real time for itself and fails is repeated once; the summary lists it as RERUN."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let every test with the mark ``real_time`` run a second time, a second after it has failed."""
    for item in items:
        if item.get_closest_marker("real_time"):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=1))
