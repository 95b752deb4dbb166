"""Compute throughput, latency percentiles, and late and dropped samples, all from host stamps.

Host stamps are from one clock and in whole nanoseconds, so the only uncertainty is that of the finite sample. If
samples are scheduled and the device serves one batch at a time, other runs are simulated with the recorded service
times.
"""

import heapq
import math
from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace

from rig.analysis.result.figure_catalogue import figure
from rig.analysis.result.order_statistics import independent, nearest_rank, percentile
from rig.analysis.result.proportion import proportion
from rig.analysis.result.quantity import Component, FigureKey, Figures, Quantity, linear
from rig.analysis.service.early_stopping import allowed, estimate
from rig.analysis.service.queries import Queries
from rig.types import Bools, Floats, Indices

PERCENTILES = (0.5, 0.9, 0.97, 0.99, 0.999)
DRAWS = 64
"""This many runs are simulated."""
MOST_DRAWN = 1 << 13
"""At most this many samples of a run are simulated."""
NOT_SHOWN = "nothing shows what another draw of arrivals gives"
"""Part of the method of a figure that has no interval because the device holds several samples."""


def service_figures(q: Queries, early_stopping: float | None = None, apart: Sequence[Indices] = ()) -> Figures:
    """Return every figure of service that these queries support; ``early_stopping`` is as in ``latencies``.

    ``apart`` is empty if every issue is timed. Otherwise it holds the issues to time: one array for each phase if
    phases were issued one at a time, or one array without the issues in which the device learns.
    """
    if not np.any(q.completed):
        return Figures()
    figures = _of_answers(q, apart, early_stopping) if apart else throughput(q) | _latencies(q, early_stopping)
    if q.scheduled:
        share = share_of(q.dropped, "samples never issued, counted")
        figures |= arrivals(q) | {FigureKey("dropped_share"): share}
        figures |= figure("backlog_max", backlog(q).max(initial=0), "due and not completed", len(q))
    return figures


def throughput(q: Queries) -> Figures:
    """Return the time from the first request to the last completion, and samples and inferences per second in it."""
    on_s, off_s = q.window_s()
    n, inferences = int(np.count_nonzero(q.answered)), int(np.sum(q.inferences[q.answered]))
    out = figure("duration_s", off_s - on_s, "first request to last completion, host clock", n)
    if off_s > on_s:
        told = "answers over the time from the first request to the last completion"
        out |= figure("throughput_samples_hz", q.answered_count / (off_s - on_s), told, n)
        out |= figure("throughput_inferences_hz", inferences / (off_s - on_s), told, n)
    return out


def _of_answers(q: Queries, apart: Sequence[Indices], early_stopping: float | None) -> Figures:
    """Return the duration and the latencies of ``apart``; with several phases, only the sum of their means."""
    times_s, issue, duration = q.latency_s(), q.issue[q.completed], FigureKey("duration_s")
    each = [(own, q.batches(issues)) for issues in apart if len(own := times_s[np.isin(issue, issues)])]
    found = latencies(each[0][0], early_stopping, q.looped, most=each[0][1]) if len(each) == 1 else Figures()
    if len(each) > 1:
        total = linear([(1.0, mean_latency(own)) for own, _ in each], "s", "sum over phases issued one at a time")
        found = Figures({FigureKey("latency_mean_s"): replace(total, positive=True)})
    return Figures({duration: throughput(q)[duration]}) | found


def _latencies(q: Queries, early_stopping: float | None) -> Figures:
    """Return the latencies; if samples are scheduled, their uncertainty includes the queues of other runs.

    If the device takes samples while it holds others, no other run is simulated, so latencies of random arrivals get no
    interval. If few samples waited, successive latencies seem correlated for a short time only, so an interval from
    them would be too narrow.
    """
    other_s = None if (other := other_runs(q, _mean_and_percentiles)) is None else other[1]
    found = latencies(q.served_s(), early_stopping, q.looped, other_s, q.batches(q.issue))
    if not (q.scheduled and q.arrival_hz > 0.0) or other_s is not None:
        return found
    bare = {k: replace(v, components=(), limits=None) for k, v in found.items() if v.stated}
    return found | {k: replace(v, method=f"{v.method}; {NOT_SHOWN}") for k, v in bare.items()}


def latencies(
    times_s: Floats, early_stopping: float | None = None, looped: bool = False, least_u_s: Floats | None = None,
    most: float = math.inf,
) -> Figures:  # fmt: skip
    """Return the mean and percentiles of latencies in order of time, shape (n,); only the mean if ``looped``.

    A latency is infinite without an answer, and the mean leaves it out. ``early_stopping`` is one percentile, 0 to 1,
    for which MLPerf's early-stopping estimate is added. ``least_u_s`` is the scatter of the mean and of the
    ``PERCENTILES`` over simulated runs. In the interval of a percentile, the latencies count as at most ``most``
    independent ones.
    """
    ordered, n = np.sort(times_s), len(times_s)
    u_s = np.zeros(1 + len(PERCENTILES)) if least_u_s is None else least_u_s
    out = Figures({FigureKey("latency_mean_s"): _at_least(mean_latency(times_s[np.isfinite(times_s)]), u_s[0])})
    if looped:
        return out
    for p, least_s in zip(PERCENTILES, u_s[1:].tolist(), strict=True):
        above = times_s > nearest_rank(ordered, p)
        value = percentile(ordered, p, count=min(independent(above.astype(float)), most))
        if least_s and not value.stated:  # the scatter over runs already includes this correlation
            value = percentile(ordered, p)
        out |= {FigureKey("latency_p{percentile}_s", percentile=100 * p): _at_least(value, least_s)}
    if early_stopping is not None and math.isfinite(found := estimate(ordered, early_stopping)):
        told = f"early stopping: the {allowed(n, early_stopping) - 1} slowest of {n} left out (99 % confidence)"
        out |= figure("latency_p{percentile}_early_stopping_s", found, told, n, percentile=100 * early_stopping)
    return out


def _at_least(q: Quantity, u_s: float) -> Quantity:
    """Return a quantity with at least the standard uncertainty ``u_s``, the scatter over simulated runs."""
    if not q.stated or u_s <= q.u:
        return q
    method = f"{q.method}; scatter of {DRAWS} runs simulated with the recorded service times"
    return replace(q, components=(Component("finite sample", u_s, DRAWS - 1),), limits=None, method=method)


def mean_latency(times_s: Floats) -> Quantity:
    """Return the mean of latencies in order of time, shape (n,), with its standard error."""
    n = len(times_s)
    count = independent(times_s)
    u = float(np.std(times_s, ddof=1)) / math.sqrt(count) if n > 1 else 0.0
    parts = (Component("finite sample", u, max(count - 1.0, 1.0)),) if u else ()
    method = "mean; successive latencies may be alike"
    return Quantity(float(times_s.mean()), "s", parts, 0.0, n, method, positive=True)


def arrivals(q: Queries) -> Figures:
    """Return how well the host followed the schedule.

    The figures are the scheduling delay, and the distance between the scheduled gaps and the same gaps changed by
    this delay alone.
    """
    delay = np.sort(scheduling_delays_s(q))
    n, told = len(delay), "issued after it was possible"
    out = Figures()
    for p in (0.5, 0.99):
        out |= figure("slip_p{percentile}_s", nearest_rank(delay, p), told, n, percentile=100 * p)
    out |= figure("slip_max_s", delay[-1], told, n)
    if n > 2:
        due = q.due_s[~q.dropped]
        issued = np.diff(np.sort(due + scheduling_delays_s(q)))
        distance = gap_distance(np.diff(np.sort(due)), issued)
        out |= figure("arrival_gap_distance", distance, "Kolmogorov distance, gaps issued to scheduled", n)
    return out


def scheduling_delays_s(q: Queries) -> Floats:
    """Return by how much each issued sample was issued later than possible, in seconds.

    A sample can be issued when it is due and the device has room for it. The device has room when it holds fewer
    samples than it declares (``max_pending``). If it declares nothing, it has room when all earlier samples are
    completed.
    """
    went = np.flatnonzero(~q.dropped)
    order = np.argsort(q.issued_s[went], kind="stable")  # ``in_turn`` may have moved stamps to other rows
    due, issued, done = (s[went[order]] for s in (q.due_s, q.issued_s, q.completed_s))
    free = _all_completed_s(issued, done) if q.max_pending is None else _room_s(done, q.max_pending)
    free = np.where(free <= issued, free, -np.inf)  # a device that held more than it declares caused no wait
    return np.asarray(np.maximum(issued - np.maximum(due, free), 0.0)[np.argsort(order)])


def _all_completed_s(issued_s: Floats, completed_s: Floats) -> Floats:
    """Return when all samples issued earlier were completed, shape (n,)."""
    ends = np.maximum.accumulate(np.where(np.isnan(completed_s), -np.inf, completed_s))
    first = np.searchsorted(issued_s, issued_s, side="left")
    return np.where(first > 0, ends[np.clip(first - 1, 0, None)], -np.inf)


def _room_s(completed_s: Floats, most: int) -> Floats:
    """Return the time from which fewer than ``most`` of the earlier samples were pending, shape (n,)."""
    out = np.full(len(completed_s), -np.inf)
    last: list[float] = []  # the latest completions, at most ``most`` of them
    for k, done in enumerate(np.where(np.isnan(completed_s), np.inf, completed_s).tolist()):
        if len(last) < most:
            heapq.heappush(last, done)
        else:
            out[k] = last[0]
            heapq.heappushpop(last, done)
    return out


def gap_distance(one: Floats, other: Floats) -> float:
    """Return the Kolmogorov distance of two samples: the largest difference of their distribution functions."""
    if not (len(one) and len(other)):
        return 0.0
    at = np.sort(np.concatenate([one, other]))
    shares = [np.searchsorted(np.sort(x), at, side="right") / len(x) for x in (one, other)]
    return float(np.max(np.abs(shares[0] - shares[1])))


def backlog(q: Queries) -> Floats:
    """Return how many samples were due and not completed, at each moment when a sample became due.

    The result has one value for each issued sample.
    """
    went = ~q.dropped
    done = np.sort(np.where(np.isnan(q.completed_s[went]), np.inf, q.completed_s[went]))
    due = np.sort(q.due_s[went])
    return np.asarray(np.arange(1, len(due) + 1) - np.searchsorted(done, due, side="right"), dtype=float)


def deadline_figures(q: Queries, deadline_s: float | None) -> Figures:
    """Return the share of samples in time, if samples were scheduled and there is a deadline."""
    if not (q.scheduled and deadline_s):
        return Figures()
    return Figures({FigureKey("in_time_share"): in_time_share(q, float(deadline_s))})


def in_time(q: Queries, deadline_s: float) -> Bools:
    """Return which samples were completed within ``deadline_s`` of their request, shape (n,)."""
    met = np.zeros(len(q), bool)
    met[q.completed] = q.served_s() <= deadline_s
    return met


def in_time_share(q: Queries, deadline_s: float) -> Quantity:
    """Return the share of all samples that were completed within ``deadline_s`` of their request.

    Dropped samples and those without an answer count as not in time. In the interval, a batch counts as one sample,
    and the scatter is at least that over simulated runs.
    """
    met = in_time(q, deadline_s)
    most = np.count_nonzero(~q.completed) + (q.batches(q.issue) if np.any(q.completed) else 0.0)
    if (other := other_runs(q, lambda late_s: [float(np.mean(late_s <= deadline_s))])) is not None and other[1][0]:
        most = min(most, other[0][0] * (1.0 - other[0][0]) / other[1][0] ** 2)
    return share_of(met, f"completed within {deadline_s:g} s of being due", most)


def share_of(which: Bools, method: str, most: float = math.inf) -> Quantity:
    """Return the share of samples in ``which``, shape (n,). In the interval, correlated successive samples count as
    fewer, and all samples as at most ``most``.
    """
    count = min(independent(which.astype(float)), most)
    return replace(proportion(count * float(which.mean()), count, method), n=len(which))


# ---- other runs, simulated with the recorded service times --------------------------------


def service_times_s(due_s: Floats, done_s: Floats) -> Floats:
    """Return how long each sample was served, from its due time or from the answer before it, whichever is later."""
    return np.asarray(done_s - np.maximum(due_s, np.concatenate([[-math.inf], done_s[:-1]])))


def drawn_s(rng: "np.random.Generator", service_s: Floats, count: int) -> Floats:
    """Return service times, shape (count,), drawn in blocks of successive recorded ones.

    A block is about as long as successive times are correlated.
    """
    n = len(service_s)
    length = round(n / independent(service_s))
    first = rng.integers(n, size=-(-count // length))
    return np.asarray(service_s[(first[:, None] + np.arange(length)).ravel()[:count] % n])


def waited_s(at_s: Floats, each_s: Floats) -> Floats:
    """Return the latency of each sample that arrives at ``at_s`` and is served for ``each_s``, in order."""
    early_s = at_s - (np.cumsum(each_s) - each_s)
    return np.asarray(np.maximum.accumulate(early_s) - early_s + each_s)


def batched_s(rng: "np.random.Generator", at_s: Floats, sizes: Indices, spent_s: Floats, most: int) -> Floats:
    """Return the latency of each sample that arrives at ``at_s``, shape (draws, n), at a device that takes batches.

    A free device takes every sample that is due, up to ``most`` of them. ``spent_s`` are the times of recorded
    batches of ``sizes``, shape (k,). A batch takes the time of a recorded batch of its size, or else of the next larger
    size.
    """
    (draws, n), order = at_s.shape, np.argsort(sizes, kind="stable")
    sizes, spent_s = sizes[order], spent_s[order]
    apart_s = np.arange(draws) * (at_s.max() + 1.0)  # so that one search looks through all draws
    due_s, done_s = (at_s + apart_s[:, None]).ravel(), np.full(draws * n, np.inf)
    first, ends = np.arange(draws) * n, np.arange(1, draws + 1) * n
    free_s = apart_s.copy()
    while (on := np.flatnonzero(first < ends)).size:
        begin_s = np.maximum(free_s[on], due_s[first[on]])
        last = np.minimum(np.searchsorted(due_s, begin_s, side="right"), np.minimum(first[on] + most, ends[on]))
        low, high = (np.searchsorted(sizes, last - first[on], side=side) for side in ("left", "right"))
        pick = np.minimum(low + (rng.random(len(on)) * (high - low)).astype(np.int64), len(sizes) - 1)
        free_s[on] = done_s[last - 1] = begin_s + spent_s[pick]
        first[on] = last
    whole_s = np.minimum.accumulate(done_s[::-1])[::-1]  # the samples of a batch are answered with its last one
    return np.asarray((whole_s - due_s).reshape(draws, n))


def other_runs(q: Queries, figures: Callable[[Floats], Sequence[float]]) -> tuple[Floats, Floats] | None:
    """Return the mean and the scatter of ``figures`` of the latencies, over ``DRAWS`` runs with other service times.

    Random arrivals are drawn anew; otherwise samples keep their due times. The result is None unless every sample was
    scheduled and the device serves one batch at a time. ``figures`` takes latencies in ascending order.
    """
    if not (q.scheduled and np.any(q.completed) and q.max_pending in (None, 1)):
        return None
    due_s, issued_s, done_s = (s[q.completed] for s in (q.due_s, q.issued_s, q.completed_s))
    rng, n = np.random.default_rng(0), len(due_s)
    many = min(n, MOST_DRAWN)
    at = (np.cumsum(rng.exponential(1.0 / q.arrival_hz, many)) if q.arrival_hz else due_s[:many] for _ in range(DRAWS))
    if q.max_pending is None and q.max_batch > 1:
        on_s, of, sizes = np.unique(issued_s, return_inverse=True, return_counts=True)
        off_s = np.full(len(on_s), -np.inf)
        np.maximum.at(off_s, of, done_s)
        each = iter(batched_s(rng, np.array(list(at)), sizes, off_s - on_s, q.max_batch))
    else:
        service_s = service_times_s(due_s, done_s)
        each = (waited_s(at_s, drawn_s(rng, service_s, many)) for at_s in at)
    found = [figures(np.sort(latency_s)) for latency_s in each]
    return np.mean(found, axis=0), np.std(found, axis=0, ddof=1) * math.sqrt(many / n)


def _mean_and_percentiles(ordered_s: Floats) -> list[float]:
    return [float(ordered_s.mean()), *(nearest_rank(ordered_s, p) for p in PERCENTILES)]
