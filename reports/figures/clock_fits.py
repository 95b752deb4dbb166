"""Draw clock fits: the distance of each clock reading from the map fitted to all readings."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from reports.figures.sheet import Sheet
from reports.figures.style import MUTED, TRACE
from reports.format import prefix, si
from rig.analysis.result.result import ClockSummary
from rig.terminal import clean
from rig.types import Floats

_MOST = 4
"""At most this many clocks are drawn; the table has all."""
_MARKS = 400
_HEIGHT = 90.0


def clocks_figure(reads: Mapping[str, Floats], clocks: Mapping[str, ClockSummary]) -> Sheet | None:
    """Return a panel for each clock that was read: the differences of its readings from its fit; None without any."""
    shown = [(name, rows) for name, rows in reads.items() if name in clocks and len(rows)][:_MOST]
    if not shown:
        return None
    sheet = Sheet("readings of each clock against its fit")
    for name, rows in shown:
        quickest = np.sort(np.argsort(rows[:, 2], kind="stable")[:_MARKS])
        at_s, off_s, half_s = rows[quickest].T
        most = float(np.max(np.abs(off_s) + half_s)) or 1e-9
        factor, unit = prefix(most, "s")
        fit = clocks[name]
        some = "" if len(quickest) == len(rows) else f", the {len(quickest)} quickest"
        placed = f"{clean(fit.method)}, sigma {si(fit.sigma_s, 's', 2)}; in {unit}"
        sheet.note(f"{clean(name)}: {fit.brackets} readings{some}; {placed}")
        ends = float(at_s.min()), max(float(at_s.max()), float(at_s.min()) + 1e-6)
        across, up = sheet.panel(ends, (-most * factor, most * factor), _HEIGHT, "time since the start of the run, s")
        for at, off, half in zip(at_s.tolist(), (off_s * factor).tolist(), (half_s * factor).tolist(), strict=True):
            sheet.line((across(at),) * 2, (up(off - half), up(off + half)), MUTED, 0.6)
            sheet.dot(across(at), up(off), TRACE, 1.6)
    return sheet
