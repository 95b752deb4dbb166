"""The steps of scenarios: schedules as declared, runs that are long enough, and a stream that drops."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import kstest

from fixtures.bench.mock_device import SETTLE_S, open_device
from fixtures.bench.true_power import open_plant
from rig.analysis.evaluate import evaluate
from rig.analysis.result.result import Result
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.errors import UsageError
from rig.recording.reader import open_run
from rig.types import Idle, Issue, Mark, Rules, Sample, SampleSet, Step
from scenarios.lazy_samples import Lazy
from scenarios.offline import offline
from scenarios.real_time import real_time
from scenarios.rules import quick
from scenarios.server import server
from scenarios.single_stream import single_stream
from scenarios.workloads.asc.workload import AscWorkload, open_workload
from tests.support.raised import raised
from tests.support.serving import Blank, bench, played, samples

FREE = Rules("test", "any", "a test", submittable=False, idle_s=1.0, warmup=1)


def issues(steps: Iterator[Step]) -> list[Issue]:
    return [step for step in steps if isinstance(step, Issue) and not step.warmup]


# ---- every scenario ------------------------------------------------------------------------

EVERY: dict[str, Callable[..., Iterator[Step]]] = {
    "single-stream": single_stream,
    "offline": offline,
    "server": server,
    "real-time": real_time,
}


@pytest.fixture(scope="module")
def scenes() -> AscWorkload:
    return open_workload(samples=8, audio_hz=1000)


@pytest.mark.parametrize("name", EVERY)
def test_work_lies_between_idle_windows_and_marks(name: str, scenes: AscWorkload) -> None:
    steps = list(EVERY[name](scenes, replace(FREE, min_duration_s=0.0), warmup=2, idle_s=0.5))
    kinds = [type(s) if not (isinstance(s, Issue) and s.warmup) else "warm" for s in steps]
    assert kinds[:4] == [Mark, "warm", "warm", Idle]
    assert kinds[-2:] == [Idle, Mark]
    assert set(kinds[4:-2]) == {Issue}
    assert [s.seconds for s in steps if isinstance(s, Idle)] == [0.5, 0.5]


@pytest.mark.parametrize("name", EVERY)
def test_default_idle_and_warm_up_follow_the_rules(name: str, scenes: AscWorkload) -> None:
    for warmup in (0, 3):
        steps = list(EVERY[name](scenes, replace(FREE, idle_s=1.5, warmup=warmup)))
        assert {s.seconds for s in steps if isinstance(s, Idle)} == {1.5}
        assert sum(isinstance(s, Issue) and s.warmup for s in steps) == warmup


@pytest.mark.parametrize("name", EVERY)
def test_an_accuracy_run_asks_every_sample_once_in_order(name: str, scenes: AscWorkload) -> None:
    rules = replace(FREE, min_queries=1000, min_duration_s=50.0)
    asked = issues(EVERY[name](scenes, rules, purpose="accuracy"))
    assert [s.id for issue in asked for s in issue.samples] == [s.id for s in scenes.samples]
    assert {issue.due_ns for issue in asked} == {None}


@pytest.mark.parametrize("name", ["offline", "server"])
def test_nothing_is_decoded_during_the_run(name: str) -> None:
    """The generator is asked for its next step in the middle of a run, when no meter is drained."""
    workload, decoded = Blank(), list[str]()

    def decode(sample: Sample) -> Sample:
        decoded.append(sample.id)
        return sample

    workload.samples = Lazy(samples(9), decode)
    steps = EVERY[name](workload, FREE, warmup=0)
    before = len(decoded)
    list(steps)
    assert len(decoded) == before >= 9


def test_no_frame_is_cut_once_the_stream_has_begun(scenes: AscWorkload) -> None:
    """Cutting takes longer than a quick device, whose answer would wait for the host."""
    loads: list[str] = []

    def load(part: Any) -> Any:
        loads.append(part.id)
        return scenes.load(part)

    steps = real_time(replace(scenes, load=load), FREE, stream_s=6.0, warmup=0)
    before = len(loads)
    assert len(issues(steps)) == 11
    assert len(loads) == before > 0


# ---- Server --------------------------------------------------------------------------------


def schedule(seconds: float = 60.0, least: int = 1, **options: Any) -> tuple[list[float], list[str]]:
    rules = replace(FREE, min_duration_s=seconds, min_queries=least, warmup=0)
    found = issues(server(Blank(7), rules, **options))
    assert all(len(issue.samples) == 1 for issue in found)
    return [issue.due_ns * 1e-9 for issue in found if issue.due_ns is not None], [i.samples[0].id for i in found]


def test_the_seed_determines_the_schedule() -> None:
    assert schedule(arrival_seed=3) == schedule(arrival_seed=3)
    assert schedule(arrival_seed=3)[0] != schedule(arrival_seed=4)[0]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("rate_hz", [0.5, 200.0])
def test_gaps_are_exponential(seed: int, rate_hz: float) -> None:
    due_s, _ = schedule(5000.0 / rate_hz, arrival_hz=rate_hz, arrival_seed=seed)
    assert kstest(np.diff(due_s) * rate_hz, "expon").pvalue > 0.01
    assert len(due_s) == pytest.approx(5000.0, abs=4.0 * np.sqrt(5000.0))


def test_samples_are_drawn_at_random_with_replacement() -> None:
    _, names = schedule(7000.0 / 10.0, arrival_hz=10.0)
    counts = np.array([names.count(f"s{k}") for k in range(7)])
    assert abs(counts - len(names) / 7).max() < 4.0 * np.sqrt(len(names) / 7)


@settings(max_examples=40)
@given(
    seconds=st.sampled_from([0.0, 0.3, 10.0]), least=st.integers(1, 3000), rate_hz=st.sampled_from([0.3, 10.0, 500.0])
)
def test_a_schedule_is_just_long_enough_for_the_rules(seconds: float, least: int, rate_hz: float) -> None:
    due_s, _ = schedule(seconds, least, arrival_hz=rate_hz)
    assert due_s[0] == 0.0
    assert due_s == sorted(due_s)
    assert len(due_s) >= least
    assert due_s[-1] >= seconds
    assert len(due_s) == max(least, 1) or due_s[-2] < seconds


def test_a_stated_duration_replaces_the_rules() -> None:
    assert 5.0 <= schedule(60.0, duration_s=5.0)[0][-1] < 10.0


# ---- long enough, by the host's clock ------------------------------------------------------


@pytest.mark.parametrize("name", ["single-stream", "offline"])
@pytest.mark.parametrize("stage_s", [0.0, 0.03])
@pytest.mark.parametrize("n", [1, 10])
def test_a_run_lasts_as_the_rules_ask_up_to_its_last_answer(name: str, stage_s: float, n: int) -> None:
    """Loading comes before the first issue, so it is in no figure."""
    plant, device = bench(0.001, stage_s=stage_s)
    rules = replace(FREE, min_duration_s=2.0, min_queries=5)
    with played(device, EVERY[name](Blank(n), rules, clock=plant.clock), plant) as run:
        kept = [row for row in run.replies.to_pylist() if not row["warmup"]]
    lasted_ns = max(row["completed_ns"] for row in kept) - min(row["issued_ns"] for row in kept)
    assert lasted_ns >= 2_000_000_000
    assert lasted_ns < 2_700_000_000
    assert len(kept) % n == 0


def test_offline_issues_the_whole_set_at_once() -> None:
    sizes = {n: [len(i.samples) for i in issues(EVERY[n](Blank(5), FREE))] for n in ("offline", "single-stream")}
    assert sizes == {"offline": [5], "single-stream": [1] * 5}


def test_learning_sessions_keep_their_order() -> None:
    known = [replace(sample, learn=k == 1) for k, sample in enumerate(samples(3))]
    teaches = SampleSet("words", "a task", "1", "0" * 64, known, {"incremental": 1})
    for name in ("offline", "single-stream"):
        assert [s.id for i in issues(EVERY[name](teaches, FREE)) for s in i.samples] == [s.id for s in known]
    raised(UsageError, server, teaches, FREE, says="the scenario server does not play its samples in their order")
    raised(UsageError, single_stream, teaches, FREE, says="--per-phase does not play", apart=True)
    frozen = replace(teaches, samples=samples(3))
    assert issues(server(frozen, FREE)) and issues(single_stream(frozen, FREE, phases=("a", "b"), apart=True))


# ---- Real-time -----------------------------------------------------------------------------


def heard(path: Path, seconds: float, scenes: AscWorkload, **options: Any) -> Result:
    """Play the stream to a device that takes ``seconds`` for each frame, on a link without delay."""
    plant = open_plant()
    links: dict[str, Any] = {"device_forward_s": 0, "device_back_s": 0, "device_jitter_s": 0}
    device = open_device(plant, inference_s=seconds - SETTLE_S, hit_rate=1.0, marks=False, **links)
    rules = quick("real-time")
    given_ = {"window_s": 1.0, "stride_s": 0.5, "scene_s": 4.0, "stream_s": 30.5, "deadline_s": None} | options
    scenario = {"name": "real-time", "options": given_}
    steps = real_time(scenes, rules, **given_)
    record(path, Bench(device, (), plant.clock), scenes, steps, scenario=scenario, rules=rules, argv=[])
    return evaluate(open_run(path))


def test_a_device_at_the_real_time_limit_keeps_up(tmp_path: Path, scenes: AscWorkload) -> None:
    result = heard(tmp_path / "run", 0.5, scenes)
    q = result.quantities
    assert (q["dropped_share"].value, q["backlog_max"].value, q["in_time_share"].value) == (0.0, 1.0, 1.0)
    assert q["latency_p99_s"].value == pytest.approx(0.5)
    assert result.verdict == "VALID"


@pytest.mark.parametrize(("queue", "dropped"), [(1, 0.5), (2, 0.375), (4, 0.375)])
def test_a_slow_device_drops_and_is_invalid(tmp_path: Path, scenes: AscWorkload, queue: int, dropped: float) -> None:
    """The device takes 0.8 s, and a frame is due each 0.5 s; with a queue of one it waits for the next due frame."""
    result = heard(tmp_path / "run", 0.8, scenes, queue=queue)
    q = result.quantities
    assert q["backlog_max"].value == queue
    assert q["dropped_share"].value == pytest.approx(dropped, abs=0.06)
    left_out = round(q["dropped_share"].value * q["dropped_share"].n)
    assert f"without {left_out} samples that were dropped" in q["accuracy"].method
    assert q["throughput_samples_hz"].value == pytest.approx(2.0 * (1.0 - dropped), rel=0.1)
    assert q["in_time_share"].value < 0.1
    assert result.validity is not None
    (share,) = [c for c in result.validity.checks if not c.ok]
    assert share.rule == "frames answered within 0.5 s"


def test_onset_latency_of_a_right_device_is_exact(tmp_path: Path, scenes: AscWorkload) -> None:
    """Changes at 4, 8, ... s of the stream; the first frame that ends in the new scene ends half a second later."""
    result = heard(tmp_path / "run", 0.2, scenes)
    q = result.quantities
    assert q["onset_latency_mean_s"].value == pytest.approx(0.7, abs=1e-6)
    assert q["onset_never_share"].value == 0.0
    changes, lost_s, first_s, end_s = 7, 0.7, 0.2, 30.5 + 0.2
    wrong_s = first_s + changes * lost_s
    assert q["stream_accuracy"].value == pytest.approx(1.0 - wrong_s / (end_s - 1.0), abs=1e-6)


def test_frames_are_due_one_stride_after_another(scenes: AscWorkload) -> None:
    steps = list(real_time(scenes, FREE, stride_s=0.3, stream_s=4.0, queue=2, idle_s=0.1))
    asked = issues(iter(steps))
    assert [step.seconds for step in steps if isinstance(step, Idle)] == [0.3, 0.3]
    assert [i.due_ns for i in asked] == [round(k * 0.3e9) for k in range(11)]
    assert {i.queue for i in asked} == {2}


def test_a_workload_that_is_no_stream_is_refused_except_for_compliance_which_asks_the_samples_it_is_given() -> None:
    raised(UsageError, real_time, Blank(3), FREE, says="blank is not a stream")
    assert len(issues(real_time(Blank(3), FREE, purpose="compliance"))) == 3
