"""For any driver, the writer leaves a readable directory, or names what it refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures.bench.mock_device import open_device
from fixtures.bench.mock_meter import open_meter
from fixtures.bench.true_power import open_plant
from fixtures.worlds.random_draw import blank, steps
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.errors import StoreError
from rig.recording.layout import EVENTS, SEAL
from rig.recording.reader import open_run
from rig.recording.writer import Recorder
from rig.types import Accuracy, Chunk, ClockInfo, MeterInfo, Rail
from tests.support.start_lines import start


def meter(*rails: Rail) -> MeterInfo:
    return MeterInfo("hand", "simulator", ClockInfo("meter", 1e6), rails)


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with Recorder(tmp_path / "run") as recorder:
        recorder.event(start())
        yield recorder


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.array([1.0, np.nan])])
def test_a_number_that_is_none_is_written_as_null(recorder: Recorder, value: Any) -> None:
    recorder.event(start(workload={"details": {"value": value}}))
    recorder.stop()
    line = (recorder.path / "events.jsonl").read_bytes().splitlines()[1]
    assert json.loads(line)["workload"]["details"]["value"] in (None, [1.0, None])


def test_a_line_that_json_cannot_hold_is_refused(recorder: Recorder) -> None:
    with pytest.raises(StoreError, match="start"):
        recorder.event(start(workload={"details": {(1, 2): 3}}))
    recorder.stop()
    assert len(open_run(recorder.path).lines) == 2


def test_a_chunk_unlike_those_before_is_refused_and_the_others_are_kept(recorder: Recorder) -> None:
    recorder.open_trace(meter(Rail("core", rate_hz=1e3)), Rail("core", rate_hz=1e3), 0)
    for value in (np.ones(2), np.ones(2, np.int16), np.ones(2)):
        recorder.chunk(Chunk("core", value), 1)
    with pytest.raises(StoreError, match=r"core\.arrows"):
        recorder.stop()
    run = open_run(recorder.path)
    assert len(run.traces["core"].value) == 4
    assert run.error is not None


def test_a_trace_leaves_out_home_directories(recorder: Recorder) -> None:
    rail = Rail("core", rate_hz=1e3, accuracy=Accuracy(0.01, 0.0, "certificate /home/anna/K-1.pdf"))
    recorder.open_trace(meter(rail), rail, 0)
    recorder.chunk(Chunk("core", np.ones(2)), 1)
    recorder.stop()
    told = open_run(recorder.path).traces["core"].rail.accuracy
    assert told is not None and told.source == "certificate ~/K-1.pdf"


def test_readings_of_a_rail_that_no_meter_declared_are_refused(recorder: Recorder) -> None:
    with pytest.raises(StoreError, match="no meter declared"):
        recorder.chunk(Chunk("core", np.ones(1)), 1)


@pytest.mark.parametrize("names", [("core", "core"), ("a/b", "a b")])
def test_two_rails_cannot_share_a_file(recorder: Recorder, names: tuple[str, str]) -> None:
    first, second = (Rail(name) for name in names)
    recorder.open_trace(meter(first), first, 0)
    with pytest.raises(StoreError, match="share"):
        recorder.open_trace(meter(second), second, 0)


@pytest.mark.parametrize("rail", [Rail("core", rate_hz=float("nan")), Rail("core", kind="median"), Rail("")])  # type: ignore[arg-type]
def test_a_rail_that_a_reader_would_refuse_is_refused_at_once(recorder: Recorder, rail: Rail) -> None:
    with pytest.raises(StoreError, match="rail"):
        recorder.open_trace(meter(rail), rail, 0)


def test_a_directory_in_use_is_refused(recorder: Recorder) -> None:
    with pytest.raises(StoreError, match="not an empty directory"):
        Recorder(recorder.path)


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
