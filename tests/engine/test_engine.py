"""The engine's treatment of a scenario's steps, and when it writes, drains and reads clocks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fixtures.bench.mock_device import open_device
from fixtures.bench.mock_meter import open_meter
from fixtures.bench.true_power import SimPlant
from rig.engine.acquisition import Bench
from rig.engine.collect import collect
from rig.engine.record import environment, start_document
from rig.errors import SetupError
from rig.recording.events import Brackets, ChunkArrived, MarkPulses
from rig.recording.reader import Run, open_run
from rig.types import ClockInfo, Device, Idle, Issue, Mark, Meter, Step
from tests.support.serving import Blank, Log, S, rows, samples
from tests.support.toy_bench import Looping, Toy, Witness, watched

Played = tuple[Run, Log]
Play = Callable[..., Played]


@pytest.fixture
def play(tmp_path: Path, plant: SimPlant) -> Play:
    """Play steps to a device; return the recording, read back, and the events in order."""

    def run(device: Device, steps: Iterable[Step], log: Log, meters: tuple[Meter, ...] = ()) -> Played:
        bench = Bench(device, meters, plant.clock)
        with Witness(tmp_path / "run", log) as recorder:
            recorder.event(start_document(bench, Blank(), "run", {"name": "by hand"}, []))
            collect(steps, bench, recorder)
        return open_run(tmp_path / "run"), log

    return run


def test_steps_are_played_in_order(play: Play, plant: SimPlant) -> None:
    log: Log = []
    one, two = samples(2)
    steps = [Issue([one]), Idle(0.5), Issue([two]), Issue([one])]
    run, _ = play(Toy(plant.clock, log), steps, log)
    did = [entry for entry in log if entry[0] in ("stage", "submit", "reply") or entry == ("event", "idle")]
    first, second = ([("stage", i), ("submit", i), ("reply", i)] for i in ("s0", "s1"))
    assert did == [*first, ("event", "idle"), *second, *first]
    assert rows(run, "issue", "sample_id", "warmup") == [(0, "s0", False), (1, "s1", False), (2, "s0", False)]
    assert run.samples["id"].to_pylist() == ["s0", "s1"]
    (on_ns, off_ns) = run.idle_windows_ns()[0]
    assert off_ns - on_ns == S // 2


def test_every_clock_is_read_many_times_at_each_mark(play: Play, plant: SimPlant) -> None:
    log: Log = []
    device, meter = open_device(plant, marks=False), open_meter(plant)
    run, _ = play(device, [Mark(), Idle(1.0), Mark()], log, (meter,))
    read = [(e.clock, e.why, len(e.rows)) for e in run.of_type(Brackets)]
    mark = [("device", "mark", 16), ("meter", "mark", 16)]
    assert read == [("meter", "trigger", 1), *mark, *mark]


def test_a_device_that_can_is_asked_to_pulse_at_each_mark(play: Play, plant: SimPlant) -> None:
    run, _ = play(open_device(plant), [Mark(), Idle(1.0), Mark()], [], (open_meter(plant, rate_hz=100.0),))
    marks = run.of_type(MarkPulses)
    assert len(marks) == 2
    widths = [(off - on) / 12.5e6 for on, off in marks[0].spans]
    assert len(widths) == 12
    assert min(widths) >= 2.0 / 100.0 - 1e-4
    assert len({round(w, 3) for w in widths}) > 1


def test_clocks_are_read_now_and_then_in_a_long_run(play: Play, plant: SimPlant) -> None:
    steps: list[Step] = [Mark(), Idle(20.0), *(Issue([s]) for s in samples(200)), Mark()]
    run, _ = play(open_device(plant, marks=False), steps, [], (open_meter(plant, rate_hz=100.0),))
    at_s = [e.rows[0][0] / S for e in run.of_type(Brackets) if e.clock == "device"]
    assert at_s[-1] - at_s[0] > 39.0
    assert max(b - a for a, b in pairwise(at_s)) < 5.5
    assert {(e.why, len(e.rows)) for e in run.of_type(Brackets)[3:-2]} == {("periodic", 2)}


def test_nothing_is_written_between_a_submission_and_its_reply(play: Play, plant: SimPlant) -> None:
    log: Log = []
    steps = [Issue([s]) for s in samples(30)]
    play(Toy(plant.clock, log, seconds=0.4), steps, log, (watched(open_meter(plant), plant.clock, log),))
    inside = False
    for entry in log:
        assert not (inside and entry[0] in ("event", "row", "flush", "read")), entry
        inside = entry[0] == "submit" or (inside and entry[0] != "reply")
    assert log.count(("flush",)) >= 30


def test_only_a_meter_about_to_overflow_is_drained_inside_a_span(play: Play, plant: SimPlant) -> None:
    log: Log = []
    play(Toy(plant.clock, log, seconds=30.0), [Issue(samples(1))], log, (watched(open_meter(plant), plant.clock, log),))
    inside = log[log.index(("submit", "s0")) + 1 : log.index(("reply", "s0"))]
    assert {e[0] if e != ("event", "chunk") else "chunk" for e in inside} == {"read", "chunk", "flush"}
    read_s = [e[1] / S for e in log if e[0] == "read"]
    assert max(b - a for a, b in pairwise(read_s)) <= 5.0  # half of its buffer


def test_readings_of_one_long_hand_over_do_not_wait_in_memory(play: Play, plant: SimPlant) -> None:
    log: Log = []
    meter = watched(open_meter(plant, rate_hz=100.0), plant.clock, log)
    play(Toy(plant.clock, log, seconds=50.0, batch=9), [Issue(samples(9))], log, (meter,))
    at = log.index(("submit", *(f"s{k}" for k in range(9))))
    inside = log[at : next(k for k, entry in enumerate(log) if entry[0] == "reply")]
    chunks = [k for k, entry in enumerate(inside) if entry == ("event", "chunk")]
    assert len(chunks) >= 10
    assert all(inside[k - 1] == ("flush",) for k in chunks)


@pytest.mark.parametrize(("steps", "gap_s"), [
    ([Idle(3.0), *(Issue([s]) for s in samples(30)), Idle(3.0)], 0.25 + 0.1),
    ([Issue(samples(1), repeat=300)], 5.0),  # half of its buffer
], ids=["one by one", "the rounds of a repeat"])  # fmt: skip
def test_meters_are_drained_as_a_run_goes(play: Play, plant: SimPlant, steps: list[Step], gap_s: float) -> None:
    log: Log = []
    run, _ = play(Toy(plant.clock, log), steps, log, (watched(open_meter(plant), plant.clock, log),))
    read_s = [e[1] / S for e in log if e[0] == "read"]
    assert max(b - a for a, b in pairwise(read_s)) <= gap_s + 1e-3
    assert sum(e.readings for e in run.of_type(ChunkArrived)) == len(run.traces["core"].value) > 8990


def test_reading_clocks_does_not_delay_what_is_due(play: Play, plant: SimPlant) -> None:
    slow: dict[str, Any] = {"device_forward_s": 0.02, "device_back_s": 0.02}
    steps = [Issue([s], due_ns=k * S) for k, s in enumerate(samples(30))]
    run, _ = play(open_device(plant, marks=False, **slow), [Mark(), *steps], [], (open_meter(plant),))
    assert max(issued - due for due, issued in rows(run, "due_ns", "issued_ns")) == 0


def test_a_device_that_loops_by_itself_is_asked_once(play: Play, plant: SimPlant) -> None:
    log: Log = []
    run, _ = play(Looping(plant.clock, log), [Issue(samples(1), repeat=5), Issue(samples(1), phase="inference")], log)
    assert [e for e in log if e[0] == "loop"] == [("loop", 5, None), ("loop", 1, "inference")]
    assert len(rows(run, "issue")) == 2


def test_a_device_without_a_loop_is_asked_as_often_as_it_takes(play: Play, plant: SimPlant) -> None:
    log: Log = []
    run, _ = play(Toy(plant.clock, log), [Issue(samples(2), repeat=3)], log)
    assert [e[1] for e in log if e[0] == "submit"] == ["s0"] * 3 + ["s1"] * 3
    assert rows(run, "issue", "sample_id")[2:4] == [(2, "s0"), (3, "s1")]


def test_a_device_without_a_loop_cannot_run_one_phase_alone(play: Play, plant: SimPlant) -> None:
    with pytest.raises(SetupError, match="cannot run the phase 'inference' alone"):
        play(Toy(plant.clock, []), [Issue(samples(1), phase="inference")], [])


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_an_idle_window_that_cannot_be_is_refused(play: Play, plant: SimPlant, seconds: float) -> None:
    with pytest.raises(SetupError, match="idle window"):
        play(Toy(plant.clock, []), [Idle(seconds)], [])


def test_a_device_may_live_by_a_clock_of_its_own_or_by_the_hosts(play: Play, plant: SimPlant) -> None:
    run, _ = play(Toy(plant.clock, []), [Mark(), Issue(samples(1))], [], (open_meter(plant),))
    assert {e.clock for e in run.of_type(Brackets)} == {"meter"}
    assert run.clocks()["host"] == ClockInfo("host", 1e9, 0.0)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_what_commit_the_source_is_of_is_read_without_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``git status`` locks its index to refresh it; if it is killed then, nobody could commit any more."""
    source = tmp_path / "rig" / "engine" / "record.py"
    source.parent.mkdir(parents=True)
    source.write_text("x")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    os.utime(source, (1, 1))  # an index that git would refresh
    before = (tmp_path / ".git" / "index").read_bytes()
    monkeypatch.setattr("rig.engine.record.__file__", str(source))
    assert environment.__wrapped__().dirty is False
    assert (tmp_path / ".git" / "index").read_bytes() == before
