"""Throughput, latency, backlog, drops and slip have the values of a hand-made list of queries. Early
stopping is LoadGen's; an interval from order statistics contains the truth as often as it claims. Streams are
sustained, flickering, never right, or right up to the end of a scene."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace
from numpy.typing import ArrayLike
from scipy.stats import binom, ks_2samp

from rig.analysis.result.order_statistics import interval, nearest_rank, percentile
from rig.analysis.result.proportion import proportion
from rig.analysis.result.quantity import Component
from rig.analysis.result.series import Stream
from rig.analysis.service import change_detection, serving
from rig.analysis.service.change_detection import change_figures, change_latencies_s, stream_accuracy, time_right
from rig.analysis.service.early_stopping import allowed, estimate, needed
from rig.analysis.service.queries import Queries, in_turn, queries_of
from rig.analysis.service.serving import NOT_SHOWN, batched_s, drawn_s, waited_s
from rig.analysis.verdict.recording_faults import without_number
from rig.types import Floats, Issue, Reply, Sample, Span
from tests.support.serving import Asked, S, bench, due, played, recording, samples

NAN = math.nan


def queries(
    due_s: ArrayLike, issued_s: ArrayLike, completed_s: ArrayLike, most: int | None = None,
    inferences: int = 1, executions: int = 1,
) -> Queries:  # fmt: skip
    n = len(np.asarray(due_s))
    zero = np.zeros(n, np.int64)
    return Queries(
        np.arange(n), zero, np.array(due_s, float), np.array(issued_s, float), np.array(completed_s, float),
        zero + executions, zero + inferences * executions, zero, ("null",), most,
    )  # fmt: skip


# ---- rates and latencies -------------------------------------------------------------------


@pytest.mark.parametrize(("last_s", "count"), [(4.0, 3), (NAN, 2)])
def test_throughput_covers_first_issue_to_last_answer(last_s: float, count: int) -> None:
    found = serving.throughput(queries([0.0, 1.0, 2.0], [0.0, 1.0, 2.0], [1.0, 4.0, last_s], inferences=10))
    assert found["duration_s"].value == 4.0
    assert found["throughput_samples_hz"].value == count / 4.0
    assert found["throughput_inferences_hz"].value == 10 * count / 4.0


def test_executions_of_a_loop_count_as_successive_samples() -> None:
    """MLPerf Tiny divides the time of a loop by its iterations; a loop with a due time is late as a whole."""
    closed = queries([NAN, NAN], [0.0, 1.0], [1.0, 2.0], inferences=3, executions=10)
    found = serving.throughput(closed)
    assert (found["throughput_samples_hz"].value, found["throughput_inferences_hz"].value) == (20 / 2.0, 60 / 2.0)
    assert found["throughput_samples_hz"].n == 2  # a loop counts as one independent value
    assert closed.latency_s().tolist() == [0.1, 0.1]
    assert queries([0.0], [0.0], [1.0], executions=10).latency_s().tolist() == [1.0]


def test_separate_phases_add_up_to_the_latency_of_a_sample() -> None:
    q = queries([NAN] * 4, [0.0, 6.0, 20.0, 22.0], [6.0, 12.0, 22.0, 24.0])
    found = serving.service_figures(q, apart=(np.array([0, 1]), np.array([2, 3])))
    assert found["latency_mean_s"].value == 8.0
    assert found["duration_s"].value == 24.0
    assert not {"throughput_samples_hz", "latency_p50_s"} & {str(key) for key in found}


def test_learning_issues_enter_no_latency() -> None:
    q = queries([NAN] * 3, [0.0, 6.0, 20.0], [6.0, 7.0, 21.0])
    found = serving.service_figures(q, apart=(np.array([1, 2]),))
    assert (found["latency_mean_s"].value, found["latency_p99_s"].value, found["duration_s"].value) == (1.0, 1.0, 21.0)


def test_latency_counts_from_the_due_time_or_the_hand_over() -> None:
    scheduled = queries([0.0, 1.0], [0.0, 1.5], [1.0, 2.0])
    closed = queries([NAN, NAN], [0.0, 1.5], [1.0, 2.0])
    assert scheduled.latency_s().tolist() == [1.0, 1.0]
    assert closed.latency_s().tolist() == [1.0, 0.5]
    assert (scheduled.scheduled, closed.scheduled) == (True, False)


@given(due_ns=st.integers(0, 10**12), wait_ns=st.integers(0, 10**10))
def test_latencies_are_exact_to_the_nanosecond(due_ns: int, wait_ns: int) -> None:
    """Rounding must not make an answer late that came just in time."""
    due_s, completed_s = due_ns * 1e-9, (due_ns + wait_ns) * 1e-9
    assert queries([due_s], [due_s], [completed_s]).latency_s()[0] == wait_ns / 1e9


def test_percentiles_are_nearest_rank_with_an_interval_from_order_statistics() -> None:
    found = serving.latencies(np.random.default_rng(1).permutation(np.arange(1, 1001)) / 1000.0, 0.99)
    assert found["latency_p50_s"].value == 0.5
    assert found["latency_p99_s"].value == 0.99
    assert found["latency_p99_9_s"].value == 0.999
    assert found["latency_mean_s"].value == pytest.approx(0.5005)
    assert found["latency_p50_s"].interval()[0] == pytest.approx(0.469, abs=2e-3)  # 1.96 sqrt(n/4) ranks
    assert found["latency_p99_early_stopping_s"].value > found["latency_p99_s"].value


def test_the_interval_of_a_percentile_ends_at_order_statistics() -> None:
    """Half of the times are short, so the interval of the median reaches from a short time to a long one."""
    times_s = np.repeat([0.01, 0.05], [49, 51])
    low, high = percentile(times_s, 0.5).interval()
    assert (low, high) == pytest.approx((0.01, 0.05))


@given(st.lists(st.floats(1e-9, 1e6), min_size=2, max_size=40))
def test_no_interval_of_a_latency_reaches_zero(times_s: list[float]) -> None:
    for q in serving.latencies(np.array(times_s)).values():
        low, high = q.interval()
        assert 0.0 < low <= q.value <= high < 1200.0 * q.value


@pytest.mark.parametrize("n", [3, 5, 10])
def test_the_mean_interval_of_few_long_tailed_latencies_holds(n: int) -> None:
    draws = np.random.default_rng(n).exponential(1.0, (1000, n))
    found = [serving.mean_latency(times_s).interval() for times_s in draws]
    assert sum(low <= 1.0 <= high for low, high in found) > 915  # symmetric intervals: 880


def waits_in_a_queue(seed: int, n: int) -> Floats:
    """Return the latencies of a device that is busy for three quarters of the time, with random arrivals (Lindley)."""
    gaps = np.random.default_rng(seed).exponential(4.0 / 3.0, n)
    return 1.0 + np.array(list(accumulate(gaps, lambda wait, gap: max(wait + 1.0 - gap, 0.0), initial=0.0)))[:n]


def test_intervals_of_queued_latencies_cover_their_correlation() -> None:
    """With random arrivals, constant service times halve the mean wait of random ones (Pollaczek and Khinchine)."""
    every = waits_in_a_queue(1000, 600_000)
    true = {"latency_mean_s": 1.0 + 0.5 * 0.75 / (1.0 - 0.75), "latency_p50_s": float(np.median(every))}
    held = Counter[str]()
    for seed in range(60):
        one = waits_in_a_queue(seed, 4000)
        figures = {key: serving.latencies(one)[key] for key in true} | {"in time": serving.share_of(one <= 3.0, "")}
        for key, q in figures.items():
            held[key] += q.interval()[0] <= true.get(key, float(np.mean(every <= 3.0))) <= q.interval()[1]
    assert min(held.values()) > 50


def batched(seed: int, count: int, uneven: bool = False) -> Queries:
    """Return queries answered in batches of eight, or of one to eight, each of which lasts 0.7 to 1.3 s."""
    rng = np.random.default_rng(seed)
    of = np.repeat(np.arange(count), rng.integers(1, 9, count) if uneven else 8)
    ends_s = np.cumsum(rng.uniform(0.7, 1.3, count))
    return queries(np.full(len(of), NAN), np.append(0.0, ends_s)[of], ends_s[of])


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("count", [8, 20, 60, 150])
def test_percentiles_count_a_batch_as_one_value(count: int, uneven: bool) -> None:
    """All samples of a batch may have the longest latency; no latency is above a percentile that equals it."""
    least = {50: 6, 90: 36, 97: 122, 99: 368}  # fewer independent values do not bound the percentile
    held, stated = Counter[int](), Counter[int]()
    for seed in range(200):
        found = serving.service_figures(batched(seed, count, uneven))
        for p in least:
            if (q := found[f"latency_p{p}_s"]).stated:
                stated[p] += 1
                held[p] += q.interval()[0] <= 0.7 + 0.006 * p <= q.interval()[1]
    assert all(held[p] >= 0.9 * stated[p] - 2 for p in least)
    assert not any(stated[p] for p in least if count < least[p])
    assert all(stated[p] > 100 for p in least if count > 1.4 * least[p])


@pytest.mark.parametrize(("issued_s", "completed_s", "worth"), [
    ([0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0], 4.0),
    ([0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0], 1.0),  # answered one by one
    ([0.0, 1.0, 2.0, 3.0], [4.0, 4.0, 5.0, 5.0], 2.0),
    ([0.0, 1.0, 1.0, 1.0], [1.0, 4.0, 4.0, 4.0], 1.6),  # (1 + 3)^2 / (1^2 + 3^2)
    ([0.0, 1.0, 2.0, NAN], [1.0, 4.0, NAN, NAN], 2.0),  # one has no answer, and one was dropped
])  # fmt: skip
def test_answers_at_one_instant_count_once(issued_s: list[float], completed_s: list[float], worth: float) -> None:
    q = queries([NAN] * 4, issued_s, completed_s)
    assert q.batches(q.issue) == pytest.approx(worth)
    assert q.batches(q.issue[:1]) == 1.0


def busy(seed: int, n: int = 300, load: float = 0.85) -> Queries:
    """Return queries to a device that is busy for ``load`` of the time, with random arrivals and times of service."""
    rng = np.random.default_rng([seed, 2])
    due_s = np.cumsum(rng.exponential(1.0 / load, n))
    return replace(queries(due_s, due_s, due_s + waited_s(due_s, rng.exponential(1.0, n))), arrival_hz=load)


LATENCIES = ("latency_mean_s", "latency_p50_s", "latency_p90_s")


def least_held(every: Iterable[Queries], runs: Iterable[Queries]) -> int:
    """Return how many intervals of ``runs`` hold a figure's mean over ``every``: the least of three figures."""
    ordered = [np.sort(q.latency_s()) for q in every]
    true = np.mean([[one.mean(), nearest_rank(one, 0.5), nearest_rank(one, 0.9)] for one in ordered], axis=0)
    held = Counter[str]()
    for found in map(serving.service_figures, runs):
        for key, real in zip(LATENCIES, true, strict=True):
            held[key] += found[key].stated and found[key].interval()[0] <= real <= found[key].interval()[1]
    return min(held.values())


def test_latency_intervals_of_a_busy_device_hold_for_other_arrivals() -> None:
    """A draw with few waits hides how long latencies are correlated; service times and the rate show it."""
    assert least_held([busy(1000 + k) for k in range(400)], map(busy, range(60))) > 51


def test_latencies_of_a_device_with_parallel_samples_have_no_interval() -> None:
    for seed in range(60):
        several = serving.service_figures(replace(busy(seed), max_pending=2))
        for key in LATENCIES:
            assert not several[key].stated
            assert any(why in several[key].method for why in (NOT_SHOWN, "too few"))


def in_batches(seed: int, n: int, load: float, most: int = 4) -> Queries:
    """Return queries to a device that takes ``most`` samples at a time, each batch in 0.6 s and 0.1 s a sample."""
    rng = np.random.default_rng([seed, 3])
    due_s = np.cumsum(rng.exponential(1.0 / (load * most), n))
    on_s, off_s, first, free_s = np.zeros(n), np.zeros(n), 0, 0.0
    while first < n:
        begin_s = max(free_s, due_s[first])
        last = min(int(np.searchsorted(due_s, begin_s, side="right")), first + most)
        free_s = begin_s + (0.6 + 0.1 * (last - first)) * rng.uniform(0.8, 1.2)
        on_s[first:last], off_s[first:last], first = begin_s, free_s, last
    return replace(queries(due_s, on_s, off_s), arrival_hz=load * most, max_batch=most)


@pytest.mark.parametrize("load", [0.4, 0.8, 0.9])
def test_latency_intervals_of_batches_hold_for_other_arrivals(load: float) -> None:
    """In a draw of few waits, correlation looks short, so the draw's own latencies cannot show the uncertainty."""
    runs = [in_batches(seed, 400, load) for seed in range(300)]
    assert least_held(runs, runs[:60]) > 52


def test_a_subset_of_arrivals_scatters_like_all(monkeypatch: pytest.MonkeyPatch) -> None:
    q = in_batches(1, 2000, 0.5)
    whole_s = scatter_of_mean_s(q)
    monkeypatch.setattr(serving, "MOST_DRAWN", 200)
    assert scatter_of_mean_s(q) == pytest.approx(whole_s, rel=0.5)


def scatter_of_mean_s(q: Queries) -> float:
    found = serving.other_runs(q, lambda latency_s: [latency_s.mean()])
    assert found is not None
    return float(found[1][0])


def busy_stream(seed: int, load: float, n: int = 120) -> Queries:
    """Return queries of a stream of frames, one each second, which take exponential times to serve."""
    due_s, each_s = np.arange(float(n)), load * np.random.default_rng([seed, 7]).exponential(size=n)
    done_s = due_s + waited_s(due_s, each_s)
    return queries(due_s, done_s - each_s, done_s)


@pytest.mark.parametrize("load", [0.7, 0.9])
def test_latency_intervals_of_a_busy_stream_hold(load: float) -> None:
    runs = [busy_stream(seed, load) for seed in range(300)]
    assert least_held(runs, runs[:60]) > 51


@pytest.mark.parametrize(
    ("of", "deadline_s"), [(busy, 20.0), (lambda seed: busy_stream(seed, 0.9), 10.0)], ids=["random", "stream"]
)
def test_the_interval_of_a_share_in_time_covers_queueing(of: Callable[[int], Queries], deadline_s: float) -> None:
    true = np.mean([serving.in_time_share(of(1000 + k), deadline_s).value for k in range(300)])
    limits = [serving.in_time_share(of(k), deadline_s).interval() for k in range(60)]
    assert sum(low <= true <= high for low, high in limits) > 51


def test_a_free_device_takes_a_batch_at_its_recorded_time() -> None:
    at_s = np.array([[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 5.0], [0.0, 1.0, 2.0, 3.0, 3.1, 3.2, 3.3]])
    sizes = np.array([4, 1, 2])
    found = batched_s(np.random.default_rng(1), at_s, sizes, 0.6 + 0.1 * sizes, 4)
    assert (found + at_s).round(9).tolist() == [
        [0.7, 1.7, 1.7, 1.7, 1.7, 2.4, 5.7],  # a batch of one, a batch of four, and the last two alone
        [0.7, 1.7, 2.7, 3.7, 4.7, 4.7, 4.7],  # the last three take as long as four, since no three were recorded
    ]


def test_correlated_service_times_are_drawn_together() -> None:
    slow = np.repeat(np.random.default_rng(1).exponential(size=50), 20)
    assert np.mean(np.diff(drawn_s(np.random.default_rng(2), slow, 1000)) == 0.0) > 0.8
    assert len(drawn_s(np.random.default_rng(2), slow[:1], 5)) == 5


def test_no_answers_give_no_figure() -> None:
    assert not serving.service_figures(queries([0.0], [0.0], [NAN]))
    assert not serving.service_figures(queries([], [], []))


def test_a_share_in_time_counts_dropped_samples_as_late() -> None:
    q = queries([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, NAN], [0.7, 1.7, 2.8, NAN])
    assert serving.in_time_share(q, 0.7).value == 2 / 4


def test_a_share_in_time_counts_each_batch_once() -> None:
    at_s = np.repeat(np.arange(8.0), 8)
    assert serving.in_time_share(queries(at_s, at_s, at_s + 0.5), 0.7).interval() == proportion(8, 8, "").interval()


@pytest.mark.parametrize("refusal", [None, {"label": None}])
def test_a_refused_sample_is_neither_served_nor_in_time(refusal: Any) -> None:
    at_s = np.arange(200.0)
    answered = replace(queries(at_s, at_s, at_s + 0.5), outputs=("x", refusal))
    refused = replace(answered, output=(np.arange(200) % 4 == 0).astype(np.int64))
    whole, found = serving.service_figures(answered), serving.service_figures(refused)
    assert found["throughput_samples_hz"].value == 0.75 * whole["throughput_samples_hz"].value
    assert [found[f"latency_{part}_s"].value for part in ("mean", "p50", "p90")] == [0.5, 0.5, math.inf]
    assert (serving.in_time_share(answered, 0.7).value, serving.in_time_share(refused, 0.7).value) == (1.0, 0.75)
    silent = replace(answered, outputs=(refusal,))  # a device that never answers counts by its times
    assert serving.service_figures(silent) == whole
    (told,) = {f.found for f in without_number(found)}
    assert told == "a sample without an answer is never served"


# ---- backlog and drops ---------------------------------------------------------------------


@pytest.mark.parametrize(("issued_s", "completed_s", "waiting"), [
    ([0.0, 2.5, 5.0, 7.5], [2.5, 5.0, 7.5, 10.0], [1, 2, 3, 3]),
    ([0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0], [1] * 4),
], ids=["behind", "answered at the moment of the next arrival"])  # fmt: skip
def test_backlog_is_due_and_unanswered(issued_s: list[float], completed_s: list[float], waiting: list[int]) -> None:
    q = queries([0.0, 1.0, 2.0, 3.0], issued_s, completed_s)
    assert serving.backlog(q).tolist() == waiting
    assert serving.service_figures(q)["backlog_max"].value == max(waiting)


def test_dropped_samples_are_not_in_the_backlog() -> None:
    q = queries([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, NAN, 3.0], [0.5, 1.5, NAN, 3.5])
    found = serving.service_figures(q)
    assert (found["dropped_share"].value, found["backlog_max"].value) == (0.25, 1)
    assert found["latency_p50_s"].n == 3


# ---- slip ----------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    gaps=st.lists(st.integers(0, 200), min_size=1, max_size=30), seconds=st.sampled_from([0.01, 0.1, 0.3]),
    batch=st.integers(1, 4), holds=st.none() | st.integers(1, 5),
)  # fmt: skip
def test_a_punctual_host_has_no_slip(gaps: list[int], seconds: float, batch: int, holds: int | None) -> None:
    at_s = np.cumsum([0, *gaps]) / 1000.0
    plant, device = bench(seconds, batch=batch, holds=holds)
    with played(device, due(at_s.tolist()), plant) as run:
        assert serving.scheduling_delays_s(queries_of(run)).max() < 1e-9


IN_TURN = [1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(("due_s", "issued_s", "completed_s", "most", "slip_s"), [
    ([0.0, 1.0, 2.0], [0.0, 1.25, 2.5], [0.5, 1.75, 2.75], None, [0.0, 0.25, 0.5]),
    ([0.0, 0.1, 0.2], [0.0, 1.0, 2.0], [1.0, 2.0, 3.0], None, [0.0] * 3),
    ([0.0, 0.1, 0.2], [0.0, 1.5, 2.5], [1.0, 2.5, 3.5], None, [0.0, 0.5, 0.0]),
    ([0.0, 0.1, 0.2, 0.3], [0.0, 1.0, 1.0, 2.5], [1.0, 2.0, 2.0, 3.0], None, [0.0, 0.0, 0.0, 0.5]),
    ([0.0, 0.1, 0.2, 0.3, 0.4], [0.0, 0.1, 1.0, 2.0, 3.0], IN_TURN, 2, [0.0] * 5),
    ([0.0, 0.1, 0.2, 0.3, 0.4], [0.0, 0.1, 1.25, 2.0, 3.0], IN_TURN, 2, [0.0, 0.0, 0.25, 0.0, 0.0]),
    ([0.0, 0.0, 0.1, 0.2], [0.0, 0.0, 1.0, 2.0], [9.0, 1.0, 2.0, 3.0], 2, [0.0] * 4),
    ([0.2, 0.0, 0.1], [2.5, 0.0, 1.0], [5.0, 1.0, 2.0], 1, [0.5, 0.0, 0.0]),
    ([0.0, 1.0, 2.0], [0.0, NAN, 2.0], [0.5, NAN, 2.5], None, [0.0, 0.0]),
], ids=["late", "a busy device", "late for a free device", "a batch waits for the one before and not for itself",
        "no room", "late for room", "answers out of order",
        "rows out of order", "dropped"])  # fmt: skip
def test_slip_is_the_hand_over_delay_to_a_free_device(
    due_s: list[float], issued_s: list[float], completed_s: list[float], most: int | None, slip_s: list[float]
) -> None:
    q = queries(due_s, issued_s, completed_s, most)
    assert serving.scheduling_delays_s(q).tolist() == slip_s
    assert serving.arrivals(q)["slip_max_s"].value == max(slip_s)


# ---- the gaps ------------------------------------------------------------------------------

values = st.lists(st.integers(0, 50).map(float), min_size=2, max_size=40).map(np.array)


@given(one=values, other=values)
def test_gap_distance_is_kolmogorovs(one: np.ndarray, other: np.ndarray) -> None:
    assert serving.gap_distance(one, other) == pytest.approx(ks_2samp(one, other, method="asymp").statistic)
    assert serving.gap_distance(one, one) == 0.0


def test_only_bunched_arrivals_have_a_gap_distance() -> None:
    at_s = np.cumsum(np.random.default_rng(1).exponential(0.1, 500))
    kept = queries(at_s, at_s, at_s + 0.01)
    bunched = queries(at_s, np.ceil(at_s), np.ceil(at_s) + 1e-6)
    assert serving.arrivals(kept)["arrival_gap_distance"].value == 0.0
    assert serving.arrivals(bunched)["arrival_gap_distance"].value > 0.5


# ---- queries from a recording --------------------------------------------------------------


def test_queries_are_read_in_issue_order_without_warm_up() -> None:
    many = [Sample(f"s{k}", np.zeros(1, np.float32), inferences=k + 1) for k in range(3)]
    plant, device = bench(0.1)
    steps = [Issue(many[:1], warmup=True), *due([0.0, 0.3, 0.4], many)]
    with played(device, steps, plant) as run:
        q = queries_of(run)
    assert (q.issue.tolist(), q.sample.tolist(), q.inferences.tolist()) == ([1, 2, 3], [0, 1, 2], [1, 2, 3])
    assert (q.due_s - q.due_s[0]).round(9).tolist() == [0.0, 0.3, 0.4]
    assert q.latency_s().round(9).tolist() == [0.1, 0.1, 0.1]


def test_queries_for_one_sample_are_ordered_by_begin_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device of two cores answers the second before the first; it names only the sample."""
    (one,) = samples(1)
    plant, device = bench(0.2, holds=4)
    slow, quick = (Reply("s0", k, (Span("inference", on, on + took),)) for k, on, took in HELD)
    waits = iter([[], [quick], [slow]])

    def polled(wait_s: float) -> Sequence[Reply]:
        plant.clock.sleep_until(plant.clock.now_ns() + round(min(wait_s, 0.05) * S))
        return next(waits, [])

    monkeypatch.setattr(device, "poll", polled)
    with played(device, due([0.0, 0.03], [one] * 2), plant) as run:
        q = queries_of(in_turn(run))
    assert [q.outputs[k] for k in q.output] == ["quick", "slow"]
    assert q.latency_s().round(9).tolist() == [0.05, 0.13]
    assert np.diff(q.due_s).round(9).tolist() == [-0.03]


HELD = [("slow", 0, 200), ("quick", 50, 50)]


@pytest.mark.parametrize("spans", [
    (Span("a", 0, 30, 3),),  # a board stamps the loop
    (Span("a", 0, 10), Span("a", 10, 20), Span("a", 20, 30)),  # a function stamps each execution
    (Span("a", 0, 10, 3), Span("b", 10, 30, 3)),  # all of a phase, then all of the next
])  # fmt: skip
def test_a_loop_counts_under_any_stamping_of_spans(spans: tuple[Span, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    plant, device = bench(0.1)
    polled = device.poll
    monkeypatch.setattr(device, "poll", lambda wait_s: [Reply(r.sample_id, "x", spans) for r in polled(wait_s)])
    once = device.submit
    monkeypatch.setattr(device, "submit_repeated", lambda given, *more: once(given, more[-1]), raising=False)
    with played(device, [Issue(samples(1), repeat=3)] * 2, plant) as run:
        q = queries_of(run)
    assert (q.executions.tolist(), q.inferences.tolist()) == ([3, 3], [3, 3])
    assert q.latency_s().round(9).tolist() == [round(0.1 / 3, 9)] * 2


def test_a_recording_without_an_issue_has_no_queries() -> None:
    plant, device = bench(0.1)
    with played(device, [], plant) as run:
        q = queries_of(run)
    assert len(q) == 0
    assert not q.scheduled
    assert math.isnan(q.window_s()[0])


# ---- early stopping, and intervals from order statistics ---------------------------------------

PERCENTILES = (0.5, 0.9, 0.97, 0.99, 0.999)
PERCENTS = st.sampled_from(PERCENTILES)


@pytest.mark.parametrize(("percentile", "least"), [(0.9, 64), (0.99, 662), (0.999, 6636)])
def test_minimum_queries_match_loadgen(percentile: float, least: int) -> None:
    assert needed(1, percentile) == least
    assert (allowed(least, percentile), allowed(least - 1, percentile)) == (1, 0)
    assert allowed(738_666, 0.9) == 73_265 + 1  # as published


@given(over=st.integers(0, 5000), percentile=PERCENTS)
def test_needed_is_the_least_count_at_one_percent_chance(over: int, percentile: float) -> None:
    n = needed(over, percentile)
    tail = 1.0 - percentile
    assert n > over
    assert binom.cdf(over, n, tail) <= 0.01
    assert binom.cdf(over, n - 1, tail) > 0.01


@given(n=st.integers(0, 200_000), percentile=PERCENTS)
def test_needed_and_allowed_are_inverse(n: int, percentile: float) -> None:
    t = allowed(n, percentile)
    assert t >= 0
    assert t == 0 or needed(t, percentile) <= n
    assert needed(t + 1, percentile) > n


@given(n=st.integers(0, 20_000), percentile=PERCENTS)
def test_an_estimate_exists_only_above_the_least_count(n: int, percentile: float) -> None:
    ordered = np.arange(n, dtype=float)
    found = estimate(ordered, percentile)
    t = allowed(n, percentile)
    assert (t == 0) == math.isnan(found) == (n < needed(1, percentile))
    if t:
        assert found == ordered[n - t] >= nearest_rank(ordered, percentile)


def test_the_estimate_is_too_low_in_one_percent_of_draws() -> None:
    rng = np.random.default_rng(5)
    truth = -math.log(1.0 - 0.9)
    below = sum(estimate(np.sort(rng.exponential(size=500)), 0.9) < truth for _ in range(2000))
    assert 5 <= below <= 20 + 4 * math.sqrt(20)


@given(n=st.integers(1, 1_000_000), percentile=PERCENTS)
def test_nearest_rank_is_the_smallest_sufficient_value(n: int, percentile: float) -> None:
    rank = int(nearest_rank(np.arange(1.0, n + 1), percentile))
    exact = Fraction(str(percentile))
    assert Fraction(rank, n) >= exact
    assert rank == 1 or Fraction(rank - 1, n) < exact


@pytest.mark.parametrize(("n", "percentile"), [(20, 0.5), (200, 0.5), (100, 0.9), (1000, 0.99), (5000, 0.999)])
def test_percentile_intervals_hold_as_often_as_claimed(n: int, percentile: float) -> None:
    rng = np.random.default_rng(n)
    truth, trials = -math.log(1.0 - percentile), 600
    bounds = [interval(np.sort(rng.exponential(size=n)), percentile) for _ in range(trials)]
    held = sum(low <= truth <= high for low, high in bounds)
    assert held >= 0.95 * trials - 3.0 * math.sqrt(0.95 * 0.05 * trials)


@given(values=st.lists(st.floats(0, 1e3), min_size=1, max_size=300), percentile=PERCENTS)
def test_an_interval_contains_the_nearest_rank(values: list[float], percentile: float) -> None:
    ordered = np.sort(values)
    low, high = interval(ordered, percentile)
    assert low <= nearest_rank(ordered, percentile) <= high


@pytest.mark.parametrize(("n", "stated"), [(10, False), (367, False), (368, True)])
def test_an_unbounded_percentile_states_no_uncertainty(n: int, stated: bool) -> None:
    q = percentile(np.arange(1.0, n + 1), 0.99, (Component("timer resolution", 1e-6),))
    assert q.stated is stated
    assert ("too few to bound it" in q.method) is not stated


def test_an_interval_is_open_where_values_are_too_few() -> None:
    assert interval(np.array([1.0, 2.0, 3.0]), 0.999)[1] == math.inf
    assert interval(np.array([1.0, 2.0, 3.0]), 0.5) == (-math.inf, math.inf)


# ---- onset latency and stream accuracy of hand-made streams ------------------------------------


def stream(said: str, scenes: str = "ab", scene_s: float = 10.0, begin_s: float = 1.0, every_s: float = 1.0) -> Stream:
    """Return a stream whose answers are the letters of ``said``, from ``begin_s`` on; ``-`` means no answer."""
    at = [(begin_s + k * every_s, c) for k, c in enumerate(said) if c != "-"]
    onset_s = np.arange(len(scenes)) * scene_s
    return Stream(
        np.array([t for t, _ in at]), tuple(c for _, c in at), tuple(sorted(set(said + scenes) - {"-"})),
        np.zeros((len(at), 1)), onset_s, tuple(scenes), begin_s, begin_s + (len(said) - 1) * every_s,
    )  # fmt: skip


@pytest.mark.parametrize(("said", "latency_s"), [
    ("aaaaaaaaa" "aaabbbbbbb", 3.0),  # sustained from the fourth second on
    ("aaaaaaaaa" "bbbbbbbbbb", 0.0),  # right at once
    ("aaaaaaaaa" "aabbabbabbb", 8.0),  # two in a row are a flicker, three are not
    ("aaaaaaaaa" "aaaaaaaaaa", np.inf),  # never
    ("aaaaaaaaa" "abababababa", np.inf),  # flickering until the end
    ("aaaaaaaaa" "aaaaaaaabb", 8.0),  # right until the end of the scene, though for fewer than three frames
    ("aaaaaaaaa" "aaaaaaaaab", 9.0),
    ("aaaaaaaaa" "----------", np.inf),  # no answer
    ("aaaaaaaaa" "b---b---b-", 0.0),  # dropped frames are no answers
    ("bbbbbbbbb" "bbbbbbbbbb", 0.0),  # the first scene is no change
    ("aaaaaaaaa" "aabbbbbbbb", 2.0),  # a slow device answers a frame of the old scene when the new one is heard
])  # fmt: skip
def test_onset_latency_ends_at_the_first_lasting_right_answer(said: str, latency_s: float) -> None:
    assert change_latencies_s(stream(said)).tolist() == [latency_s]


def test_the_next_scene_ends_the_wait_for_an_onset() -> None:
    late = stream("aaaaaaaaaaaaaaaaaaabbbbbbbccc", "abc")  # right about b when c is already heard
    assert change_latencies_s(late).tolist() == [np.inf, 7.0]


def test_a_scene_never_recognised_enters_no_latency() -> None:
    found = change_figures(stream("aaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbaaaaaa", "abca"))
    assert found["onset_never_share"].value == pytest.approx(1 / 3)
    assert found["onset_latency_mean_s"].value == 3.0  # 2 s and 4 s
    assert (found["onset_latency_mean_s"].n, found["onset_never_share"].n) == (2, 3)


def test_equal_latencies_are_uncertain_by_a_stream_step() -> None:
    latency = change_figures(stream("aaaaaaaaaaaabbbbbbbbbbaaaaaaaa", "aba"))["onset_latency_mean_s"]
    assert 0.4 < latency.half_width() < 1.0


def test_a_stream_of_one_scene_has_no_onset() -> None:
    found = change_figures(stream("aaaa", "a"))
    assert [name for name in found if name.quantity != "stream_accuracy"] == []
    assert found["stream_accuracy"].value == 1.0


@pytest.mark.parametrize(("said", "share"), [
    ("aaaaaaaaa" "bbbbbbbbbbb", 1.0),
    ("bbbbbbbbb" "aaaaaaaaaaa", 0.0),
    ("aaaaaaaaa" "aabbbbbbbbb", 17 / 19),  # two of nineteen seconds wrong
    ("---------" "bbbbbbbbbbb", 10 / 19),  # before the first answer, none is right
    ("aaaaaaaaa" "a---------b", 9 / 19),  # the last answer is valid until another comes
    ("aaaaaaaaa" "a----------", 9 / 19),  # also until the end of the stream
])  # fmt: skip
def test_stream_accuracy_is_the_time_share_of_right_answers(said: str, share: float) -> None:
    assert time_right(stream(said)) == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize(("answers", "lag_s"), [(120, 0.1), (240, 0.7)])
def test_stream_accuracy_intervals_hold_the_long_run_value(answers: int, lag_s: float) -> None:
    """A frame comes each half second and a scene lasts 5 s; nine of ten answers are right, each ``lag_s`` late."""

    def drawn(count: int, rng: np.random.Generator) -> Stream:
        due_s = 0.5 * np.arange(count)
        scene, right = (due_s // 5.0).astype(int), rng.random(count) < 0.9
        said = tuple("ab"[k % 2] if ok else "-" for k, ok in zip(scene, right, strict=True))
        onset_s = 5.0 * np.arange(scene[-1] + 1)
        names = tuple("ab"[k % 2] for k in range(len(onset_s)))
        return Stream(due_s + lag_s, said, ("a", "b"), np.zeros((count, 2)), onset_s, names, 0.0, 0.5 * count)

    real = time_right(drawn(100_000, np.random.default_rng(0)))
    found = [stream_accuracy(drawn(answers, np.random.default_rng(k))) for k in range(1, 101)]
    assert sum(low <= real <= high for low, high in (q.interval() for q in found)) >= 92
    assert max(q.half_width() for q in found) < 0.2


# ---- from a recording ----------------------------------------------------------------------


def frames(count: int, stride_s: float, scene_s: float, window_s: float = 1.0) -> tuple[list[Sample], list[str]]:
    """Return frames of a stream with scenes called a, b, a, b, ... and the name of each frame's scene."""
    known = []
    for k in range(count):
        end_s = window_s + k * stride_s
        scene = int(np.ceil(end_s / scene_s - 1e-9)) - 1
        known.append(Sample(f"f{k}", np.zeros(1, np.float32), "ab"[scene % 2], label_age_s=end_s - scene * scene_s))
    return known, [str(sample.label) for sample in known]


def heard(path: Path, known: Sequence[Sample], asked: Sequence[Asked]) -> Stream | None:
    run = recording(path, asked, known=known)
    return change_detection.stream_of(run, queries_of(run))


def test_scenes_are_found_in_the_ages_of_the_labels(tmp_path: Path) -> None:
    known, labels = frames(30, 0.5, 4.0)
    asked = [Asked(k * 0.5, k * 0.5, k * 0.5 + 0.1, f"f{k}", labels[k]) for k in range(30)]
    found = heard(tmp_path / "run", known, asked)
    assert found is not None
    assert found.onset_s.tolist() == [-1.0, 3.0, 7.0, 11.0]  # the stream began one window before the first frame
    assert found.scene == ("a", "b", "a", "b")
    assert change_latencies_s(found) == pytest.approx([0.6, 0.6, 0.6])  # a frame ending at a change is of the old scene


def test_scenes_and_answers_survive_dropped_frames(tmp_path: Path) -> None:
    known, labels = frames(12, 1.0, 4.0)
    asked = [
        Asked(k, None, None, f"f{k}") if 3 <= k < 7 else Asked(k, k, k + (3.5 if k == 8 else 0.1), f"f{k}", labels[k])
        for k in range(12)
    ]
    found = heard(tmp_path / "run", known, asked)
    assert found is not None and found.scene == ("a", "b", "a")
    assert found.at_s.tolist() == sorted(found.at_s.tolist())
    assert len(found.at_s) == 8


@pytest.mark.parametrize(("output", "said"), [
    ("a", "a"), ({"label": "a"}, "a"), ({"label": "a", "probability": {"a": 0.6, "b": 0.4}}, "a"), (None, "None"),
    ({"label": None}, "None"), (3, "3"),
])  # fmt: skip
def test_an_answer_is_or_contains_a_label(tmp_path: Path, output: Any, said: str) -> None:
    known, _ = frames(3, 1.0, 2.0)
    found = heard(tmp_path / "run", known, [Asked(k, k, k + 0.1, f"f{k}", output) for k in range(3)])
    assert found is not None and found.said == (said,) * 3
    assert found.probability.shape == (3, len(found.classes))


def test_samples_without_frames_make_no_stream(tmp_path: Path) -> None:
    assert heard(tmp_path / "a", [Sample("s0", np.zeros(1))], [Asked(0.0, 0.0, 1.0)]) is None
    known, _ = frames(2, 1.0, 2.0)
    assert heard(tmp_path / "b", known, [Asked(None, 0.0, 1.0, "f0")]) is None
