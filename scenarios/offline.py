"""Offline: all samples at once, as fast as the device takes them (MLPerf)."""

from __future__ import annotations

from collections.abc import Iterator

from rig.types import Clock, Issue, Rules, Step, Workload
from scenarios.steps import Enough, at_least, chosen, framed, once


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
    idle, warm = chosen(idle_s, rules.idle_s), int(chosen(warmup, 1 if rules.warmup is None else rules.warmup))
    at_least(idle_s=(idle, 0.0), warmup=(warm, 0))
    if purpose == "accuracy":
        return framed(once(workload.samples), workload, idle, warm)
    return framed(_work(workload, Enough(rules, clock, purpose)), workload, idle, warm)


def _work(workload: Workload, enough: Enough) -> Iterator[Step]:
    samples = list(workload.samples)
    enough.start()
    while not enough:
        yield Issue(samples)
        enough.add(len(samples))
