"""Draw a sweep: one quantity against one varied key, with a line for each combination of the other keys.

The same table gives the same bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from reports.format import SUFFIXES, prefix, title
from reports.pictures.colour_sheet import COLOURS, EDGE, LEFT, LETTERS, LIMIT, MUTED, SHAPES, WIDTH, Sheet
from reports.sweeps.axes import Drawn, Row, bounds, draw_line, panel_of, places, said as _said
from rig.analysis.result.figure_catalogue import entry_of
from rig.analysis.result.quantity import FigureKey
from rig.errors import closest, unfit
from rig.terminal import clean

Figures = Mapping[str, FigureKey]
"""Figures of a table by the names of their columns."""
WANTED = (
    *(FigureKey("gap_{target}_mean", target=target) for target in ("official", "specified", "best_known")),
    *map(FigureKey, ("cost_mean", "energy_per_inference_j", "active_power_w")),
    FigureKey("latency_p{percentile}_s", percentile=99),
    *map(FigureKey, ("execution_time_s", "accuracy")),
)
_LINES = 12  # at most this many lines are named; all are drawn
_LETTERS = 34  # the most letters of a key and its value in a legend
_HUES = tuple(COLOURS[name] for name in ("inference", "postprocess", "mark", "solve", "preprocess", "load"))
_SHAPES = len(SHAPES) - 2
_DASHES = ("6 2", "1 1.5", "6 2 1 2")


def sweep_figure(
    rows: Sequence[Row], varied: Sequence[str], figures: Figures, plot: str | None, against: str | None
) -> bytes | None:
    """Return SVG of ``plot`` against ``against``, or None if no row has both.

    ``rows`` map columns to values as in ``table.csv``. Both ends of a quantity's 95 % interval are in the column named
    after the quantity and ``axes.ENDS``. ``varied`` are the columns of varied keys, ``figures`` the columns of figures.
    A line goes through the means of repetitions; each repetition is a point with its interval. ``against`` can also be
    a quantity, such as the real time of a solve; a line then follows the key that changes this quantity most. Costs are
    shown together with the target's cost.

    Raises ``UsageError`` for a quantity or key that does not exist.
    """
    quantity = _chosen("plot", plot, list(figures), _likeliest(rows, figures))
    key = _chosen("against", against, [*varied, "repetition", *figures], _widest(rows, varied))
    walked = _moving(rows, varied, key) if key in figures else key
    shown = [row for row in rows if row.get(quantity) is not None and row.get(key) is not None]
    if not shown:
        return None
    sheet = _drawn(shown, quantity, figures, key, [k for k in varied if k != walked])
    return sheet.svg({bool(row.get("simulated")) for row in shown})


def _chosen(field: str, asked: str | None, known: Sequence[str], default: str) -> str:
    if asked is None:
        return default
    if asked not in known:
        raise unfit(field, asked, "is not in the table", closest(asked, known))
    return asked


def _likeliest(rows: Sequence[Row], figures: Figures) -> str:
    """Return the figure that most rows have; if several do, the first of these in ``WANTED``."""
    count = {name: sum(row.get(name) is not None for row in rows) for name in figures}
    order = [*(name for key in WANTED for name, other in figures.items() if other == key), *figures]
    return max(order, key=lambda name: count[name], default="")


def _widest(rows: Sequence[Row], varied: Sequence[str]) -> str:
    """Return the key with the most values: among keys of numbers if there are any, else among all."""
    values = {key: {row[key] for row in rows if row.get(key) is not None} for key in varied}
    several = [key for key in varied if len(values[key]) > 1]
    plain = [key for key in several if all(isinstance(v, (int, float)) for v in values[key])]
    return max(plain or several, key=lambda key: len(values[key]), default="repetition")


def _moving(rows: Sequence[Row], varied: Sequence[str], figure: str) -> str:
    """Return the key that changes a figure most while the other keys stay the same."""

    def spread(key: str) -> float:
        alike: dict[tuple[Any, ...], list[float]] = {}
        for row in rows:
            if row.get(figure) is not None:
                alike.setdefault(tuple(row.get(k) for k in varied if k != key), []).append(float(row[figure]))
        return max((max(values) - min(values) for values in alike.values()), default=0.0)

    return max(varied, key=spread, default="repetition")


def _drawn(rows: Sequence[Row], quantity: str, figures: Figures, key: str, others: Sequence[str]) -> Sheet:
    shown, entry = title(figures[quantity]), entry_of(figures[quantity])
    others = [k for k in others if len({row.get(k) for row in rows}) > 1]
    x_of, names = places([row[key] for row in rows])
    factor, unit = prefix(max(abs(float(row[quantity])) for row in rows), entry.unit, entry.scale)
    lines = _lines(rows, others)
    styles, keys = _styled(rows, lines, others)
    costs = [(label, dash, cost * factor) for label, dash, cost in _target_costs(rows, quantity, figures)]
    across = _told(key, figures)
    unnamed = len(lines) - _LINES
    more = f"; {unnamed} lines are not named" if unnamed > 0 and not _crossed(lines) else ""
    invalid = sum(str(row.get("verdict")).startswith("INVALID") for row in rows)
    cells = f"{len(rows)} cells" + (f", {invalid} of them INVALID" if invalid else "")
    sheet = Sheet(f"{shown} against {across}, {cells}, 95 % intervals{more}", 2.0 * WIDTH)
    sheet.note(shown + (f" ({unit})" if unit else ""))
    drawn = Drawn(quantity, key, factor, x_of, bounds(entry))
    panel = panel_of(sheet, rows, drawn, names, [cost for _, _, cost in costs], across)
    for _, dash, cost in costs:
        sheet.line((LEFT, sheet.width - EDGE), (panel[1](cost),) * 2, LIMIT, 0.9, dash)
    for (_, members), style in zip(lines, styles, strict=True):
        draw_line(sheet, panel, members, drawn, *style)
    sheet.key([*keys, *((LIMIT, label, dash) for label, dash, _ in costs)])
    return sheet


# ---- which line is which ------------------------------------------------------------------

Line = tuple[tuple[Any, ...], list[Row]]
"""The values of the keys that distinguish a line from others, and the rows of the line."""


Style = tuple[str, int]
"""A colour and the shape of marks."""
Key = tuple[str, str] | tuple[str, str, int]
"""An entry of the legend: a colour, its meaning, and the shape of marks if it has a meaning too."""


def _lines(rows: Sequence[Row], others: Sequence[str]) -> list[Line]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(k) for k in others), []).append(row)
    return sorted(groups.items(), key=_by_value)


def _styled(rows: Sequence[Row], lines: Sequence[Line], others: Sequence[str]) -> tuple[list[Style], list[Key]]:
    """Return the style of each line, and the legend: entries for colours and marks, or else for lines."""
    if crossed := _crossed(lines):
        hues, shapes = crossed
        styles = [_style(hues.index(values[:1]), shapes.index(values[1:])) for values, _ in lines]
        of = [[row for values, members in lines if values[:1] == hue for row in members] for hue in hues]
        told = [_label(rows, members, others[:1], hue) for hue, members in zip(hues, of, strict=True)]
        marks = [(MUTED, _label((), (), others[1:], values), shape) for shape, values in enumerate(shapes)]
        return styles, [*zip(_HUES, told, strict=False), *marks]
    styles = [_style(k, k) for k in range(len(lines))]
    named = zip(lines[:_LINES], styles, strict=False)
    return styles, [(hue, _label(rows, of, others, values), shape) for (values, of), (hue, shape) in named if others]


def _crossed(lines: Sequence[Line]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]] | None:
    """Return the values of the first key, drawn as colours, and of the others, drawn as marks.

    Return None if there are too many values, or only one.
    """
    hues, shapes = (list(dict.fromkeys(part)) for part in zip(*((v[:1], v[1:]) for v, _ in lines), strict=True))
    fits = 1 < len(hues) <= len(_HUES) and 1 < len(shapes) <= _SHAPES
    return (hues, shapes) if fits else None


def _style(hue: int, shape: int) -> Style:
    return _HUES[hue % len(_HUES)], shape % _SHAPES


def _label(rows: Sequence[Row], members: Sequence[Row], others: Sequence[str], combination: Sequence[Any]) -> str:
    """Return the name of a line: each key with its value, shortened if that does not fit into the legend."""
    words = [_valued(k, v) for k, v in zip(others, combination, strict=True)]
    label = ", ".join(words)
    simulated = {bool(row.get("simulated")) for row in members}
    if True in simulated and len({bool(row.get("simulated")) for row in rows}) > 1:
        told = "(SIMULATED in part)" if False in simulated else "(SIMULATED)"
        label, words = f"{label} {told}", [*words, told]
    return label if len(label) <= LETTERS else ", ".join(map(_short, words))


def _valued(key: str, value: Any) -> str:
    """Return a key with its value; a device is only named, and a number gets the unit that ends its key."""
    if key == "device":
        return _said(value)
    words, unit = _named(key)
    return f"{words} = {_said(value)}" + (f" {unit}" if unit and isinstance(value, (int, float)) else "")


def _named(key: str) -> tuple[str, str]:
    """Split a key into words and its unit: ``timeout_s`` is "timeout" and "s"."""
    stem, _, suffix = key.rpartition("_")
    return (clean(stem).replace("_", " "), SUFFIXES[suffix]) if stem and suffix in SUFFIXES else (clean(key), "")


def _told(key: str, figures: Figures) -> str:
    """Return the label of an axis."""
    if key in figures:
        return f"{title(figures[key])} ({entry_of(figures[key]).unit})"
    words, unit = _named(key)
    return f"{words} ({unit})" if unit else words


def _short(text: str) -> str:
    """Shorten a long text in its middle, because paths differ at their ends."""
    half = _LETTERS // 2 - 1
    return text if len(text) <= _LETTERS else f"{text[:half]}…{text[-half:]}"


def _target_costs(rows: Sequence[Row], quantity: str, figures: Figures) -> list[tuple[str, str, float]]:
    """Return name, dash and cost of each target that is the same in all cells; empty if no costs are drawn."""
    if figures[quantity].quantity not in ("cost_mean", "cost_best"):
        return []
    targets = {name: key.target for name, key in figures.items() if key.quantity == "target_{target}_mean"}
    found = {targets[name]: {row.get(name) for row in rows} for name in sorted(targets)}
    same = {target: values.pop() for target, values in found.items() if len(values) == 1}
    told = [(f"{target.replace('_', ' ')} target", cost) for target, cost in same.items() if cost is not None]
    return [(label, dash, float(cost)) for (label, cost), dash in zip(told, _DASHES, strict=False)]


def _by_value(group: Line) -> tuple[tuple[bool, float, str], ...]:
    plain = [isinstance(v, (int, float)) for v in group[0]]
    return tuple((not p, v if p else 0.0, str(v)) for p, v in zip(plain, group[0], strict=True))
