"""Offline: all samples at once, as fast as the device accepts them (MLPerf)."""

from collections.abc import Iterator

from rig.types import Clock, Issue, Rules, Sample, Step, Workload
from scenarios.idle_and_warmup import Enough, framed, idle_and_warmup, once

SLACK = 1.1
"""Margin on the rules' minimum duration, because our time includes loading the first samples."""


def offline(
    workload: Workload,
    rules: Rules,
    clock: Clock | None = None,
    purpose: str = "all",
    *,
    idle_s: float | None = None,
    warmup: int | None = None,
) -> Iterator[Step]:
    """Yield an idle window, the whole set at once (as often as the rules require), and another idle window.

    Devices process the set in batches.
    """
    idle, warm = idle_and_warmup(rules, idle_s, warmup)
    if purpose == "accuracy":
        return framed(once(workload.samples), workload, idle, warm)
    # decoded before the run, because decoding during the run would delay the reading of meters
    samples = list(workload.samples)
    return framed(_work(samples, Enough(rules, clock, SLACK)), workload, idle, warm)


def _work(samples: list[Sample], enough: Enough) -> Iterator[Step]:
    enough.start()
    while not enough:
        yield Issue(samples)
        enough.add(len(samples))
