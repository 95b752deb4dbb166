"""The pictures of a report as SVG: a stream, power, times, service, and the components of the uncertainty.

Figures are drawn without pyplot, and the same result gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reports.figures.execution import execution_figure
from reports.figures.service import service_figure
from reports.figures.solver import solver_figure
from reports.figures.stream import stream_figure
from reports.figures.style import COLOURS, INK, margins, new_figure, styled, svg_of
from reports.figures.trace import power_figure
from reports.format import budget, si
from reports.names import text_of, title
from rig.analysis.figure_key import FigureKey
from rig.analysis.quantity import Quantity
from rig.analysis.result import Result
from rig.terminal import clean

_BUDGET_OF = tuple(
    FigureKey(quantity)
    for quantity in ("dynamic_power_w", "active_power_w", "energy_per_inference_j", "execution_time_s")
)


def draw(result: Result) -> dict[str, bytes]:
    """Return SVG by the names in ``reports.render.FIGURES``; a figure without data is left out."""
    with styled():
        figures = {
            "stream": stream_figure(result.series, result.quantities),
            "power": power_figure(result.series),
            "latency": execution_figure(result.series.execution_times_s, result.quantities),
            "service": service_figure(result),
            "solver": solver_figure(result.series.solves),
            "budget": _budget(result.quantities),
        }
        return {name: svg_of(f, name, {result.simulated}) for name, f in figures.items() if f is not None}


# ---- uncertainty --------------------------------------------------------------------------


def _budget(quantities: Mapping[FigureKey, Quantity]) -> Any:
    key = next((key for key in _BUDGET_OF if key in quantities and quantities[key].u > 0), None)
    if key is None:
        return None
    q = quantities[key]
    lines = [line for line in budget(q) if np.isfinite(line.share)]
    rows = [(clean(x.source)[:48], x.share, f"{100 * x.share:.1f} %, u = {si(x.u, q.unit, 2)}") for x in lines[:8]]
    if lines[8:]:
        rows.append((f"{len(lines) - 8} more", sum(x.share for x in lines[8:]), ""))
    if not rows:
        return None
    figure = new_figure(0.9 + 0.32 * len(rows))
    axis = figure.subplots()
    margins(figure, top=0.35, left=0.3 + 0.075 * max(len(source) for source, _, _ in rows))
    y = np.arange(len(rows))[::-1]
    axis.barh(y, [100 * share for _, share, _ in rows], height=0.62, color=COLOURS["inference"], alpha=0.85)
    for place, (_, share, text) in zip(y, rows, strict=True):
        axis.text(100 * share + 0.8, place, text, va="center", color=INK)
    axis.set_yticks(y, [source for source, _, _ in rows])
    axis.set(xlim=(0, 130), xticks=range(0, 101, 20), xlabel="share of the variance, %")
    axis.grid(visible=False, axis="y")
    bias = f"; bias bound {si(q.bias, q.unit, 2)}, outside the variance" if q.bias else ""
    axis.set_title(f"{title(key)}: {text_of(key, q)}{bias}")
    return figure
