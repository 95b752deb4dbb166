"""The instrument that a module is about."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drivers.meters.lpm01a import meter as lpm01a
from tests.support.instruments import StandIn, live


@pytest.fixture
def it(request: pytest.FixtureRequest) -> Iterator[StandIn]:
    """Yield the instrument that the module names."""
    with live(request.module.INSTRUMENT) as instrument:
        yield instrument


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pseudo terminal becomes quiet sooner than a USB cable."""
    monkeypatch.setattr(lpm01a, "QUIET_S", 0.015)
