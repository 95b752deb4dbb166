"""A live plant with one rail, for meters that read amperes."""

from __future__ import annotations

import pytest

from fixtures.bench.live_plant import LivePlant, live_plant
from tests.support.meters import IDLE_W, RUN_W


@pytest.fixture
def plant() -> LivePlant:
    plant = live_plant()
    plant.install({"core": IDLE_W}, {"inference": {"core": RUN_W}})
    return plant
