"""Draw a stream: the probability of each class, the scenes, and the power; write its answers as a table."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reports.format import cut, text_of
from reports.pictures.colour_sheet import (
    COLOURS,
    EDGE,
    GRID,
    INK,
    LIMIT,
    MUTED,
    TRACE,
    WIDTH,
    Panel,
    Sheet,
    Span,
    place,
)
from reports.pictures.trace import draw_power, rails_of, shown_between, total_of
from rig.analysis.result.quantity import FigureKey, Quantity
from rig.analysis.result.series import RailSeries, Series, Stream
from rig.analysis.service.change_detection import change_latencies_s, right_answers, right_share, scenes_at
from rig.terminal import as_cell, clean
from rig.types import Floats, Indices

MAX_SCENES = 120
FIRST_SCENES = 60
"""The number of scenes shown of a stream that has too many for one picture."""
MAX_CLASSES = 12
_KNOTS = 6000  # at most this many are drawn, of all classes together
_ANSWERS = 400  # at most this many are drawn one by one; more are drawn as columns
_COLUMNS = 600
_ON, _OFF, _SCENE = COLOURS["inference"], COLOURS["preprocess"], GRID
_LANE = 0.86  # share of the height for a class
_ANSWER, _POWER = 34.0, 84.0  # heights of the panels of answers and of power
_CHAR, _LINE, _UPRIGHT = 6.4, 12.0, 8.0  # width of a letter, height of a line of text, room for a name that is rotated
_LONGEST = 20
_TIME = "time since the start of the run, s"


Key = list[tuple[str, str] | tuple[str, str, str]]


def stream_figure(series: Series, quantities: Mapping[FigureKey, Quantity]) -> Sheet | None:
    """Draw probability by class, right and wrong answers, and power on one time axis; None without data."""
    stream = series.stream
    if stream is None or not (len(stream.at_s) and len(stream.onset_s) and stream.classes):
        return None
    shown = shown_of(stream)
    some = f", {len(shown.rows)} of {len(stream.classes)} classes" * (len(shown.rows) < len(stream.classes))
    sheet = Sheet(f"probability of each class{some}", 2.0 * WIDTH)
    left = EDGE + _CHAR * max(6, *(len(_short(c)) for c in shown.rows))
    rails = rails_of(series)
    _name_scenes(sheet, shown, left)
    top = sheet.y
    _lanes(sheet, shown, left)
    key: Key = [(_SCENE, "scene heard"), (_ON, "probability of the scene heard"), (_OFF, "of another class")]
    key += _answers(sheet, stream, shown, left)
    bottom = sheet.y
    if rails:
        key += _power(sheet, total_of(rails), shown.limits, quantities, left)
    else:
        sheet.scale(*shown.limits, _TIME, left)
    across, width = place(shown.limits, (left, sheet.width - EDGE)), 0.9 if len(shown.scene) <= 30 else 0.4
    for change in across(shown.onset_s).tolist():
        sheet.line((change, change), (top, bottom), MUTED, width, "4 2")
    if len(stream.onset_s) > len(shown.onset_s):
        _overview(sheet, stream, shown.limits, left)
    sheet.key(key)
    return sheet


# ---- panels -------------------------------------------------------------------------------


def _lanes(sheet: Sheet, shown: Shown, left: float) -> None:
    """Draw a lane for each class: shaded while it is heard, filled up to its probability."""
    tall, right = float(np.clip(150.0 / len(shown.rows), 22.0, 46.0)), sheet.width - EDGE
    across = place(shown.limits, (left, right))
    knots, blank = across(shown.knots), np.zeros(len(shown.heard))
    for k, name in enumerate(shown.rows):
        sheet.y += tall
        up = place((0.0, 1.0), (sheet.y, sheet.y - _LANE * tall))
        own = np.array([s == name for s in shown.scene], dtype=bool)
        for ends in across(np.column_stack([shown.onset_s[own], shown.end_s[own]])).tolist():
            sheet.box(tuple(ends), (up(1.0), up(0.0)), _SCENE)
        least, mean, most = (up(p[:, k]) for p in (shown.least, shown.mean, shown.most))
        for colour, here in ((_ON, shown.heard == k), (_OFF, shown.heard != k)):
            sheet.fill(knots, least, most, colour, 0.3, here)
            sheet.fill(knots, up(blank), mean, colour, 0.9, here)
        sheet.line((left, right), (sheet.y, sheet.y), GRID, 0.6)
        sheet.text(left - 4.0, up(0.5) + 4.0, _short(name), "end")
        for height in (0, 1) if k == 0 else ():  # the scale of every lane, shown at the first
            sheet.text(right, up(height) + 4.0, str(height), "end", MUTED)


def _answers(sheet: Sheet, stream: Stream, shown: Shown, left: float) -> Key:
    """Draw each answer (a dot above if right, a cross below if wrong), and the time until each scene was recognised."""
    inside = (stream.at_s >= shown.limits[0]) & (stream.at_s <= shown.limits[1])
    across, up = _right_or_wrong(sheet, shown.limits, left)
    if np.count_nonzero(inside) > _ANSWERS:
        _share(sheet, stream, np.linspace(shown.onset_s[0], shown.end_s[-1], _COLUMNS + 1), (across, up))
        return []
    at, right = across(stream.at_s[inside]), right_answers(stream)[inside]
    for x in at[right].tolist():
        sheet.dot(x, up(1.0), _ON)
    wrong, low = at[~right], np.full(np.count_nonzero(~right), up(0.0))
    for lean in (2.5, -2.5):
        sheet.strokes((wrong - 2.5, wrong + 2.5), (low - lean, low + lean), LIMIT, width=1.2)
    took = change_latencies_s(stream)[: len(shown.onset_s) - 1]
    begin, known, key = shown.onset_s[1:], np.isfinite(took), Key()
    for some, until, dash, said in (
        (known, begin + took, "", "until recognised"), (~known, shown.end_s[1:], "2 2", "not recognised"),
    ):  # fmt: skip
        y = np.full(np.count_nonzero(some), up(0.5))
        sheet.strokes((across(begin[some]), across(until[some])), (y, y), INK, width=2.0, dash=dash)
        key += [(INK, said, dash)] * bool(np.any(some) or not dash)
    return key


def _right_or_wrong(sheet: Sheet, limits: Span, left: float) -> Panel:
    """Add a panel without an axis, in which 0 is wrong and 1 right."""
    sheet.y += _ANSWER + 8.0
    up = place((-0.35, 1.35), (sheet.y, sheet.y - _ANSWER))
    for height, said in enumerate(("wrong", "right")):
        sheet.text(left - 4.0, up(height) + 4.0, said, "end")
    return place(limits, (left, sheet.width - EDGE)), up


def _share(sheet: Sheet, stream: Stream, edges: Floats, panel: Panel) -> None:
    (across, up), share = panel, right_share(stream, edges)
    sheet.fill(across(edges), up(np.zeros(len(share))), up(share), _ON, 0.9)


def _power(sheet: Sheet, rail: RailSeries, limits: Span, quantities: Mapping[FigureKey, Quantity], left: float) -> Key:
    shown = shown_between(rail, limits, _COLUMNS)
    key: Key = [(TRACE, "mean, between least and greatest" if shown.bars else "power", "")]
    levels = []
    for word, dash in (("idle", "5 2"), ("average", "1 1.5")):
        q = quantities.get(figure := FigureKey(f"{word}_power_w"))
        if q is not None and np.isfinite(q.value):
            levels.append((q.value * shown.factor, dash))
            key.append((LIMIT, f"{word} {text_of(figure, q)}", dash))
    low, high = (of([*shown.ends(), *(level for level, _ in levels)]) for of in (min, max))
    sheet.y += 6.0
    sheet.note(f"power, {shown.unit}")
    panel = sheet.panel(limits, (low, high), _POWER, _TIME, left=left)
    draw_power(sheet, panel, shown, limits)
    for level, dash in levels:
        sheet.line((left, sheet.width - EDGE), (panel[1](level),) * 2, LIMIT, 1.3, dash)
    return key


def _overview(sheet: Sheet, stream: Stream, limits: Span, left: float) -> None:
    """Draw the whole stream: the share of time with right answers, and the part that is shown above."""
    edges = np.linspace(stream.onset_s[0], max(stream.end_s, stream.at_s[-1]), _COLUMNS // 2 + 1)
    whole = float(edges[0]), float(edges[-1])
    sheet.note(f"share of time right, all {len(stream.onset_s)} scenes; the part above is framed")
    across, up = _right_or_wrong(sheet, whole, left)
    _share(sheet, stream, edges, (across, up))
    x, y = across(np.clip(limits, *whole)), (up(0.0), up(1.15))
    sheet.path(x[[0, 1, 1, 0, 0]], np.array(y)[[0, 0, 1, 1, 0]], INK, 1.2)
    sheet.scale(*whole, _TIME, left)


# ---- names --------------------------------------------------------------------------------


def _short(name: str, longest: int = _LONGEST) -> str:
    return cut(clean(name).lstrip("_") or "-", longest)


def _name_scenes(sheet: Sheet, shown: Shown, left: float) -> None:
    """Write the name of each scene above its time: across if all names fit, else upright."""
    ends = place(shown.limits, (left, sheet.width - EDGE))(np.array([shown.onset_s, shown.end_s]))
    middle, room = ends.mean(axis=0).tolist(), np.diff(ends, axis=0)[0]
    across = [_wrapped(_short(s), int((w - 4.0) / _CHAR)) for s, w in zip(shown.scene, room, strict=True)]
    wide = room >= _UPRIGHT
    if upright := not all(text for text, fits in zip(across, wide, strict=True) if fits):
        across = [_short(s, 16) if fits else "" for s, fits in zip(shown.scene, wide, strict=True)]
    lines = [text.split("\n") for text in across]
    tall = _CHAR * max(map(len, across)) if upright else _LINE * max(map(len, lines))
    sheet.y += tall + 8.0
    for x, own in zip(middle, lines, strict=True):
        for k, line in enumerate(reversed(own)):
            beside, anchor = (4.0, "start") if upright else (0.0, "middle")
            sheet.text(x + beside, sheet.y - 4.0 - _LINE * k, line, anchor, upright=upright)


def _wrapped(name: str, characters: int) -> str:
    """Break a name into up to 3 lines of at most ``characters``, after spaces, _ or -; empty if that is impossible."""
    lines = [""]
    for piece in re.findall(r"[^\s_-]*[\s_-]?", name):
        joined = lines[-1] + piece
        lines = [*lines[:-1], joined] if len(joined.rstrip()) <= characters else [*lines, piece]
    lines = [line.rstrip() for line in lines if line]
    return "\n".join(lines) if all(len(line) <= characters for line in lines) and len(lines) <= 3 else ""


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
    """Return the stream, or its first scenes if it has many, in at most as many stretches as a picture can show."""
    count = len(stream.onset_s)
    count = count if count <= MAX_SCENES else FIRST_SCENES
    ends = np.append(stream.onset_s[1:], max(stream.end_s, stream.onset_s[-1]))[:count]
    begin = float(stream.onset_s[0])
    end = max(float(ends[-1]), begin + 1e-6)
    rows = _rows(stream, count)
    knots, least, mean, most = _held(stream, [stream.classes.index(c) for c in rows], begin, end)
    middle = 0.5 * (knots[:-1] + knots[1:])
    place = {c: k for k, c in enumerate(rows)}
    by_scene = np.array([place.get(c, -1) for c in stream.scene])
    heard = by_scene[np.clip(np.searchsorted(stream.onset_s, middle, side="right") - 1, 0, None)]
    room = 0.02 * (end - begin) or 0.5
    limits, scenes = (begin - room, end + room), (stream.onset_s[:count], ends, stream.scene[:count])
    return Shown(limits, rows, *scenes, knots, least, mean, most, heard)


def _rows(stream: Stream, count: int) -> tuple[str, ...]:
    """Return the classes; if there are too many, first those of the scenes shown, then the most probable."""
    if len(stream.classes) <= MAX_CLASSES:
        return stream.classes
    scenes = set(stream.scene[:count])
    weight = dict(zip(stream.classes, stream.probability.sum(axis=0), strict=True))
    ranked = sorted(stream.classes, key=lambda c: (c not in scenes, -weight[c], c))[:MAX_CLASSES]
    return tuple(c for c in stream.classes if c in ranked)


def _held(stream: Stream, columns: list[int], begin: float, end: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Return knots, and the least, mean and greatest probability between them. An answer is valid until the next."""
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
    if len(some):
        last = cuts[some[-1] + 1]
        least[some] = np.minimum(least[some], np.minimum.reduceat(table[:last], cuts[some]))
        most[some] = np.maximum(most[some], np.maximum.reduceat(table[:last], cuts[some]))
    done = np.cumsum(np.vstack([np.zeros(len(columns)), table[:-1] * np.diff(at)[:, None]]), axis=0)
    until = np.where((cuts > 0)[:, None], done[np.maximum(cuts - 1, 0)], 0.0)
    until = until + before * np.where(cuts > 0, knots - at[np.maximum(cuts - 1, 0)], 0.0)[:, None]
    return knots, least, np.diff(until, axis=0) / np.diff(knots)[:, None], most


def stream_csv(stream: Stream) -> bytes:
    """Return every answer as a row: its time, the answer, the scene at this time, and the probability of each class.

    ``time_s`` is in seconds since the start of the run. All numbers are rounded to nine decimals.
    """
    import pyarrow as pa
    from pyarrow import csv

    names = {name: as_cell(name) for name in {*stream.scene, *stream.said}}
    columns = {"time_s": pa.array(np.round(stream.at_s, 9))}
    for column, texts in (("said", stream.said), ("scene", scenes_at(stream, stream.at_s).tolist())):
        columns[column] = pa.array([names[text] for text in texts], pa.string())
    for k, c in enumerate(stream.classes):
        columns[f"probability: {clean(c)}"] = pa.array(np.round(stream.probability[:, k], 9))
    out = io.BytesIO()
    csv.write_csv(pa.table(columns), out, csv.WriteOptions(quoting_style="needed"))
    return out.getvalue()
