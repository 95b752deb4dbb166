"""The queue to the device: schedules are kept while it is busy, queues are exact, and failures lose nothing.

The engine plays a scenario's steps in order. It writes rows, drains meters and reads clocks where this costs no time.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace as changed
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from fixtures.bench.mock_device import SETTLE_S, open_device
from fixtures.bench.mock_meter import open_meter
from fixtures.bench.true_power import SimPlant, open_plant
from fixtures.worlds.random_draw import blank
from rig.engine.acquisition import Bench
from rig.engine.play_steps import collect
from rig.engine.record import environment, start_document
from rig.errors import DeviceError, DeviceTimeoutError, Ended, Interrupted, SetupError
from rig.network.description import Layer, NetworkInfo
from rig.recording.events import Brackets, ChunkArrived, IdleWindow, MarkPulses
from rig.recording.reader import Run, open_run
from rig.types import ClockInfo, Device, Idle, Issue, Mark, Meter, Reply, Step
from scenarios.rules import quick
from scenarios.server import server
from tests.support.ended_runs import before
from tests.support.serving import MS, Blank, Log, Queue, S, bench, due, played, rows, samples, since_due, submitted
from tests.support.toy_bench import Looping, Toy, Witness, watched

# ---- the queue is the one that theory knows ------------------------------------------------

SERVICE_S = 0.01 + SETTLE_S


def served(load: float, n: int) -> Run:
    """Return a Server run on the plant, one sample at a time, without delays of the link."""
    plant = open_plant()
    device = open_device(plant, inference_s=0.01, device_forward_s=0, device_back_s=0, device_jitter_s=0, marks=False)
    rules = changed(quick("server"), min_queries=n, min_duration_s=0.0)
    with played(device, server(blank(20), rules, arrival_hz=load / SERVICE_S, warmup=0), plant) as run:
        return run


@pytest.mark.parametrize(("load", "n"), [(0.5, 2000), (0.9, 4000)])
def test_server_latencies_match_lindley_and_queueing_theory(load: float, n: int) -> None:
    run = served(load, n)
    arrival_ns, done_ns = (run.replies[c].to_numpy() for c in ("due_ns", "completed_ns"))
    free_ns, lindley = 0, []
    for at_ns in arrival_ns.tolist():
        free_ns = max(at_ns, free_ns) + round(SERVICE_S * S)
        lindley.append(free_ns - at_ns)
    latency_ns = done_ns - arrival_ns
    assert len(latency_ns) == n
    assert np.max(np.abs(latency_ns - np.array(lindley))) <= 1

    means_s = latency_ns[: n - n % 10].reshape(10, -1).mean(axis=1) / S
    pollaczek_khinchine_s = SERVICE_S * (1.0 + load / (2.0 * (1.0 - load)))
    error_s = float(np.std(means_s, ddof=1)) / np.sqrt(10)
    assert abs(means_s.mean() - pollaczek_khinchine_s) < 4.0 * error_s


arrivals = st.lists(st.integers(0, 300), min_size=1, max_size=40).map(lambda gaps: np.cumsum([0, *gaps[1:]]) / 1000.0)


@given(at_s=arrivals, seconds=st.sampled_from([0.001, 0.05, 0.1, 0.2]), batch=st.integers(1, 5),
       holds=st.none() | st.integers(1, 6))  # fmt: skip
def test_any_queue_keeps_order_limits_and_schedule(
    at_s: Sequence[float], seconds: float, batch: int, holds: int | None
) -> None:
    plant, device = bench(seconds, batch=batch, holds=holds)
    with played(device, due(list(at_s)), plant) as run:
        found = rows(run, "issue", "sample_id", "due_ns", "issued_ns", "completed_ns")
        assert run.stop is not None and run.stop.issues == run.stop.replies == len(at_s)
    first_ns = min(row[2] for row in found)
    asked = [f"s{k}" for k in range(len(at_s))]
    assert [name for together in submitted(device) for name in together] == asked
    assert sorted((row[0], row[1]) for row in found) == list(enumerate(asked))
    assert [row[2] - first_ns for row in sorted(found)] == [round(t * S) for t in at_s]
    for _, _, together, held in device.log:
        assert len(together) <= min(batch, holds or batch)
        assert held <= (holds or len(together))
    answers_ns = {row[4] for row in found}
    for _, _, due_ns, issued_ns, completed_ns in found:
        assert issued_ns == due_ns or (issued_ns > due_ns and issued_ns in answers_ns)
        assert completed_ns >= issued_ns + round(seconds * S)


# ---- what is handed over when --------------------------------------------------------------


FIVE_S = [0.0, 0.01, 0.02, 0.03, 0.04]


@pytest.mark.parametrize(
    ("steps", "batch", "holds", "groups", "issued_s"),
    [
        (due([0.0] * 7), 3, 20, [3, 3, 1], [0.0] * 7),
        ([Issue(samples(5), due_ns=0)], 3, None, [3, 2], [0.0, 0.0, 0.0, 0.1, 0.1]),
        (due(FIVE_S), 2, None, [1, 2, 2], [0.0, 0.1, 0.1, 0.2, 0.2]),
        (due(FIVE_S), 1, 3, [1] * 5, [0.0, 0.01, 0.02, 0.1, 0.2]),
    ],
    ids=["due together", "one step of many", "a device that does not say what it holds", "one that holds three"],
)
def test_what_is_due_is_handed_over_in_batches(
    steps: list[Step], batch: int, holds: int | None, groups: list[int], issued_s: list[float]
) -> None:
    plant, device = bench(0.1, batch=batch, holds=holds)
    with played(device, steps, plant) as run:
        assert [len(together) for together in submitted(device)] == groups
        assert since_due(run, "issued_ns") == pytest.approx(issued_s)


def test_samples_are_loaded_before_they_are_due() -> None:
    plant, device = bench(0.01, stage_s=0.05)
    with played(device, due([0.0, 0.1, 0.2]), plant) as run:
        assert since_due(run, "issued_ns") == [0.0, 0.1, 0.2]


def test_repeated_samples_are_answered_oldest_first() -> None:
    (one,) = samples(1)
    plant, device = bench(0.1, holds=3)
    with played(device, due([0.0, 0.02, 0.04], [one] * 3), plant) as run:
        found = rows(run, "issue", "output", "issued_ns", "completed_ns")
    start_ns = found[0][2]
    assert [(k, out, (i - start_ns) // MS, (c - start_ns) // MS) for k, out, i, c in found] == [
        (0, "0", 0, 100), (1, "1", 20, 200), (2, "2", 40, 300),
    ]  # fmt: skip


def test_warm_up_does_not_shift_a_schedule() -> None:
    warm = [Issue([s], warmup=True) for s in samples(3)]
    for steps in (due([0.0, 0.5]), [*warm, Idle(0.3), *due([0.0, 0.5])]):
        plant, device = bench(0.1)
        with played(device, steps, plant) as run:
            kept = [row for row in rows(run, "warmup", "due_ns", "issued_ns", "completed_ns") if not row[0]]
        first_ns = kept[0][1]
        assert [(d - first_ns, i - d, c - d) for _, d, i, c in kept] == [(0, 0, S // 10), (S // 2, 0, S // 10)]


def test_warm_up_issues_of_a_schedule_are_recorded() -> None:
    plant, device = bench(0.1)
    with played(device, [*due([0.0, 0.1], warmup=True), *due([0.2])], plant) as run:
        assert rows(run, "warmup") == [(True,), (True,), (False,)]


@pytest.mark.parametrize("then", [Idle(1.0), Mark(), Issue(samples(1))])
def test_a_step_outside_the_schedule_waits_for_pending_samples(then: Step) -> None:
    plant, device = bench(1.0, holds=2)
    with played(device, [*due([0.0, 0.0, 0.1]), then], plant, (open_meter(plant),)) as run:
        last_ns = max(c for d, c in rows(run, "due_ns", "completed_ns") if d is not None)
        idle = [e.on_ns for e in run.of_type(IdleWindow)]
        marks = [e.rows[0][0] for e in run.of_type(Brackets) if e.why == "mark"]
        issued = [i for d, i in rows(run, "due_ns", "issued_ns") if d is None]
        assert len([*idle, *marks, *issued]) == 1
        assert min([*idle, *marks, *issued]) >= last_ns


# ---- drops ---------------------------------------------------------------------------------


def test_a_drop_has_only_a_due_time() -> None:
    plant, device = bench(1.0)
    with played(device, due([0.0, 0.1, 0.2, 0.3], queue=2), plant) as run:
        table = run.replies.sort_by("issue").to_pylist()
        first_ns = table[0]["due_ns"]
        assert run.stop is not None and (run.stop.issues, run.stop.replies) == (4, 2)
    assert [row["issued_ns"] is None for row in table] == [False, False, True, True]
    for k in (2, 3):
        given_ = {name: value for name, value in table[k].items() if value is not None}
        assert given_ == {"issue": k, "sample_id": f"s{k}", "due_ns": first_ns + k * S // 10, "warmup": False}
    assert submitted(device) == [("s0",), ("s1",)]


def test_an_answer_at_the_due_time_makes_room() -> None:
    plant, device = bench(0.5)
    with played(device, due([k * 0.5 for k in range(20)], queue=1), plant) as run:
        assert None not in run.replies["issued_ns"].to_pylist()


# ---- a host that is late -------------------------------------------------------------------


@pytest.mark.parametrize("queue", [None, 2])
def test_a_slow_host_drops_no_sample(queue: int | None) -> None:
    """Loading takes twice the gap: each answer comes long before the next sample is issued."""
    plant, device = bench(0.001, stage_s=0.02)
    with played(device, due([k * 0.01 for k in range(50)], queue=queue), plant) as run:
        assert None not in run.replies["issued_ns"].to_pylist()
        wait_s = np.array(since_due(run, "completed_ns")) - np.array(since_due(run, "issued_ns"))
    assert wait_s.max() <= 0.021


# ---- meters --------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "stage_s", "gap_s"), [(0.045, 0.0, 0.05), (0.3, 0.0, 0.05), (0.001, 0.06, 0.05)])
def test_meters_are_drained_in_a_long_open_loop(seconds: float, stage_s: float, gap_s: float) -> None:
    """A device that keeps up, one that does not, and a host that does not."""
    log: Log = []
    plant, device = bench(seconds, stage_s=stage_s, timeout_s=1e3)
    meter = watched(open_meter(plant), plant.clock, log)
    n = round(30.0 / gap_s)
    with played(device, due([k * gap_s for k in range(n)]), plant, (meter,)) as run:
        read_s = [e[1] / S for e in log if e[0] == "read"]
        assert max(b - a for a, b in pairwise(read_s)) <= 5.0  # half of its buffer
        readings = len(run.traces["core"].value)
        assert readings == sum(e.readings for e in run.of_type(ChunkArrived))
        assert readings == pytest.approx(1000.0 * (read_s[-1] - read_s[0]), rel=1e-4, abs=2)


@pytest.mark.parametrize("steps", [[Issue(samples(1))], due([0.0])])
def test_the_network_of_an_answer_is_recorded_without_counters(steps: list[Step]) -> None:
    own = NetworkInfo((Layer("output", 2),), (), ())

    plant, device = bench()
    poll = device.poll
    device.poll = lambda timeout_s: [replace(r, network=own) for r in poll(timeout_s)]  # type: ignore[method-assign]
    with played(device, steps, plant) as run:
        assert run.networks() == {"s0": own}


# ---- how it ends ---------------------------------------------------------------------------


def failing(after_s: float, error: BaseException) -> tuple[SimPlant, Queue]:
    """Return a plant, and a device that raises an error when it is polled after ``after_s``."""
    plant, device = bench(0.3)
    until_ns = plant.clock.now_ns() + round(after_s * S)

    def fail() -> None:
        if plant.clock.now_ns() >= until_ns:
            raise error

    return plant, before(device, "poll", fail)


def left_over(run: Run, at_s: Sequence[float]) -> None:
    """Check that every sample due until the end is recorded: first answered, then issued, then waiting ones."""
    table = run.replies.sort_by("issue").to_pylist()
    first_ns = table[0]["due_ns"]
    assert [row["issue"] for row in table] == list(range(len(table)))
    states = [(row["issued_ns"] is None, row["completed_ns"] is None) for row in table]
    assert states == sorted(states)
    assert {(False, False), (False, True), (True, True)} == set(states)
    ended_ns = max(t for row in table for t in (row["due_ns"], row["issued_ns"], row["completed_ns"]) if t is not None)
    assert len(table) >= sum(first_ns + round(t * S) <= ended_ns for t in at_s)
    assert [row["due_ns"] - first_ns for row in table] == [round(t * S) for t in at_s[: len(table)]]


@pytest.mark.parametrize("holds", [None, 2])
def test_a_hung_device_leaves_every_sample_accounted_for(holds: int | None) -> None:
    at_s = [k * 0.25 for k in range(40)]
    plant, device = bench(0.2, lost=range(4, 99), holds=holds, timeout_s=1.0)
    with played(device, due(at_s), plant, raises=DeviceTimeoutError) as run:
        assert run.error is not None and run.error.exit_code == 21
        left_over(run, at_s)


@pytest.mark.parametrize(("error", "becomes"), [(KeyboardInterrupt(), Interrupted), (OSError("x"), DeviceError)])
def test_a_failed_open_loop_accounts_for_each_sample(error: BaseException, becomes: type[Ended]) -> None:
    plant, device = failing(1.0, error)
    at_s = [k * 0.1 for k in range(40)]
    with played(device, due(at_s), plant, raises=becomes) as run:
        left_over(run, at_s)


def test_a_device_busy_with_held_samples_does_not_hang() -> None:
    plant, device = bench(1.0, holds=6, timeout_s=1.5)
    with played(device, due([0.0] * 6), plant) as run:
        assert since_due(run, "completed_ns") == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_one_lost_answer_ends_the_run() -> None:
    plant, device = bench(0.1, holds=4, lost=[3], timeout_s=2.0)
    with played(device, due([k * 0.2 for k in range(30)]), plant, raises=DeviceTimeoutError) as run:
        assert [name for name, at in rows(run, "sample_id", "completed_ns") if at is None] == ["s3"]


@pytest.mark.parametrize("steps", [due([0.0]), [Issue(samples(1))], [Issue(samples(1)), Issue(samples(1))]])
def test_an_answer_after_the_timeout_is_too_late(steps: list[Any]) -> None:
    plant, device = bench(1.5, timeout_s=1.0)
    with played(device, steps, plant, raises=DeviceTimeoutError) as run:
        assert set(run.replies["completed_ns"].to_pylist()) == {None}


@pytest.mark.parametrize(("answer", "says"), [
    (Reply("ghost", None), "'ghost', which was not issued"),
    (Reply("s0", None, ((1, 2),)), "hold a tuple, not a Span"),  # type: ignore[arg-type]
    ("s0", "gave a str, not a Reply"),
])  # fmt: skip
def test_a_wrong_answer_ends_the_run_by_name(answer: Any, says: str) -> None:
    plant, device = bench()
    poll = device.poll
    device.poll = lambda timeout_s: [answer for _ in poll(timeout_s)]  # type: ignore[method-assign]
    with played(device, due([0.0, 0.05]), plant, raises=DeviceError) as run:
        assert run.error is not None and says in run.error.message
        assert rows(run, "sample_id", "completed_ns") == [("s0", None), ("s1", None)]


# ---- a scenario's steps ------------------------------------------------------------------------

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


def test_a_capable_device_pulses_at_each_mark(play: Play, plant: SimPlant) -> None:
    run, _ = play(open_device(plant), [Mark(), Idle(1.0), Mark()], [], (open_meter(plant, rate_hz=100.0),))
    marks = run.of_type(MarkPulses)
    assert len(marks) == 2
    widths = [(off - on) / 12.5e6 for on, off in marks[0].spans]
    assert len(widths) == 12
    assert min(widths) >= 2.0 / 100.0 - 1e-4
    assert len({round(w, 3) for w in widths}) > 1


def test_clocks_are_read_periodically(play: Play, plant: SimPlant) -> None:
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


def test_only_an_almost_full_meter_is_drained_in_spans(play: Play, plant: SimPlant) -> None:
    log: Log = []
    play(Toy(plant.clock, log, seconds=30.0), [Issue(samples(1))], log, (watched(open_meter(plant), plant.clock, log),))
    inside = log[log.index(("submit", "s0")) + 1 : log.index(("reply", "s0"))]
    assert {e[0] if e != ("event", "chunk") else "chunk" for e in inside} == {"read", "chunk", "flush"}
    read_s = [e[1] / S for e in log if e[0] == "read"]
    assert max(b - a for a, b in pairwise(read_s)) <= 5.0  # half of its buffer


def test_readings_of_a_long_issue_are_written_promptly(play: Play, plant: SimPlant) -> None:
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
def test_meters_are_drained_during_a_run(play: Play, plant: SimPlant, steps: list[Step], gap_s: float) -> None:
    log: Log = []
    run, _ = play(Toy(plant.clock, log), steps, log, (watched(open_meter(plant), plant.clock, log),))
    read_s = [e[1] / S for e in log if e[0] == "read"]
    assert max(b - a for a, b in pairwise(read_s)) <= gap_s + 1e-3
    assert sum(e.readings for e in run.of_type(ChunkArrived)) == len(run.traces["core"].value) > 8990


def test_reading_clocks_delays_no_due_sample(play: Play, plant: SimPlant) -> None:
    slow: dict[str, Any] = {"device_forward_s": 0.02, "device_back_s": 0.02}
    steps = [Issue([s], due_ns=k * S) for k, s in enumerate(samples(30))]
    run, _ = play(open_device(plant, marks=False, **slow), [Mark(), *steps], [], (open_meter(plant),))
    assert max(issued - due for due, issued in rows(run, "due_ns", "issued_ns")) == 0


def test_a_looping_device_is_asked_once(play: Play, plant: SimPlant) -> None:
    log: Log = []
    run, _ = play(Looping(plant.clock, log), [Issue(samples(1), repeat=5), Issue(samples(1), phase="inference")], log)
    assert [e for e in log if e[0] == "loop"] == [("loop", 5, None), ("loop", 1, "inference")]
    assert len(rows(run, "issue")) == 2


def test_a_device_without_a_loop_is_asked_repeatedly(play: Play, plant: SimPlant) -> None:
    log: Log = []
    run, _ = play(Toy(plant.clock, log), [Issue(samples(2), repeat=3)], log)
    assert [e[1] for e in log if e[0] == "submit"] == ["s0"] * 3 + ["s1"] * 3
    assert rows(run, "issue", "sample_id")[2:4] == [(2, "s0"), (3, "s1")]


def test_a_device_without_a_loop_cannot_run_one_phase_alone(play: Play, plant: SimPlant) -> None:
    with pytest.raises(SetupError, match="cannot run the phase 'inference' alone"):
        play(Toy(plant.clock, []), [Issue(samples(1), phase="inference")], [])


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_an_impossible_idle_window_is_refused(play: Play, plant: SimPlant, seconds: float) -> None:
    with pytest.raises(SetupError, match="idle window"):
        play(Toy(plant.clock, []), [Idle(seconds)], [])


def test_a_device_may_use_the_host_clock(play: Play, plant: SimPlant) -> None:
    run, _ = play(Toy(plant.clock, []), [Mark(), Issue(samples(1))], [], (open_meter(plant),))
    assert {e.clock for e in run.of_type(Brackets)} == {"meter"}
    assert run.clocks()["host"] == ClockInfo("host", 1e9, 0.0)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_of_the_source_is_read_without_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
