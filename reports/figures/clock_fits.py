"""Clock fits as a picture: how far each reading of a clock is from the map that was fitted to all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reports.figures.style import HALF_IN, MUTED, TRACE, Floats, margins, new_figure
from reports.format import prefix, si
from rig.analysis.result.result import ClockSummary
from rig.terminal import clean

_MOST = 4
"""Clocks that are drawn; more are in the table."""
_MARKS = 400


def clocks_figure(reads: Mapping[str, Floats], clocks: Mapping[str, ClockSummary]) -> Any:
    """Return a panel for each clock that was read: differences from its fit over the run; None without any."""
    shown = [(name, rows) for name, rows in reads.items() if name in clocks and len(rows)][:_MOST]
    if not shown:
        return None
    figure = new_figure(0.6 + 1.35 * len(shown), HALF_IN)
    axes = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    margins(figure, top=0.3, left=0.62, gap=0.35)
    for axis, (name, rows) in zip(axes, shown, strict=True):
        quickest = np.sort(np.argsort(rows[:, 2], kind="stable")[:_MARKS])
        at_s, off_s, half_s = rows[quickest].T
        factor, unit = prefix(float(np.max(np.abs(off_s) + half_s)), "s")
        bars = {"elinewidth": 0.6, "ecolor": MUTED, "zorder": 3}
        axis.errorbar(at_s, off_s * factor, yerr=half_s * factor, fmt="o", color=TRACE, ms=2.2, **bars)
        axis.axhline(0.0, color=TRACE, linewidth=0.8)
        axis.set_ylabel(unit)
        fit = clocks[name]
        some = "" if len(quickest) == len(rows) else f", the {len(quickest)} quickest"
        placed = f"{clean(fit.method)}, sigma {si(fit.sigma_s, 's', 2)}"
        axis.set_title(f"{clean(name)}: {fit.brackets} readings{some}; {placed}")
    axes[-1].set_xlabel("time since the start of the run, s")
    return figure
