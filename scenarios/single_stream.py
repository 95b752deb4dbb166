"""Single-stream: one sample at a time, the next when the previous is done (NeuroBench, ASC task)."""

from __future__ import annotations

from collections.abc import Iterator

from rig.errors import UsageError
from rig.types import Idle, Issue, Mark, Step, Workload


def single_stream(
    workload: Workload,
    phases: tuple[str, ...] = (),
    *,
    idle_s: float = 2.0,
    warmup: int = 1,
    repeat: int = 1,
    apart: bool = False,
) -> Iterator[Step]:
    """Idle, every sample once, idle. ``repeat`` loops each sample inside one span; ``apart`` issues each

    phase of the device on its own, so that short phases can be repeated and powered one at a time.
    """
    for name, value, least in (("idle_s", idle_s, 0.0), ("warmup", warmup, 0), ("repeat", repeat, 1)):
        if value < least:
            raise UsageError(f"option {name} is {value}", field=name, value=value, remedy=f"Give {least} or more")
    return _steps(workload, phases if apart else (None,), idle_s, warmup, repeat)


def _steps(
    workload: Workload, phases: tuple[str | None, ...], idle_s: float, warmup: int, repeat: int
) -> Iterator[Step]:
    yield Mark()
    for k in range(warmup):
        yield Issue([workload.samples[k % len(workload.samples)]], warmup=True)
    for phase in phases:
        yield Idle(idle_s)
        for sample in workload.samples:
            yield Issue([sample], repeat=repeat, phase=phase)
    yield Idle(idle_s)
    yield Mark()
