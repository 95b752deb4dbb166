"""Objects in front of a car, from the events of a camera (NeuroBench, event camera object detection).

A sample is a time surface of 50 ms, shape (6, 360, 640). A device answers with an output that has ``boxes``: rows of
class number, score, x, y, w, h in pixels of the surface.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rig.bench.settings import first_of, one_of, parts_of, within
from rig.errors import DataError, refused, unfit
from rig.recording.layout import sha256_of
from rig.types import Sample, SampleSet
from scenarios.lazy_samples import Lazy
from scenarios.workloads.event_detection.files import FRAME_US, SENSOR, SHAPE, Recorded, boxes_of, opened

NAME = "event-detection"
TASK = "event camera object detection: boxes of pedestrians, two wheelers and cars"
SPLITS = ("train", "val", "test")
SUFFIXES = (".h5", ".raw", ".dat")
CLASSES = ("pedestrian", "two wheeler", "car")
"""The evaluated classes: the first three of the seven in the files."""
SKIPPED_US, LEAST_DIAGONAL = 500_000, 60.0
"""NeuroBench leaves out labels of the first half second, and boxes with a diagonal below 60 pixels."""
FRAME_S = FRAME_US / 1e6


@dataclass(frozen=True, slots=True, eq=False)
class Drive(SampleSet):
    """The workload; see ``rig.types.Workload`` and ``rig.types.Streams``."""

    def stream(self, window_s: float, stride_s: float, scene_s: float, duration_s: float, seed: int) -> list[Sample]:
        """Return the frames in order, one every 50 ms; after the last, the first follows. ``scene_s`` has no effect.

        Raises ``UsageError`` for another window or stride.
        """
        for name, value in (("window_s", window_s), ("stride_s", stride_s)):
            if not math.isclose(value, FRAME_S):
                raise unfit(name, value, "is not the 0.05 s of a time surface", f"Use --option {name}=0.05")
        held = list(self.samples[: round(duration_s / FRAME_S)])
        return [held[k % len(held)] for k in range(round(duration_s / FRAME_S))]


def open_workload(
    *, data: str = "", split: str = "test", files: str = "", samples: int | None = None, boxes_width: int = SENSOR[1]
) -> Drive:
    """Open the files of a ``split`` (train, val or test) in a folder ``data``: time surfaces (.h5) or raw events.

    ``files`` names some of the files by their stems, separated by commas. ``samples`` keeps this many first frames.
    ``boxes_width`` is the width in pixels of the picture to which the boxes refer.

    Raises ``UsageError`` for options out of range, ``DataError`` for a folder or a file that cannot be used,
    ``MissingExtraError`` without h5py.
    """
    one_of(SPLITS, split=split)
    within(64, 100_000, boxes_width=boxes_width)
    if not data:
        raise refused("data", data, "Give the folder that holds train, val and test (--data)", "no folder was given")
    recorded = [opened(path) for path in _paths(Path(data) / split, parts_of(files))]
    places = first_of([(one, k) for one in recorded for k in range(one.frames)], samples)
    truth, digest = {}, hashlib.sha256(f"{split} {samples} {boxes_width}".encode())
    for one in recorded:
        boxes = boxes_of(one.path, one.frames, boxes_width)
        digest.update(one.path.name.encode() + bytes.fromhex(sha256_of(one.path)))
        digest.update(b"".join(rows.tobytes() for rows in boxes))
        for k in (k for place, k in places if place is one and k * FRAME_US >= SKIPPED_US):
            large = np.hypot(boxes[k][:, 3], boxes[k][:, 4]) >= LEAST_DIAGONAL
            kept = boxes[k][large & (boxes[k][:, 0] < len(CLASSES))]
            truth[_name(one, k)] = [[int(row[0]), *np.round(row[1:], 3).tolist()] for row in kept]
    detect = {"classes": CLASSES, "shape": SHAPE, "least_diagonal": LEAST_DIAGONAL, "boxes": truth}
    details = {"split": split, "files": [one.path.name for one in recorded], "frame_s": FRAME_S, "detect": detect}
    return Drive(NAME, TASK, "1", digest.hexdigest(), Lazy(places, _sample), details)


def _name(file: Recorded, frame: int) -> str:
    return f"{file.path.stem}@{frame:05d}"


def _sample(place: tuple[Recorded, int]) -> Sample:
    file, frame = place
    return Sample(_name(file, frame), file.read(frame), duration_s=FRAME_S)


def _paths(folder: Path, chosen: Sequence[str]) -> list[Path]:
    """Return a split's files in order of name. Raises ``DataError`` if there are none, or a chosen one is missing."""
    found = sorted(path for path in folder.glob("*") if path.suffix in SUFFIXES)
    wanted = [path for path in found if not chosen or path.stem in chosen]
    lacking = set(chosen) - {path.stem for path in wanted}
    if lacking or not wanted:
        what = f"{folder} holds no {min(lacking)}" if lacking else f"{folder} holds no .h5, .raw or .dat file"
        remedy = "Give the folder that holds train, val and test, with .h5, .raw or .dat files and their boxes"
        raise DataError(what, field="data", value=str(folder), remedy=remedy)
    return wanted
