"""The result of a run: figures, refusals, notes, the verdict, and the series that pictures need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rig.analysis.figure_key import FigureKey, Figures
from rig.analysis.quantity import Quantity
from rig.analysis.refusal import Refusal
from rig.analysis.service.change_detection import Stream
from rig.analysis.solving.solves import Solve
from rig.analysis.verdict import Validity
from rig.recording.events import Start
from rig.types import Floats

SCHEMA = "neurorig-results/1"


@dataclass(frozen=True)
class ClockSummary:
    """How one clock was aligned with the host's: method, offset and rate with their uncertainties."""

    clock: str
    method: str
    sigma_s: float
    rate_error: float
    rate_sigma: float
    brackets: int
    considered: Mapping[str, float]
    """Every method that was tried, with the sigma that it states."""


@dataclass(frozen=True)
class RailSeries:
    """One rail for a picture: seconds since the run's start, and watts, shapes (n,)."""

    rail: str
    start_s: Floats
    end_s: Floats
    watts: Floats


@dataclass(frozen=True)
class Series:
    """Arrays for pictures; windows have shape (k, 2), in seconds since the run's start."""

    rails: tuple[RailSeries, ...]
    phase_windows_s: Mapping[str, Floats]
    warmup_windows_s: Floats
    idle_windows_s: Floats
    mark_windows_s: Floats
    execution_times_s: Floats
    """Per inference, in the order of issue; shape (n,)."""
    requested_s: Floats
    """When each completed sample was requested; shape (n,)."""
    latency_s: Floats
    """From request to completion, in the same order; shape (n,)."""
    stream: Stream | None
    solves: tuple[Solve, ...]
    clock_reads: Mapping[str, Floats] = field(default_factory=dict)
    """Of each clock that was read, shape (k, 3): second, difference from its fit, half of the round trip."""
    trials: Mapping[FigureKey, tuple[Quantity, ...]] = field(default_factory=dict)
    """Of several trials, the figures that the rules compare, one for each trial."""


@dataclass(frozen=True)
class Result:
    """Everything that the rig computes of one run or session."""

    run_id: str
    run_digest: str
    complete: bool
    simulated: bool
    start: Start
    quantities: Figures
    refusals: tuple[Refusal, ...]
    notes: tuple[str, ...]
    clocks: Mapping[str, ClockSummary]
    series: Series
    validity: Validity | None
    session_digest: str | None = None
    """SHA-256 of ``session.json``, for the result of a session."""

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``derived/results.json``."""
        start = self.start
        lab = {"lab": start.lab, "operator": start.operator, "configuration": start.configuration}
        return {
            "schema": SCHEMA,
            "run_id": self.run_id,
            "run_digest": self.run_digest,
            **({} if self.session_digest is None else {"session_digest": self.session_digest}),
            "complete": self.complete,
            "simulated": self.simulated,
            "device": start.device.name or None,
            "mode": start.device.mode,
            "meters": [m.name or None for m in start.meters],
            **start.played,
            "purpose": start.purpose,
            **{name: said for name, said in lab.items() if said},
            "validity": None if self.validity is None else _verdict(self.validity),
            "quantities": {str(key): q.to_json() for key, q in self.quantities.items()},
            "refusals": [r.to_json() for r in self.refusals],
            "notes": list(self.notes),
            "clocks": {name: asdict(c) for name, c in self.clocks.items()},
        }


def _verdict(validity: Validity) -> dict[str, Any]:
    checks = [{k: v for k, v in asdict(check).items() if k != "source" or v} for check in validity.checks]
    return {"verdict": validity.verdict, **asdict(validity), "checks": checks}
