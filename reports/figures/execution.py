"""Execution times on the device as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reports.figures.style import COLOURS, INK, TRACE, Floats, key_beside, log_axis, panel_pair
from reports.format import prefix, quantity_text
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.quantity import Quantity


def execution_figure(times_s: Floats, quantities: Mapping[FigureKey, Quantity]) -> Any:
    """Return how often each execution time occurred and which share took no longer; None without data."""
    times = np.sort(np.asarray(times_s, dtype=np.float64)[np.isfinite(times_s)])
    if not len(times):
        return None
    factor, unit = prefix(float(np.median(np.abs(times))), "s")
    x = times * factor
    figure, left, right = panel_pair(0.16)
    wide = x[0] > 0 and x[-1] / np.median(x) > 50
    count = int(np.clip(np.sqrt(len(x)), 8, 60))
    room = max(0.02 * (x[-1] - x[0]), 1e-3 * abs(x[-1]), 1e-9)
    low, high = (x[0] * 0.9, x[-1] * 1.1) if wide else (x[0] - room, x[-1] + room)
    edges = np.geomspace(low, high, count + 1) if wide else np.linspace(low, high, count + 1)
    left.hist(x, bins=edges, color=COLOURS["inference"], alpha=0.75, edgecolor="white", linewidth=0.4)
    left.set_xlabel(unit)
    left.yaxis.get_major_locator().set_params(integer=True)
    left.set_title(f"inferences by execution time, n = {len(x)}")
    at = np.unique(np.linspace(0, len(x) - 1, min(len(x), 500)).astype(int))
    right.step(x[at], (at + 1) / len(x), where="post", color=TRACE, linewidth=1.2)
    right.set(ylim=(0, 1.04), xlabel=unit)
    right.set_title("share that took no longer")
    for axis, most in ((left, 4), (right, 2)):  # times that differ in the last digits alone have long labels
        axis.xaxis.get_major_locator().set_params(nbins=most)
        if wide:
            log_axis(axis.xaxis, axis.set_xscale)
    _percentiles((left, right), quantities, factor)
    key_beside(figure, (left,))
    return figure


def _percentiles(axes: tuple[Any, Any], quantities: Mapping[FigureKey, Quantity], factor: float) -> None:
    percentiles = [(p, FigureKey("execution_time_p{percentile}_s", percentile=p)) for p in (50, 90, 99)]
    lines = [("mean", FigureKey("execution_time_s")), *((f"p{p}", key) for p, key in percentiles)]
    colours = (INK, COLOURS["postprocess"], COLOURS["preprocess"], COLOURS["mark"])
    for (label, key), dash, colour in zip(lines, ("-", "--", "-.", ":"), colours, strict=True):
        q = quantities.get(key)
        if q is None or not np.isfinite(q.value):
            continue
        for axis in axes:
            axis.axvline(q.value * factor, color=colour, linestyle=dash, linewidth=1.3, zorder=4)
        text = f"{label}: {quantity_text(q)}"
        text = text if len(text) <= 24 else text.replace(": ", "\n", 1).replace(" (", "\n(", 1)
        axes[0].plot([], [], color=colour, linestyle=dash, label=text)
