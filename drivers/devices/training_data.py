"""The training data of a workload for all trainers: the train split, encoded, with its labels.

Devices that learn classes from a few samples (NeuroBench, algorithm 1) share the readout and the workload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.errors import DataError, refused
from rig.factories import build, options_of, split_options
from rig.plugins import load
from rig.types import Floats, Sample, Workload

LEARNING, INFERENCE = "learning", "inference"
Shown = Callable[[], Iterable[tuple[str, NDArray[Any]]]]
"""Gives each base word with all of its training samples, shape (n, ...)."""


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """Samples for training. ``labels`` (samples,) are indices into ``classes``; ``record`` describes the data."""

    inputs: tuple[NDArray[Any], ...]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    record: Mapping[str, Any]


def train_split(name: str, options: list[str]) -> Workload:
    """Open the train split of a workload. Raises ``UsageError`` if it has none, or if another split is given."""
    factory = load("workloads", name)
    if "split" not in options_of(factory):
        raise refused("workload", name, "Use one that has an option split, such as asc", f"{name} has no train split")
    given: Mapping[str, str] = split_options(options, {"workload": factory})["workload"]
    if given.get("split", "train") != "train":
        raise refused("split", given["split"], "Leave it out: a network is trained on the train split")
    opened: Workload = build(factory, {}, {**given, "split": "train"})
    return opened


def labelled(data: Workload, encoded: Callable[[Sample], NDArray[Any]]) -> Labelled:
    """Decode and encode each sample once. Raises ``DataError`` for one without a label, or a class without samples."""
    inputs, names = [], []
    for sample in data.samples:
        if sample.label is None:
            raise DataError(f"sample {sample.id} has no label", field="label", value=sample.id)
        inputs.append(encoded(sample))
        names.append(sample.label)
    classes = tuple(dict.fromkeys([*data.details.get("classes", ()), *names]))
    if lacking := sorted(set(classes) - set(names)):
        what = f"no training sample is labelled {lacking[0]}"
        raise DataError(what, field="label", value=lacking[0], remedy="Every class needs samples")
    if odd := [k for k, each in enumerate(inputs) if len(each) != len(inputs[0])]:
        what = f"sample {data.samples[odd[0]].id} has {len(inputs[odd[0]])} time steps, others have {len(inputs[0])}"
        raise DataError(what, field="payload", value=len(inputs[odd[0]]), remedy="Use samples of one length")
    labels = np.array([classes.index(name) for name in names])
    record = {"workload": data.name, "digest_sha256": data.digest_sha256, **data.details}
    return Labelled(tuple(inputs), labels, classes, record)


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
