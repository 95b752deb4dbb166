"""NE15-MNIST: handwritten digits as spikes, encoded from the user's MNIST files or read from recordings of a retina.

A sample is the spikes of one image, an array of shape (n, 2): microseconds and address. A blank time without spikes
follows the spikes; the duration of the sample includes it.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rig.bench.settings import first_of, one_of, positive, within
from rig.errors import DataError, refused, unfit
from rig.types import Sample, SampleSet
from scenarios.lazy_samples import Lazy
from scenarios.workloads.asc.catalogue import read_rows
from scenarios.workloads.ne15 import mnist
from scenarios.workloads.ne15.aer import DIALECTS, PIXELS, read_aedat
from scenarios.workloads.ne15.digit_stream import Events, Show, frames_of, poisson
from scenarios.workloads.ne15.focal import SHARE, rank_order

NAME = "ne15-mnist"
TASK = "classification of handwritten digits that are shown as spikes"
ADDRESSES = {"poisson": mnist.PIXELS, "rank-order": 4 * mnist.PIXELS, "dvs": 2 * PIXELS}
"""Number of sources by encoding: pixels, four layers of ganglion cells, or ON and OFF of a retina's pixels."""
DIGITS = [str(digit) for digit in range(10)]
SILENCE_US = 1_000_000
"""A recording may be silent before its first event for as long as its events last, plus this time."""
PUBLISHED_HZ = (2000.0, 5000.0)
"""Summed rates in Q. Liu's thesis chapter: for training and most figures, and for its table of NEST and SpiNNaker."""

Encode = Callable[[int], Events]


class Image(NamedTuple):
    """One image or recording: its number, id and label."""

    number: int
    id: str
    label: str


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Digits(SampleSet):
    """The workload; see ``rig.types.Workload``. ``show`` encodes an image for any duration; None if impossible."""

    images: Sequence[Image]
    blank_s: float
    show: Show | None

    def stream(self, window_s: float, stride_s: float, scene_s: float, duration_s: float, seed: int) -> list[Sample]:
        """Return images that follow each other without a pause, cut into frames; see ``rig.types.Streams``."""
        if self.show is None:
            encoding = self.details["encoding"]
            raise unfit("encoding", encoding, "cannot be shown for any time", "Use poisson for the scenario real-time")
        lengths = {"window_s": window_s, "stride_s": stride_s, "scene_s": scene_s, "duration_s": duration_s}
        _, ids, labels = zip(*self.images, strict=True)
        return frames_of(self.show, ids, labels, **lengths, blank_s=self.blank_s, seed=seed)


def open_workload(
    *,
    data: str = "",
    encoding: str = "poisson",
    split: str = "test",
    samples: int | None = None,
    rate_hz: float = 5000.0,
    image_s: float = 1.0,
    blank_s: float = 0.2,
    stream_seed: int = 0,
    fold: int | None = None,
    folds: int = 10,
    dialect: str = "jaer",
    md5: bool = True,
) -> Digits:
    """Open the workload: the folder ``data`` holds MNIST's idx files, or for ``dvs`` recordings and a ``labels.csv``.

    ``poisson``: ``rate_hz`` is the sum of the rates of all pixels; each image is shown for ``image_s`` and followed by
    ``blank_s`` without spikes; image k is drawn from ``stream_seed`` and k. ``rank-order``: FoCal, 1 ms between spikes.
    ``dvs``: AER-DAT2.0 files in a ``dialect`` (jaer or ne15), from time 0 to the last event. ``fold`` keeps the images
    whose number leaves this remainder when divided by ``folds``; a network may be trained on the others. ``samples``
    keeps this many first images. Without ``md5``, the files are not compared with MNIST's.

    Raises ``UsageError`` for options out of range and ``DataError`` for files that cannot be used.
    """
    one_of(tuple(ADDRESSES), encoding=encoding)
    one_of(("train", "test"), split=split)
    one_of(DIALECTS, dialect=dialect)
    positive(rate_hz=rate_hz, image_s=image_s)
    within(0.0, 60.0, "s", blank_s=blank_s)
    within(2, 100, folds=folds)
    within(0, 2**53, stream_seed=stream_seed)
    if not data:
        raise refused("data", data, "Give a folder of MNIST's four idx files (--data)", "no folder of images was given")
    if encoding == "dvs":
        return _recorded(Path(data), dialect, blank_s, fold, folds, samples)
    images, labels = mnist.read_digits(Path(data), split, md5)
    numbers = first_of(kept_numbers(len(images), fold, folds, True), samples)
    encode, show, coding = _coded(images, numbers, encoding, rate_hz, image_s, stream_seed)
    details = {"encoding": encoding, "addresses": ADDRESSES[encoding], "image_s": image_s, "blank_s": blank_s}
    details |= {"classes": DIGITS, **coding}
    details |= {"split": split, "fold": fold, "folds": None if fold is None else folds, "md5_checked": md5}
    chosen = [Image(number, sample_id(split, number), str(labels[number])) for number in numbers]
    return _workload(chosen, encode, image_s + blank_s, details, show)


def _coded(
    images: NDArray[np.uint8], numbers: Sequence[int], encoding: str, rate_hz: float, image_s: float, stream_seed: int
) -> tuple[Encode, Show | None, dict[str, Any]]:
    """Return the encoder of an image, ``show`` or None (see ``Digits``), and the details of the encoding."""
    if encoding == "rank-order":
        told = {"layers": 4, "spikes_kept": SHARE, "step_s": 1e-3}
        return lambda number: rank_order(images[number])[0], None, told

    def encode(number: int) -> Events:
        return poisson(images[number], rate_hz, image_s, np.random.default_rng([stream_seed, number]))

    def show(index: int, seconds: float, rng: np.random.Generator) -> Events:
        return poisson(images[numbers[index]], rate_hz, seconds, rng)

    rates = {"rate_hz": rate_hz, "rate": "sum of the rates of all pixels", "published_rates_hz": PUBLISHED_HZ}
    return encode, show, {**rates, "stream_seed": stream_seed}


def kept_numbers(count: int, fold: int | None, folds: int, tested: bool) -> list[int]:
    """Return the image numbers of a fold, or all others if not ``tested``. Raises ``UsageError`` for a bad fold."""
    if fold is None:
        return list(range(count))
    if not 0 <= fold < folds:
        raise refused("fold", fold, f"Give 0 to {folds - 1}")
    return [number for number in range(count) if (number % folds == fold) == tested]


def sample_id(split: str, number: int) -> str:
    """Return the id of an image of MNIST; it identifies the images on which a network was trained."""
    return f"{split}-{number:05d}"


def _recorded(folder: Path, dialect: str, blank_s: float, fold: int | None, folds: int, samples: int | None) -> Digits:
    """Open recordings of a retina: ``labels.csv`` has the columns file and label. OFF addresses begin at 16384."""
    table = read_rows(folder / "labels.csv", ",", ("file", "label"))
    listed = [(row["file"], row["label"]) for row in table]
    rows = [listed[number] for number in first_of(kept_numbers(len(listed), fold, folds, True), samples)]
    streams = [read_aedat(folder / name, dialect) for name, _ in rows]
    if not all(map(len, streams)) or not streams:
        raise DataError(f"{folder} has a recording without events", field="data", value=str(folder))
    for (name, _), (first_us, last_us) in zip(rows, (stream[[0, -1], 0].tolist() for stream in streams), strict=True):
        if first_us > (lasts_us := last_us - first_us) + SILENCE_US:
            what = f"{folder / name} begins {1e-6 * first_us:g} s after time 0, and lasts {1e-6 * lasts_us:g} s"
            remedy = "Let its times count from the begin of the recording: subtract the camera's time at that moment"
            raise DataError(what, field="time", value=first_us, remedy=remedy)
    length_s = max(float(stream[-1, 0]) * 1e-6 for stream in streams)
    details = {"encoding": "dvs", "addresses": ADDRESSES["dvs"], "dialect": dialect, "blank_s": blank_s}
    details |= {"fold": fold, "folds": None if fold is None else folds, "files": [name for name, _ in rows]}
    details |= {"classes": sorted({label for _, label in listed})}  # the network has the labels of other folds too
    images = [Image(number, *row) for number, row in enumerate(rows)]
    return _workload(images, streams.__getitem__, length_s + blank_s, details)


def _workload(
    images: Sequence[Image], encode: Encode, duration_s: float, details: Mapping[str, Any], show: Show | None = None
) -> Digits:
    """Return the workload; its digest depends on every stream and on their order."""

    def encoded(image: Image) -> Sample:
        return Sample(image.id, encode(image.number), image.label, duration_s=duration_s, seed=image.number)

    samples = Lazy(images, encoded)
    found, events = hashlib.sha256(f"{duration_s}".encode()), 0
    for sample in samples:
        found.update(f"{sample.id} {sample.label} {len(sample.payload)}".encode() + sample.payload.tobytes())
        events += len(sample.payload)
    about, blank_s = {**details, "events": events}, float(details["blank_s"])
    return Digits(NAME, TASK, "1", found.hexdigest(), samples, about, images=images, blank_s=blank_s, show=show)
