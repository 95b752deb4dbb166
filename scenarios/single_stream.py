"""Single-stream: one sample at a time, each after the answer to the previous one (NeuroBench, ASC; MLPerf)."""

from collections.abc import Iterator, Sequence

from rig.bench.settings import within
from rig.types import Clock, Idle, Issue, Rules, Sample, Step, Workload
from scenarios.idle_and_warmup import MOST_REPEAT, Enough, check_order, framed, idle_and_warmup, once


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
    """Yield an idle window, the whole set in order as often as the rules require, and another idle window.

    ``repeat`` loops each sample inside one span, which is a time between two stamps of the device. ``apart``
    (``--per-phase``) issues the whole set once for each phase of the device, so that short phases can be looped and
    their power measured separately. ``idle_s`` and ``warmup`` replace the values of the rules. Raises ``UsageError``
    for options out of range, and with ``apart`` for a workload that teaches in sessions.
    """
    idle, warm = idle_and_warmup(rules, idle_s, warmup)
    within(1, MOST_REPEAT, repeat=repeat)
    if apart:
        check_order(workload, "--per-phase")
    if purpose == "accuracy":
        return framed(once(workload.samples), workload, idle, warm)
    enough = Enough(rules, clock)
    work = _apart(workload, phases, repeat, idle) if apart else _rounds(workload.samples, enough, repeat)
    return framed(work, workload, idle, warm)


def _apart(workload: Workload, phases: tuple[str, ...], repeat: int, idle_s: float) -> Iterator[Step]:
    for number, phase in enumerate(phases):
        if number:
            yield Idle(idle_s)
        for sample in workload.samples:
            yield Issue([sample], repeat=repeat, phase=phase)


def _rounds(samples: Sequence[Sample], enough: Enough, repeat: int) -> Iterator[Step]:
    """Yield whole rounds through the samples until ``enough`` is true."""
    held = isinstance(samples, (list, tuple))  # a workload that decodes its samples on access would fill the memory
    issues = [Issue((sample,), repeat=repeat) for sample in samples] if held else None
    begun = False
    while not enough:
        work = iter(issues or (Issue((sample,), repeat=repeat) for sample in samples))
        if not begun:  # the duration of the rules begins at the first answer
            yield next(work)
            enough.start()
            begun = True
        yield from work
        enough.add(len(samples))
