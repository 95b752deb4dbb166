"""Service as a picture: latency over time, and the share of answers within a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reports.figures.style import COLOURS, INK, KEY_IN, LIMIT, TRACE, WIDTH_IN, Floats, key_beside, log_axis, panel_pair
from reports.format import prefix, quantity_text, si
from rig.analysis.result.order_statistics import percentile
from rig.analysis.result.result import Result
from rig.recording.records import ScenarioRecord

_MARKS = 1200  # at most this many samples are drawn one by one; more are drawn as columns
_COLUMNS = 600
_WIDE = 30.0  # if greatest / least is at least this, an axis is logarithmic
_MARKED = (
    (0.5, "o", INK),
    (0.9, "s", COLOURS["postprocess"]),
    (0.99, "^", COLOURS["preprocess"]),
    (0.999, "D", COLOURS["mark"]),
)


def service_figure(result: Result) -> Any:
    """Draw latency over time and the share of samples completed within a time; None without data."""
    series = result.series
    requested, took = (np.asarray(x, dtype=np.float64) for x in (series.requested_s, series.latency_s))
    known = np.isfinite(requested) & np.isfinite(took)
    if not np.any(known):
        return None
    order = np.argsort(requested[known], kind="stable")
    requested, took = requested[known][order], took[known][order]
    limit = _limit(result.start.scenario)
    bound_s = limit[1] if limit else math.inf
    low, high = float(took.min()), float(np.max(took, initial=bound_s if limit else 0.0))
    wide = low > 0 and high / low > _WIDE
    factor, unit = prefix(float(np.median(took)) if wide else high, "s")
    figure, left, right = panel_pair(0.07, sharey=True)
    _over_time(left, requested, took * factor, bound_s * factor)
    _distribution(right, took, factor)
    if limit:
        label = f"{limit[0]} {si(limit[1], 's')}"
        for axis in (left, right):
            line = {"color": LIMIT, "linestyle": (0, (6, 2)), "linewidth": 1.2, "zorder": 4}
            axis.axhline(bound_s * factor, label=label if axis is left else None, **line)
    _height(left, (low * factor, high * factor), wide, bounded=limit is not None)
    over = f", {np.count_nonzero(took > bound_s)} over the {limit[0]}" if limit else ""
    left.set_title(f"time from request to completion, n = {len(took)}{over}")
    left.set_ylabel(unit)
    key_beside(figure, (left, right))
    return figure


def _limit(scenario: ScenarioRecord) -> tuple[str, float] | None:
    """Return the name of the scenario's bound on latency, and the bound (s)."""
    for name, value in (("bound", scenario.latency_bound_s), ("deadline", scenario.deadline_s)):
        if isinstance(value, (int, float)) and np.isfinite(value) and value > 0:
            return name, float(value)
    return None


def _over_time(axis: Any, asked: Floats, took: Floats, bound: float) -> None:
    if len(took) <= _MARKS:
        dot: dict[str, Any] = {"linestyle": "", "marker": "o", "ms": 2.6, "mew": 0, "color": TRACE}
        cross: dict[str, Any] = {"linestyle": "", "marker": "x", "ms": 4.5, "mew": 1.1, "color": LIMIT}
        for late, style, label in ((took <= bound, dot, "a sample"), (took > bound, cross, "a sample too late")):
            if np.any(late):
                axis.plot(asked[late], took[late], zorder=3, label=label, **style)
    else:
        begin, end, least, middle, most = _columns(asked, took)
        x, gap = 0.5 * (begin + end), np.full(len(begin), np.nan)
        bars = np.column_stack([x, x, gap]).ravel(), np.column_stack([least, most, gap]).ravel()
        axis.plot(*bars, color=TRACE, alpha=0.4, linewidth=1.0, zorder=2, label="least to greatest")
        dashes = np.column_stack([begin, end, gap]).ravel(), np.column_stack([middle, middle, gap]).ravel()
        axis.plot(*dashes, color=TRACE, linewidth=1.6, solid_capstyle="butt", zorder=3, label="median of a column")
    room = 0.02 * (asked[-1] - asked[0]) or 0.5
    axis.set_xlim(asked[0] - room, asked[-1] + room)
    axis.set_xlabel("asked, s since the start of the run")


def _columns(x: Floats, y: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return (begin, end, least, median, greatest) of the columns that are not empty; ``x`` is sorted."""
    edges = np.linspace(x[0], x[-1], _COLUMNS + 1)
    column = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, _COLUMNS - 1)
    order = np.lexsort((y, column))
    begin = np.searchsorted(column, np.arange(_COLUMNS + 1))  # lexsort keeps the order of columns
    held = np.flatnonzero(np.diff(begin))
    first, last, ordered = begin[held], begin[held + 1] - 1, y[order]
    return edges[held], edges[held + 1], ordered[first], ordered[(first + last) // 2], ordered[last]


def _distribution(axis: Any, took: Floats, factor: float) -> None:
    """Draw latency against the share answered within it; each nine (90 %, 99 %, ...) has the same width."""
    ordered = np.sort(took)
    n = len(ordered)
    slower = np.unique(np.concatenate([np.geomspace(1, n, 300), np.linspace(1, n, 100)]).astype(int)) - 1
    x, y = n / (slower + 0.5), ordered[n - 1 - slower] * factor
    axis.step(x[::-1], y[::-1], where="mid", color=TRACE, linewidth=1.3, zorder=3)
    for p, mark, colour in _MARKED:
        if p <= 1.0 - 1.0 / n or (n == 1 and p == 0.5):
            q = percentile(ordered, p)
            text = f"p{100 * p:g}: {quantity_text(q) if q.u else si(q.value, 's')}"
            label = text.replace(": ", "\n") if len(text) > 20 else text
            style = {"marker": mark, "ms": 6.0, "mec": "white", "mew": 0.7, "linestyle": ""}
            axis.plot([1.0 / (1.0 - p)], [q.value * factor], color=colour, label=label, zorder=5, **style)
    _nines(axis, 2.4 * n)
    axis.set_xlabel("samples completed within, %")
    axis.tick_params(labelleft=False)


def _nines(axis: Any, end: float) -> None:
    """Make a logarithmic axis, up to ``end``, of 1 / (share of slower answers), with the other share as labels."""
    width_in = (WIDTH_IN - 0.8 - KEY_IN) / 2.6
    shares: list[float] = []
    last_in = -1.0
    for p in (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999):
        at_in = width_in * math.log10(1.0 / (1.0 - p)) / math.log10(end)
        half_in = 0.5 * 0.07 * len(f"{100 * p:.6g}")
        if at_in - half_in > last_in + 0.04 and at_in + half_in < width_in + 0.1:
            shares.append(p)
            last_in = at_in + half_in
    axis.set_xscale("log")
    axis.set_xticks([1.0 / (1.0 - p) for p in shares], [f"{100 * p:.6g}" for p in shares])
    axis.set_xticks([], minor=True)
    axis.set_xlim(1.0, end)


def _height(axis: Any, extent: tuple[float, float], wide: bool, bounded: bool) -> None:
    """Set one scale for both panels: logarithmic if the spread is large, else from 0 if there is a bound."""
    low, high = extent
    if wide:
        log_axis(axis.yaxis, axis.set_yscale)
        axis.set_ylim(low / 1.4, high * 1.4)
    elif bounded:
        axis.set_ylim(0.0, 1.1 * high)
    else:
        room = max(0.08 * (high - low), 1e-3 * high, 1e-9)
        axis.set_ylim(low - room, high + room)
