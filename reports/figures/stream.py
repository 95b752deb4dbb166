"""A stream as a picture: the probability of each class, the scenes, and the power."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reports.figures.style import COLOURS, GRID, INK, LIMIT, MUTED, TRACE, WIDTH_IN, Floats, new_figure
from reports.figures.trace import draw_power, total_of
from reports.names import text_of
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.quantity import Quantity
from rig.analysis.result.series import Series, Stream
from rig.analysis.service.change_detection import change_latencies_s, right_answers, right_share
from rig.terminal import clean
from rig.types import Bools, Indices

MAX_SCENES = 120
FIRST_SCENES = 60
"""The number of scenes shown of a stream that has too many for one picture."""
MAX_CLASSES = 12
_KNOTS = 6000  # of all classes together
_ANSWERS = 400  # at most this many are drawn one by one; more are drawn as columns
_COLUMNS = 600
_ON, _OFF, _SCENE = COLOURS["inference"], COLOURS["preprocess"], GRID
_LANE = 0.86  # share of the height for a class
_UNSEEN = 0.004  # share of the height for a class: lower than a hairline
_TOP_IN, _RIGHT_IN, _BOTTOM_IN = 0.34, 0.27, 0.55
_CHAR_IN, _LINE_IN = 0.066, 0.135  # size of a letter and of a line in a name above the scenes
_UPRIGHT_IN = 0.1  # room for a name that is rotated
_LONGEST = 20


def stream_figure(series: Series, quantities: Mapping[FigureKey, Quantity]) -> Any:
    """Draw probability by class, right and wrong answers, and power on one time axis; None without data."""
    stream = series.stream
    if stream is None or not (len(stream.at_s) and len(stream.onset_s) and stream.classes):
        return None
    shown = shown_of(stream)
    metered = any(len(r.watts) for r in series.rails)
    left_in = 0.25 + 0.075 * max(6, *(len(_short(c)) for c in shown.rows))
    names, upright, names_in = _names(shown, WIDTH_IN - left_in - _RIGHT_IN)
    lanes_in = len(shown.rows) * float(np.clip(2.0 / len(shown.rows), 0.28, 0.6))
    part = len(stream.onset_s) > len(shown.onset_s)
    heights = [names_in, lanes_in, 0.42, *([1.05] if metered else []), *([0.4] if part else [])]
    gaps = [0.0, 0.09, *([0.16] if metered else []), *([0.72] if part else [])]
    axes = _stacked(left_in, heights, gaps)
    _name_scenes(axes[0], shown, names, 90.0 if upright else 0.0)
    _lanes(axes[1], shown)
    _answers(axes[2], stream, shown)
    if metered:
        _power(axes[3], series, shown.limits, quantities)
    _together(axes[1 : len(axes) - part], shown)
    if part:
        _overview(axes[-1], stream, shown.limits)
    _legend(axes[0].figure, stream, shown)
    return axes[0].figure


def _together(axes: Sequence[Any], shown: Shown) -> None:
    """Give all panels one time axis, and mark every change of scene across all panels."""
    for axis in axes:
        axis.set_xlim(*shown.limits)
        axis.tick_params(labelbottom=axis is axes[-1])
        few = len(shown.scene) <= 30
        changes = {"color": MUTED, "linewidth": 0.9 if few else 0.4, "linestyle": (0, (4, 2)), "zorder": 2.5}
        axis.vlines(shown.onset_s, 0, 1, transform=axis.get_xaxis_transform(), **changes)
    axes[-1].set_xlabel("time since the start of the run, s")


# ---- panels -------------------------------------------------------------------------------


def _stacked(left_in: float, heights: Sequence[float], gaps: Sequence[float]) -> list[Any]:
    """Return axes with these heights and gaps, from the top down, in inches."""
    height = _TOP_IN + sum(heights) + sum(gaps) + _BOTTOM_IN
    figure = new_figure(height)
    axes, at = [], height - _TOP_IN
    for tall, gap in zip(heights, (*gaps, 0.0), strict=True):
        at -= tall
        box = (left_in / WIDTH_IN, at / height, 1 - (left_in + _RIGHT_IN) / WIDTH_IN, tall / height)
        axes.append(figure.add_axes(box))
        at -= gap
    return axes


def _lanes(axis: Any, shown: Shown) -> None:
    """Draw a lane for each class: shaded while it is the scene, filled up to its probability."""
    rows = len(shown.rows)
    blank = np.zeros(len(shown.heard))
    for k, name in enumerate(shown.rows):
        base = rows - 1 - k
        axis.axhline(base, color=GRID, linewidth=0.6, zorder=0.5)
        own = np.array([s == name for s in shown.scene], dtype=bool)
        boxes = np.column_stack([shown.onset_s[own], shown.end_s[own]])
        for begin, end in boxes:
            box = {"facecolor": _SCENE, "edgecolor": MUTED, "linewidth": 0.6, "zorder": 0.6}
            axis.fill_between([begin, end], base, base + _LANE, **box)
        least, mean, most = (_LANE * p[:, k] for p in (shown.least, shown.mean, shown.most))
        for colour, here in ((_ON, shown.heard == k), (_OFF, shown.heard != k)):
            _fill(axis, shown.knots, base + blank, base + mean, here, facecolor=colour, alpha=0.9, zorder=2)
            if np.any(most > mean):
                _fill(axis, shown.knots, base + least, base + most, here, facecolor=colour, alpha=0.3, zorder=1.9)
    axis.set_yticks([rows - 1 - k + 0.5 * _LANE for k in range(rows)], [_short(c) for c in shown.rows])
    axis.set_ylim(-0.06, rows - 1 + _LANE + 0.06)
    axis.tick_params(axis="y", length=0, labelcolor=INK)
    axis.grid(visible=False)
    axis.spines["left"].set_visible(False)
    for height, text in ((rows - 1, "0"), (rows - 1 + _LANE, "1")):  # the scale of every lane, shown at the first
        axis.text(1.006, height, text, transform=axis.get_yaxis_transform(), va="center", size=7.5, color=MUTED)


def _fill(axis: Any, knots: Floats, low: Floats, high: Floats, here: Bools, **style: Any) -> None:
    """Fill between two heights (n,) over knots (n + 1,) where ``here`` is true, unless too low to see; one path."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    seen = np.flatnonzero(np.diff(np.concatenate([[False], here & (high - low > _UNSEEN), [False]]).astype(int)))
    pieces = []
    for first, last in seen.reshape(-1, 2):
        x = np.repeat(knots[first : last + 1], 2)[1:-1]
        flat = np.all(low[first:last] == low[first])
        under = low[[first, first]] if flat else np.repeat(low[first:last], 2)[::-1]
        back = x[[-1, 0]] if flat else x[::-1]
        y = np.concatenate([np.repeat(high[first:last], 2), under, [0.0]])  # the closing point is never drawn
        pieces.append(Path(np.column_stack([np.concatenate([x, back, [0.0]]), y]), closed=True))
    if pieces:
        axis.add_patch(PathPatch(Path.make_compound_path(*pieces), linewidth=0, **style))


def _answers(axis: Any, stream: Stream, shown: Shown) -> None:
    """Draw each answer, right or wrong by height and shape, and the time until each scene was recognised."""
    inside = (stream.at_s >= shown.limits[0]) & (stream.at_s <= shown.limits[1])
    if _one_by_one(stream, shown):
        at, right = stream.at_s[inside], right_answers(stream)[inside]
        axis.plot(at[right], np.ones(right.sum()), linestyle="", marker="o", ms=3.2, mew=0, color=_ON, zorder=3)
        wrong = np.zeros((~right).sum())
        axis.plot(at[~right], wrong, linestyle="", marker="x", ms=4.5, mew=1.2, color=LIMIT, zorder=3)
        _recognised(axis, stream, shown)
    else:
        edges = np.linspace(shown.onset_s[0], shown.end_s[-1], _COLUMNS + 1)
        share = np.append(right_share(stream, edges), 0.0)
        axis.fill_between(edges, 0.0, share, step="post", color=_ON, alpha=0.9, linewidth=0)
    axis.set_yticks([0, 1], ["wrong", "right"])
    axis.set_ylim(-0.35, 1.35)
    axis.tick_params(axis="y", length=0, labelcolor=INK)


def _one_by_one(stream: Stream, shown: Shown) -> bool:
    first, last = np.searchsorted(stream.at_s, shown.limits)
    return bool(last - first <= _ANSWERS)


def _recognised(axis: Any, stream: Stream, shown: Shown) -> None:
    """Draw a line from each change of scene to the answer after which all are right, or to the scene's end."""
    took = change_latencies_s(stream)[: len(shown.onset_s) - 1]
    begin, ends = shown.onset_s[1:], shown.end_s[1:]
    for style, some, until in (("-", np.isfinite(took), begin + took), (":", ~np.isfinite(took), ends)):
        gap = np.full(np.count_nonzero(some), np.nan)
        x = np.column_stack([begin[some], until[some], gap]).ravel()
        axis.plot(x, np.full(len(x), 0.5), color=INK, linestyle=style, linewidth=2.0, solid_capstyle="butt", zorder=3)


def _power(axis: Any, series: Series, limits: tuple[float, float], quantities: Mapping[FigureKey, Quantity]) -> None:
    rail = total_of([r for r in series.rails if len(r.watts)])
    factor, unit = draw_power(axis, rail, limits, _COLUMNS)
    axis.set_ylabel(f"power, {unit}")
    if axis.collections:
        axis.plot([], [], color=TRACE, linewidth=0.9, label="mean, in least to greatest")
    for word, dash in (("idle", (0, (5, 2))), ("average", (0, (1, 1.5)))):
        q = quantities.get(key := FigureKey(f"{word}_power_w"))
        if q is not None and np.isfinite(q.value):
            label = f"{word} {text_of(key, q)}"
            axis.axhline(q.value * factor, color=LIMIT, linestyle=dash, linewidth=1.3, zorder=4, label=label)
    low, high = axis.get_ylim()
    axis.set_ylim(low, high + 0.28 * (high - low))
    if axis.get_legend_handles_labels()[0]:
        axis.legend(loc="upper right", ncols=3, frameon=True, framealpha=0.85, edgecolor="none", borderpad=0.2)


def _overview(axis: Any, stream: Stream, limits: tuple[float, float]) -> None:
    """Draw the whole stream: the share of time with right answers, and the part that is shown above."""
    edges = np.linspace(stream.onset_s[0], max(stream.end_s, stream.at_s[-1]), _COLUMNS // 2 + 1)
    share = np.append(right_share(stream, edges), 0.0)
    axis.fill_between(edges, 0.0, share, step="post", color=_ON, alpha=0.9, linewidth=0)
    axis.axvspan(*limits, facecolor="none", edgecolor=INK, linewidth=1.2)
    axis.set_xlim(edges[0], edges[-1])
    axis.set_yticks([0, 1], ["wrong", "right"])
    axis.set_ylim(0, 1.15)
    axis.tick_params(axis="y", length=0, labelcolor=INK)
    heading = f"share of time right, all {len(stream.onset_s)} scenes; the part above is framed"
    axis.set_title(heading, fontweight="normal")


# ---- names and keys -----------------------------------------------------------------------


def _short(name: str, longest: int = _LONGEST) -> str:
    text = clean(name).lstrip("_") or "-"
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _names(shown: Shown, width_in: float) -> tuple[list[str], bool, float]:
    """Return the text above each scene, whether it is rotated because it is too wide, and the height needed."""
    span = shown.limits[1] - shown.limits[0]
    room_in = (shown.end_s - shown.onset_s) / span * width_in
    wide = room_in >= _UPRIGHT_IN
    across = [_wrapped(_short(s), int((w - 0.04) / _CHAR_IN)) for s, w in zip(shown.scene, room_in, strict=True)]
    if all(text for text, fits in zip(across, wide, strict=True) if fits):
        lines = max((text.count("\n") + 1 for text in across if text), default=0)
        return across, False, lines * _LINE_IN + 0.06
    upright = [_short(s, 16) if fits else "" for s, fits in zip(shown.scene, wide, strict=True)]
    return upright, True, max(map(len, upright), default=0) * 0.058 + 0.08


def _wrapped(name: str, characters: int) -> str:
    """Break a name into lines of at most ``characters``, after spaces and underscores; empty if that is impossible."""
    lines = [""]
    for piece in re.findall(r"[^\s_-]*[\s_-]?", name):
        joined = lines[-1] + piece
        lines = [*lines[:-1], joined] if len(joined.rstrip()) <= characters else [*lines, piece]
    lines = [line.rstrip() for line in lines if line]
    return "\n".join(lines) if all(len(line) <= characters for line in lines) and len(lines) <= 3 else ""


def _name_scenes(axis: Any, shown: Shown, names: Sequence[str], rotation: float) -> None:
    axis.set_xlim(*shown.limits)
    axis.set_axis_off()
    for name, begin, end in zip(names, shown.onset_s, shown.end_s, strict=True):
        place = {"ha": "center", "va": "bottom", "rotation": rotation}
        axis.text(0.5 * (begin + end), 0.04, name, size=7 if rotation else 8, **place)


def _legend(figure: Any, stream: Stream, shown: Shown) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(facecolor=_SCENE, edgecolor=MUTED, linewidth=0.6, label="scene heard"),
        Patch(facecolor=_ON, label="probability of the scene heard"),
        Patch(facecolor=_OFF, label="of another class"),
    ]
    if _one_by_one(stream, shown):
        bar: dict[str, Any] = {"color": INK, "linewidth": 2.0}
        handles.append(Line2D([], [], **bar, label="until recognised"))
        if not np.all(np.isfinite(change_latencies_s(stream))):
            handles.append(Line2D([], [], **bar, linestyle=":", label="not recognised"))
    figure.legend(handles=handles, ncols=len(handles), loc="upper left", borderaxespad=0.4, fontsize=8)
    if len(shown.rows) < len(stream.classes):
        note = f"{len(shown.rows)} of {len(stream.classes)} classes"
        top = 1 - 0.5 * _TOP_IN / figure.get_figheight()
        figure.text(1 - _RIGHT_IN / WIDTH_IN, top, note, ha="right", va="center", size=8, color=MUTED)


# ---- the part that is drawn ---------------------------------------------------------------


@dataclass(frozen=True)
class Shown:
    """The part of a stream that is drawn: the class (a row) of each scene, and the answers over time.

    ``knots`` (n + 1,) bound stretches of time. ``least``, ``mean`` and ``most`` (n, rows) are the probability in each
    stretch. ``heard`` (n,) is the row of the scene, or -1 if the scene is not drawn.
    """

    limits: tuple[float, float]
    rows: tuple[str, ...]
    onset_s: Floats
    end_s: Floats
    scene: tuple[str, ...]
    knots: Floats
    least: Floats
    mean: Floats
    most: Floats
    heard: Indices


def shown_of(stream: Stream) -> Shown:
    """Return the stream, or its first scenes if it has many, sampled no finer than the picture."""
    count = len(stream.onset_s)
    count = count if count <= MAX_SCENES else FIRST_SCENES
    ends = np.append(stream.onset_s[1:], max(stream.end_s, stream.onset_s[-1]))[:count]
    begin = float(stream.onset_s[0])
    end = max(float(ends[-1]), begin + 1e-6)
    rows = _rows(stream, count)
    columns = [stream.classes.index(c) for c in rows]
    knots, least, mean, most = _held(stream, columns, begin, end)
    middle = 0.5 * (knots[:-1] + knots[1:])
    place = {c: k for k, c in enumerate(rows)}
    by_scene = np.array([place.get(c, -1) for c in stream.scene])
    heard = by_scene[np.clip(np.searchsorted(stream.onset_s, middle, side="right") - 1, 0, None)]
    room = 0.02 * (end - begin) or 0.5
    limits, scenes = (begin - room, end + room), (stream.onset_s[:count], ends, stream.scene[:count])
    return Shown(limits, rows, *scenes, knots, least, mean, most, heard)


def _rows(stream: Stream, count: int) -> tuple[str, ...]:
    """Return the classes; if too many, first those of the scenes shown, then the most probable."""
    if len(stream.classes) <= MAX_CLASSES:
        return stream.classes
    scenes = set(stream.scene[:count])
    weight = dict(zip(stream.classes, stream.probability.sum(axis=0), strict=True))
    ranked = sorted(stream.classes, key=lambda c: (c not in scenes, -weight[c], c))[:MAX_CLASSES]
    return tuple(c for c in stream.classes if c in ranked)


def _held(stream: Stream, columns: list[int], begin: float, end: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Knots, and the least, mean and greatest probability between them; an answer holds until the next."""
    at, table = stream.at_s, stream.probability[:, columns]
    inside = np.concatenate([at, stream.onset_s])
    knots = np.unique(np.concatenate([inside[(inside > begin) & (inside < end)], [begin, end]]))
    most_knots = _KNOTS // len(columns)
    if len(knots) <= most_knots:
        value = table[np.maximum(np.searchsorted(at, knots[:-1], side="right") - 1, 0)]
        value = np.where((knots[:-1] < at[0])[:, None], 0.0, value)
        return knots, value, value, value
    knots = np.linspace(begin, end, most_knots // 3)
    cuts = np.searchsorted(at, knots, side="right")
    before = np.where((cuts > 0)[:, None], table[np.maximum(cuts - 1, 0)], 0.0)
    least, most = before[:-1].copy(), before[:-1].copy()
    some = np.flatnonzero(np.diff(cuts))
    if len(some):  # reduceat from the first of a column to the first of the next non-empty one
        last = cuts[some[-1] + 1]
        least[some] = np.minimum(least[some], np.minimum.reduceat(table[:last], cuts[some]))
        most[some] = np.maximum(most[some], np.maximum.reduceat(table[:last], cuts[some]))
    done = np.cumsum(np.vstack([np.zeros(len(columns)), table[:-1] * np.diff(at)[:, None]]), axis=0)
    until = np.where((cuts > 0)[:, None], done[np.maximum(cuts - 1, 0)], 0.0)
    until = until + before * np.where(cuts > 0, knots - at[np.maximum(cuts - 1, 0)], 0.0)[:, None]
    return knots, least, np.diff(until, axis=0) / np.diff(knots)[:, None], most
