"""A meter that always reads one value, a lab's usual first test: no crash, and no invented power."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fixtures.bench.true_power import ORIGIN_NS, SimPlant
from rig.types import Bracket, Chunk, ClockInfo, MeterInfo, Rail
from tests.support.figures import ACTIVE, POWER, held, said
from tests.support.plants import BARE, on_plant


class Steady:
    """Reads ``watts`` at ``rate_hz`` on the plant's clock, one tick a nanosecond."""

    def __init__(self, plant: SimPlant, watts: float, rate_hz: float) -> None:
        self._clock, self._watts, self._rate_hz, self._taken = plant.clock, watts, rate_hz, 0

    def info(self) -> MeterInfo:
        return MeterInfo("steady", "simulator", ClockInfo("meter", 1e9), (Rail("core", rate_hz=self._rate_hz),))

    def start(self) -> Bracket:
        now = self._clock.now_ns()
        return Bracket(now, now - ORIGIN_NS, now)

    def timer(self) -> int:
        return self._clock.now_ns() - ORIGIN_NS

    def read(self) -> list[Chunk]:
        ready = int(self.timer() * 1e-9 * self._rate_hz)
        fresh, self._taken = ready - self._taken, ready
        return [Chunk("core", np.full(fresh, self._watts))] if fresh else []

    def stop(self) -> list[Chunk]:
        return self.read()

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(("watts", "rate_hz"), [(0.0, 100.0), (1e-3, 300.0), (0.1, 1000.0), (1.0, 300.0)])
def test_a_constant_is_read_as_itself_with_no_dynamic_power(tmp_path: Path, watts: float, rate_hz: float) -> None:
    result = on_plant(
        tmp_path / "run", BARE, device={"marks": rate_hz == 300.0}, samples=5,
        read_by=lambda plant: Steady(plant, watts, rate_hz),
    ).result  # fmt: skip
    assert held(result.quantities[ACTIVE], watts)
    assert held(result.quantities[POWER], 0.0)
    assert said(result, "every reading is the same")
