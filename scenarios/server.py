"""Server: samples arrive at random, at a mean rate; latency is measured from their due times (MLPerf)."""

from collections.abc import Iterator

import numpy as np

from rig.bench.settings import positive, within
from rig.types import Floats, Indices, Issue, Rules, Sample, Step, Workload
from scenarios.idle_and_warmup import LONGEST_S, check_order, chosen, framed, idle_and_warmup, once

BLOCK, PART = 1024, 32
LONG_S = 2e-4
"""A pause between arrivals that is longer than this (s) is long enough to draw the next block of arrivals."""


def server(
    workload: Workload,
    rules: Rules,
    purpose: str = "all",
    *,
    arrival_hz: float = 10.0,
    latency_bound_s: float = 0.1,
    arrival_seed: int = 1,
    duration_s: float | None = None,
    idle_s: float | None = None,
    warmup: int | None = None,
) -> Iterator[Step]:
    """Yield Poisson arrivals at ``arrival_hz``, drawn from ``arrival_seed``, for at least ``duration_s``.

    Without ``duration_s``, the minimum of the rules counts. There are also at least as many arrivals as the rules
    require. Samples are drawn from the set at random, with replacement. In a valid result, the percentile of
    latency that the rules name is below ``latency_bound_s``. Raises ``UsageError`` for options out of range, and for a
    workload that teaches in sessions.
    """
    idle, warm = idle_and_warmup(rules, idle_s, warmup)
    seconds = chosen(duration_s, rules.min_duration_s)
    within(0, LONGEST_S, duration_s=seconds)
    positive(arrival_hz=arrival_hz, latency_bound_s=latency_bound_s)
    check_order(workload, "the scenario server")
    if purpose == "accuracy":
        return framed(once(workload.samples), workload, idle, warm)
    # decoded before the run, because decoding during the run would delay the reading of meters
    samples = list(workload.samples)
    return framed(_arrivals(samples, arrival_hz, seconds, rules.min_queries, arrival_seed), workload, idle, warm)


def _arrivals(samples: list[Sample], rate_hz: float, seconds: float, least: int, seed: int) -> Iterator[Step]:
    rng = np.random.default_rng(seed)

    def drawn() -> tuple[Floats, Indices]:
        return rng.exponential(1.0 / rate_hz, BLOCK), rng.integers(len(samples), size=BLOCK)

    due_s, last_s, count = 0.0, 0.0, 0
    ahead: tuple[Floats, Indices] | None = drawn()
    while True:
        # a block is drawn in a long pause, so that no arrival is delayed
        (gaps_s, which), ahead = ahead or drawn(), None
        for at in range(0, BLOCK, PART):
            part = slice(at, at + PART)
            for gap_s, k in zip(gaps_s[part].tolist(), which[part].tolist(), strict=True):
                if count >= least and last_s >= seconds:
                    return
                yield Issue((samples[k],), due_ns=round(due_s * 1e9))
                last_s, due_s, count = due_s, due_s + gap_s, count + 1
                if gap_s > LONG_S and ahead is None:
                    ahead = drawn()
