"""The model of the power trace in a report's page: small enough to embed, however long the trace is.

The whole trace is in columns of least, mean and greatest; around chosen spans there are single readings.
"""

import base64
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from reports.pictures.trace import colours_of, envelope, rails_of, total_of, windows_of
from reports.viewing.browse import LongTrace, Look, between, long_trace, placed
from reports.viewing.jumps import jumps_of
from rig.analysis.result.series import RailSeries, Series
from rig.recording.reader import Run
from rig.terminal import clean
from rig.types import Floats

_RAILS = 4
"""With more rails than this, only their total is shown."""
WHOLE = 32_768
"""Columns of the whole trace over all rails, of 16 bytes each in the page."""
NEAR, NEAR_ALL = 1_000, 60_000
"""The most readings (or columns, if a span is long) around each chosen span, and around all of them in all rails."""
LONG = 1.5
"""A trace is long if it has at least this many times the readings of its series, which then consists of means."""
SPANS = 8_000
"""If a run has at most this many spans, all are in the page; of more spans, those around the chosen ones are."""


def embedded(series: Series, simulated: bool, run: Run | None = None) -> dict[str, Any] | None:
    """Return the model of a run's trace, or None if it has no readings. It is at most about 3 MB as JSON.

    If the series of a long trace holds means of several readings, the columns come from the trace of ``run``.
    """
    rails = rails_of(series)
    if not rails:
        return None
    total = total_of(rails)
    shown = [total, *(rails if 1 < len(rails) <= _RAILS else [])]
    windows = windows_of(series)
    phases = {name: w for name, w in windows.items() if name in series.phase_windows_s}
    jumps = jumps_of(phases, {name: _energies(total, w) for name, w in phases.items()})
    near = list(dict.fromkeys((2 * j.low - j.high, 2 * j.high - j.low) for j in jumps))
    each = min(NEAR, NEAR_ALL // max(3 * len(near) * len(shown), 1))
    many = sum(map(len, windows.values()))
    few = many <= SPANS
    traces, most = _long(rails, run), WHOLE // len(shown)
    return {
        "mark": "SIMULATED" if simulated else "",
        "extent": [float(total.start_s[0]), float(total.end_s[-1])],
        "rails": [
            {"name": clean(r.rail), "unit": "W", "layers": _layers(r, traces.get(r.rail), near, each, most)}
            for r in shown
        ],
        "phases": [{"name": clean(name), "colour": colour} for name, colour in colours_of(windows).items()],
        "spans": [_packed(w if few else _touching(w, near), "<f8") for w in windows.values()],
        "hidden": "" if few else f"of {many} spans, those near the listed ones are shaded",
        "jumps": [asdict(jump) for jump in jumps],
    }


def _long(rails: Sequence[RailSeries], run: Run | None) -> dict[str, LongTrace]:
    """Return traces by rail that have more readings than the series, on the time axis of the series."""
    if run is None or not run.traces:
        return {}
    found = dict[str, LongTrace]()
    series = {rail.rail: rail for rail in rails}
    for (name, held), batches in zip(run.traces.items(), run.trace_files, strict=True):
        rail = series.get(name)
        if rail is not None and len(held.value) > max(LONG * len(rail.watts), WHOLE):
            trace = long_trace(run, held, batches, placed(held, float(rail.start_s[0]), float(rail.end_s[-1])))
            found |= {name: trace} if trace.unit == "W" else {}
    return found


def _touching(windows: Floats, near: Sequence[tuple[float, float]]) -> Floats:
    seen = np.zeros(len(windows), bool)
    for low, high in near:
        seen |= (windows[:, 1] >= low) & (windows[:, 0] <= high)
    return np.asarray(windows[seen])


def _layers(
    rail: RailSeries, trace: LongTrace | None, near: Sequence[tuple[float, float]], each: int, columns: int
) -> list[dict[str, Any]]:
    """Return columns and single readings, the finest first; the last layer is the whole trace."""
    look = partial(series_look, rail) if trace is None else trace.look
    extent = (float(rail.start_s[0]), float(rail.end_s[-1]))
    whole = look(*extent, columns)
    if whole.single:
        return [_layer(whole)]
    around = [look(max(low, extent[0]), min(high, extent[1]), each) for low, high in near]
    fine = 0.25 * each * (extent[1] - extent[0]) / max(whole.readings, 1)
    for (low, high), seen in zip(near, list(around), strict=True):
        if not seen.single:  # for a long span, single readings are stored only at its ends
            around += [look(at - fine, at + fine, each) for at in ((2 * low + high) / 3, (low + 2 * high) / 3)]
    layers = [_layer(x) for x in around if len(x.mean)]
    return [*sorted(layers, key=lambda x: float(x["high"] - x["low"])), _layer(whole)]


def series_look(rail: RailSeries, low_s: float, high_s: float, columns: int) -> Look:
    """Return the readings of a series in memory between two moments, as ``LongTrace.look`` does."""
    first = int(np.searchsorted(rail.end_s, low_s, side="right"))
    last = max(int(np.searchsorted(rail.start_s, high_s, side="left")), first)
    start, end, watts = rail.start_s[first:last], rail.end_s[first:last], rail.watts[first:last]
    missing = int(np.count_nonzero(~np.isfinite(watts)))
    if len(watts) <= 2 * columns:
        return Look(np.append(start, end[-1:]), watts, watts, watts, len(watts), missing, True)
    _, least, mean, most = envelope(start, end, watts, columns)
    return Look(np.linspace(start[0], end[-1], columns + 1), least, mean, most, len(watts), missing, False)


def _layer(look: Look) -> dict[str, Any]:
    edges, n = look.edges_s, len(look.mean)
    low, high = float(edges[0]), float(edges[-1])
    uniform = np.abs(edges - np.linspace(low, high, n + 1)) <= 0.01 * (high - low) / n
    names = ("mean",) if look.single else ("least", "mean", "most")
    layer: dict[str, Any] = {"low": low, "high": high, "single": look.single}
    layer |= {name: _packed(getattr(look, name)) for name in names}
    return layer if uniform.all() else layer | {"edges": _packed(edges, "<f8")}


def _energies(rail: RailSeries, windows: Floats) -> Floats:
    """Return joules in each window, shape (k,); readings at its ends count in part. NaN if a reading is missing."""
    length, good = rail.end_s - rail.start_s, np.isfinite(rail.watts)
    knots = np.column_stack([rail.start_s, np.append(rail.start_s[1:], rail.end_s[-1])]).ravel()
    energy, missing = (between(windows, knots, x * length) for x in (np.where(good, rail.watts, 0.0), ~good))
    inside = (windows[:, 0] >= knots[0]) & (windows[:, 1] <= knots[-1])
    return np.where((missing > 0) | ~inside, np.nan, energy)


def _packed(values: Floats, kind: str = "<f4") -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode()
