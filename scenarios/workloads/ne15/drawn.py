"""Digits drawn by the project, in the layout of MNIST and of NE15-MNIST's recordings, to try out the task.

Strokes of ten digits are bent, turned and shifted at random, and drawn by a soft pen. A simple model of a retina looks
at the digits on a screen: each pixel sends an event whenever the logarithm of its light has changed by a step.
Accuracies on these digits say nothing about handwriting.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from rig.bench.settings import within
from rig.recording.disk.files import bad_out, made, unwritten, write_whole
from rig.types import Floats
from scenarios.workloads.ne15 import aer
from scenarios.workloads.ne15.digit_stream import Events
from scenarios.workloads.ne15.mnist import SIDE, idx_file

STROKES = (
    "50 32 35 38 59 78 75 72 50", "23 40 49", "21 30 60 72 68 29 79", "20 70 45 77 69 29 | 45 35", "60 26 76 | 60 69",
    "70 30 25 55 77 69 29", "60 24 28 59 78 65 25", "20 70 49", "50 31 33 54 77 69 49 37 54 73 71 50",
    "75 35 22 60 72 76 59 29",
)  # fmt: skip
"""The corners of each digit's strokes on a 10 x 10 grid; each corner is two decimal figures, column and row."""
RETINA_STEP = 0.5
"""A pixel sends an event when the logarithm of its light changes by this. A flashed digit sends a few thousand."""
FLASH_S, RISE_S, MOVE_S, FRAME_S = 1.0, 0.03, 1.6, 0.002
"""Durations of a flashed digit, of its appearance, of a moving digit, and of a frame of the screen.

The recordings of NE15-MNIST last 1 s and 3.2 to 3.4 s, and most spikes of a flash fall within 30 ms.
"""


def write_folder(folder: Path, images: int, recordings: int, seed: int) -> None:
    """Write ``images`` training and as many test images, and ``recordings`` of a retina to each of flashing/, moving/.

    Raises ``UsageError`` for numbers out of range and if the folder cannot be written.
    """
    within(10, 60_000, images=images)
    within(0, 10_000, recordings=recordings)
    _made(folder)
    for split, prefix in enumerate(("train", "t10k")):
        drawn = np.stack([digit(_label(k), np.random.default_rng([seed, split, k])) for k in range(images)])
        labels = np.array([_label(k) for k in range(images)], np.uint8)
        write_whole(folder / f"{prefix}-images-idx3-ubyte", idx_file(drawn.reshape(-1, SIDE, SIDE)))
        write_whole(folder / f"{prefix}-labels-idx1-ubyte", idx_file(labels))
    for kind, shown in (("flashing", _flashed), ("moving", _moved)) if recordings else ():
        listed = "file,label\r\n"
        for k in range(recordings):
            image = digit(_label(k), np.random.default_rng([seed, 2, k])).reshape(SIDE, SIDE).astype(float)
            aer.write_aedat(_made(folder / kind) / f"{k:05d}.aedat", retina(shown(image)), aer.SIDE)
            listed += f"{k:05d}.aedat,{_label(k)}\r\n"
        write_whole(folder / kind / "labels.csv", listed.encode())


def _made(folder: Path) -> Path:
    try:
        return made(folder)
    except OSError as error:
        raise bad_out(folder, unwritten(error)) from error


def _label(k: int) -> int:
    """Return the digit of image k. Images 10 n to 10 n + 9 have all digits; so have 10 images in steps of 10."""
    return (k + k // 10) % 10


def digit(number: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return an image of a digit, shape (784,), values 0 to 255."""
    turn = np.array([[1.0, rng.normal(0.0, 0.15)], [rng.normal(0.0, 0.08), 1.0]]) * rng.normal(1.0, 0.06, (2, 1))
    shift = np.array([13.5, 13.5]) + rng.normal(0.0, 0.7, 2)
    pixels = np.indices((SIDE, SIDE)).reshape(2, -1)[::-1].T
    nearest = np.full(len(pixels), np.inf)
    for stroke in STROKES[number].split("|"):
        corners = np.array([[int(c) for c in corner] for corner in stroke.split()], float)
        corners = (2.2 * (corners - [4.7, 4.7]) + rng.normal(0.0, 0.45, corners.shape)) @ turn.T + shift
        for a, b in pairwise(corners):
            along = np.clip((pixels - a) @ (b - a) / ((b - a) @ (b - a)), 0.0, 1.0)
            nearest = np.minimum(nearest, np.linalg.norm(pixels - a - along[:, None] * (b - a), axis=1))
    ink = 255.0 * np.clip(1.9 - nearest / rng.uniform(0.9, 1.3), 0.0, 1.0)
    return np.asarray(ink, np.uint8)


def retina(frames: Iterator[Floats]) -> Events:
    """Return the events for frames of light, shape (128, 128), one every ``FRAME_S``; see ``aer.read_aedat``."""
    known, events = np.log(next(frames) + 20.0), []
    for k, frame in enumerate(frames):
        steps = np.trunc((np.log(frame + 20.0) - known) / RETINA_STEP)
        known += RETINA_STEP * steps
        rows, columns = np.nonzero(steps)
        fired = steps[rows, columns]
        address = np.repeat(rows * aer.SIDE + columns + np.where(fired < 0, aer.PIXELS, 0), np.abs(fired).astype(int))
        # the pixels of a frame are read out one after the other
        times = 1 + np.round(1e6 * FRAME_S * (k + np.arange(len(address)) / max(len(address), 1))).astype(np.int64)
        events.append(np.column_stack([times, address]))
    return np.concatenate(events)


def _on_screen(image: Floats) -> Floats:
    """Return the view of the retina with an image in its middle, three times as large."""
    large = ndimage.zoom(image, 3, order=1)
    return np.pad(large, (aer.SIDE - len(large)) // 2)


def _flashed(image: Floats) -> Iterator[Floats]:
    screen = _on_screen(image)
    for k in range(round(FLASH_S / FRAME_S)):
        yield screen * min(k * FRAME_S / RISE_S, 1.0)


def _moved(image: Floats) -> Iterator[Floats]:
    """Move the digit once round a circle with a radius of 8 pixels."""
    screen, count = _on_screen(image), round(MOVE_S / FRAME_S)
    for angle in np.linspace(0.0, 2 * np.pi, count):
        yield ndimage.shift(screen, 8.0 * np.array([np.sin(angle), np.cos(angle) - 1.0]), order=1)
