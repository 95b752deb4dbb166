"""Define the result of a run: figures, refusals, notes, the verdict, and the series that pictures need."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from rig.analysis.result.finding import Finding
from rig.analysis.result.quantity import Figures
from rig.analysis.result.series import Series
from rig.analysis.result.verdict import Ruling, Validity
from rig.recording.events import Start
from rig.terminal import clean

if TYPE_CHECKING:
    import pandas as pd

SCHEMA, RESULTS = "neurorig-results/1", "results.json"
"""The form of ``to_json``, and the name of its file."""


class ClockSummary(Struct, frozen=True):
    """How one clock was mapped: the device's clock to the host's clock, a meter's clock to the device's clock.

    ``sigma_s`` is the standard uncertainty of this map. ``rate_error`` is the share by which a nominal second of this
    clock is longer than a second of the host. It is negative if the clock is fast. ``rate_sigma`` is the standard
    uncertainty of ``rate_error``.
    """

    clock: str
    method: str
    sigma_s: float
    rate_error: float
    rate_sigma: float
    brackets: int
    considered: Mapping[str, float]
    """Every method that gave a map, with the standard uncertainty of its map in seconds; empty for the host's clock."""


class Result(Struct, frozen=True):
    """Everything that the rig computes of one run or session."""

    run_id: str
    """The name of the run or session."""
    run_digest: str
    """SHA-256 of ``events.jsonl``, in hex; for a session, of the run that its pictures show."""
    complete: bool
    """Whether the run was played to its end."""
    simulated: bool
    """Whether the device or a meter is a simulation."""
    start: Start
    """The set-up of the measurement: device, meters, scenario, workload, rules, host."""
    quantities: Figures
    """Each ``Quantity`` by its name in ``results.json``, in SI units; names end in the unit unless it is 1."""
    findings: tuple[Finding, ...]
    """Checks, notes and refusals; ``validity``, ``notes`` and ``refusals`` are views of these findings."""
    clocks: Mapping[str, ClockSummary]
    """How each clock was mapped, by its name."""
    series: Series
    """The arrays that pictures are drawn from; ``frames()`` gives them as tables."""
    ruling: Ruling | None
    """The rules by which it is judged; None for a result under no rules."""
    session_digest: str | None = None
    """SHA-256 of ``session.json``, for the result of a session."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the sentences that are shown beside the figures, each once."""
        said = (f.text for f in self.findings if f.effect == "note" or (f.told and not f.ok))
        return tuple(dict.fromkeys(said))

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """Return the figures that the recording cannot support."""
        return tuple(f for f in self.findings if f.effect == "refusal")

    @property
    def validity(self) -> Validity | None:
        """Return the verdict, or None under no rules."""
        if self.ruling is None:
            return None
        return Validity(*self.ruling, tuple(f for f in self.findings if f.effect == "check"))

    @property
    def power_refused(self) -> bool:
        """Return whether there was a meter, but its readings support no active power."""
        return bool(self.start.meters) and not any(key.quantity == "active_power_w" for key in self.quantities)

    @property
    def verdict(self) -> str:
        """Return VALID or INVALID, or for which figures the result is valid; "" without rules."""
        return "" if self.validity is None else self.validity.verdict(self.power_refused)

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each figure, by its name in ``results.json``.

        The columns are ``value``, ``low`` and ``high`` (the 95 % interval, NaN where no uncertainty is stated),
        ``unit``, ``n`` and ``method``.
        """
        import pandas as pd

        columns = ("value", "low", "high", "unit", "n", "method")
        quantities, unknown = self.quantities.values(), (math.nan, math.nan)
        rows = [(q.value, *(q.interval() if q.stated else unknown), q.unit, q.n, q.method) for q in quantities]
        return pd.DataFrame(rows, index=pd.Index([str(key) for key in self.quantities], name="figure"), columns=columns)

    def frames(self) -> dict[str, pd.DataFrame]:
        """Return the data of pictures as tables, in watts and in seconds since the run's start.

        ``trace.RAIL`` has ``start_s``, ``end_s`` and ``watts``, which is NaN where a reading cannot be used.
        ``spans`` has ``phase``, ``on_s`` and ``off_s``; ``idle`` is among the phases. ``requests`` has ``requested_s``
        and ``latency_s``. ``Run.frames`` has the ticks as they were recorded.
        """
        import pandas as pd

        series = self.series
        windows = {**series.phase_windows_s, "idle": series.idle_windows_s}
        spans = [(phase, *window) for phase, found in windows.items() for window in found.tolist()]
        frames = {
            "spans": pd.DataFrame(spans, columns=("phase", "on_s", "off_s")),
            "requests": pd.DataFrame({"requested_s": series.requested_s, "latency_s": series.latency_s}),
        }
        for rail in series.rails:
            columns = {"start_s": rail.start_s, "end_s": rail.end_s, "watts": rail.watts}
            frames[f"trace.{rail.rail}"] = pd.DataFrame({name: np.asarray(found) for name, found in columns.items()})
        return frames

    def _repr_html_(self) -> str:
        """Return the figures of the whole device as a table, for notebooks."""
        import html

        said = [clean(self.run_id)]
        said += ["SIMULATED"] if self.simulated else []
        said += [f"{self.verdict} by {clean(self.validity.rules)}"] if self.validity is not None else []
        said += [f"refused: {clean(r.scope)} ({clean(r.reason)})" for r in self.refusals]
        lines = "".join(f"<p>{html.escape(text)}</p>" for text in said)
        names = [str(key) for key in self.quantities if key.of_whole]
        rows = self.to_frame().loc[names, ["value", "low", "high", "unit"]]
        return lines + rows.to_html(float_format="{:.6g}".format, na_rep="")

    def text(self) -> str:
        """Return ``to_json`` as strict JSON, with null for NaN and infinity; the same result gives the same text."""
        text = msgspec.json.encode(self.to_json(), order="sorted", enc_hook=lambda value: value.tolist())
        return msgspec.json.format(text, indent=1).decode() + "\n"

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
            "validity": None if self.validity is None else _validity(self.validity, self.verdict),
            "quantities": {str(key): q.to_json() for key, q in self.quantities.items()},
            "refusals": [{"scope": str(r.scope), "reason": r.reason, "remedy": r.remedy} for r in self.refusals],
            "notes": list(self.notes),
            "clocks": {name: asdict(c) for name, c in self.clocks.items()},
        }


def _validity(validity: Validity, verdict: str) -> dict[str, Any]:
    names = ("rule", "found", "allowed", "ok", "source", "remedy")
    checks = [{k: said for k in names if (said := getattr(c, k)) or k not in names[4:]} for c in validity.checks]
    ruling = {"rules": validity.rules, "source": validity.source, "submittable": validity.submittable}
    return {"verdict": verdict, **ruling, "checks": checks}
