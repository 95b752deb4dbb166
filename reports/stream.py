"""A stream over any stretch of time: the answers, and the share of time in which they were right."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np

from reports.figures.style import Floats
from rig.analysis.result.series import Stream
from rig.terminal import clean
from rig.types import Bools, Indices

MAX_SCENES = 120
FIRST_SCENES = 60
"""The number of scenes shown of a stream that has too many for one picture."""
MAX_CLASSES = 12
_KNOTS = 6000  # of all classes together


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
    return Shown(
        limits=(begin - room, end + room),
        rows=rows,
        onset_s=stream.onset_s[:count],
        end_s=ends,
        scene=stream.scene[:count],
        knots=knots,
        least=least,
        mean=mean,
        most=most,
        heard=heard,
    )


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


def right_answers(stream: Stream) -> Bools:
    """Return which answers name the scene that was present when they came; shape (k,)."""
    said, scene = _coded(stream)
    return np.asarray(said == scene[_heard(stream)])


def right_share(stream: Stream, edges: Floats) -> Floats:
    """Return the share of the time between ``edges`` (n + 1,) in which the last answer names the present scene.

    The shape is (n,).
    """
    said, scene = _coded(stream)
    knots = np.unique(np.concatenate([stream.at_s, stream.onset_s, edges]))
    begin, length = knots[:-1], np.diff(knots)
    last = np.searchsorted(stream.at_s, begin, side="right") - 1
    heard = np.clip(np.searchsorted(stream.onset_s, begin, side="right") - 1, 0, None)
    right = (said[np.maximum(last, 0)] == scene[heard]) & (last >= 0)
    until = np.concatenate([[0.0], np.cumsum(length * right)])
    return np.asarray(np.diff(np.interp(edges, knots, until)) / np.diff(edges))


def _heard(stream: Stream) -> Indices:
    """Return the scene that was heard when each answer came, by its number; shape (k,)."""
    return np.clip(np.searchsorted(stream.onset_s, stream.at_s, side="right") - 1, 0, None)


def _coded(stream: Stream) -> tuple[Indices, Indices]:
    """Return ``said`` and ``scene`` as numbers of one list of names."""
    names = {name: k for k, name in enumerate(_names(stream))}
    said = np.fromiter((names[s] for s in stream.said), np.int64, len(stream.said))
    return said, np.fromiter((names[s] for s in stream.scene), np.int64, len(stream.scene))


def _names(stream: Stream) -> list[str]:
    return list(dict.fromkeys((*stream.scene, *stream.said)))


def stream_csv(stream: Stream) -> bytes:
    """Return every answer as a row: its time, the answer, the scene at this time, and the probability of each class.

    ``time_s`` is in seconds since the start of the run. All numbers are rounded to nine decimals.
    """
    import pyarrow as pa
    from pyarrow import csv

    said, scene = _coded(stream)
    names = pa.array([clean(name) for name in _names(stream)], pa.string())
    heard = scene[_heard(stream)] if len(scene) else np.zeros(len(said), np.int64)
    columns = {"time_s": pa.array(np.round(stream.at_s, 9))}
    for column, codes in (("said", said), ("scene", heard)):
        columns[column] = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), names).dictionary_decode()
    for k, c in enumerate(stream.classes):
        columns[f"probability: {clean(c)}"] = pa.array(np.round(stream.probability[:, k], 9))
    out = io.BytesIO()
    csv.write_csv(pa.table(columns), out, csv.WriteOptions(quoting_style="needed"))
    return out.getvalue()
