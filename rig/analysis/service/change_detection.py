"""Compute how soon the device recognises a new scene of a stream, and how often it is right."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from rig.analysis.result.order_statistics import independent, percentile
from rig.analysis.result.proportion import proportion
from rig.analysis.result.quantity import FigureKey, Figures, Quantity
from rig.analysis.result.series import Stream
from rig.analysis.scores.answers import answer_in
from rig.analysis.service.queries import Queries
from rig.analysis.service.serving import mean_latency
from rig.recording.columns.buffers import array_of
from rig.recording.reader import Run
from rig.types import Bools, Floats

SUSTAIN = 3
"""This many answers in a row must be right; fewer are enough at the end of a scene."""


def stream_of(run: Run, q: Queries) -> Stream | None:
    """Return the stream that a run played, or None if its samples are not frames of a stream."""
    age = np.asarray(array_of(run.samples["label_age_s"]), dtype=float)
    labels = run.samples["label"].to_pylist()
    if not len(q) or np.any(q.sample < 0) or np.any(np.isnan(age[q.sample])) or not q.scheduled:
        return None
    onset = np.round(q.due_s - age[q.sample], 9)
    order = np.argsort(q.due_s, kind="stable")
    starts = [k for j, k in enumerate(order) if j == 0 or abs(onset[k] - onset[order[j - 1]]) > 1e-6]
    came = np.flatnonzero(q.completed)
    came = came[np.argsort(q.completed_s[came], kind="stable")]
    answers = [q.outputs[q.output[k]] if q.output[k] >= 0 else None for k in came]
    scene = tuple(str(labels[q.sample[k]]) for k in starts)
    classes = tuple(sorted({*scene, *(name for a in answers for name in _probabilities(a))}))
    table = np.array([[_probabilities(a).get(c, 0.0) for c in classes] for a in answers]).reshape(-1, len(classes))
    begin_s, end_s = float(q.due_s[order[0]]), float(np.nanmax([q.due_s, q.completed_s]))
    said = tuple(str(answer_in(a)) for a in answers)
    return Stream(q.completed_s[came], said, classes, table, onset[starts], scene, begin_s, end_s)


def change_figures(stream: Stream | None) -> Figures:
    """Return the mean, median and 90th percentile of the time from a scene change to the first sustained right answer.

    Two more figures are the share of changes without such an answer and the share of time with the right scene.
    """
    if stream is None:
        return Figures()
    found = change_latencies_s(stream)
    changes = len(stream.onset_s) - 1
    out = Figures()
    reached = found[np.isfinite(found)]
    if changes > 0:
        method = f"changes of scene without {SUSTAIN} right answers in a row, or right to the scene's end"
        out |= {FigureKey("onset_never_share"): proportion(changes - len(reached), changes, method)}
    if len(reached):
        # latencies are whole steps of the stream, so equal latencies may hide a scatter within a step
        step_s = (stream.end_s - stream.begin_s) / len(stream.at_s)
        out |= {FigureKey("onset_latency_mean_s"): replace(mean_latency(reached), bias=0.5 * step_s)}
        for p in (0.5, 0.9):
            out |= {FigureKey("onset_latency_p{percentile}_s", percentile=100 * p): percentile(np.sort(reached), p)}
    return out | {FigureKey("stream_accuracy"): stream_accuracy(stream)}


def stream_accuracy(stream: Stream) -> Quantity:
    """Return the share of the time in which the latest answer is right.

    For the interval, the stream is sampled at as many moments as there are answers. Correlated successive moments count
    as fewer.
    """
    n = max(len(stream.at_s), 1)
    looks_s = stream.begin_s + (stream.end_s - stream.begin_s) * (np.arange(n) + 0.5) / n
    count = independent(_right(stream, looks_s).astype(float))
    method = "share of time, since the first frame was due, in which the last answer is right"
    return replace(proportion(count * time_right(stream), count, method), n=n)


def change_latencies_s(stream: Stream) -> Floats:
    """Return the seconds from each scene change to the first sustained right answer, shape (changes,).

    An answer is sustained if it begins ``SUSTAIN`` right answers in a row, or fewer that last to the end of the scene.
    The latency of a change without such an answer is inf. The first scene is not a change.
    """
    ends = np.append(stream.onset_s[1:], stream.end_s + 1.0)
    out, said_right = np.full(len(stream.onset_s), np.inf), right_answers(stream)
    for k in range(1, len(out)):
        inside = np.flatnonzero((stream.at_s >= stream.onset_s[k]) & (stream.at_s < ends[k]))
        right = said_right[inside]
        sustained = (j for j in range(len(inside)) if np.all(right[j : j + SUSTAIN]))
        if (first := next(sustained, None)) is not None:
            out[k] = stream.at_s[inside[first]] - stream.onset_s[k]
    return out[1:]


def right_answers(stream: Stream) -> Bools:
    """Return which answers name the scene that was current when they arrived, shape (k,)."""
    return np.asarray(np.array(stream.said, object) == scenes_at(stream, stream.at_s), bool)


def right_share(stream: Stream, edges_s: Floats) -> Floats:
    """Return the share of the time between ``edges_s`` (n + 1,) in which the latest answer names the current scene.

    The shape is (n,).
    """
    knots = np.unique(np.concatenate([stream.at_s, stream.onset_s, edges_s]))
    until = np.concatenate([[0.0], np.cumsum(np.diff(knots) * _right(stream, knots[:-1]))])
    return np.asarray(np.diff(np.interp(edges_s, knots, until)) / np.diff(edges_s))


def time_right(stream: Stream) -> float:
    """Return the share of the time since the first frame was due in which the latest answer is the current scene."""
    edges_s = np.array([stream.begin_s, stream.end_s])
    return float(right_share(stream, edges_s)[0]) if edges_s[0] < edges_s[1] else 0.0


def _right(stream: Stream, at_s: Floats) -> Bools:
    """Return whether the latest answer is the current scene, at each time; without an answer, it is not."""
    said = np.array([None, *stream.said], dtype=object)
    return np.asarray(said[np.searchsorted(stream.at_s, at_s, side="right")] == scenes_at(stream, at_s), bool)


def scenes_at(stream: Stream, at_s: Floats) -> NDArray[np.object_]:
    """Return the scene at each time, shape (n,)."""
    return np.array(stream.scene, object)[np.clip(np.searchsorted(stream.onset_s, at_s, side="right") - 1, 0, None)]


def _probabilities(answer: Any) -> dict[str, float]:
    """Return the probability of each class in an answer; without ``probability``, its label has probability 1."""
    if isinstance(answer, Mapping) and isinstance(answer.get("probability"), Mapping):
        return {str(k): float(v) for k, v in answer["probability"].items() if isinstance(v, (int, float))}
    label = answer_in(answer)
    return {label: 1.0} if isinstance(label, str) else {}
