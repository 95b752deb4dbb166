"""Rank order encoding by FoCal (Sen Bhattacharya and Furber 2010, doi 10.1109/TNN.2010.2048339).

Four layers of ganglion cells filter the image with differences of Gaussians. The cell with the largest value spikes
first. From every other cell, this value times the correlation of the two cells' kernels is then subtracted.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from rig.types import Floats
from scenarios.workloads.ne15.digit_stream import Events
from scenarios.workloads.ne15.mnist import PIXELS, SIDE

LAYERS = (
    (-1.0, 3, 0.8, 6.7, 1, 1),
    (1.0, 11, 1.04, 6.7, 1, 1),
    (-1.0, 61, 8.0, 4.8, 5, 3),
    (1.0, 243, 10.4, 4.8, 5, 3),
)
"""The paper's table, as the authors of NE15-MNIST use it. Each layer has the sign of the centre, the width, the
standard deviation of the centre, the ratio of the surround's standard deviation to the centre's, and the columns and
rows from one cell to the next."""
STEP_US = 1000
"""Time between two spikes in microseconds. It is constant, because only the order of spikes counts."""
SHARE = 0.3
"""The first spikes, of this share of the active cells, are enough to represent the image (same paper)."""


def rank_order(image: NDArray[np.uint8], share: float = SHARE) -> tuple[Events, Floats]:
    """Return the spikes of an image of shape (784,), address ``layer * 784 + pixel``, and the value of each spike.

    A cell spikes at most once. ``share`` limits the spikes to a share of the cells whose value for this image is not 0.
    """
    cells, kernels, overlap = cell_kernels()
    left = kernels @ (image / 255.0)
    wanted = int(share * np.count_nonzero(np.abs(left) > 1e-9))
    order: list[int] = []
    values: list[float] = []
    while len(order) < wanted and left[best := int(np.argmax(left))] > 0.0:
        order.append(best)
        values.append(float(left[best]))
        left = left - left[best] * overlap[best]
        left[order] = -np.inf
    times = STEP_US * np.arange(1, len(order) + 1, dtype=np.int64)
    return np.column_stack([times, cells[order]]), np.array(values)


@lru_cache(maxsize=1)
def cell_kernels() -> tuple[NDArray[np.int64], Floats, Floats]:
    """Return addresses of cells (n,), their kernels over the image (n, 784), and the kernels' correlations (n, n)."""
    kernels = [_kernel(*layer[:4]) for layer in LAYERS]
    grid = np.indices((SIDE, SIDE)).reshape(2, -1).T
    places = [grid[((grid - SIDE // 2) % (rows, columns) == 0).all(axis=1)] for *_, columns, rows in LAYERS]
    seen = np.vstack([_at(kernel, grid[None] - p[:, None]) for kernel, p in zip(kernels, places, strict=True)])
    overlap = np.block([
        [_at(fftconvolve(a, b[::-1, ::-1]), q[None] - p[:, None]) for b, q in zip(kernels, places, strict=True)]
        for a, p in zip(kernels, places, strict=True)
    ])  # fmt: skip
    cells = np.concatenate([layer * PIXELS + place @ np.array([SIDE, 1]) for layer, place in enumerate(places)])
    return cells, seen, overlap


def _kernel(sign: float, width: int, sigma: float, surround: float) -> Floats:
    """Return a difference of two Gaussians of sum 1 each, scaled to norm 1."""
    at = np.arange(width) - width // 2
    squared = at[:, None] ** 2 + at**2
    centre, around = (np.exp(-squared / (2 * s**2)) for s in (sigma, surround * sigma))
    kernel = sign * (centre / centre.sum() - around / around.sum())
    return np.asarray(kernel / np.linalg.norm(kernel))


def _at(kernel: Floats, offsets: NDArray[np.int64]) -> Floats:
    """Return the values of a kernel at offsets (..., 2) from its middle, 0 outside of it."""
    index = offsets + kernel.shape[0] // 2
    inside = ((index >= 0) & (index < kernel.shape[0])).all(axis=-1)
    index = np.where(inside[..., None], index, 0)
    return np.where(inside, kernel[index[..., 0], index[..., 1]], 0.0)
