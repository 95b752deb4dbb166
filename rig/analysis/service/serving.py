"""How a system serves: throughput, latency by percentile, what was late or dropped. From host stamps alone.

Host stamps of one clock differ by whole nanoseconds, so what is in doubt is the finite sample and, for a
rate, the two moments between which it is taken.
"""

from __future__ import annotations

import heapq
import math

import numpy as np

from rig.analysis.quantity import Component, Quantity
from rig.analysis.service.early_stopping import discarded, estimate, interval, nearest_rank
from rig.analysis.service.queries import Queries
from rig.types import Floats, Rules

PERCENTILES = (0.5, 0.9, 0.97, 0.99, 0.999)
Figures = dict[str, Quantity]


def service_figures(q: Queries, rules: Rules | None) -> Figures:
    """Every figure of service that these queries have, by name."""
    if not np.any(q.answered):
        return {}
    figures = throughput(q) | latencies(q.latency_s(), "latency", None if rules is None else rules.percentile)
    if q.scheduled:
        figures |= arrivals(q)
        dropped, n = int(np.count_nonzero(q.dropped)), len(q)
        figures["dropped_share"] = Quantity(dropped / n, "1", (), 0.0, n, "samples never handed over, counted")
        figures["backlog_max"] = Quantity(float(backlog(q).max(initial=0)), "1", (), 0.0, n, "due and unanswered")
    return figures


def throughput(q: Queries) -> Figures:
    """Samples and inferences per second between the first asked for and the last answer."""
    on_s, off_s = q.window_s()
    n = int(np.count_nonzero(q.answered))
    out = {"duration_s": Quantity(off_s - on_s, "s", (), 0.0, n, "first sample asked for to last answer, host clock")}
    if off_s > on_s:
        rates = {"throughput_samples_hz": n, "throughput_inferences_hz": int(np.sum(q.inferences[q.answered]))}
        method = "answers over the time from the first sample asked for to the last answer"
        out |= {name: Quantity(count / (off_s - on_s), "Hz", (), 0.0, n, method) for name, count in rates.items()}
    return out


def latencies(times_s: Floats, name: str, stopped: float | None = None) -> Figures:
    """Mean and percentiles of shape (n,) times; ``stopped`` adds MLPerf's early-stopping estimate of one."""
    ordered, n = np.sort(times_s), len(times_s)
    mean_u = float(np.std(ordered, ddof=1)) / math.sqrt(n) if n > 1 else 0.0
    mean = Component("finite sample", mean_u, max(n - 1, 1))
    out = {f"{name}_mean_s": Quantity(float(ordered.mean()), "s", (mean,) if mean_u else (), 0.0, n, "mean")}
    for p in PERCENTILES:
        value = nearest_rank(ordered, p)
        sides = [abs(side - value) for side in interval(ordered, p)]
        bounded = all(map(math.isfinite, sides))
        u = max(sides) / 1.959964 if bounded else 0.0
        method = "nearest rank; interval from order statistics" if bounded else "nearest rank; too few to bound it"
        parts = (Component("finite sample", u),) if u else ()
        out[f"{name}_p{_label(p)}_s"] = Quantity(value, "s", parts, 0.0, n, method)
    if stopped is not None and math.isfinite(found := estimate(ordered, stopped)):
        method = f"early stopping: the {discarded(n, stopped)} slowest of {n} left out (99 % confidence)"
        out[f"{name}_p{_label(stopped)}_early_stopping_s"] = Quantity(found, "s", (), 0.0, n, method)
    return out


def arrivals(q: Queries) -> Figures:
    """How well the host kept the schedule: slip, and the distance of the gaps kept from those scheduled."""
    slip = np.sort(slips_s(q))
    n = len(slip)
    out = {
        f"slip_p{_label(p)}_s": Quantity(nearest_rank(slip, p), "s", (), 0.0, n, "hand-over after it was possible")
        for p in (0.5, 0.99)
    }
    out["slip_max_s"] = Quantity(float(slip[-1]), "s", (), 0.0, n, "hand-over after it was possible")
    if n > 2:
        due = q.due_s[~q.dropped]
        kept = np.diff(np.sort(due + slips_s(q)))
        distance = gap_distance(np.diff(np.sort(due)), kept)
        out["arrival_gap_distance"] = Quantity(distance, "1", (), 0.0, n, "Kolmogorov distance, gaps kept to scheduled")
    return out


def slips_s(q: Queries) -> Floats:
    """How much later than it could have been each sample was handed over: after it was due, and after the

    device had room for it, as far as it says how many it holds; else after it had answered all before.
    """
    went = ~q.dropped
    due, issued, done = q.due_s[went], q.issued_s[went], q.done_s[went]
    room = _all_answered_s(issued, done) if q.holds is None else _room_s(done, q.holds)
    room = np.where(room <= issued, room, -np.inf)  # else it held more than it says, and nothing was waited for
    return np.asarray(np.maximum(issued - np.maximum(due, room), 0.0))


def _all_answered_s(issued_s: Floats, done_s: Floats) -> Floats:
    """When everything handed over earlier was answered, of shape (n,)."""
    ends = np.maximum.accumulate(np.where(np.isnan(done_s), -np.inf, done_s))
    first = np.searchsorted(issued_s, issued_s, side="left")
    return np.where(first > 0, ends[np.clip(first - 1, 0, None)], -np.inf)


def _room_s(done_s: Floats, holds: int) -> Floats:
    """When fewer than ``holds`` of the samples before were unanswered, of shape (n,)."""
    out = np.full(len(done_s), -np.inf)
    last: list[float] = []  # the answers that came last, as many as it holds
    for k, done in enumerate(np.where(np.isnan(done_s), np.inf, done_s).tolist()):
        if len(last) < holds:
            heapq.heappush(last, done)
        else:
            out[k] = last[0]
            heapq.heappushpop(last, done)
    return out


def gap_distance(one: Floats, other: Floats) -> float:
    """Kolmogorov distance of two samples: the largest difference of their distribution functions."""
    if not (len(one) and len(other)):
        return 0.0
    at = np.sort(np.concatenate([one, other]))
    shares = [np.searchsorted(np.sort(x), at, side="right") / len(x) for x in (one, other)]
    return float(np.max(np.abs(shares[0] - shares[1])))


def backlog(q: Queries) -> Floats:
    """How many samples were due and unanswered at each moment one became due; shape of those handed over."""
    went = ~q.dropped
    done = np.sort(np.where(np.isnan(q.done_s[went]), np.inf, q.done_s[went]))
    due = np.sort(q.due_s[went])
    return np.asarray(np.arange(1, len(due) + 1) - np.searchsorted(done, due, side="right"), dtype=float)


def in_time_share(q: Queries, deadline_s: float) -> Quantity:
    """Share of all samples, dropped ones among them, answered within ``deadline_s`` of being asked for."""
    met = int(np.count_nonzero(q.latency_s() <= deadline_s))
    n = len(q)
    u = math.sqrt(max(met * (n - met), 0) / n) / n if n else 0.0
    parts = (Component("finite sample", u),) if u else ()
    return Quantity(met / n if n else 0.0, "1", parts, 0.0, n, f"answered within {deadline_s:g} s of being due")


def _label(p: float) -> str:
    return f"{100 * p:g}".replace(".", "_")
