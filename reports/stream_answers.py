"""A stream over any stretch of time: the answers, and the share of time in which they were right."""

from __future__ import annotations

import io

import numpy as np

from reports.figures.style import Floats
from rig.analysis.result.series import Stream
from rig.terminal import clean
from rig.types import Bools, Indices


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
