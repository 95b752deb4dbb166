"""Draw trials: the distance of each trial from the mean of all, and the largest distance that the rules allow."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from reports.figures.sheet import EDGE, WIDTH, Sheet
from reports.figures.style import LIMIT, MUTED, TRACE
from reports.names import title
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.quantity import Quantity


def trials_figure(trials: Mapping[FigureKey, tuple[Quantity, ...]], tolerance: float | None) -> Sheet | None:
    """Return each trial's distance from the mean of all, with its 95 % interval; None without several trials."""
    rows = {}
    for key, found in trials.items():
        if mean := float(np.mean([q.value for q in found])):
            off = np.array([q.value / mean - 1.0 for q in found])
            half = np.array([q.half_width() / abs(mean) for q in found])
            rows[key] = 100.0 * np.column_stack([off, np.where(np.isfinite(half), half, 0.0)])
    if not rows:
        return None
    allowed = 100.0 * (tolerance or 0.0)
    end = 1.08 * max(allowed, *(float(np.abs(r).sum(axis=1).max()) for r in rows.values()), 1e-9)
    sheet = Sheet("trials, with 95 % intervals")
    top, middle, unit = sheet.y, 0.5 * WIDTH, (0.5 * WIDTH - EDGE) / end
    for key, points in rows.items():
        worst = np.abs(points[:, 0]).max()
        sheet.text(EDGE, sheet.y + 11.0, f"{title(key)}: {len(points)} trials, farthest {worst:.2g} %")
        sheet.y += 16.0
        for off, half in points.tolist():
            x, sheet.y = middle + off * unit, sheet.y + 7.0
            sheet.line((x - half * unit, x + half * unit), (sheet.y, sheet.y), TRACE)
            sheet.dot(x, sheet.y, TRACE)
        sheet.y += 9.0
    for side in (-allowed, allowed) if tolerance is not None else ():
        sheet.line((middle + side * unit,) * 2, (top + 14.0, sheet.y), LIMIT, 1.2, "5 2")
    sheet.line((middle, middle), (top + 14.0, sheet.y), MUTED, 0.8)
    sheet.scale(-end, end, "from the mean of the trials, %")
    if tolerance is not None:
        sheet.note(f"dashed: the rules' {allowed:g} %")
    return sheet
