"""For any driver, the writer leaves a readable directory, or names what it refuses.

A separate thread writes and hashes readings, and the number of waiting readings is bounded. A full disk or a limit of
the process loses only later data."""

import errno
import hashlib
import json
import os
import resource
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rig
from fixtures.bench.mock_device import open_device
from fixtures.bench.mock_meter import open_meter
from fixtures.bench.true_power import open_plant
from fixtures.worlds.random_draw import blank, steps
from rig.engine.acquisition import Bench
from rig.engine.clock import HostClock
from rig.engine.play_steps import check_wiring
from rig.engine.record import record
from rig.errors import DiskTooSlowError, MeterError, RigError, SetupError, StoreError
from rig.recording.disk.files import Folder, Opened
from rig.recording.disk.full_disk import ROOM, Hashed, Whole
from rig.recording.events import ChunkArrived
from rig.recording.layout import EVENTS, SEAL
from rig.recording.reader import open_run
from rig.recording.traces.readings import BATCH
from rig.recording.writer import Recorder
from rig.types import Accuracy, Chunk, ClockInfo, MeterInfo, Rail, Reply, Sample, Span
from tests.support.processes import python
from tests.support.raised import Patch, raised, raising
from tests.support.start_lines import HOST, start


def meter(*rails: Rail) -> MeterInfo:
    return MeterInfo("hand", "simulator", ClockInfo("meter", 1e6), rails)


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with Recorder(tmp_path / "run") as recorder:
        recorder.event(start())
        yield recorder


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.array([1.0, np.nan])])
def test_a_non_finite_number_is_written_as_null(recorder: Recorder, value: Any) -> None:
    recorder.event(start(workload={"details": {"value": value}}))
    recorder.stop()
    line = (recorder.path / "events.jsonl").read_bytes().splitlines()[1]
    assert json.loads(line)["workload"]["details"]["value"] in (None, [1.0, None])


def test_a_line_outside_json_is_refused(recorder: Recorder) -> None:
    raised(StoreError, lambda: recorder.event(start(workload={"details": {(1, 2): 3}})), says="start")
    recorder.stop()
    assert len(open_run(recorder.path).lines) == 2


def test_only_a_chunk_of_another_type_is_refused(recorder: Recorder) -> None:
    recorder.open_trace(meter(Rail("core", rate_hz=1e3)), Rail("core", rate_hz=1e3), 0)
    for value in (np.ones(2), np.ones(2, np.int16), np.ones(2)):
        recorder.chunk(Chunk("core", value), 1)
    raised(StoreError, recorder.stop, says=r"core\.arrows")
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


def test_readings_of_an_undeclared_rail_are_refused(recorder: Recorder) -> None:
    raised(MeterError, recorder.chunk, Chunk("core", np.ones(1)), 1, says="no meter declared")


@pytest.mark.parametrize("names", [("core", "core"), ("a/b", "a b"), ("core", "Core")])
def test_two_rails_cannot_share_a_file(recorder: Recorder, names: tuple[str, str]) -> None:
    first, second = (Rail(name) for name in names)
    recorder.open_trace(meter(first), first, 0)
    raised(StoreError, recorder.open_trace, meter(second), second, 0, says="share")
    raised(SetupError, check_wiring, rig.blocking(lambda sample: None).info(), [meter(first, second)], says="share")


@pytest.mark.parametrize("rail", [Rail("core", rate_hz=float("nan")), Rail("core", kind="median"), Rail("")])  # type: ignore[arg-type]
def test_an_unreadable_rail_is_refused_at_once(recorder: Recorder, rail: Rail) -> None:
    raised(StoreError, recorder.open_trace, meter(rail), rail, 0, says="rail")


def test_a_directory_in_use_is_refused(recorder: Recorder) -> None:
    raised(StoreError, Recorder, recorder.path, says="not an empty directory")


def test_a_directory_taken_meanwhile_is_refused(recorder: Recorder, monkeypatch: Patch) -> None:
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(()))  # as it was when both looked
    raised(StoreError, Recorder, recorder.path, says="File exists")


def test_a_moved_directory_is_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    with Recorder(tmp_path / "session" / "run") as recorder:
        (tmp_path / "session").rename(tmp_path / "moved")
        caught = raised(StoreError, recorder.stop, says="end of the recording")
    assert "was moved or removed" in caught.remedy


def test_every_file_is_synced_before_the_seal(tmp_path: Path, monkeypatch: Patch) -> None:
    synced: list[int] = []

    def fsync(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "this disk syncs no directories")

    monkeypatch.setattr(os, "fsync", fsync)
    plant, workload, path = open_plant(), blank(2), tmp_path / "run"
    bench = Bench(open_device(plant), (open_meter(plant),), plant.clock)
    record(path, bench, workload, steps(workload, 0.1), scenario={"name": "x"}, argv=[], artifacts={"a.toml": b"x"})

    places = {str(place.relative_to(tmp_path)): place.stat().st_ino for place in [tmp_path, *tmp_path.rglob("*")]}
    assert len(places) > 5
    assert [name for name, inode in places.items() if inode not in synced] == []
    last = {name: len(synced) - synced[::-1].index(inode) for name, inode in places.items()}
    assert sorted(last, key=last.__getitem__)[-3:] == [f"run/{EVENTS}", f"run/{SEAL}", "run"]


# ---- readings on their way to disk -------------------------------------------------------------

RATE_HZ = 1e3
CORE = rig.Rail("core", rate_hz=RATE_HZ)
CLOCKS = [HOST, {"name": "meter", "tick_hz": 1e6}]
METER = rig.MeterInfo("hand", "simulator", rig.ClockInfo("meter", 1e6), (CORE,))


def readings(first: int, count: int) -> rig.Chunk:
    return rig.Chunk("core", np.arange(first, first + count, dtype=np.float32))


@pytest.fixture
def threaded(tmp_path: Path) -> Iterator[Recorder]:
    """A recorder with one rail that writes readings in a thread."""
    with Recorder(tmp_path / "run", background=True) as threaded:
        threaded.event(start(clocks=CLOCKS))
        threaded.open_trace(METER, CORE, 0)
        yield threaded


@pytest.fixture
def disk(monkeypatch: Patch) -> Iterator[threading.Event]:
    """A disk on which each write to an Arrow file waits until the event is set."""
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


def test_a_blocked_disk_delays_nothing_and_loses_nothing(threaded: Recorder, disk: threading.Event) -> None:
    for k in range(5):
        threaded.chunk(readings(100 * k, 100), k)
        threaded.flush()
    assert announced(threaded.path) == []
    disk.set()
    threaded.stop()
    run = rig.open_run(threaded.path)
    assert announced(threaded.path) == [(100, k) for k in range(5)]
    assert run.traces["core"].value.tolist() == list(range(500))
    # how full the buffer was, in seconds of readings
    assert [e.waiting_s for e in run.of_type(ChunkArrived)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])


def test_a_slow_disk_ends_the_run_without_loss(threaded: Recorder, disk: threading.Event, monkeypatch: Patch) -> None:
    monkeypatch.setattr("rig.recording.traces.readings.HOLDS_BYTES", 4 * 1000)
    with pytest.raises(DiskTooSlowError, match=r"1\.2 s of rail core") as caught:
        for k in range(20):
            threaded.chunk(readings(100 * k, 100), k)
            threaded.flush()
    threaded.chunk(readings(1200, 100), 12)  # the meter's last readings when it was stopped
    disk.set()
    threaded.stop(caught.value)
    run = rig.open_run(threaded.path)
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


def test_a_meter_may_reuse_its_buffer(tmp_path: Path, disk: threading.Event) -> None:
    bench = Bench(rig.blocking(lambda sample: None), (Ring(disk),), HostClock())
    record(tmp_path / "run", bench, blank(1), [rig.Mark(), rig.Mark(), rig.Mark()], scenario={"name": "ring"}, argv=[])
    trace = rig.open_run(tmp_path / "run").traces["core"]
    assert trace.value.tolist() == trace.end_tick.tolist() == list(range(0, 500_000, 1000))


def test_an_error_of_the_writer_thread_is_raised_next(threaded: Recorder, monkeypatch: Patch) -> None:
    threaded.chunk(readings(0, 10), 0)
    threaded.settle()
    monkeypatch.setattr(Hashed, "write", raising(OSError(28, "No space left on device")))
    threaded.chunk(readings(10, 10), 1)
    raised(StoreError, threaded.settle, says="No space left")
    monkeypatch.undo()
    threaded.chunk(readings(20, 10), 2)  # later readings would leave a gap, and are not written
    threaded.stop()
    assert announced(threaded.path) == [(10, 0)]
    assert rig.open_run(threaded.path).traces["core"].value.tolist() == list(range(10))


def test_a_run_without_a_thread_keeps_its_data(tmp_path: Path, disk: threading.Event, monkeypatch: Patch) -> None:
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


def test_waiting_chunks_are_joined_into_small_batches(threaded: Recorder, disk: threading.Event) -> None:
    import pyarrow as pa

    for k in range(20):
        threaded.chunk(rig.Chunk("core", np.full(BATCH // 8, k, np.float32)), k)
    disk.set()
    threaded.stop()
    with pa.ipc.open_stream(threaded.path / "traces" / "core.arrows") as reader:
        rows = [batch.num_rows for batch in reader]
    assert sum(rows) == 20 * (BATCH // 8)
    assert max(rows) <= BATCH
    assert len(rows) < 10


def test_files_are_hashed_during_writing(threaded: Recorder, monkeypatch: Patch) -> None:
    read: list[str] = []

    def counted(folder: Folder, name: str) -> Opened:
        read.append(name)
        return Opened(folder, name)

    monkeypatch.setattr("rig.recording.writer.Opened", counted)
    threaded.chunk(readings(0, 1000), 1)
    threaded.stop()
    assert "traces/core.arrows" not in read
    trace = threaded.path / "traces" / "core.arrows"
    stop = rig.open_run(threaded.path).stop
    assert stop is not None and stop.files["traces/core.arrows"] == hashlib.sha256(trace.read_bytes()).hexdigest()


def test_a_file_removed_during_recording_is_reported(threaded: Recorder) -> None:
    threaded.chunk(readings(0, 100), 1)
    threaded.settle()
    (threaded.path / "traces" / "core.arrows").unlink()
    raised(StoreError, threaded.stop, says=r"traces/core\.arrows was removed")
    run = rig.open_run(threaded.path)
    assert run.sealed
    assert run.error is not None and "was removed" in run.error.message


# ---- a full disk, or a limit of the process ----------------------------------------------------

RUN = """
import resource, sys
from pathlib import Path
{limits}
from rig.commands.shell.main import main
sys.exit(main(["measure", "--device", "mock", "--mode", "together", "--out", sys.argv[1], "--json",
    *(w for t in sys.argv[2:] for w in ("--option", t))]))
"""
PATIENCE_S = 600.0
"""Only a broken program makes a test wait this long."""
KIB = 300
"""Room for about half of a run."""
OPTIONS = ("idle_s=2", "workload.samples=60", "rate_hz=20000")


def measured(path: Path, limits: str = "", *more: str) -> subprocess.CompletedProcess[str]:
    """Measure in a separate process under limits."""
    return python(RUN.format(limits=limits), path, *OPTIONS, *more, timeout=PATIENCE_S)


def ended_well(path: Path, done: subprocess.CompletedProcess[str]) -> None:
    """Check that one typed line is told and no traceback, and the recording ends with the error."""
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == StoreError.exit_code, done.stderr
    assert "`rig report` reads it" in done.stderr
    run = open_run(path)
    assert run.error is not None and run.error.error == "StoreError"
    assert run.sealed
    assert not (path / ROOM).exists()


@pytest.fixture(scope="module")
def small_disk() -> list[str]:
    """The command that gives a program its own file system in memory."""
    probe = ["unshare", "-Urm", "true"]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("this system permits no mount namespace of one's own (unshare -Urm)")
    return ["unshare", "-Urm", "sh", "-c"]


def test_a_full_disk_is_a_typed_error(small_disk: list[str], tmp_path: Path) -> None:
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    argv = [sys.executable, "-c", RUN.format(limits=""), str(disk / "run"), *OPTIONS]
    script = f'mount -t tmpfs -o size={KIB}k none {disk} && "$@"; code=$?; cp -r {disk}/run {kept}; exit $code'
    words = [*small_disk, script, "sh", *argv]
    ended_well(kept, subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False))


def test_a_file_size_limit_is_a_typed_error(tmp_path: Path) -> None:
    done = measured(tmp_path / "run", f"resource.setrlimit(resource.RLIMIT_FSIZE, ({KIB << 10}, {KIB << 10}))")
    ended_well(tmp_path / "run", done)


def test_an_open_file_limit_is_a_typed_error(tmp_path: Path) -> None:
    few = "import rig.engine.record, rig.session.measure, rig.session.report, fixtures.bench.mock_meter\n"
    few += "resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6))"
    done = measured(tmp_path / "run", few)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode not in (0, 1), done.stderr


# ---- each write that can fail, one by one ---------------------------------------------------


def fill(recorder: Recorder) -> None:
    """Record replies and samples until something fails."""
    for k in range(200):
        recorder.sample(Sample(f"s{k}", np.zeros(4), keep=k % 50 == 0))
        recorder.reply(k, Reply(f"s{k}", "x", (Span("inference", k, k + 1),)), None, k, k + 2)
        recorder.flush()


@pytest.mark.parametrize("limit", range(2_000, 60_000, 5_300))
def test_a_failed_write_leaves_only_whole_batches(tmp_path: Path, limit: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    recorder = Recorder(tmp_path / "run")
    recorder.event(start())
    error: RigError | None = None
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        fill(recorder)
    except StoreError as caught:
        error = caught
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error is not None
    recorder.stop(error)
    run = open_run(tmp_path / "run")
    assert run.error is not None
    assert run.replies["issue"].to_pylist() == list(range(run.replies.num_rows))
