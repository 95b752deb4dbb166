"""Teach the network of NE15-MNIST a folder of images, template by template, on any simulator of lessons."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drivers.devices.pynn.description import NetworkFile
from drivers.devices.pynn.ne15 import (
    RELAY_NA,
    SURE_RELAY_NA,
    TEACHING_HZ,
    TEACHING_S,
    deployed,
    lesson,
    replayed,
    subclasses,
)
from scenarios.workloads.ne15.mnist import read_digits
from scenarios.workloads.ne15.poisson import Events, poisson
from scenarios.workloads.ne15.workload import ADDRESSES, kept_numbers, open_workload, sample_id

Learn = Callable[[Iterator[Events]], Iterable[NDArray[np.float64]]]
"""Takes lessons; returns the weights after each, shape (sources,), in the same order."""
REST_S = 0.02
"""The pause between two streams of a lesson."""
Lessons = tuple[list[int], frozenset[str], Iterator[Events]]
"""The digit of each template, the ids of the teaching samples, and the lessons of each template."""


@dataclass(frozen=True)
class Course:
    """The images to teach: a folder's test images outside a fold, or without a fold its training images."""

    data: Path
    subclasses: int
    fold: int | None
    folds: int
    seed: int = 0
    scale: float = 1.0
    encoding: str = "poisson"
    dialect: str = "jaer"
    lesson_s: float = TEACHING_S
    """Seconds that teach one template."""
    md5: bool = True
    """Whether the content of the files must be that of MNIST."""

    @property
    def split(self) -> str:
        """Return the images of MNIST that the course uses."""
        return "train" if self.fold is None else "test"

    @property
    def network(self) -> tuple[int, float]:
        """Return how many sources the encoding has, and the weight of a relay in nA."""
        return ADDRESSES[self.encoding], RELAY_NA if self.encoding == "poisson" else SURE_RELAY_NA


def taught(course: Course, learn: Learn, backend: str) -> NetworkFile:
    """Return the network that has learnt a course. Raises ``DataError`` for images that cannot be used.

    Raises ``UsageError`` for more subclasses than a digit has images.
    """
    digits, trained_on, lessons = (_rated if course.encoding == "poisson" else _streamed)(course)
    templates = np.array(list(learn(lessons)))
    left_out = None if course.fold is None else f"{course.fold} of {course.folds}: test images, not the chapter's"
    origin = {
        "method": "K-means of each digit's images, then STDP with a teacher, one decision neuron at a time",
        "backend": backend,
        "images": f"{len(trained_on)} {'training' if course.split == 'train' else 'test'} images of "
        + ("MNIST" if course.md5 else "a folder"),
        "encoding": course.encoding,
        "fold_left_out": left_out,
        "subclasses": course.subclasses,
        "templates": len(digits),
        "biological_s": course.lesson_s * len(digits),
        "input_hz": TEACHING_HZ if course.encoding == "poisson" else None,
        "seed": course.seed,
        "scale": course.scale,
        "templates_sha256": hashlib.sha256(templates.tobytes()).hexdigest(),
    }
    return deployed(templates.T, digits, course.scale, origin, trained_on, course.network[1])


def _rated(course: Course) -> Lessons:
    """The chapter's course: images shown at a rate, in subclasses by their raw pixels."""
    images, labels = read_digits(course.data, course.split, course.md5)
    numbers = kept_numbers(len(images), course.fold, course.folds, False)
    images, labels = images[numbers], labels[numbers]
    groups = subclasses(images, labels, course.subclasses, course.seed)
    lessons = (
        lesson(images[group], poisson, np.random.default_rng([course.seed, k]), course.lesson_s)
        for k, (_, group) in enumerate(groups)
    )
    return [digit for digit, _ in groups], frozenset(sample_id(course.split, n) for n in numbers), lessons


def _streamed(course: Course) -> Lessons:
    """A course of the workload's streams, in subclasses by their spike counts per address."""
    whole = open_workload(
        data=str(course.data),
        encoding=course.encoding,
        split=course.split,
        dialect=course.dialect,
        md5=course.md5,
    ).samples
    samples = [whole[number] for number in kept_numbers(len(whole), course.fold, course.folds, False)]
    sources = course.network[0]
    counts = np.stack([np.bincount(sample.payload[:, 1], minlength=sources) for sample in samples])
    labels = np.array([int(sample.label or 0) for sample in samples], np.uint8)
    each_s = REST_S + 1e-6 * max(int(sample.payload[-1, 0]) for sample in samples)
    groups = subclasses(counts, labels, course.subclasses, course.seed)
    lessons = (
        replayed([samples[n].payload for n in group], sources, each_s, course.lesson_s, poisson,
                 np.random.default_rng([course.seed, k]))
        for k, (_, group) in enumerate(groups)
    )  # fmt: skip
    return [digit for digit, _ in groups], frozenset(sample.id for sample in samples), lessons
