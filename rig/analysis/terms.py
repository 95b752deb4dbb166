"""The terms of a run: by which rules and options it was made, and how it ended, read once from its events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rig.recording.reader import Run
from rig.types import Rules


@dataclass(frozen=True)
class Terms:
    """What a run was asked to do and under which conditions.

    ``rules`` is None if the run names none. ``deadline_s`` is the longest latency that the scenario accepts.
    ``solves_to_gap`` is the gap at which solvers were told to stop, and ``gap_times_known`` says whether the record of
    progress shows when a solver reached a gap.
    """

    rules: Rules | None
    purpose: str
    scenario: str
    latency_bound_s: float | None
    deadline_s: float | None
    complete: bool
    modes: tuple[str, ...]
    metered: bool
    spans_on_pin: bool
    set_size: int
    warmup_samples: int
    shortest_idle_s: float
    solves_to_gap: float | None
    gap_times_known: bool
    workload_notes: tuple[str, ...]

    @property
    def percentile(self) -> float | None:
        """The percentile of latency, 0 to 1, that the rules name."""
        return None if self.rules is None else self.rules.percentile

    @property
    def simulated(self) -> bool:
        """Whether the device or a meter is not hardware."""
        return any(mode != "hardware" for mode in self.modes)


def terms_of(run: Run) -> Terms:
    """The terms of a run."""
    start, idle_ns = run.start, run.idle_windows_ns()
    to_gap = start.scenario.to_gap
    return Terms(
        rules=start.rules,
        purpose=start.purpose,
        scenario=start.scenario.name,
        latency_bound_s=start.scenario.latency_bound_s,
        deadline_s=start.scenario.deadline_s,
        complete=run.stop is not None and run.error is None,
        modes=tuple(sorted(map(str, start.modes))),
        metered=bool(start.meters),
        spans_on_pin=start.device.spans_on_pin,
        set_size=start.workload.samples,
        warmup_samples=len(set(run.replies.filter(run.replies["warmup"])["issue"].to_pylist())),
        shortest_idle_s=float(np.min(idle_ns[:, 1] - idle_ns[:, 0])) / 1e9 if len(idle_ns) else 0.0,
        solves_to_gap=to_gap,
        gap_times_known=to_gap is not None or start.device.schedule_depends_on_budget is False,
        workload_notes=tuple(start.workload.notes),
    )
