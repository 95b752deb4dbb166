"""Offline: all samples at once, as fast as the device takes them (MLPerf)."""

from __future__ import annotations

from collections.abc import Iterator

from rig.types import Clock, Issue, Rules, Sample, Step, Workload
from scenarios.steps import Enough, framed, idle_and_warmup, once

SLACK = 1.1
"""Of the duration asked for: loading the first hand-over is no part of what the rules count."""


def offline(
    workload: Workload,
    rules: Rules,
    clock: Clock | None = None,
    purpose: str = "all",
    *,
    idle_s: float | None = None,
    warmup: int | None = None,
) -> Iterator[Step]:
    """Idle, the whole set in one hand-over, in batches up to the device's, as often as the rules ask, idle."""
    idle, warm = idle_and_warmup(rules, idle_s, warmup)
    if purpose == "accuracy":
        return framed(once(workload.samples), workload, idle, warm)
    samples = list(workload.samples)  # decoded before the run, not while it waits and no meter is drained
    return framed(_work(samples, Enough(rules, clock, purpose, SLACK)), workload, idle, warm)


def _work(samples: list[Sample], enough: Enough) -> Iterator[Step]:
    enough.start()
    while not enough:
        yield Issue(samples)
        enough.add(len(samples))
