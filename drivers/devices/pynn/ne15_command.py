"""Train the network of NE15-MNIST on NEST, write the stream of one digit to a file, or draw a folder of digits.

The network learns a folder of images, one template (a subclass of a digit) after another. A lesson is the stimulus that
teaches one template; NEST or another simulator plays it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivers.devices.pynn import ne15
from drivers.devices.pynn.description import NetworkFile, checked, write_network
from drivers.devices.pynn.nest import opened
from rig.bench.settings import one_of, within
from rig.errors import UsageError
from rig.recording.disk.files import regular
from rig.terminal import say, say_json
from rig.types import Sample
from scenarios.workloads.ne15.aer import export
from scenarios.workloads.ne15.digit_stream import Events, poisson
from scenarios.workloads.ne15.drawn import write_folder
from scenarios.workloads.ne15.mnist import has, read_digits
from scenarios.workloads.ne15.workload import ADDRESSES, kept_numbers, open_workload, sample_id

NO_MD5 = "take images that are not MNIST's, such as drawn ones"
Learn = Callable[[Iterator[Events]], Iterable[NDArray[np.float64]]]
"""Takes lessons, and returns the weights after each lesson, shape (sources,), in the same order."""
REST_S = 0.02
"""The pause between two streams of a lesson."""
Lessons = tuple[list[int], frozenset[str], Iterator[Events]]
"""The digit of each template, the ids of the teaching samples, and one lesson for each template."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions ``train``, ``export`` and ``draw`` of ``rig ne15``."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    train = actions.add_parser("train", help="K-means and STDP on NEST; the file is the option network of a device")
    train.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder with MNIST's idx files")
    train.add_argument(
        "--interpreter", default="", metavar="PYTHON", help="Python with NEST and PyNN; default: $RIG_NEST_PYTHON"
    )
    train.add_argument("--subclasses", type=int, default=10, metavar="N", help="templates of each digit; default: 10")
    train.add_argument("--fold", type=int, help="train on the test images outside this fold; default: training images")
    train.add_argument("--folds", type=int, default=10, help="default: 10")
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--encoding", default="poisson", help="poisson (default), rank-order or dvs")
    train.add_argument("--dialect", default="jaer", help="dialect of dvs: jaer (default) or ne15")
    train.add_argument("--lesson-s", type=float, default=ne15.TEACHING_S, metavar="S", help="of a lesson; default: 180")
    train.add_argument("--no-md5", dest="md5", action="store_false", help=NO_MD5)
    train.add_argument("--scale", type=float, default=1.0, help="factor on all weights when deployed; default: 1")
    train.add_argument("--out", type=Path, required=True, metavar="FILE.npz")
    train.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document")
    train.set_defaults(do=_train)
    stream = actions.add_parser("export", help="write the stream of one test image")
    stream.add_argument("--data", required=True, metavar="DIR", help="folder with MNIST's idx files")
    stream.add_argument("--number", type=int, default=0, metavar="N", help="which image; default: 0")
    stream.add_argument("--encoding", default="poisson", help="poisson (default), rank-order or dvs")
    stream.add_argument("--no-md5", dest="md5", action="store_false", help=NO_MD5)
    stream.add_argument("--rate-hz", type=float, default=5000.0, metavar="HZ", help="sum of the rates; default: 5000")
    stream.add_argument("--out", type=Path, required=True, metavar="FILE", help="NAME.aedat (jAER) or NAME.npy (PyNN)")
    stream.set_defaults(do=_export)
    draw = actions.add_parser("draw", help="digits of the project's own, to try all of this without MNIST")
    draw.add_argument("--images", type=int, default=1000, metavar="N", help="images of each split; default: 1000")
    draw.add_argument("--recordings", type=int, default=0, metavar="N", help="recordings of each kind; default: 0")
    draw.add_argument("--seed", type=int, default=0)
    draw.add_argument("--out", type=Path, required=True, metavar="DIR")
    draw.set_defaults(do=_draw)


def run(args: argparse.Namespace) -> int:
    """Run the command. Raises the errors of training, of opening the workload and of the export."""
    return int(args.do(args))


def _export(args: argparse.Namespace) -> int:
    """Write the stream of one image, as the workload makes it with its default seed."""
    streams = open_workload(
        data=args.data, encoding=args.encoding, rate_hz=args.rate_hz, samples=args.number + 1, md5=args.md5
    ).samples
    export(streams[args.number].payload, ADDRESSES[args.encoding], args.out)
    say(args.out)
    return 0


def _draw(args: argparse.Namespace) -> int:
    """Draw a folder in the layout of MNIST, and recordings in the layout of NE15-MNIST."""
    write_folder(args.out, args.images, args.recordings, args.seed)
    say(f"wrote {args.out}: use it with --no-md5, and to measure with --option md5=false")
    return 0


def _train(args: argparse.Namespace) -> int:
    """Train the network and write it.

    Raises ``UsageError`` for options out of range, for a file that cannot be written, and if there are neither
    training images nor a fold; ``DataError`` for images that cannot be used; and what opening NEST raises.
    """
    within(1, 1000, subclasses=args.subclasses)
    within(2, 100, folds=args.folds)
    within(0.001, 1000.0, scale=args.scale)
    regular(args.out)  # checked before training takes hours
    one_of(tuple(ADDRESSES), encoding=args.encoding)
    within(0.1, 1e6, "s", lesson_s=args.lesson_s)
    course = Course(**{field.name: getattr(args, field.name) for field in fields(Course)})
    if args.fold is None and args.encoding != "dvs" and not has(args.data, "train"):
        remedy = "Add train-images-idx3-ubyte and train-labels-idx1-ubyte, or train on test images with --fold 0"
        raise UsageError(f"{args.data} holds no training images", field="data", value=str(args.data), remedy=remedy)
    network = taught(course, partial(_on_nest, course, args.interpreter, args.json), "NEST through PyNN")
    write_network(network, args.out)
    origin = network.description.origin
    if args.json:
        say_json(json.dumps({"file": str(args.out), "digest": network.digest(), "training": origin}))
    else:
        say(f"wrote {args.out}: {origin['templates']} templates, digest {network.digest()}")
    return 0


def _on_nest(course: Course, interpreter: str, quiet: bool, lessons: Iterator[Events]) -> Iterator[NDArray[np.float64]]:
    """Yield the weights of each template, shape (sources,), each taught in a separate simulation."""
    (sources, relay_na), began_s = course.network, time.monotonic()
    for k, stimulus in enumerate(lessons):
        # a source that never spikes learns nothing, and 32,768 sources would take minutes to make
        used = np.union1d(stimulus[:, 1], [sources])
        events = np.column_stack([stimulus[:, 0], np.searchsorted(used, stimulus[:, 1])])
        sample = Sample(f"lesson-{k}", events, duration_s=course.lesson_s + 0.01)
        device = opened(checked(ne15.teaching(len(used) - 1, relay_na), {}), interpreter)
        try:
            device.stage([sample])
            device.submit([sample], None)
            while not (replies := device.poll(1.0)):
                pass
        finally:
            device.close()
        weights = np.zeros(sources)
        weights[used[:-1]] = np.array(replies[0].output["weights"]["input-decision"])[:, 0]
        yield weights
        if not quiet:
            say(f"template {k + 1}, {time.monotonic() - began_s:.0f} s")


@dataclass(frozen=True)
class Course:
    """The images to learn: a folder's test images outside a fold or, without a fold, its training images."""

    data: Path
    subclasses: int
    fold: int | None
    folds: int
    seed: int = 0
    scale: float = 1.0
    encoding: str = "poisson"
    dialect: str = "jaer"
    lesson_s: float = ne15.TEACHING_S
    """Seconds that teach one template."""
    md5: bool = True
    """Whether the content of the files must be that of MNIST."""

    @property
    def split(self) -> str:
        """Return the split of MNIST that the training uses."""
        return "train" if self.fold is None else "test"

    @property
    def images(self) -> str:
        """Return a text on what the network learns from."""
        if self.encoding == "dvs":
            return "recordings of a folder"
        return f"{'training' if self.split == 'train' else 'test'} images of {'MNIST' if self.md5 else 'a folder'}"

    @property
    def network(self) -> tuple[int, float]:
        """Return how many sources the encoding has, and the weight of a relay in nA."""
        return ADDRESSES[self.encoding], ne15.RELAY_NA if self.encoding == "poisson" else ne15.SURE_RELAY_NA


def taught(course: Course, learn: Learn, backend: str) -> NetworkFile:
    """Return the network after training on a course. Raises ``DataError`` for images that cannot be used.

    Raises ``UsageError`` for more subclasses than a digit has images.
    """
    digits, trained_on, lessons = (_rated if course.encoding == "poisson" else _streamed)(course)
    templates = np.array(list(learn(lessons)))
    left_out = None if course.fold is None else f"{course.fold} of {course.folds}: test images, not the chapter's"
    origin = {
        "method": "K-means of each digit's images, then STDP with a teacher, one decision neuron at a time",
        "backend": backend,
        "data": f"{len(trained_on)} {course.images}",
        "encoding": course.encoding,
        "fold_left_out": left_out,
        "subclasses": course.subclasses,
        "templates": len(digits),
        "biological_s": course.lesson_s * len(digits),
        "input_hz": ne15.TEACHING_HZ if course.encoding == "poisson" else None,
        "seed": course.seed,
        "scale": course.scale,
        "templates_sha256": hashlib.sha256(templates.tobytes()).hexdigest(),
    }
    return ne15.deployed(templates.T, digits, course.scale, origin, trained_on, course.network[1])


def _rated(course: Course) -> Lessons:
    """Return the lessons of the NE15-MNIST chapter: images as Poisson rates, in subclasses by their raw pixels."""
    images, labels = read_digits(course.data, course.split, course.md5)
    numbers = kept_numbers(len(images), course.fold, course.folds, False)
    images, labels = images[numbers], labels[numbers]
    ids = frozenset(sample_id(course.split, n) for n in numbers)
    return _lessons(
        course, images, labels, ids, lambda group, rng: ne15.lesson(images[group], poisson, rng, course.lesson_s)
    )


def _streamed(course: Course) -> Lessons:
    """Return lessons made of the workload's streams, in subclasses by their spike counts per address."""
    whole = open_workload(
        data=str(course.data), encoding=course.encoding, split=course.split, dialect=course.dialect, md5=course.md5
    ).samples
    samples = [whole[number] for number in kept_numbers(len(whole), course.fold, course.folds, False)]
    sources = course.network[0]
    counts = np.stack([np.bincount(sample.payload[:, 1], minlength=sources) for sample in samples])
    labels = np.array([int(sample.label or 0) for sample in samples], np.uint8)
    each_s = REST_S + 1e-6 * max(int(sample.payload[-1, 0]) for sample in samples)

    def lesson(group: NDArray[Any], rng: np.random.Generator) -> Events:
        return ne15.replayed([samples[n].payload for n in group], sources, each_s, course.lesson_s, poisson, rng)

    return _lessons(course, counts, labels, frozenset(sample.id for sample in samples), lesson)


def _lessons(
    course: Course, features: NDArray[Any], labels: NDArray[Any], ids: frozenset[str], lesson: Callable[..., Events]
) -> Lessons:
    """Group samples into subclasses by their features, and return a lesson for each subclass."""
    groups = ne15.subclasses(features, labels, course.subclasses, course.seed)
    lessons = (lesson(group, np.random.default_rng([course.seed, k])) for k, (_, group) in enumerate(groups))
    return [digit for digit, _ in groups], ids, lessons
