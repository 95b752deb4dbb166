"""Draw power over time with the device's activity behind it, small enough to embed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reports.format import prefix
from reports.pictures.colour_sheet import COLOURS, MUTED, SCALE, TRACE, WIDTH, Panel, Place, Sheet
from reports.viewing.pyramid import gathered
from rig.analysis.power.clipped_and_missing import GAP_PERIODS, STEADY
from rig.analysis.result.series import RailSeries, Series
from rig.terminal import clean
from rig.types import Floats

Windows = dict[str, Floats]

_BUCKETS = 800  # columns of a panel's envelope; they keep the file below 300 kB
_COLUMNS = 480
_HEIGHT = 110.0
_LEAST = 1.0  # the width of a span that is too short to see, in units


def power_figure(series: Series) -> Sheet | None:
    """Return panels for the total of all rails and for the first spans; None without data."""
    rails = rails_of(series)
    if not rails:
        return None
    total, windows = total_of(rails), windows_of(series)
    span = float(total.start_s[0]), float(total.end_s[-1])
    sheet, averaged = Sheet("power over time", 2.0 * WIDTH), False
    for limits, which in ((span, ""), (_near(series, *span), ", the first spans")):
        if limits is not None and limits[1] > limits[0]:
            shown = shown_between(total, limits, _BUCKETS)
            sheet.note(f"{total.rail}{which}, {shown.unit}", bold=True)
            panel = sheet.panel(limits, shown.ends(), _HEIGHT, "time since the start of the run", unit="s")
            _shade(sheet, windows, limits, panel[0])
            draw_power(sheet, panel, shown, limits)
            averaged = averaged or shown.bars is not None
    names = [(colour, clean(name).lstrip("_")) for name, colour in colours_of(windows).items()]
    sheet.key([(TRACE, "power: mean, least, greatest" if averaged else "power"), *names])
    return sheet


def rails_of(series: Series) -> list[RailSeries]:
    """Return the rails that have readings. Where readings are missing, a NaN takes their place."""
    return [_with_pauses(r) for r in series.rails if len(r.watts)]


def _with_pauses(rail: RailSeries) -> RailSeries:
    steps = np.diff(rail.start_s)
    after = np.flatnonzero(steps > GAP_PERIODS * np.median(steps)) if len(steps) else np.zeros(0, np.int64)
    if not len(after) or np.quantile(steps, 0.9) > STEADY * np.median(steps):
        return rail
    start = np.insert(rail.start_s, after + 1, rail.end_s[after])
    end = np.insert(rail.end_s, after + 1, rail.start_s[after + 1])
    return RailSeries(rail.rail, start, end, np.insert(rail.watts, after + 1, np.nan))


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
    """Return the time around the first spans (three for each phase), or around the first edge if the spans are long.

    They are long if they take more than half of the trace. Return None without spans.
    """
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


@dataclass(frozen=True)
class Shown:
    """The part of a rail in a picture: a line through values in time, and bars from a lower to an upper end.

    Values are in watts times ``factor``. Single readings have no bars.
    """

    at_s: Floats
    line: Floats
    bars: tuple[Floats, Floats] | None
    factor: float
    unit: str

    def ends(self) -> tuple[float, float]:
        """Return the range of values, with some room, and more below for the names of spans."""
        values = np.concatenate([x[np.isfinite(x)] for x in (self.line, *(self.bars or ()))])
        low, high = float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
        room = 0.08 * (high - low) or 0.5 * max(abs(low), 1.0)
        return (low - 2.0 * room, high + room) if high >= low else (0.0, 1.0)


def shown_between(rail: RailSeries, limits: tuple[float, float], buckets: int) -> Shown:
    """Return one rail between two moments, ready to draw: single readings, or the envelope of many."""
    low = max(int(np.searchsorted(rail.end_s, limits[0])) - 1, 0)
    high = int(np.searchsorted(rail.start_s, limits[1])) + 1
    start, end, watts = rail.start_s[low:high], rail.end_s[low:high], rail.watts[low:high]
    finite = np.abs(watts[np.isfinite(watts)])
    factor, unit = prefix(float(finite.max()) if len(finite) else 0.0, "W")
    if len(watts) > 2 * buckets:
        at_s, least, mean, most = envelope(start, end, watts * factor, buckets)
        return Shown(at_s, mean, (least, most), factor, unit)
    return Shown(np.column_stack([start, end]).ravel(), np.repeat(watts * factor, 2), None, factor, unit)


def draw_power(sheet: Sheet, panel: Panel, shown: Shown, limits: tuple[float, float]) -> None:
    """Draw a part of a rail between two moments."""
    across, up = panel
    x = across(np.clip(shown.at_s, *limits))
    if shown.bars is not None:
        least, most = map(up, shown.bars)
        sheet.strokes((x, x), (least, most), TRACE, opacity=0.35)
    sheet.path(x, up(shown.line), TRACE, 0.9)


def envelope(start: Floats, end: Floats, watts: Floats, buckets: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return (time, least, mean, greatest) in ``buckets`` equal intervals of time; NaN without readings."""
    edges = np.linspace(start[0], end[-1], buckets + 1)
    cuts = np.searchsorted(start, edges[:-1])
    filled = np.diff(np.append(cuts, len(watts))) > 0
    least, mean, most = (np.full(buckets, np.nan) for _ in range(3))
    finite = np.isfinite(watts)
    good, counted = np.where(finite, watts, np.nan), finite.astype(np.int64)
    least[filled], sums, most[filled], seen = gathered(cuts[filled], good, np.where(finite, watts, 0.0), good, counted)
    mean[filled] = np.divide(sums, seen, out=np.full(len(seen), np.nan), where=seen > 0)
    return 0.5 * (edges[:-1] + edges[1:]), least, mean, most


def _shade(sheet: Sheet, windows: Windows, limits: tuple[float, float], across: Place) -> None:
    """Shade the panel that was added last by what the device did."""
    seen = {n: w[(w[:, 1] > limits[0]) & (w[:, 0] < limits[1])] for n, w in windows.items()}
    if sum(len(w) for w in seen.values()) > 150:
        seen = _by_column(seen, *limits)
    bottom = sheet.y - SCALE
    for name, w in seen.items():
        ends = across(np.clip(w, *limits)).tolist()
        for low, high in ends:
            sheet.box((low, max(high, low + _LEAST)), (bottom - _HEIGHT, bottom), colours_of(windows)[name], 0.32)
        if ends and ends[0][1] - ends[0][0] > 60.0:  # colours alone may look alike
            sheet.text(0.5 * sum(ends[0]), bottom - 3.0, clean(name).lstrip("_"), "middle", MUTED)


def _by_column(windows: Windows, first: float, last: float) -> Windows:
    """Merge windows to columns of the picture; a column has the activity that filled most of it, or a mark."""
    edges = np.linspace(first, last, _COLUMNS + 1)
    names = [name for name, w in windows.items() if len(w)]
    rows = []
    for name in names:
        knots = np.maximum.accumulate(windows[name].ravel())
        lengths = np.diff(knots, prepend=knots[0])
        lengths[::2] = 0.0  # between windows
        filled = np.diff(np.interp(edges, knots, np.cumsum(lengths)))
        rows.append(filled * (1e6 if name == "mark" else 1.0))
    weight = np.array(rows)
    winner = np.where(weight.max(axis=0) > 0, weight.argmax(axis=0), -1)
    turns = np.flatnonzero(np.diff(winner)) + 1
    begins, ends = np.append(0, turns), np.append(turns, _COLUMNS)
    runs = np.column_stack([edges[begins], edges[ends]])
    return {name: runs[winner[begins] == k] for k, name in enumerate(names)}


def colours_of(windows: Windows) -> dict[str, str]:
    spare = [c for n, c in COLOURS.items() if n not in windows and n not in ("idle", "warm-up", "mark")]
    strangers = [n for n in windows if n not in COLOURS]
    extra = {n: (spare or ["#000000"])[k % max(len(spare), 1)] for k, n in enumerate(strangers)}
    return {n: COLOURS.get(n) or extra[n] for n in windows}
