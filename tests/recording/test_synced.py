"""The content of a sealed recording was synced, so a later power cut loses nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fixtures.bench.mock_device import open_device
from fixtures.bench.mock_meter import open_meter
from fixtures.bench.true_power import open_plant
from fixtures.worlds.random_draw import blank, steps
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.recording.layout import EVENTS, SEAL


def test_every_file_and_directory_was_synced_and_the_seal_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    plant, workload, path = open_plant(), blank(2), tmp_path / "run"
    bench = Bench(open_device(plant), (open_meter(plant),), plant.clock)
    record(path, bench, workload, steps(workload, 0.1), scenario={"name": "x"}, argv=[])

    places = {str(place.relative_to(tmp_path)): place.stat().st_ino for place in [tmp_path, *tmp_path.rglob("*")]}
    assert len(places) > 5
    assert [name for name, inode in places.items() if inode not in synced] == []
    last = {name: len(synced) - synced[::-1].index(inode) for name, inode in places.items()}
    late = sorted(last, key=last.__getitem__)[-3:]
    assert late == [f"run/{EVENTS}", f"run/{SEAL}", "run"]
