"""The training data of a workload for all trainers: the train split, encoded, with its labels.

This module also has the readout and the base words of devices that learn classes from a few samples (NeuroBench,
algorithm 1).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rig.errors import DataError, refused
from rig.factories import build, options_of, split_options
from rig.plugins import load
from rig.types import Floats, Sample, Workload

LEARNING, INFERENCE = "learning", "inference"
FEWEST_STEPS = 10
"""The smallest number of steps in an epoch."""
HIGHEST_RATE = 3e-3
"""The rate at which Adam begins; it falls to zero by a cosine."""
K = TypeVar("K")
Say = Callable[[str], None]
Shown = Callable[[], Iterable[tuple[str, NDArray[Any]]]]
"""Yields each base word with all of its training samples, shape (n, ...)."""


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
    """Decode and encode each sample once.

    Raises ``DataError`` for a sample without a label or of another length, and for a class without samples.
    """
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


def record_of(
    found: Labelled, settings: Any, largest: int, tuning: str, packages: Iterable[str], **more: object
) -> dict[str, Any]:
    """Return the record of a training in JSON values: data, settings, tuning, batch size, versions and ``more``."""
    record = {"program": "rig network train", "data": found.record, **asdict(settings), "tuning": tuning, **more}
    record |= {"batch": batch_of(len(found.labels), largest), "versions": {name: version(name) for name in packages}}
    return dict(json.loads(json.dumps(record)))


def batch_of(samples: int, largest: int) -> int:
    """Return the batch size: at most ``largest``, and so small that an epoch has at least ``FEWEST_STEPS`` steps."""
    return max(1, min(largest, samples // FEWEST_STEPS))


def adam(
    weights: dict[K, NDArray[np.float32]], samples: int, size: int, epochs: int, rng: np.random.Generator,
    gradients: Callable[[NDArray[np.int64]], Mapping[K, NDArray[Any]]],
) -> Iterator[int]:  # fmt: skip
    """Change ``weights`` by Adam in batches of ``size``. Yield the number of the epoch at most ten times.

    These epochs are evenly spread over the training. ``gradients`` takes the numbers of the samples of a batch.
    Training takes all epochs and keeps the last weights.
    """
    mean: dict[K, NDArray[Any]] = {name: np.zeros_like(value) for name, value in weights.items()}
    square, count, total = mean.copy(), 0, epochs * (samples // size)
    for epoch in range(1, epochs + 1):
        for batch in rng.permutation(samples)[: samples // size * size].reshape(-1, size):
            count += 1
            rate = HIGHEST_RATE * 0.5 * (1 + np.cos(np.pi * count / total))
            for name, gradient in gradients(batch).items():
                mean[name] = 0.9 * mean[name] + 0.1 * gradient
                square[name] = 0.99 * square[name] + 0.01 * gradient**2
                spread = np.sqrt(square[name] / (1 - 0.99**count)) + 1e-8
                weights[name] = (weights[name] - rate * (mean[name] / (1 - 0.9**count)) / spread).astype(np.float32)
        if epoch * 10 // epochs > (epoch - 1) * 10 // epochs:
            yield epoch


def prototypes(means: Floats) -> tuple[Floats, Floats]:
    """Return the weights and the biases of a linear readout from the mean features of classes (classes, features).

    Weights are twice the mean and biases minus its squared norm, so that the largest output is that of the nearest
    mean.
    """
    return 2.0 * means, -np.sum(means**2, axis=1)


def base_words(workload: Workload) -> tuple[list[str], Shown]:
    """Return the words that a device knows from the start, and the function that yields their samples.

    Raises ``DataError`` for a workload without them.
    """
    words, shown = getattr(workload, "base", None), getattr(workload, "base_training", None)
    if words is None or shown is None:
        what = f"{workload.name} has no base words to learn from"
        raise DataError(what, field="workload", value=workload.name, remedy="Use --workload mswc-fscil")
    return list(words), shown


def shots_of(sample: Sample) -> list[Sample]:
    """Return the single samples (shots) in a sample for learning."""
    return [replace(sample, payload=shot, learn=False) for shot in sample.payload]
