"""A stream whose scene changes: how soon the device is right about a new scene, and for how much of the time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rig.analysis.quantity import Quantity
from rig.analysis.service.queries import Queries
from rig.analysis.service.serving import latencies
from rig.recording.reader import Run
from rig.types import Floats

SUSTAIN = 3
"""Answers in a row, or all that are left of a scene, that must be right."""


@dataclass(frozen=True)
class Stream:
    """Answers in the order they came. ``at_s`` and ``said`` have shape (k,), ``probability`` (k, classes);

    scenes begin at ``onset_s`` (m,) and are called ``scene`` until the next; seconds are the run's.
    """

    at_s: Floats
    said: tuple[str, ...]
    classes: tuple[str, ...]
    probability: Floats
    onset_s: Floats
    scene: tuple[str, ...]
    end_s: float


def stream_of(run: Run, q: Queries) -> Stream | None:
    """The stream that a run played, or None when its samples are no frames of one."""
    age = np.asarray(run.samples["label_age_s"].to_numpy(), dtype=float)
    labels = run.samples["label"].to_pylist()
    if not len(q) or np.any(q.sample < 0) or np.any(np.isnan(age[q.sample])) or not q.scheduled:
        return None
    onset = np.round(q.due_s - age[q.sample], 9)
    order = np.argsort(q.due_s, kind="stable")
    starts = [k for j, k in enumerate(order) if j == 0 or abs(onset[k] - onset[order[j - 1]]) > 1e-6]
    came = np.flatnonzero(q.answered)
    came = came[np.argsort(q.done_s[came], kind="stable")]
    said = [json.loads(text) for text in q.outputs]
    answers = [said[q.output[k]] if q.output[k] >= 0 else None for k in came]
    scene = tuple(str(labels[q.sample[k]]) for k in starts)
    classes = tuple(sorted({*scene, *(name for a in answers for name in _probabilities(a))}))
    table = np.array([[_probabilities(a).get(c, 0.0) for c in classes] for a in answers]).reshape(-1, len(classes))
    end_s = float(max(q.due_s[order[-1]], q.window_s()[1]))
    return Stream(q.done_s[came], tuple(str(_label(a)) for a in answers), classes, table, onset[starts], scene, end_s)


def onset_figures(stream: Stream) -> dict[str, Quantity]:
    """Latency of the first sustained right answer after each change of scene, and the share of time right."""
    found = onset_latencies_s(stream)
    changes = len(stream.onset_s) - 1
    out: dict[str, Quantity] = {}
    reached = found[np.isfinite(found)]
    if changes > 0:
        method = f"changes of scene without {SUSTAIN} right answers in a row, or right to the scene's end"
        out["onset_never_share"] = Quantity(1.0 - len(reached) / changes, "1", (), 0.0, changes, method)
    if len(reached):
        for name, q in latencies(reached, "onset_latency").items():
            if name.endswith(("_p50_s", "_p90_s", "_mean_s")):
                out[name] = q
    out["stream_accuracy"] = Quantity(
        time_right(stream),
        "1",
        (),
        0.0,
        len(stream.at_s),
        "share of the stream's time in which the last answer is right",
    )
    return out


def onset_latencies_s(stream: Stream) -> Floats:
    """Shape (changes,): seconds from each change of scene to the first answer that is right and stays so for

    ``SUSTAIN`` answers or until the scene ends; inf where there is none. The first scene is no change.
    """
    ends = np.append(stream.onset_s[1:], stream.end_s + 1.0)
    heard = np.clip(np.searchsorted(stream.onset_s, stream.at_s, side="right") - 1, 0, None)
    said_right = np.array(stream.said) == np.array(stream.scene)[heard]
    out = np.full(len(stream.onset_s), np.inf)
    for k in range(1, len(out)):
        inside = np.flatnonzero((stream.at_s >= stream.onset_s[k]) & (stream.at_s < ends[k]))
        right = said_right[inside]
        for j in range(len(inside)):
            if np.all(right[j : j + SUSTAIN]):
                out[k] = stream.at_s[inside[j]] - stream.onset_s[k]
                break
    return out[1:]


def time_right(stream: Stream) -> float:
    """Share of the time from the first answer on in which the last answer names the scene that is heard."""
    if not len(stream.at_s):
        return 0.0
    edges = np.unique(np.concatenate([stream.at_s, stream.onset_s, [stream.end_s]]))
    edges = edges[(edges >= stream.at_s[0]) & (edges <= stream.end_s)]
    begin, length = edges[:-1], np.diff(edges)
    if not len(begin):
        return 0.0
    last = np.searchsorted(stream.at_s, begin, side="right") - 1
    heard = np.clip(np.searchsorted(stream.onset_s, begin, side="right") - 1, 0, None)
    right = np.array(stream.said)[last] == np.array(stream.scene)[heard]
    return float(np.sum(length[right]) / np.sum(length))


def _label(answer: Any) -> Any:
    return answer.get("label") if isinstance(answer, Mapping) else answer


def _probabilities(answer: Any) -> dict[str, float]:
    """What an answer says of each class: its ``probability`` object, or all on its label."""
    if isinstance(answer, Mapping) and isinstance(answer.get("probability"), Mapping):
        return {str(k): float(v) for k, v in answer["probability"].items() if isinstance(v, (int, float))}
    label = _label(answer)
    return {label: 1.0} if isinstance(label, str) else {}
