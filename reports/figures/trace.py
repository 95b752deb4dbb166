"""Power over time with the device's activity behind it, small enough to embed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reports.figures.style import COLOURS, MUTED, TRACE, Floats, margins, new_figure
from reports.format import prefix
from reports.viewing.pyramid import gathered
from rig.analysis.result.series import RailSeries, Series
from rig.terminal import clean

Windows = dict[str, Floats]

_BUCKETS = 800  # columns of a panel's envelope; they keep the file below 300 kB
_COLUMNS = 480
_LEGEND_COLUMNS = 6


def power_figure(series: Series) -> Any:
    """Return panels for the total of all rails and for the first spans; None without data."""
    rails = [r for r in series.rails if len(r.watts)]
    if not rails:
        return None
    total = total_of(rails)
    span = float(total.start_s[0]), float(total.end_s[-1])
    near = _near(series, *span)
    panels = [(total, span, total.rail)]
    if near is not None:
        panels.append((total, near, f"{total.rail}, the first spans"))
    windows = windows_of(series)
    legend_rows = -(-(len(windows) + 1) // _LEGEND_COLUMNS)
    top = 0.25 * legend_rows + 0.35
    figure = new_figure(1.65 * len(panels) + top + 0.1)
    axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    margins(figure, top=top, gap=0.45)
    for axis, (rail, limits, heading) in zip(axes, panels, strict=True):
        draw_power(axis, rail, limits, _BUCKETS)
        _shade(axis, windows, limits)
        axis.set_title(clean(heading))
    axes[-1].set_xlabel("time since the start of the run, s")
    _legend(figure, windows)
    return figure


def total_of(rails: Sequence[RailSeries]) -> RailSeries:
    """Return the sum of rails at the readings of the finest rail; each reading is valid until the next one begins."""
    if len(rails) == 1:
        return rails[0]
    finest = max(rails, key=lambda r: len(r.watts))
    watts = np.zeros(len(finest.watts))
    for rail in rails:
        if len(rail.watts) == len(watts) and np.array_equal(rail.start_s, finest.start_s):
            watts = watts + rail.watts
        else:
            at = np.searchsorted(rail.start_s, 0.5 * (finest.start_s + finest.end_s), side="right") - 1
            watts = watts + np.where(at < 0, np.nan, rail.watts[np.maximum(at, 0)])
    return RailSeries(f"total of {len(rails)} rails", finest.start_s, finest.end_s, watts)


def windows_of(series: Series) -> Windows:
    """Return the windows of every activity, by its name in the legend."""
    named = {"idle": series.idle_windows_s, **series.phase_windows_s}
    named |= {"warm-up": series.warmup_windows_s, "mark": series.mark_windows_s}
    tables = {name: np.asarray(w, dtype=np.float64).reshape(-1, 2) for name, w in named.items()}
    return {name: w[np.argsort(w[:, 0], kind="stable")] for name, w in tables.items() if len(w)}


def _near(series: Series, first: float, last: float) -> tuple[float, float] | None:
    """Return where the first spans are: three of each phase, or only the first edge of a long one."""
    phases = [np.asarray(w).reshape(-1, 2) for w in series.phase_windows_s.values() if len(w)]
    if not phases or last <= first:
        return None
    windows = np.concatenate(phases)
    windows = windows[np.argsort(windows[:, 0], kind="stable")][: 3 * len(phases)]
    low, high = float(windows[0, 0]), float(windows[:, 1].max())
    if not (np.isfinite(low) and np.isfinite(high)) or high <= low:
        return None
    if high - low > 0.5 * (last - first):
        half = 0.03 * (last - first)
        return low - half, low + half
    pad = 0.12 * (high - low)
    return low - pad, high + pad


def draw_power(axis: Any, rail: RailSeries, limits: tuple[float, float], buckets: int) -> tuple[float, str]:
    """Draw one rail between two moments, as single readings or as its envelope.

    Returns the factor and unit of the axis.
    """
    low = max(int(np.searchsorted(rail.end_s, limits[0])) - 1, 0)
    high = int(np.searchsorted(rail.start_s, limits[1])) + 1
    start, end, watts = rail.start_s[low:high], rail.end_s[low:high], rail.watts[low:high]
    finite = np.abs(watts[np.isfinite(watts)])
    factor, unit = prefix(float(finite.max()) if len(finite) else 0.0, "W")
    if len(watts) > 2 * buckets:
        x, least, mean, most = envelope(start, end, watts * factor, buckets)
        axis.fill_between(x, least, most, color=TRACE, alpha=0.35, linewidth=0, zorder=2)
        axis.plot(x, mean, color=TRACE, linewidth=0.9, zorder=3)
    else:
        x = np.column_stack([start, end]).ravel()
        axis.plot(x, np.repeat(watts * factor, 2), color=TRACE, linewidth=1.0, zorder=3)
    axis.set_xlim(*limits)
    axis.set_ylabel(unit)
    axis.margins(y=0.08)
    return factor, unit


def envelope(start: Floats, end: Floats, watts: Floats, buckets: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return (time, least, mean, greatest) in ``buckets`` equal intervals of time; NaN without readings."""
    edges = np.linspace(start[0], end[-1], buckets + 1)
    cuts = np.searchsorted(start, edges[:-1])
    counts = np.diff(np.append(cuts, len(watts)))
    filled = counts > 0
    least, mean, most = (np.full(buckets, np.nan) for _ in range(3))
    finite = np.isfinite(watts)
    good, counted = np.where(finite, watts, np.nan), finite.astype(np.int64)
    least[filled], sums, most[filled], seen = gathered(cuts[filled], good, np.where(finite, watts, 0.0), good, counted)
    mean[filled] = np.divide(sums, seen, out=np.full(len(seen), np.nan), where=seen > 0)
    return 0.5 * (edges[:-1] + edges[1:]), least, mean, most


def _shade(axis: Any, windows: Windows, limits: tuple[float, float]) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    seen = {n: w[(w[:, 1] > limits[0]) & (w[:, 0] < limits[1])] for n, w in windows.items()}
    if sum(len(w) for w in seen.values()) > 150:
        seen = _by_column(seen, *limits)
    colours = colours_of(windows)
    for name, w in seen.items():
        if not len(w):
            continue
        low, high = np.maximum(w[:, 0], limits[0]), np.minimum(w[:, 1], limits[1])
        zero, one = np.zeros(len(w)), np.ones(len(w))
        corners = np.stack([low, zero, low, one, high, one, high, zero], axis=1).reshape(-1, 4, 2)
        boxes = Path.make_compound_path_from_polys(corners)
        patch = PathPatch(boxes, transform=axis.get_xaxis_transform(), zorder=0.5)
        patch.set(facecolor=colours[name], alpha=0.32, linewidth=0)
        axis.add_patch(patch)
        if high[0] - low[0] > 0.09 * (limits[1] - limits[0]):  # a name shows what a colour alone does not
            place = {"transform": axis.get_xaxis_transform(), "ha": "center", "fontsize": 7.5, "color": MUTED}
            axis.text(0.5 * (low[0] + high[0]), 0.02, clean(name).lstrip("_"), clip_on=True, **place)


def _by_column(windows: Windows, first: float, last: float) -> Windows:
    """Merge windows to columns of the picture; each column shows the activity that filled most of it, or a mark."""
    edges = np.linspace(first, last, _COLUMNS + 1)
    names = [name for name, w in windows.items() if len(w)]
    rows = []
    for name in names:
        knots = np.maximum.accumulate(windows[name].ravel())
        lengths = np.diff(knots, prepend=knots[0])
        lengths[::2] = 0.0  # no activity between one window's end and the next one's begin
        filled = np.diff(np.interp(edges, knots, np.cumsum(lengths)))
        rows.append(filled * (1e6 if name == "mark" else 1.0))
    weight = np.array(rows)
    winner = np.where(weight.max(axis=0) > 0, weight.argmax(axis=0), -1)
    turns = np.flatnonzero(np.diff(winner)) + 1
    begins, ends = np.append(0, turns), np.append(turns, _COLUMNS)
    runs = np.column_stack([edges[begins], edges[ends]])
    return {name: runs[winner[begins] == k] for k, name in enumerate(names)}


def colours_of(windows: Windows) -> dict[str, str]:
    """Return the colour of every activity."""
    spare = [c for n, c in COLOURS.items() if n not in windows and n not in ("idle", "warm-up", "mark")]
    strangers = [n for n in windows if n not in COLOURS]
    extra = {n: (spare or ["#000000"])[k % max(len(spare), 1)] for k, n in enumerate(strangers)}
    return {n: COLOURS.get(n) or extra[n] for n in windows}


def _legend(figure: Any, windows: Windows) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Line2D([], [], color=TRACE, label="power: mean, least, greatest")]
    for name, colour in colours_of(windows).items():
        handles.append(Patch(facecolor=colour, alpha=0.45, label=clean(name).lstrip("_")))
    place = {"loc": "upper left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.4}
    figure.legend(handles=handles, ncols=min(len(handles), _LEGEND_COLUMNS), **place)
