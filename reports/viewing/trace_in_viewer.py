"""Prepare the whole trace of a run directory for a page: its rails, its spans, and the spans to look at first."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reports.format import si
from reports.pictures.trace import colours_of
from reports.viewing.browse import LongTrace, long_trace
from reports.viewing.jumps import jumps_of
from reports.viewing.trace_index import Told
from rig.analysis.timing.clocks_and_tolerances import timebase_of
from rig.analysis.timing.counted_spans import activity_of
from rig.errors import RigError, StoreError
from rig.recording.reader import Run, open_run
from rig.recording.session_json import runs_in
from rig.terminal import clean
from rig.types import Floats, Indices

COLUMNS = (10, 4000)
"""The fewest and the most columns of a picture; a request for another number gets the nearer of these."""
SPANS = 600
"""The most spans in one picture."""
HIDDEN = f"more than {SPANS} spans, zoom in to see them"
OTHERS = ("idle", "warm-up", "mark")
"""Names of windows that are not spans of a phase."""
PLAIN = "Values of a stretch in view are plain means of readings without uncertainty, and no results"


@dataclass(frozen=True)
class Whole:
    """A run with its traces; ``windows`` holds the times of each activity by name, shapes (k, 2), sorted by begin."""

    run: Run
    traces: tuple[LongTrace, ...]
    windows: Mapping[str, Floats]
    notes: tuple[str, ...]

    def model(self) -> dict[str, Any]:
        """Return the page's content besides the picture. This sums the energy of every span."""
        phases = {name: w for name, w in self.windows.items() if name not in OTHERS}
        found = jumps_of(phases, *_of_spans(self.traces, phases))
        ends = [trace.extent_s for trace in self.traces]
        return {
            "run": clean(self.run.start.run_id), "device": clean(self.run.start.device.name),
            "mark": "SIMULATED" if self.run.start.simulated else "",
            "extent": [min(low for low, _ in ends), max(high for _, high in ends)],
            "rails": [{"name": clean(t.trace.rail.name), "unit": clean(t.unit)} for t in self.traces],
            "phases": [{"name": clean(name), "colour": c} for name, c in colours_of(dict(self.windows)).items()],
            "jumps": [asdict(jump) for jump in found], "notes": [clean(note) for note in self.notes],
        }  # fmt: skip

    def columns(self, rail: int, low_s: float, high_s: float, columns: int) -> dict[str, Any]:
        """Return a part of a rail and its spans, in the form that the page draws.

        Raises ``ValueError`` for a part or a rail that does not exist.
        """
        if not (0 <= rail < len(self.traces) and np.isfinite([low_s, high_s]).all() and low_s < high_s):
            raise ValueError("no such stretch")
        look = self.traces[rail].look(low_s, high_s, min(max(columns, COLUMNS[0]), COLUMNS[1]))
        seen = [
            (k, *window)
            for k, w in enumerate(self.windows.values())
            for window in w[np.searchsorted(w[:, 1], low_s) : np.searchsorted(w[:, 0], high_s)][: SPANS + 1].tolist()
        ]
        return {
            "edges": look.edges_s.tolist(),
            **{name: _numbers(getattr(look, name)) for name in ("least", "mean", "most")}, "single": look.single,
            "spans": seen if len(seen) <= SPANS else [], "hidden": HIDDEN if len(seen) > SPANS else "",
        }  # fmt: skip


def whole_trace(path: Path, told: Told | None = None) -> Whole:
    """Return the traces of a run directory, or of the first run with traces in a session; hashes are verified.

    Raises what ``open_run`` raises, and ``StoreError`` if no rail other than logic inputs has readings.
    """
    for folder, _ in runs_in(path):
        if not any((folder / "traces").glob("*.arrows")):
            continue
        run = open_run(folder, at_once=0)
        files = [(t, b) for t, b in zip(run.traces.values(), run.trace_files, strict=True)
                 if t.rail.kind != "edges" and len(t.value)]  # fmt: skip
        if files:
            traces = tuple(long_trace(run, t, b, timebase_of(run, t.clock, t.rail.name), told) for t, b in files)
            windows, doubt_s, notes = _windows(run)
            doubt_s = float(np.hypot(doubt_s, max(trace.clock.sigma_s for trace in traces)))
            placed = f"Spans are placed by clock readings alone, to about {si(doubt_s, 's', 2)}"
            return Whole(run, traces, windows, (*notes, *([placed] if windows else []), PLAIN))
    remedy = "Name a run that a meter watched; a session records its power run last"
    raise StoreError(f"{path} has no trace of power", field="run", value=str(path), remedy=remedy)


def _windows(run: Run) -> tuple[dict[str, Floats], float, tuple[str, ...]]:
    """Return windows by name of phases and other activity, the sigma of the device's clock (s), and notes."""
    clock = run.start.device.clock
    try:
        device = timebase_of(run, clock.name if clock else "host")
        activity = activity_of(run, device)
    except RigError as error:
        return {}, 0.0, (f"Spans are not shown: {error}",)
    if run.start.device.spans_on_pin:
        return {}, 0.0, ("Spans are not shown: they are marked on a pin, which must be read first",)
    found = {name: phase.windows_s for name, phase in sorted(activity.phases.items())}
    found |= dict(zip(OTHERS, (activity.idle_s, activity.warmup_s, activity.marks_s), strict=True))
    return {name: w[np.argsort(w[:, 0], kind="stable")] for name, w in found.items() if len(w)}, device.sigma_s, ()


def _of_spans(
    traces: tuple[LongTrace, ...], phases: Mapping[str, Floats]
) -> tuple[dict[str, Floats], dict[str, Indices]]:
    """Return each span's energy over all rails of power, NaN if unknown, and the number of its clipped readings."""
    windows = np.concatenate([np.zeros((0, 2)), *phases.values()])
    energy, clipped = np.zeros(len(windows)), np.zeros(len(windows), np.int64)
    for trace in traces:
        joules, over = trace.over(windows)
        energy, clipped = energy + (joules if trace.unit == "W" else 0.0), clipped + over
    ends = np.cumsum([len(w) for w in phases.values()])[:-1]
    powered = phases if any(trace.unit == "W" for trace in traces) else {}
    joules_of: dict[str, Floats] = dict(zip(powered, np.split(energy, ends), strict=False))
    return joules_of, dict(zip(phases, np.split(clipped, ends), strict=False))


def _numbers(values: Floats) -> list[float | None]:
    """Replace NaN by None, because JSON has no NaN."""
    return [x if good else None for x, good in zip(values.tolist(), np.isfinite(values).tolist(), strict=True)]
