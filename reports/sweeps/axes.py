"""Points, intervals and axes of a sweep's picture: positions of values, logarithmic axes, and limits of quantities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from reports.figures.style import log_axis
from rig.analysis.result.catalogue import Entry
from rig.terminal import clean

Row = Mapping[str, Any]
ENDS = ".interval_95"
"""After the name of a quantity: the column with both ends of its interval."""
_WIDE = 30.0  # if greatest / least is at least this, an axis is logarithmic
_DECADE, _EVEN = 10.0, 2.5  # or at least this, if no step's logarithm is over _EVEN times the smallest
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
        return y * self.factor, low * self.factor, high * self.factor


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


def draw_line(axis: Any, rows: Sequence[Row], drawn: Drawn, style: Mapping[str, Any]) -> None:
    """Draw a point with its interval for each row, and a line through the mean at each position."""
    x = [drawn.x_of[row[drawn.key]] for row in rows]
    points = [drawn.interval(row) for row in rows]
    at: dict[float, list[float]] = {}
    for place, (y, _, _) in zip(x, points, strict=True):
        at.setdefault(place, []).append(y)
    xs = sorted(at)
    axis.plot(xs, [sum(at[x]) / len(at[x]) for x in xs], color=style["color"], linewidth=1.1, alpha=0.8, zorder=2)
    bars = [[y - low for y, low, _ in points], [high - y for y, _, high in points]]
    axis.errorbar(
        x, [y for y, _, _ in points], yerr=bars, **style, linestyle="none", markersize=4.2, elinewidth=1.0,
        capsize=2.0, alpha=0.9, zorder=3,
    )  # fmt: skip


def scale_axes(axis: Any, rows: Sequence[Row], drawn: Drawn, names: Sequence[str]) -> None:
    """Make axes linear or logarithmic, with the values of the key or their ``names`` at the ticks."""
    x = [drawn.x_of[row[drawn.key]] for row in rows]
    if names:
        axis.set_xticks(range(len(names)), names)
    elif logarithmic(x):
        log_axis(axis.xaxis, axis.set_xscale)
        several = sorted(set(x))
        if len(several) <= _TICKS:
            axis.set_xticks(several, [f"{v:g}" for v in several])
    points = [drawn.interval(row) for row in rows]
    y = [value for value, _, _ in points]
    if _wide(y):
        log_axis(axis.yaxis, axis.set_yscale)
        axis.set_ylim(min(y) / 2.0, 1.5 * max(*(high for _, _, high in points), *y))
    elif drawn.held[0] == 0.0 and min(low for _, low, _ in points) <= 0.0 and max(y) > 0.0:
        axis.set_ylim(bottom=0.0)  # a quantity that cannot be negative needs no room below 0


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
