"""Points, intervals and axes of a sweep's picture: positions of values, logarithmic axes, and limits of quantities."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from reports.pictures.colour_sheet import Panel, Sheet, Span
from rig.analysis.result.figure_catalogue import Entry
from rig.terminal import clean

Row = Mapping[str, Any]
ENDS = ".interval_95"
"""The column with a quantity's name and this suffix has both ends of its interval."""
_WIDE = 30.0  # an axis is logarithmic if greatest / least is at least _WIDE,
_DECADE, _EVEN = 10.0, 2.5  # or at least _DECADE while no step's logarithm is over _EVEN times the smallest
_HEIGHT = 190.0
_TICKS = 9  # a logarithmic axis with at most this many values names all


@dataclass(frozen=True)
class Drawn:
    """What is drawn: ``quantity`` times ``factor`` against ``key``.

    ``x_of`` gives the position of each value of the key. ``held`` are the least and the greatest possible value of the
    quantity.
    """

    quantity: str
    key: str
    factor: float
    x_of: Mapping[Any, float]
    held: tuple[float, float]

    def interval(self, row: Row) -> tuple[float, float, float]:
        """Return the point of a row and the ends of its interval."""
        y = float(row[self.quantity])
        low, high = row.get(self.quantity + ENDS) or (y, y)
        low, high = max(low, min(self.held[0], y)), min(high, max(self.held[1], y))
        return ends_of(y, low, high, self.factor)


def places(values: Sequence[Any]) -> tuple[dict[Any, float], list[str]]:
    """Return the position of each value of the key, and the labels of positions that are not numbers."""
    if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
        return {v: float(v) for v in values}, []
    names = list(dict.fromkeys(values))
    return {v: float(k) for k, v in enumerate(names)}, [said(v) for v in names]


def said(value: Any) -> str:
    """Return a value of a key as text."""
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    return "default" if value is None else clean(value)


def bounds(quantity: Entry) -> tuple[float, float]:
    """Return the least and the greatest possible value of a quantity; times, powers and shares are not negative."""
    if quantity.signed:
        return -math.inf, math.inf
    if quantity.unit == "1":
        return (0.0, 1.0) if quantity.scale == "percent" else (-math.inf, math.inf)
    return 0.0, math.inf


def draw_line(sheet: Sheet, panel: Panel, rows: Sequence[Row], drawn: Drawn, colour: str, shape: int) -> None:
    """Draw a point with its interval for each row, and a line through the mean at each position."""
    (across, up), at = panel, dict[float, list[float]]()
    for row in rows:
        x, (y, *ends) = drawn.x_of[row[drawn.key]], drawn.interval(row)
        at.setdefault(x, []).append(y)
        sheet.point(across(x), up(y), (up(ends[0]), up(ends[1])), colour, shape)
    means = np.array([(x, sum(at[x]) / len(at[x])) for x in sorted(at)])
    sheet.path(across(means[:, 0]), up(means[:, 1]), colour, 1.1, 0.8)


def panel_of(
    sheet: Sheet, rows: Sequence[Row], drawn: Drawn, names: Sequence[str], costs: Sequence[float], label: str
) -> Panel:
    """Add a panel for all rows and costs: linear or logarithmic, with the values of the key or their ``names``."""
    x = [drawn.x_of[row[drawn.key]] for row in rows]
    log, several = not names and logarithmic(x), sorted(set(x))
    marks = {v: names[int(v)] if names else f"{v:g}" for v in several} if names or log else {}
    points = [drawn.interval(row) for row in rows]
    y = [value for value, _, _ in points]
    low, high = min(*(low for _, low, _ in points), *y, *costs), max(*(high for _, _, high in points), *y, *costs)
    ends = spread(low, high)
    if log_y := _wide(y):
        ends = min(y) / 2.0, 1.5 * high
    elif drawn.held[0] == 0.0 and low <= 0.0 < max(y):
        ends = 0.0, ends[1]  # a quantity that cannot be negative needs no room below 0
    shown = marks if len(marks) <= _TICKS or names else None
    return sheet.panel(spread(min(x), max(x), log), ends, _HEIGHT, label, log, log_y, marks=shown)


def ends_of(value: float, low: float, high: float, factor: float) -> tuple[float, float, float]:
    """Return a value and the ends of its interval, times ``factor``; an end that is no number becomes the value."""
    low, high = (end if math.isfinite(end) else value for end in (low, high))
    return value * factor, min(low, value) * factor, max(high, value) * factor


def spread(low: float, high: float, log: bool = False) -> Span:
    """Return a range with some room at both ends."""
    if log:
        by = max((high / low) ** 0.04, 1.1)
        return low / by, high * by
    room = 0.05 * (high - low) or 0.1 * abs(low) or 0.5
    return low - room, high + room


def _wide(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) >= _WIDE


def logarithmic(values: Sequence[float]) -> bool:
    """Return whether the values of a key need a logarithmic axis.

    They do if they have a wide span, or if they span a decade in steps of similar ratio.
    """
    several = sorted(set(values))
    if several[0] <= 0 or len(several) < 3 or several[-1] / several[0] < _DECADE:
        return _wide(values)
    steps = [math.log(b / a) for a, b in pairwise(several)]
    return _wide(values) or max(steps) <= _EVEN * min(steps)
