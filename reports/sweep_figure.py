"""A sweep as a picture: one quantity against one varied key, a line for each combination of the others.

The same table gives the same bytes.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from reports.format import clean, prefix
from reports.names import scale, title
from reports.style import COLOURS, RC, WIDTH_IN, margins, new_figure
from rig.errors import UsageError

Row = Mapping[str, Any]
HALF = ".half_width_95"
WANTED = ("energy_per_inference_j", "active_power_w", "latency_p99_s", "execution_time_s", "accuracy")
_WIDE = 30.0  # greatest over least, from which an axis is logarithmic
_LINES = 12  # more are drawn, and not named
_LETTERS = 48
_HUES = tuple(COLOURS[name] for name in ("inference", "preprocess", "postprocess", "solve", "mark", "load"))
_SHAPES = "osD^v"


def sweep_figure(
    rows: Sequence[Row], varied: Sequence[str], units: Mapping[str, str], plot: str | None, against: str | None
) -> bytes | None:
    """SVG of ``plot`` against ``against``; None where no row has a figure and none was asked for.

    ``rows`` map columns to values as in ``table.csv``, the half width of a quantity's 95 % interval under its name
    and ``HALF``; ``varied`` are the columns that span the grid, ``units`` the quantities. The line goes through the
    mean of repetitions, each of which is a point with its own interval. Against another quantity, such as the time
    that a solve really took, a line follows the key with most values.

    Raises ``UsageError`` for a quantity or key that is not there.
    """
    quantity = _chosen("plot", plot, list(units), _likeliest(rows, units))
    walked = _widest(rows, varied)
    key = _chosen("against", against, [*varied, "repetition", *units], walked)
    walked = walked if key in units else key
    shown = [row for row in rows if row.get(quantity) is not None and row.get(key) is not None]
    if not shown:
        return None
    from matplotlib import rc_context, rcParamsDefault

    base: dict[Any, Any] = {k: v for k, v in rcParamsDefault.items() if not k.startswith("backend")}
    with rc_context({**base, **RC}):
        figure = _drawn(shown, quantity, units, key, [k for k in varied if k != walked])
        return _saved(figure, {bool(row.get("simulated")) for row in shown})


def _chosen(field: str, asked: str | None, known: Sequence[str], default: str) -> str:
    if asked is None:
        return default
    if asked not in known:
        raise UsageError(
            f"--{field} {asked!r} is not in the table",
            field=field,
            value=asked,
            remedy=f"Known: {', '.join(known) or 'none yet'}",
        )
    return asked


def _likeliest(rows: Sequence[Row], units: Mapping[str, str]) -> str:
    """What people look for first, of what most rows have."""
    count = {name: sum(row.get(name) is not None for row in rows) for name in units}
    order = [*(name for name in WANTED if name in units), *units]
    return max(order, key=lambda name: count[name], default="")


def _widest(rows: Sequence[Row], varied: Sequence[str]) -> str:
    """The key with most values, of numbers if there are any."""
    values = {key: {row[key] for row in rows if row.get(key) is not None} for key in varied}
    several = [key for key in varied if len(values[key]) > 1]
    plain = [key for key in several if all(isinstance(v, (int, float)) for v in values[key])]
    return max(plain or several, key=lambda key: len(values[key]), default="repetition")


def _drawn(rows: Sequence[Row], quantity: str, units: Mapping[str, str], key: str, others: Sequence[str]) -> Any:
    others = [k for k in others if len({row.get(k) for row in rows}) > 1]
    x_of, ticks = _places([row[key] for row in rows])
    values = [float(row[quantity]) for row in rows]
    factor, shown_unit = prefix(max(map(abs, values)), units[quantity], scale(quantity))
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(k) for k in others), []).append(row)
    mixed = len({bool(row.get("simulated")) for row in rows}) > 1
    figure = new_figure(4.2)
    axis = figure.subplots()
    margins(figure, top=0.4)
    for number, (combination, members) in enumerate(sorted(groups.items(), key=_by_value)):
        label = ", ".join(f"{k} = {_said(v)}" for k, v in zip(others, combination, strict=True))
        label += " (SIMULATED)" if mixed and any(row.get("simulated") for row in members) else ""
        style = {"color": _HUES[number % len(_HUES)], "marker": _SHAPES[number // len(_HUES) % len(_SHAPES)]}
        _line(axis, members, quantity, x_of, key, factor, style, clean(label)[:_LETTERS] if number < _LINES else "")
    _axes(axis, [x_of[row[key]] for row in rows], [v * factor for v in values], ticks)
    told = f"{title(key)} ({units[key]})" if key in units else clean(key)
    axis.set(xlabel=told, ylabel=shown_unit or title(quantity))
    more = f"; {len(groups) - _LINES} lines are not named" if len(groups) > _LINES else ""
    axis.set_title(f"{title(quantity)} against {told}, {len(rows)} cells, 95 % intervals{more}")
    if others:
        legend = axis.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=7.5, borderaxespad=0.0)
        longest = max(len(text.get_text()) for text in legend.get_texts())
        figure.subplots_adjust(right=1 - (0.5 + 0.062 * longest) / WIDTH_IN)
    return figure


def _by_value(group: tuple[tuple[Any, ...], Any]) -> tuple[tuple[bool, float, str], ...]:
    plain = [isinstance(v, (int, float)) for v in group[0]]
    return tuple((not p, v if p else 0.0, str(v)) for p, v in zip(plain, group[0], strict=True))


def _places(values: Sequence[Any]) -> tuple[dict[Any, float], list[str]]:
    """Where each value of the key stands, and the names of places that are no numbers."""
    if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
        return {v: float(v) for v in values}, []
    names = list(dict.fromkeys(values))
    return {v: float(k) for k, v in enumerate(names)}, [_said(v) for v in names]


def _line(
    axis: Any, rows: Sequence[Row], quantity: str, x_of: Mapping[Any, float], key: str, factor: float,
    style: Mapping[str, Any], label: str,
) -> None:  # fmt: skip
    at: dict[float, list[float]] = {}
    for row in rows:
        at.setdefault(x_of[row[key]], []).append(float(row[quantity]) * factor)
    xs = sorted(at)
    axis.plot(xs, [sum(at[x]) / len(at[x]) for x in xs], color=style["color"], linewidth=1.1, alpha=0.8, zorder=2)
    x = [x_of[row[key]] for row in rows]
    y = [float(row[quantity]) * factor for row in rows]
    bars = [(row.get(quantity + HALF) or 0.0) * factor for row in rows]
    axis.errorbar(
        x, y, yerr=bars, **style, linestyle="none", markersize=3.6, elinewidth=1.0, capsize=2.0, alpha=0.9,
        label=label or None, zorder=3,
    )  # fmt: skip


def _axes(axis: Any, x: Sequence[float], y: Sequence[float], ticks: Sequence[str]) -> None:
    if ticks:
        axis.set_xticks(range(len(ticks)), ticks)
    elif _spans_decades(x):
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter(lambda v, _: f"{v:g}")
    if _spans_decades(y):
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(lambda v, _: f"{v:g}")


def _spans_decades(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) >= _WIDE


def _said(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    return "default" if value is None else clean(value)


def _saved(figure: Any, simulated: set[bool]) -> bytes:
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    if True in simulated:
        told = "SIMULATED" if False not in simulated else "SIMULATED in part"
        figure.text(0.995, 0.004, told, ha="right", va="bottom", color="#a3195b", weight="bold")
    if simulated == {True}:
        mark = {"ha": "center", "va": "center", "rotation": 18, "size": 64, "weight": "bold"}
        figure.text(0.5, 0.5, "SIMULATED", color="#a3195b", alpha=0.10, zorder=10, **mark)
    out = io.BytesIO()
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(out, metadata={**dict.fromkeys(("Date", "Creator", "Format", "Type")), "Title": "sweep"})
    text = re.sub(r"<metadata>.*?</metadata>", "", out.getvalue().decode(), flags=re.S)
    return re.sub(r'(?<= d=")[^"]*', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), text).encode()
