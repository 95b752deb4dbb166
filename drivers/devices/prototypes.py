"""Shared by devices that learn classes from a few samples (NeuroBench, algorithm 1): the readout and the workload."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.errors import DataError
from rig.types import Floats, Sample, Workload

LEARNING, INFERENCE = "learning", "inference"
Shown = Callable[[], Iterable[tuple[str, NDArray[Any]]]]
"""Gives each base word with all of its training samples, shape (n, ...)."""


def prototypes(means: Floats) -> tuple[Floats, Floats]:
    """Return the weights and the biases of a linear readout from the mean features of classes (classes, features).

    Weights are twice the mean, biases minus its square, so that the largest output belongs to the nearest mean.
    """
    return 2.0 * means, -np.sum(means**2, axis=1)


def base_words(workload: Workload) -> tuple[list[str], Shown]:
    """Return the words that a device knows from the start. Raises ``DataError`` for a workload without them."""
    words, shown = getattr(workload, "base", None), getattr(workload, "base_training", None)
    if words is None or shown is None:
        what = f"{workload.name} has no base words to learn from"
        raise DataError(what, field="workload", value=workload.name, remedy="Use --workload mswc-fscil")
    return list(words), shown


def shots_of(sample: Sample) -> list[Sample]:
    """Return the samples that a sample to learn from holds."""
    return [replace(sample, payload=shot, learn=False) for shot in sample.payload]
