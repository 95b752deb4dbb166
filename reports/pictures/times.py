"""Draw how often each execution time on the device occurred, and how far readings of a clock are from their fit."""

from collections.abc import Mapping

import numpy as np

from reports.format import prefix, si, text_of
from reports.pictures.colour_sheet import COLOURS, INK, MUTED, TRACE, Sheet
from rig.analysis.result.quantity import FigureKey, Figures
from rig.analysis.result.result import ClockSummary
from rig.terminal import clean
from rig.types import Floats

_WIDE = 50.0
"""If slowest / median is more than this, the axis is logarithmic."""
_HEIGHT = 150.0
_LINES = (
    ("mean", FigureKey("execution_time_s"), "", INK),
    *((f"p{p}", FigureKey("execution_time_p{percentile}_s", percentile=p), dash, COLOURS[colour])
      for p, dash, colour in ((50, "5 2", "postprocess"), (90, "6 2 1 2", "preprocess"), (99, "2 2", "mark"))),
)  # fmt: skip
_MOST_CLOCKS = 4
"""At most this many clocks are drawn; the table has all."""
_MOST_READS = 400
_CLOCK_HEIGHT = 90.0


def latency_figure(times_s: Floats, quantities: Figures) -> Sheet | None:
    """Draw how often each execution time occurred, with the figures as lines; None without data."""
    times = np.sort(np.asarray(times_s, dtype=np.float64)[np.isfinite(times_s)])
    if not len(times):
        return None
    factor, unit = prefix(float(np.median(np.abs(times))), "s")
    x = times * factor
    wide = bool(x[0] > 0 and x[-1] / np.median(x) > _WIDE)
    bins = int(np.clip(np.sqrt(len(x)), 8, 60)) | 1  # equal times lie in the middle of a bin, not between two
    room = max(0.02 * (x[-1] - x[0]), 1e-3 * abs(x[-1]), 1e-9)
    low, high = map(float, (x[0] * 0.9, x[-1] * 1.1) if wide else (x[0] - room, x[-1] + room))
    edges = np.geomspace(low, high, bins + 1) if wide else np.linspace(low, high, bins + 1)
    counts = np.histogram(x, edges)[0]
    sheet = Sheet(f"inferences by execution time, n = {len(x)}")
    most = 1.08 * float(counts.max(initial=1))
    across, up = sheet.panel((low, high), (0.0, most), _HEIGHT, f"execution time, {unit}", wide)
    for count, begin, end in zip(counts.tolist(), across(edges[:-1]), across(edges[1:]), strict=True):
        sheet.box((begin + 0.3, end - 0.3), (up(count), up(0.0)), COLOURS["inference"], 0.75)
    for label, key, dash, colour in _LINES:
        q = quantities.get(key)
        if q is not None and low <= q.value * factor <= high:
            at = across(q.value * factor)
            sheet.line((at, at), (up(0.0) - _HEIGHT, up(0.0)), colour, 1.4, dash)
            sheet.key([(colour, f"{label}: {text_of(key, q)}", dash)])
    return sheet


def clocks_figure(reads: Mapping[str, Floats], clocks: Mapping[str, ClockSummary]) -> Sheet | None:
    """Return a panel for each clock that was read: the differences of its readings from its fit.

    A clock that was read only once has no panel. Return None without a panel.
    """
    shown = [(name, rows) for name, rows in reads.items() if name in clocks and len(rows) and np.ptp(rows[:, 0]) > 0.0]
    shown = shown[:_MOST_CLOCKS]
    if not shown:
        return None
    sheet = Sheet("readings of each clock against its fit")
    for name, rows in shown:
        quickest = np.sort(np.argsort(rows[:, 2], kind="stable")[:_MOST_READS])
        at_s, off_s, half_s = rows[quickest].T
        most = float(np.max(np.abs(off_s) + half_s)) or 1e-9
        factor, unit = prefix(most, "s")
        fit = clocks[name]
        some = "" if len(quickest) == len(rows) else f", the {len(quickest)} quickest"
        placed = f"{clean(fit.method)}, sigma {si(fit.sigma_s, 's', 2)}; in {unit}"
        sheet.note(f"{clean(name)}: {fit.brackets} readings{some}; {placed}")
        ends = float(rows[:, 0].min()), float(rows[:, 0].max())
        y = -most * factor, most * factor
        across, up = sheet.panel(ends, y, _CLOCK_HEIGHT, "time since the start of the run", unit="s")
        for at, off, half in zip(at_s.tolist(), (off_s * factor).tolist(), (half_s * factor).tolist(), strict=True):
            sheet.line((across(at),) * 2, (up(off - half), up(off + half)), MUTED, 0.6)
            sheet.dot(across(at), up(off), TRACE, 1.6)
    return sheet
