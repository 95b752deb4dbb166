"""A bench without a meter, and steps on it that end in an error."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from fixtures.bench.true_power import SimPlant, open_plant
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.errors import Ended
from rig.recording.reader import Run, open_run
from rig.types import Device, Meter, SampleSet, Step
from tests.support.ended_runs import Play
from tests.support.serving import samples


@pytest.fixture
def plant() -> SimPlant:
    plant = open_plant()
    plant.install({"core": 1e-3}, {})
    return plant


@pytest.fixture
def play(tmp_path: Path, plant: SimPlant) -> Play:
    """Record steps that end in an error; return the error and the recording."""

    def run(device: Device, steps: Iterable[Step], meters: tuple[Meter, ...] = (), **more: Any) -> tuple[Ended, Run]:
        bench, work = Bench(device, meters, plant.clock), SampleSet("blank", "none", "1", "0" * 64, samples(4))
        with pytest.raises(Ended) as raised:
            record(tmp_path / "run", bench, work, steps, scenario={"name": "by hand"}, argv=[], **more)
        return raised.value, open_run(tmp_path / "run")

    return run
