"""Turn images into Poisson spike trains, and cut a stream of successive digits into frames with a moving window."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rig.errors import unfit
from rig.types import Sample

Events = NDArray[np.int64]
"""Spikes in order of time, shape (n, 2): microseconds (at least 1) since the stream began, and address."""
EDGE_S = 1e-9
FRAME = "@"
"""Separates the id of an image from the number of a frame in the id of a sample."""

Show = Callable[[int, float, np.random.Generator], Events]
"""A function that returns the spikes of the image at an index, shown for some seconds."""


def poisson(image: NDArray[np.uint8], rate_hz: float, seconds: float, rng: np.random.Generator) -> Events:
    """Return the spikes of an image of shape (pixels,): ``rate_hz`` is the sum of the rates of all pixels.

    One Poisson process with the summed rate is drawn. Each spike is then assigned to a pixel, with a probability equal
    to the pixel's share of the intensity. An image without intensity has no spikes.
    """
    total = float(image.sum(dtype=np.int64))
    count = rng.poisson(rate_hz * seconds) if total else 0
    times = np.ceil(rng.uniform(0.0, 1e6 * seconds, count)).astype(np.int64)
    pixels = rng.choice(len(image), count, p=image / total) if count else np.zeros(0, np.int64)
    events = np.column_stack([np.maximum(times, 1), pixels])
    return np.asarray(events[np.lexsort((events[:, 1], events[:, 0]))], np.int64)


def frames_of(
    show: Show, ids: Sequence[str], labels: Sequence[str], *, window_s: float, stride_s: float, scene_s: float,
    duration_s: float, blank_s: float, seed: int,
) -> list[Sample]:  # fmt: skip
    """Cut a stream of ``duration_s``, in which each image is shown for ``scene_s``, into frames; see ``Streams``.

    Images and their spikes are drawn with ``seed``; two successive images never have the same label. A frame holds the
    spikes of ``window_s``, then ``blank_s`` without spikes. Raises ``UsageError`` if all images have one label.
    """
    rng = np.random.default_rng(seed)
    shown = _drawn(np.array(labels), math.ceil(duration_s / scene_s), rng)
    parts = [show(index, scene_s, rng) for index in shown]
    stream = np.concatenate([part + np.array([round(1e6 * scene_s * k), 0]) for k, part in enumerate(parts)])
    frames = []
    for k in range(math.floor((duration_s - window_s) / stride_s + EDGE_S) + 1):
        begin_us, end_s = round(1e6 * stride_s * k), stride_s * k + window_s
        first, last = np.searchsorted(stream[:, 0], [begin_us, round(1e6 * end_s)], side="right")
        scene = max(math.ceil(end_s / scene_s - EDGE_S) - 1, 0)
        payload, age_s, of = stream[first:last] - np.array([begin_us, 0]), end_s - scene_s * scene, shown[scene]
        name = f"{ids[of]}{FRAME}{k:06d}"
        frames.append(Sample(name, payload, labels[of], duration_s=window_s + blank_s, label_age_s=age_s))
    return frames


def _drawn(labels: NDArray[np.str_], count: int, rng: np.random.Generator) -> list[int]:
    if len(np.unique(labels)) < 2:
        raise unfit("workload", labels[0], "is the only label, so nothing changes", "Use images of two digits or more")
    shown: list[int] = []
    for _ in range(count):
        others = np.flatnonzero(labels != labels[shown[-1]]) if shown else np.arange(len(labels))
        shown.append(int(rng.choice(others)))
    return shown
