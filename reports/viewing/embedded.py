"""The model of the power trace for the page of a report: small enough to embed, whatever the length of the trace.

The whole trace is in columns of least, mean and greatest; around chosen spans there are single readings.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from reports.figures.style import Floats
from reports.figures.trace import MAX_RAIL_PANELS, colours_of, envelope, total_of, windows_of
from reports.viewing.jumps import Jump, jumps_of
from rig.analysis.result import RailSeries, Series
from rig.terminal import clean

WHOLE = 32_768
"""Columns of the whole trace, shared by the rails: 16 bytes each in the page."""
NEAR, NEAR_ALL = 1_000, 60_000
"""Single readings, or columns of a long span, around each chosen span, and around all of them for all rails."""
SPANS = 8_000
"""Spans of all phases that are drawn wherever they are; of a run with more, only those around the chosen ones."""


def embedded(series: Series, simulated: bool) -> dict[str, Any] | None:
    """Return the model of a run's trace, or None if it has no readings. It is at most about 2 MB as JSON."""
    rails = [r for r in series.rails if len(r.watts)]
    if not rails:
        return None
    total = total_of(rails)
    shown = [total, *(rails if 1 < len(rails) <= MAX_RAIL_PANELS else [])]
    windows = windows_of(series)
    phases = {name: w for name, w in windows.items() if name in series.phase_windows_s}
    jumps = jumps_of(phases, {name: _energies(total, w) for name, w in phases.items()})
    near = list(dict.fromkeys(_around(jump) for jump in jumps))
    each = min(NEAR, NEAR_ALL // max(3 * len(near) * len(shown), 1))
    few = sum(map(len, windows.values())) <= SPANS
    return {
        "simulated": simulated,
        "extent": [float(total.start_s[0]), float(total.end_s[-1])],
        "rails": [
            {"name": clean(r.rail), "unit": "W", "layers": _layers(r, near, each, WHOLE // len(shown))} for r in shown
        ],
        "phases": [{"name": clean(name), "colour": colour} for name, colour in colours_of(windows).items()],
        "spans": [_packed(w if few else _touching(w, near), "<f8") for w in windows.values()],
        "jumps": [jump.to_json() for jump in jumps],
    }


def _around(jump: Jump) -> tuple[float, float]:
    """A chosen span with as much again at each side."""
    length = jump.high - jump.low
    return jump.low - length, jump.high + length


def _touching(windows: Floats, near: Sequence[tuple[float, float]]) -> Floats:
    seen = np.zeros(len(windows), bool)
    for low, high in near:
        seen |= (windows[:, 1] >= low) & (windows[:, 0] <= high)
    return windows[seen]


def _layers(rail: RailSeries, near: Sequence[tuple[float, float]], each: int, columns: int) -> list[dict[str, Any]]:
    """Columns and single readings, the finest first; the last layer is the whole trace."""
    whole = _layer(rail, 0, len(rail.watts), columns)
    if whole["single"]:
        return [whole]
    around = [_layer(rail, first, last, each) for first, last in dict.fromkeys(_stretches(rail, near, each))]
    return [*sorted(around, key=lambda x: float(x["high"] - x["low"])), whole]


def _stretches(rail: RailSeries, near: Sequence[tuple[float, float]], each: int) -> Iterator[tuple[int, int]]:
    """The readings around each chosen span, and those at its ends if it is long."""
    for low, high in near:
        first = int(np.searchsorted(rail.end_s, low, side="right"))
        last = int(np.searchsorted(rail.start_s, high, side="left"))
        if last > first:
            yield first, last
        for at in ((2 * low + high) / 3, (low + 2 * high) / 3) if last - first > each else ():
            begin = max(int(np.searchsorted(rail.start_s, at)) - each // 2, 0)
            if begin < len(rail.watts):
                yield begin, min(begin + each, len(rail.watts))


def _layer(rail: RailSeries, first: int, last: int, columns: int) -> dict[str, Any]:
    start, end, watts = rail.start_s[first:last], rail.end_s[first:last], rail.watts[first:last]
    low, high = float(start[0]), float(end[-1])
    layer: dict[str, Any] = {"low": low, "high": high, "single": last - first <= columns}
    if not layer["single"]:
        _, least, mean, most = envelope(start, end, watts, columns)
        return layer | {"least": _packed(least), "mean": _packed(mean), "most": _packed(most)}
    edges = np.append(start, high)
    uniform = np.abs(edges - np.linspace(low, high, len(edges))) <= 0.01 * (high - low) / len(start)
    return layer | {"mean": _packed(watts)} | ({} if uniform.all() else {"edges": _packed(edges, "<f8")})


def _energies(rail: RailSeries, windows: Floats) -> Floats:
    """Joules in each window, shape (k,), readings at its ends in part; NaN where a reading is missing."""
    length = rail.end_s - rail.start_s
    good = np.isfinite(rail.watts)
    knots = np.append(rail.start_s, rail.end_s[-1])
    done, lost = (
        np.concatenate([[0.0], np.cumsum(x)]) for x in (np.where(good, rail.watts, 0.0) * length, ~good * length)
    )
    energy, missing = (np.diff(np.interp(windows, knots, x), axis=1)[:, 0] for x in (done, lost))
    inside = (windows[:, 0] >= knots[0]) & (windows[:, 1] <= knots[-1])
    return np.where((missing > 0) | ~inside, np.nan, energy)


def _packed(values: Floats, kind: str = "<f4") -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode()
