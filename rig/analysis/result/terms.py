"""The terms of a run: its rules and options, and how it ended, read once from its events."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from rig.recording.events import Brackets, ChunkArrived, IdleWindow
from rig.recording.reader import Run
from rig.recording.records import ScenarioRecord
from rig.types import Benchmark, Rules


@dataclass(frozen=True)
class Terms:
    """The options and rules under which a run was made.

    ``rules`` is None if the run names none. ``deadline_s`` is the longest latency that the scenario accepts.
    ``solves_to_gap`` is the gap at which solvers were told to stop. ``gap_times_known`` says whether the record of
    progress shows when a solver reached a gap.
    """

    rules: Rules | None
    purpose: str
    scenario: ScenarioRecord
    benchmark: Benchmark | None
    latency_bound_s: float | None
    deadline_s: float | None
    complete: bool
    modes: tuple[str, ...]
    metered: bool
    spans_on_pin: bool
    set_size: int
    warmup_samples: int
    shortest_idle_s: float
    end_s: float
    """The last moment that the host stamped, on the run's time."""
    solves_to_gap: float | None
    gap_times_known: bool
    workload_notes: tuple[str, ...]

    @property
    def percentile(self) -> float | None:
        """Return the percentile of latency, 0 to 1, that the rules name."""
        return None if self.rules is None else self.rules.percentile

    @property
    def simulated(self) -> bool:
        """Return whether the device or a meter is not hardware."""
        return any(mode != "hardware" for mode in self.modes)


def terms_of(run: Run) -> Terms:
    """Return the terms of a run."""
    start, idle_ns = run.start, run.idle_windows_ns()
    to_gap = start.scenario.to_gap
    return Terms(
        rules=start.rules,
        purpose=start.purpose,
        scenario=start.scenario,
        benchmark=start.workload.benchmark,
        latency_bound_s=start.scenario.latency_bound_s,
        deadline_s=start.scenario.deadline_s,
        complete=run.stop is not None and run.error is None,
        modes=tuple(sorted(map(str, start.modes))),
        metered=bool(start.meters),
        spans_on_pin=start.device.spans_on_pin,
        set_size=start.workload.samples,
        warmup_samples=len(set(run.replies.filter(run.replies["warmup"])["issue"].to_pylist())),
        shortest_idle_s=float(np.min(idle_ns[:, 1] - idle_ns[:, 0])) / 1e9 if len(idle_ns) else 0.0,
        end_s=_end_s(run),
        solves_to_gap=to_gap,
        gap_times_known=to_gap is not None or start.device.schedule_depends_on_budget is False,
        workload_notes=tuple(start.workload.notes),
    )


def _end_s(run: Run) -> float:
    """Clock readings, idle windows, arrivals and answers all count; a run without any has no known end."""
    stamps = [row[2] for e in run.of_type(Brackets) for row in e.rows]
    stamps += [e.off_ns for e in run.of_type(IdleWindow)] + [e.arrived_ns for e in run.of_type(ChunkArrived)]
    answered = pc.max(run.replies["completed_ns"]).as_py()
    last_ns = max([*stamps, *([answered] if answered is not None else [])], default=None)
    return math.inf if last_ns is None else (last_ns - run.start.t0_ns) * 1e-9
