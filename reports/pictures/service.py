"""Draw service: latency over time, and the share of answers within a time."""

import math

import numpy as np

from reports.format import prefix, quantity_text, si
from reports.pictures.colour_sheet import COLOURS, INK, LIMIT, TRACE, WIDTH, Panel, Sheet, Span
from rig.analysis.result.order_statistics import nearest_rank
from rig.analysis.result.quantity import FigureKey, Figures
from rig.analysis.result.result import Result
from rig.recording.records import ScenarioRecord
from rig.types import Floats

_MARKS = 1200  # at most this many samples are drawn one by one; more are drawn as columns
_COLUMNS = 600
_WIDE = 30.0  # if greatest / least is more than this, an axis is logarithmic
_HEIGHT = 120.0
_MARKED = ((0.5, INK), (0.9, COLOURS["postprocess"]), (0.99, COLOURS["preprocess"]), (0.999, COLOURS["mark"]))
_NINES = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999)


def service_figure(result: Result) -> Sheet | None:
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
    over = f", {np.count_nonzero(took > bound_s)} over the {limit[0]}" if limit else ""
    sheet = Sheet(f"time from request to completion, {unit}, n = {len(took)}{over}", 2.0 * WIDTH)
    y = _height((low * factor, high * factor), wide, bounded=limit is not None)
    room = 0.02 * (requested[-1] - requested[0]) or 0.5
    x = float(requested[0] - room), float(requested[-1] + room)
    over_time = sheet.panel(x, y, _HEIGHT, "asked since the start of the run", log_y=wide, unit="s")
    key = _over_time(sheet, over_time, requested, took * factor, bound_s * factor)
    _bound(sheet, over_time, x, y, bound_s * factor)
    x = 1.0, 2.4 * len(took)
    nines = _nines(x[1], sheet.width)
    by_share = sheet.panel(x, y, _HEIGHT, "samples completed within, %", log=True, log_y=wide, marks=nines)
    key += _distribution(sheet, by_share, took, factor, result.quantities)
    _bound(sheet, by_share, x, y, bound_s * factor)
    sheet.key([*key, *([(LIMIT, f"{limit[0]} {si(limit[1], 's')}")] if limit else [])])
    return sheet


def _limit(scenario: ScenarioRecord) -> tuple[str, float] | None:
    """Return the name of the scenario's bound on latency, and the bound (s)."""
    for name, value in (("bound", scenario.latency_bound_s), ("deadline", scenario.deadline_s)):
        if isinstance(value, (int, float)) and np.isfinite(value) and value > 0:
            return name, float(value)
    return None


def _bound(sheet: Sheet, panel: Panel, x: Span, y: Span, bound: float) -> None:
    across, up = panel
    if y[0] <= bound <= y[1]:
        sheet.line((across(x[0]), across(x[1])), (up(bound), up(bound)), LIMIT, 1.2, "6 2")


def _over_time(sheet: Sheet, panel: Panel, asked: Floats, took: Floats, bound: float) -> list[tuple[str, str]]:
    """Draw each sample, or columns if there are many; return the key of the picture."""
    across, up = panel
    if len(took) <= _MARKS:
        late = took > bound
        for x, y, too_late in zip(across(asked).tolist(), up(took).tolist(), late.tolist(), strict=True):
            sheet.dot(x, y, LIMIT if too_late else TRACE, 2.2 if too_late else 1.3)
        return [(TRACE, "a sample")] * (not late.all()) + [(LIMIT, "a sample too late, larger")] * bool(late.any())
    begin, end, least, middle, most = _columns(asked, took)
    begin, end, least, middle, most = across(begin), across(end), up(least), up(middle), up(most)
    x = 0.5 * (begin + end)
    sheet.strokes((x, x), (least, most), TRACE, opacity=0.4)
    sheet.strokes((begin, end), (middle, middle), TRACE, width=1.6)
    return [(TRACE, "least to greatest, and median of a column")]


def _columns(x: Floats, y: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return (begin, end, least, median, greatest) of the columns that are not empty; ``x`` is sorted."""
    edges = np.linspace(x[0], x[-1], _COLUMNS + 1)
    column = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, _COLUMNS - 1)
    order = np.lexsort((y, column))
    begin = np.searchsorted(column, np.arange(_COLUMNS + 1))  # lexsort keeps the order of columns
    held = np.flatnonzero(np.diff(begin))
    first, last, ordered = begin[held], begin[held + 1] - 1, y[order]
    return edges[held], edges[held + 1], ordered[first], ordered[(first + last) // 2], ordered[last]


def _distribution(sheet: Sheet, panel: Panel, took: Floats, factor: float, figures: Figures) -> list[tuple[str, str]]:
    """Draw latency against the share answered within it; each nine (90 %, 99 %, ...) has the same width.

    A percentile has the interval that ``figures`` state, if ``figures`` are of these latencies.
    """
    (across, up), ordered = panel, np.sort(took)
    n = len(ordered)
    slower = np.unique(np.concatenate([np.geomspace(1, n, 300), np.linspace(1, n, 100)]).astype(int)) - 1
    x, y = across(n / (slower + 0.5))[::-1], ordered[n - 1 - slower][::-1] * factor
    middle = 0.5 * (x[1:] + x[:-1])
    sheet.path(np.concatenate([x[:1], np.repeat(middle, 2), x[-1:]]), np.repeat(up(y), 2), TRACE, 1.3)
    key = []
    for p, colour in _MARKED:
        if p <= 1.0 - 1.0 / n or (n == 1 and p == 0.5):
            at, q = nearest_rank(ordered, p), figures.get(FigureKey("latency_p{percentile}_s", percentile=100 * p))
            sheet.dot(across(1.0 / (1.0 - p)), up(at * factor), colour, 3.0)
            key.append((colour, f"p{100 * p:g}: {quantity_text(q) if q and q.u and q.value == at else si(at, 's')}"))
    return key


def _nines(end: float, width: float) -> dict[float, str]:
    """Return the texts of an axis of 1 / (share of slower answers), up to ``end``; a text without room is left out."""
    marks, last = dict[float, str](), -1.0
    for p in _NINES:
        text = f"{100 * p:.6g}"
        at, half = width * math.log(1.0 / (1.0 - p)) / math.log(end), 3.5 * len(text)
        if at - half > last + 4.0 and at < width:
            marks[1.0 / (1.0 - p)], last = text, at + half
    return marks


def _height(extent: Span, wide: bool, bounded: bool) -> Span:
    """Return one scale for both panels: logarithmic if the spread is large, else from 0 if there is a bound."""
    low, high = extent
    if wide:
        return low / 1.4, high * 1.4
    if bounded:
        return 0.0, 1.1 * high
    room = max(0.08 * (high - low), 1e-3 * high, 1e-9)
    return low - room, high + room
