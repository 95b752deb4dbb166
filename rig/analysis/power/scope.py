"""A scope is what one power figure covers: one phase, or all phases together."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rig.analysis.timing.counted_spans import Activity, Phase
from rig.analysis.timing.execution_time import BusyTime
from rig.types import Floats


@dataclass(frozen=True)
class Scope:
    """The windows of one power figure: of one phase, or of all phases under the name "".

    ``other_s`` are the windows of all activity outside the scope, in seconds.
    """

    phase: str
    windows_s: Floats
    other_s: Floats
    busy: BusyTime
    phases: tuple[Phase, ...]
    unlooped: bool = False
    """True if each span has only one execution, although it should have several in a loop."""

    @property
    def executions(self) -> float:
        """Return the median number of executions in a span."""
        return float(np.median(np.concatenate([p.executions for p in self.phases])))

    @property
    def words(self) -> str:
        """Return the words for the scope in a finding."""
        return self.phase or "all phases"


def scopes_of(activity: Activity, busy: Mapping[str, BusyTime]) -> Iterator[Scope]:
    """Yield a scope for all phases, unless they were measured one at a time, and one for each of several phases."""
    if not activity.per_phase:
        phases = tuple(activity.phases.values())
        yield Scope("", activity.busy_windows_s(), activity.excluded_s(), busy[""], phases, activity.unlooped)
    if len(activity.phases) > 1 or activity.per_phase:
        for name, phase in activity.phases.items():
            yield Scope(name, phase.windows_s, activity.other_s(name), busy[name], (phase,), activity.unlooped)
