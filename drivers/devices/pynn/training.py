"""Teach the network of NE15-MNIST a folder of images, template by template, on whatever simulates a lesson."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drivers.devices.pynn.description import NetworkFile
from drivers.devices.pynn.ne15 import TEACHING_HZ, TEACHING_S, deployed, lesson, subclasses
from scenarios.workloads.ne15.mnist import read_digits
from scenarios.workloads.ne15.poisson import Events, poisson
from scenarios.workloads.ne15.workload import kept_numbers, sample_id

Learn = Callable[[Iterator[Events]], Iterable[NDArray[np.float64]]]
"""Turns lessons into the weights that each leaves, shape (784,), in their order."""


@dataclass(frozen=True)
class Course:
    """What is taught: the test images of a folder outside a fold, or without a fold its training images."""

    data: Path
    subclasses: int
    fold: int | None
    folds: int
    seed: int = 0
    scale: float = 1.0

    @property
    def split(self) -> str:
        """The images of MNIST that it takes."""
        return "train" if self.fold is None else "test"


def taught(course: Course, learn: Learn, backend: str) -> NetworkFile:
    """Return the network that has learnt a course. Raises ``DataError`` for images that cannot be used.

    Raises ``UsageError`` for more subclasses than a digit has images.
    """
    images, labels = read_digits(course.data, course.split)
    numbers = kept_numbers(len(images), course.fold, course.folds, False)
    images, labels = images[numbers], labels[numbers]
    groups = subclasses(images, labels, course.subclasses, course.seed)
    lessons = (
        lesson(images[group], poisson, np.random.default_rng([course.seed, k])) for k, (_, group) in enumerate(groups)
    )
    templates = np.array(list(learn(lessons)))
    left_out = None if course.fold is None else f"{course.fold} of {course.folds}: test images, not the chapter's"
    origin = {
        "method": "K-means of each digit's images, then STDP with a teacher, one decision neuron at a time",
        "backend": backend,
        "images": f"{len(numbers)} {'training' if course.split == 'train' else 'test'} images of MNIST",
        "fold_left_out": left_out,
        "subclasses": course.subclasses,
        "templates": len(groups),
        "biological_s": TEACHING_S * len(groups),
        "input_hz": TEACHING_HZ,
        "seed": course.seed,
        "scale": course.scale,
        "templates_sha256": hashlib.sha256(templates.tobytes()).hexdigest(),
    }
    trained_on = frozenset(sample_id(course.split, number) for number in numbers)
    return deployed(templates.T, [digit for digit, _ in groups], course.scale, origin, trained_on)
