"""Trials as a picture: how far each is from their mean, beside what the rules allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reports.figures.style import HALF_IN, LIMIT, TRACE, new_figure
from reports.names import title
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.quantity import Quantity

_ROW_IN, _TOP_IN, _BOTTOM_IN = 0.62, 0.3, 0.5


def trials_figure(trials: Mapping[FigureKey, tuple[Quantity, ...]], tolerance: float | None) -> Any:
    """Return each trial's distance from the mean of all, with its 95 % interval; None without several trials."""
    rows = {key: found for key, found in trials.items() if np.mean([q.value for q in found]) != 0}
    if not rows:
        return None
    height = _TOP_IN + _BOTTOM_IN + _ROW_IN * len(rows)
    figure = new_figure(height, HALF_IN)
    axis = figure.add_axes((0.04, _BOTTOM_IN / height, 0.92, 1 - (_TOP_IN + _BOTTOM_IN) / height))
    for row, (key, found) in enumerate(rows.items()):
        mean = float(np.mean([q.value for q in found]))
        off = 100.0 * np.array([q.value / mean - 1.0 for q in found])
        half = 100.0 * np.array([q.half_width() / abs(mean) for q in found])
        y = row + 0.3 + np.linspace(0.0, 0.45, len(found))
        axis.errorbar(off, y, xerr=half, fmt="o", color=TRACE, ms=3.5, elinewidth=0.9, capsize=1.8, zorder=3)
        worst = f"{title(key)}: {len(found)} trials, farthest {np.abs(off).max():.2g} %"
        style = {"va": "center", "fontsize": 8, "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1.0}}
        axis.text(0.0, row + 0.02, worst, transform=axis.get_yaxis_transform(), **style)
    if tolerance is not None:
        for side in (-100.0 * tolerance, 100.0 * tolerance):
            axis.axvline(side, color=LIMIT, linestyle=(0, (5, 2)), linewidth=1.2, zorder=2)
        axis.axvspan(-100.0 * tolerance, 100.0 * tolerance, color=TRACE, alpha=0.07, linewidth=0)
    axis.axvline(0.0, color=TRACE, linewidth=0.8, zorder=2)
    axis.set_ylim(len(rows), -0.2)
    axis.set_yticks([])
    axis.margins(x=0.08)
    axis.spines["left"].set_visible(False)
    limit = "" if tolerance is None else f"; dashed: the rules' {100.0 * tolerance:g} %"
    axis.set_xlabel("from the mean of the trials, %")
    axis.set_title(f"trials, with 95 % intervals{limit}")
    return figure
