"""A meter that always reads one value, a lab's usual first test: no crash, and no invented power."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fixtures.bench.mock_device import open_device
from fixtures.bench.true_power import ORIGIN_NS, SimPlant, open_plant
from fixtures.worlds.random_draw import blank, steps
from rig.analysis.evaluate import evaluate
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.recording.reader import open_run
from rig.types import Bracket, Chunk, ClockInfo, MeterInfo, Rail


class Steady:
    """Reads ``watts`` at ``rate_hz`` on the plant's clock, one tick a nanosecond."""

    def __init__(self, plant: SimPlant, watts: float, rate_hz: float) -> None:
        self._clock, self._watts, self._rate_hz = plant.clock, watts, rate_hz
        self._taken = 0

    def info(self) -> MeterInfo:
        return MeterInfo("steady", "simulator", ClockInfo("meter", 1e9), (Rail("core", rate_hz=self._rate_hz),))

    def start(self) -> Bracket:
        now = self._clock.now_ns()
        return Bracket(now, now - ORIGIN_NS, now)

    def timer(self) -> int:
        return self._clock.now_ns() - ORIGIN_NS

    def read(self) -> list[Chunk]:
        ready = int((self._clock.now_ns() - ORIGIN_NS) * 1e-9 * self._rate_hz)
        fresh, self._taken = ready - self._taken, ready
        return [Chunk("core", np.full(fresh, self._watts))] if fresh else []

    def stop(self) -> list[Chunk]:
        return self.read()

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(("watts", "rate_hz"), [(0.0, 100.0), (1e-3, 300.0), (0.1, 1000.0), (1.0, 300.0)])
def test_a_constant_is_read_as_itself_with_no_dynamic_power(tmp_path: Path, watts: float, rate_hz: float) -> None:
    plant = open_plant()
    device = open_device(plant, marks=rate_hz == 300.0)
    path = tmp_path / "run"
    bench = Bench(device, (Steady(plant, watts, rate_hz),), plant.clock)
    record(path, bench, blank(5), steps(blank(5), 1.0), scenario={"name": "x"}, argv=[])
    result = evaluate(open_run(path))
    low, high = result.quantities["active_power_w"].interval()
    assert low <= watts <= high
    low, high = result.quantities["dynamic_power_w"].interval()
    assert low <= 0.0 <= high
    assert any("every reading is the same" in note for note in result.notes)
