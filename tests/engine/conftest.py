"""A plant with one rail, and functions that record steps on it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from fixtures.bench.true_power import SimPlant, open_plant
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.errors import Ended
from rig.recording.reader import Run, open_run
from rig.types import Device, Meter, Step
from tests.support.ended_runs import ByHand, Play
from tests.support.raised import raised
from tests.support.serving import Blank


@pytest.fixture
def plant() -> SimPlant:
    plant = open_plant()
    plant.install({"core": 1e-3}, {})
    return plant


@pytest.fixture
def by_hand(tmp_path: Path, plant: SimPlant) -> ByHand:
    """Record steps of a workload, by default of four samples."""

    def run(
        device: Device, steps: Iterable[Step], meters: tuple[Meter, ...] = (), work: Any = None, **more: Any
    ) -> Run:
        bench, path = Bench(device, meters, plant.clock), tmp_path / "run"
        return open_run(record(path, bench, work or Blank(4), steps, scenario={"name": "by hand"}, argv=[], **more))

    return run


@pytest.fixture
def play(tmp_path: Path, by_hand: ByHand) -> Play:
    """Record steps that end in an error; return the error and the recording."""

    def run(*given: Any, **more: Any) -> tuple[Ended, Run]:
        return raised(Ended, by_hand, *given, **more), open_run(tmp_path / "run")

    return run
