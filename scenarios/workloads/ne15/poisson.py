"""Images as Poisson spike trains: rates are proportional to the pixels, and their sum is the same for every image."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Events = NDArray[np.int64]
"""Spikes in order of time, shape (n, 2): microseconds (at least 1) since the stream began, and address."""


def poisson(image: NDArray[np.uint8], rate_hz: float, seconds: float, rng: np.random.Generator) -> Events:
    """Return the spikes of an image of shape (pixels,): ``rate_hz`` is the sum of the rates of all pixels.

    Independent Poisson processes are drawn as one process of the summed rate; each spike is assigned to a pixel with a
    probability equal to the pixel's share of the intensity. An image without intensity gives no spikes.
    """
    total = float(image.sum(dtype=np.int64))
    count = rng.poisson(rate_hz * seconds) if total else 0
    times = np.ceil(rng.uniform(0.0, 1e6 * seconds, count)).astype(np.int64)
    pixels = rng.choice(len(image), count, p=image / total) if count else np.zeros(0, np.int64)
    events = np.column_stack([np.maximum(times, 1), pixels])
    order = np.lexsort((events[:, 1], events[:, 0]))
    return np.asarray(events[order], np.int64)
