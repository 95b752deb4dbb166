"""The substitute for the package ``pyjoulescope_driver``, installed in its place."""

import sys
from types import ModuleType

import pytest

from fixtures.bench.live_plant import LivePlant
from fixtures.instruments.joulescope_driver import PATH, FakeDriver
from tests.support.meters import SUPPLY_V

__all__ = ["PATH", "FakeDriver", "installed"]


def installed(plant: LivePlant, monkeypatch: pytest.MonkeyPatch) -> type[FakeDriver]:
    """Put the driver of one instrument on ``plant`` in the place of the package."""
    driver: type[FakeDriver] = type("Driver", (FakeDriver,), {"plant": plant, "supply_v": SUPPLY_V})
    module = ModuleType("pyjoulescope_driver")
    module.Driver, module.__version__ = driver, "2.2.12"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyjoulescope_driver", module)
    return driver
