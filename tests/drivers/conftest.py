"""The instrument that a test module names, and ports and boards that are ready sooner than real ones."""

from collections.abc import Iterator

import pytest

from tests.support.instruments import StandIn, live


@pytest.fixture
def it(request: pytest.FixtureRequest) -> Iterator[StandIn]:
    """Yield the instrument that the module names."""
    with live(request.module.INSTRUMENT) as instrument:
        yield instrument


@pytest.fixture(params=["audio2", "audio3"])
def chip(request: pytest.FixtureRequest) -> str:
    """The name of each Xylo chip in turn."""
    return str(request.param)


@pytest.fixture
def quiet_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pseudo terminal becomes quiet sooner than a USB cable."""
    for module in ("meters.lpm01a.meter", "devices.mlperf_tiny.queries"):
        monkeypatch.setattr(f"drivers.{module}.QUIET_S", 0.015)


@pytest.fixture
def warm_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulated Xylo board is ready as soon as it is open."""
    monkeypatch.setattr("drivers.devices.xylo.board.WARM_S", 0.1)
