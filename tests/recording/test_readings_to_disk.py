"""Readings on their way to disk: a separate thread writes and hashes them, and their waiting is bounded."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rig
from fixtures.worlds.random_draw import blank
from rig.engine.acquisition import Bench
from rig.engine.clock import HostClock
from rig.engine.record import record
from rig.errors import DiskTooSlowError, SetupError, StoreError
from rig.recording.disk.files import Folder, Hashed, Opened, Whole
from rig.recording.events import ChunkArrived
from rig.recording.traces.readings import BATCH
from rig.recording.writer import Recorder
from tests.support.start_lines import HOST, start

RATE_HZ = 1e3
CORE = rig.Rail("core", rate_hz=RATE_HZ)
CLOCKS = [HOST, {"name": "meter", "tick_hz": 1e6}]
METER = rig.MeterInfo("hand", "simulator", rig.ClockInfo("meter", 1e6), (CORE,))


def readings(first: int, count: int) -> rig.Chunk:
    return rig.Chunk("core", np.arange(first, first + count, dtype=np.float32))


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    """A recorder with one rail that writes readings in a thread."""
    with Recorder(tmp_path / "run", background=True) as recorder:
        recorder.event(start(clocks=CLOCKS))
        recorder.open_trace(METER, CORE, 0)
        yield recorder


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A disk that takes nothing until the event is set."""
    free, write = threading.Event(), Whole.write

    def slow(file: Whole, data: Any) -> int:
        if str(file.name).endswith(".arrows"):
            free.wait()
        return write(file, data)

    monkeypatch.setattr(Whole, "write", slow)
    yield free
    free.set()


def announced(path: Path) -> list[tuple[int, int]]:
    return [(e.readings, e.arrived_ns) for e in rig.open_run(path).of_type(ChunkArrived)]


def test_a_disk_that_takes_nothing_holds_up_nobody_and_loses_nothing(recorder: Recorder, disk: threading.Event) -> None:
    for k in range(5):
        recorder.chunk(readings(100 * k, 100), k)
        recorder.flush()
    assert announced(recorder.path) == []
    disk.set()
    recorder.stop()
    assert announced(recorder.path) == [(100, k) for k in range(5)]
    assert rig.open_run(recorder.path).traces["core"].value.tolist() == list(range(500))


def test_how_full_the_buffer_was_is_recorded_in_seconds_of_readings(recorder: Recorder, disk: threading.Event) -> None:
    for k in range(3):
        recorder.chunk(readings(100 * k, 100), k)
        recorder.flush()
    disk.set()
    recorder.stop()
    waited_s = [e.waiting_s for e in rig.open_run(recorder.path).of_type(ChunkArrived)]
    assert waited_s == pytest.approx([0.1, 0.2, 0.3])


def test_a_disk_that_is_too_slow_is_a_typed_error_and_what_had_arrived_is_kept(
    recorder: Recorder, disk: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rig.recording.traces.readings.HOLDS_BYTES", 4 * 1000)
    with pytest.raises(DiskTooSlowError, match=r"1\.2 s of rail core") as caught:
        for k in range(20):
            recorder.chunk(readings(100 * k, 100), k)
            recorder.flush()
    recorder.chunk(readings(1200, 100), 12)  # the meter's last readings when it was stopped
    disk.set()
    recorder.stop(caught.value)
    run = rig.open_run(recorder.path)
    assert run.error is not None and run.error.error == "DiskTooSlowError"
    assert run.traces["core"].value.tolist() == list(range(1300))


class Pouring:
    """A meter that always has 100 readings, and whose stop lets the disk continue."""

    def __init__(self, disk: threading.Event) -> None:
        self._disk = disk

    def info(self) -> rig.MeterInfo:
        return METER

    def start(self) -> rig.Bracket:
        return rig.Bracket(time.monotonic_ns(), 0, time.monotonic_ns())

    def read(self) -> list[rig.Chunk]:
        return [readings(0, 100)]

    def stop(self) -> list[rig.Chunk]:
        self._disk.set()
        return self.read()

    def close(self) -> None:
        pass


class Ring(Pouring):
    """A meter that counts up in one buffer, which it refills for each chunk."""

    def __init__(self, disk: threading.Event) -> None:
        super().__init__(disk)
        self._buffer = 1000 * np.arange(-100, 0)

    def read(self) -> list[rig.Chunk]:
        self._buffer += 100_000
        return [rig.Chunk("core", self._buffer, self._buffer, self._buffer)]


def test_a_meter_may_fill_its_buffer_again_once_it_has_handed_it_over(tmp_path: Path, disk: threading.Event) -> None:
    bench = Bench(rig.blocking(lambda sample: None), (Ring(disk),), HostClock())
    record(tmp_path / "run", bench, blank(1), [rig.Mark(), rig.Mark(), rig.Mark()], scenario={"name": "ring"}, argv=[])
    trace = rig.open_run(tmp_path / "run").traces["core"]
    assert trace.value.tolist() == trace.end_tick.tolist() == list(range(0, 500_000, 1000))


def test_an_error_of_the_thread_is_raised_by_the_next_call(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    recorder.chunk(readings(0, 10), 0)
    recorder.settle()
    monkeypatch.setattr(Hashed, "write", full)
    recorder.chunk(readings(10, 10), 1)
    with pytest.raises(StoreError, match="No space left"):
        recorder.settle()
    monkeypatch.undo()
    recorder.chunk(readings(20, 10), 2)  # later readings would leave a gap, and are not written
    recorder.stop()
    assert announced(recorder.path) == [(10, 0)]
    assert rig.open_run(recorder.path).traces["core"].value.tolist() == list(range(10))


def test_a_run_for_which_the_system_has_no_thread_is_ended_and_keeps_what_had_arrived(
    tmp_path: Path, disk: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = threading.Thread.start

    def start_no_writer(thread: threading.Thread) -> None:
        if thread.name == "readings to disk":
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start_no_writer)
    bench = Bench(rig.blocking(lambda sample: None), (Pouring(disk),), HostClock())
    with pytest.raises(SetupError, match="more memory than is free"):
        record(tmp_path / "run", bench, blank(1), [rig.Mark()], scenario={"name": "starved"}, argv=[])
    run = rig.open_run(tmp_path / "run")
    assert run.sealed
    assert run.error is not None
    assert len(run.traces["core"].value) == 200


def test_a_batch_is_joined_of_what_waits_and_stays_small(recorder: Recorder, disk: threading.Event) -> None:
    import pyarrow as pa

    for k in range(20):
        recorder.chunk(rig.Chunk("core", np.full(BATCH // 8, k, np.float32)), k)
    disk.set()
    recorder.stop()
    with pa.ipc.open_stream(recorder.path / "traces" / "core.arrows") as reader:
        rows = [batch.num_rows for batch in reader]
    assert sum(rows) == 20 * (BATCH // 8)
    assert max(rows) <= BATCH
    assert len(rows) < 10


def test_files_are_hashed_while_written_and_not_read_again(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(folder: Folder, name: str) -> Opened:
        read.append(name)
        return Opened(folder, name)

    monkeypatch.setattr("rig.recording.writer.Opened", counted)
    recorder.chunk(readings(0, 1000), 1)
    recorder.stop()
    assert "traces/core.arrows" not in read
    trace = recorder.path / "traces" / "core.arrows"
    stop = rig.open_run(recorder.path).stop
    assert stop is not None and stop.files["traces/core.arrows"] == hashlib.sha256(trace.read_bytes()).hexdigest()


def test_a_file_that_is_taken_away_while_it_is_recorded_is_told(recorder: Recorder) -> None:
    recorder.chunk(readings(0, 100), 1)
    recorder.settle()
    (recorder.path / "traces" / "core.arrows").unlink()
    with pytest.raises(StoreError, match=r"traces/core\.arrows was removed"):
        recorder.stop()
    run = rig.open_run(recorder.path)
    assert run.sealed
    assert run.error is not None and "was removed" in run.error.message
