"""Single-stream: one sample at a time, the next when the previous is done (NeuroBench, ASC; MLPerf)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rig.bench.option_checks import within
from rig.types import Clock, Idle, Issue, Rules, Sample, Step, Workload
from scenarios.steps import MOST_REPEAT, Enough, framed, idle_and_warmup, once


def single_stream(
    workload: Workload,
    rules: Rules,
    clock: Clock | None = None,
    phases: tuple[str, ...] = (),
    purpose: str = "all",
    *,
    idle_s: float | None = None,
    warmup: int | None = None,
    repeat: int = 1,
    apart: bool = False,
) -> Iterator[Step]:
    """Yield idle, the whole set in order as often as the rules require, idle.

    ``repeat`` loops each sample inside one span. ``apart`` (``--per-phase``) issues each phase of the device on its
    own, so that short phases can be looped and powered separately. ``idle_s`` and ``warmup``: as in the rules.
    """
    idle, warm = idle_and_warmup(rules, idle_s, warmup)
    within(1, MOST_REPEAT, repeat=repeat)
    if purpose == "accuracy":
        return framed(once(workload.samples), workload, idle, warm)
    enough = Enough(rules, clock, purpose)
    work = _apart(workload, phases, repeat, idle) if apart else _rounds(workload.samples, enough, repeat=repeat)
    return framed(work, workload, idle, warm)


def _apart(workload: Workload, phases: tuple[str, ...], repeat: int, idle_s: float) -> Iterator[Step]:
    for number, phase in enumerate(phases):
        if number:
            yield Idle(idle_s)
        for sample in workload.samples:
            yield Issue([sample], repeat=repeat, phase=phase)


def _rounds(samples: Sequence[Sample], enough: Enough, repeat: int = 1) -> Iterator[Step]:
    """Yield whole rounds through the samples until ``enough`` is true."""
    held = isinstance(samples, (list, tuple))  # samples that are decoded on access are not kept
    issues = [Issue((sample,), repeat=repeat) for sample in samples] if held else None
    begun = False
    while not enough:
        work = iter(issues or (Issue((sample,), repeat=repeat) for sample in samples))
        if not begun:  # the duration starts at the first answer: earlier time does not count
            yield next(work)
            enough.start()
            begun = True
        yield from work
        enough.add(len(samples))
