"""What a run says: quantities by name, refusals, notes, and the series a picture needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rig.analysis.quantity import Quantity
from rig.analysis.service.change_detection import Stream
from rig.analysis.solving.solves import Solve
from rig.analysis.validity import Validity
from rig.recording.lines import Start
from rig.types import Floats

SCHEMA = "neurorig-results/1"


@dataclass(frozen=True)
class Refusal:
    """A figure that the recording cannot support, why, and what would."""

    scope: str
    reason: str
    remedy: str


@dataclass(frozen=True)
class ClockSummary:
    """How one clock was placed on the host's: method, offset and rate with their uncertainties."""

    clock: str
    method: str
    sigma_s: float
    rate_error: float
    rate_sigma: float
    brackets: int
    considered: Mapping[str, float]
    """Every method tried, with the sigma it stated."""


@dataclass(frozen=True)
class RailSeries:
    """One rail for a picture: shapes (n,), seconds since the run's start, watts."""

    rail: str
    start_s: Floats
    end_s: Floats
    watts: Floats


@dataclass(frozen=True)
class Series:
    """Arrays for pictures. Windows have shape (k, 2), seconds since the run's start."""

    rails: tuple[RailSeries, ...]
    phase_windows_s: Mapping[str, Floats]
    warmup_windows_s: Floats
    idle_windows_s: Floats
    mark_windows_s: Floats
    execution_times_s: Floats
    """Per inference, in the order issued; shape (n,)."""
    asked_s: Floats
    """When each answered sample was asked for, and below how long its answer took; shape (n,)."""
    latency_s: Floats
    stream: Stream | None
    solves: tuple[Solve, ...]


@dataclass(frozen=True)
class Result:
    """All figures of one run. Names are dotted: ``active_power_w``, ``phase.inference.active_power_w``,

    ``rail.core.dynamic_power_w``, ``phase.inference.rail.core.idle_power_w``.
    """

    run_id: str
    run_digest: str
    complete: bool
    simulated: bool
    start: Start
    quantities: Mapping[str, Quantity]
    refusals: tuple[Refusal, ...]
    notes: tuple[str, ...]
    clocks: Mapping[str, ClockSummary]
    series: Series
    validity: Validity | None

    def to_json(self) -> dict[str, Any]:
        """The content of ``derived/results.json``."""
        start = self.start
        lab = {"lab": start.lab, "operator": start.operator}
        return {
            "schema": SCHEMA,
            "run_id": self.run_id,
            "run_digest": self.run_digest,
            "complete": self.complete,
            "simulated": self.simulated,
            "device": start.device.name or None,
            "mode": start.device.mode,
            "meters": [m.name or None for m in start.meters],
            **start.played,
            "purpose": start.purpose,
            **{name: said for name, said in lab.items() if said},
            "validity": None if self.validity is None else _verdict(self.validity),
            "quantities": {name: q.to_json() for name, q in self.quantities.items()},
            "refusals": [asdict(r) for r in self.refusals],
            "notes": list(self.notes),
            "clocks": {name: asdict(c) for name, c in self.clocks.items()},
        }


def _verdict(validity: Validity) -> dict[str, Any]:
    return {"verdict": validity.verdict, **asdict(validity)}
