"""Read the files of an event camera in a car: time surfaces in HDF5 or raw events, and boxes in separate files.

The layout is that of Prophesee's 1 Megapixel Automotive Detection Dataset: raw as recorded, or precomputed to time
surfaces for NeuroBench's harness.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.errors import DataError, reason
from rig.plugins import imported
from rig.types import Floats
from scenarios.workloads.event_detection.words import DAT, decoded

SHAPE = (6, 360, 640)
"""Shape of a time surface: a channel for each of three time bins and two polarities, rows, columns."""
FRAME_US, BINS = 50_000, 3
SENSOR = (720, 1280)
WORDS = {b"2.0": (2, 4), b"2": (2, 4), b"3.0": (3, 2), b"3": (3, 2)}
"""For a version in the header of a .raw file: the number of the encoding, and the number of bytes of a word."""
DAT_KINDS = ((0, 8), (12, 8))
"""Type and size (bytes) of the events of a .dat file: the two bytes after its header. Both types hold time, place and
polarity."""
END_S = 1.0
"""Boxes may be stamped at most this long (s) after the last event or surface."""

Frame = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """One file: the number of its frames, and the function that reads frame k, shape ``SHAPE``."""

    path: Path
    frames: int
    read: Callable[[int], Frame]


def opened(path: Path) -> Recorded:
    """Open time surfaces (.h5), or raw events (.raw in EVT2 or EVT3, .dat), which are converted to time surfaces.

    Raises ``DataError`` for a file that is cut or has other content, ``MissingExtraError`` for .h5 without h5py.
    """
    return _surfaces_in(path) if path.suffix == ".h5" else _surfaces_of(path)


def boxes_of(path: Path, frames: int, width: int) -> list[Floats]:
    """Return the boxes of each frame: rows of class, x, y, w, h in pixels of the surface, clipped at its edges.

    They are read from ``NAME_bbox.npy`` or ``NAME.npy`` beside the file, in pixels of a picture of ``width`` columns. A
    box belongs to the frame whose 50 ms contain its stamp; of each track, a frame keeps the last box. Raises
    ``DataError`` for a missing file, another structure, a box outside the picture, and boxes after the file's end.
    """
    name = path.stem.removesuffix("_td")
    found = next((p for p in (path.with_name(f"{name}{end}.npy") for end in ("_bbox", "")) if p.is_file()), None)
    if found is None:
        raise _unfit(path, "data", f"no {name}_bbox.npy is beside it", "Add the file of its boxes")
    try:
        with found.open("rb") as file:
            table = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _unfit(found, "data", f"it cannot be read: {reason(error)}", "Download it again") from error
    fields = table.dtype.names or ()
    time = "ts" if "ts" in fields else "t"
    if missing := {time, "x", "y", "w", "h", "class_id", "track_id"} - set(fields):
        raise _unfit(found, "data", f"it has no field {min(missing)}", "Boxes need t, x, y, w, h, class_id, track_id")
    place = np.stack([table[k].astype(float) for k in ("x", "y", "w", "h")], axis=1) * (SHAPE[2] / width)
    ends = np.column_stack([place[:, :2], place[:, :2] + place[:, 2:]])
    limits = np.array([SHAPE[2], SHAPE[1]] * 2, float)
    bad = ~((place[:, 2:] > 0).all(axis=1) & (ends[:, :2] < limits[:2]).all(axis=1) & (ends[:, 2:] > 0).all(axis=1))
    if bad.any():
        row, said = int(np.flatnonzero(bad)[0]), place[bad][0].tolist()
        why = f"box {row} lies outside of the picture: x, y, w, h are {said} of {SHAPE[2]} by {SHAPE[1]} pixels"
        raise _unfit(found, "box", why, "Correct it, or name the width of its picture: --option boxes_width=PIXELS")
    ends = np.clip(ends, 0.0, limits)
    rows = np.column_stack([table["class_id"], ends[:, :2], ends[:, 2:] - ends[:, :2]]).astype(float)
    if (end_s := 1e-6 * float(table[time].max(initial=0))) > 1e-6 * FRAME_US * frames + END_S:
        why = f"it ends at {1e-6 * FRAME_US * frames:.2f} s, and its boxes at {end_s:.2f} s"
        raise _unfit(path, "size", why, "It was cut: download it again, whole")
    last = {
        (int(t) // FRAME_US, track): k
        for k, (t, track) in enumerate(zip(table[time].tolist(), table["track_id"].tolist(), strict=True))
    }
    of_frame: list[list[int]] = [[] for _ in range(frames)]
    for (frame, _), k in last.items():
        if 0 <= frame < frames:
            of_frame[frame].append(k)
    return [rows[kept] for kept in of_frame]


def surface(events: NDArray[Any], begin_us: int) -> Frame:
    """Return the time surface of events (t, x, y, p) of one frame, uint8 of shape ``SHAPE``.

    The value of a pixel is the time from the begin of the bin to its last event (NeuroBench, equation 9), scaled to 1
    to 255. The value 0 means no event. Each pixel of the surface covers 2 x 2 pixels of the sensor.
    """
    out = np.zeros(SHAPE, np.uint8)
    since = (events["t"].astype(np.int64) - begin_us) * BINS / FRAME_US
    bins = np.clip(since.astype(np.int64), 0, BINS - 1)
    value = np.clip(np.ceil(255 * (since - bins)), 1, 255)
    y, x = (events[k].astype(np.int64) * SHAPE[n] // SENSOR[n - 1] for n, k in ((1, "y"), (2, "x")))
    out[2 * bins + events["p"].astype(np.int64), y, x] = value
    return out


def _surfaces_in(path: Path) -> Recorded:
    h5py = imported("h5py", "time surfaces of an event camera", "detection", field="data", value=str(path))
    try:
        with h5py.File(path, "r") as file:
            shape = tuple(file["data"].shape)
            file["data"][-1:]
    except (OSError, KeyError) as error:
        raise _unfit(path, "data", f"it cannot be read: {reason(error)}", "Download it again, whole") from error
    if shape[1:] != SHAPE or not shape[0]:
        raise _unfit(path, "data", f"its surfaces have the shape {shape}", f"Give frames of shape {SHAPE} in data")

    def read(k: int) -> Frame:
        with h5py.File(path, "r") as file:
            return np.asarray(file["data"][k])

    return Recorded(path, shape[0], read)


def _surfaces_of(path: Path) -> Recorded:
    frames = int(_events(path)["t"][-1]) // FRAME_US + 1

    def read(k: int) -> Frame:
        held = _events(path)
        first, end = np.searchsorted(held["t"], [k * FRAME_US, (k + 1) * FRAME_US])
        return surface(held[first:end], k * FRAME_US)

    return Recorded(path, frames, read)


@lru_cache(maxsize=1)
def _events(path: Path) -> NDArray[Any]:
    """Return the events of a file in order of time. Raises ``DataError`` for a truncated file or one without events."""
    version, begin, word = _encoding(path)
    if (body := path.stat().st_size - begin) % word:
        why = f"it ends inside an event: {body} bytes of data, no multiple of {word}"
        raise _unfit(path, "size", why, "Download it again, whole")
    try:
        words = np.fromfile(path, f"<u{min(word, 4)}", offset=begin)
        events = decoded(words, version)
    except (OSError, ValueError) as error:
        why = f"it cannot be decoded as {f'EVT{version}' if version else 'DAT'}: {error}"
        raise _unfit(path, "data", why, "Download it again") from error
    if not len(events):
        raise _unfit(path, "data", "it holds no events", "Give a file with events")
    if (outside := (events["y"] >= SENSOR[0]) | (events["x"] >= SENSOR[1]) | (events["t"] < 0)).any():
        event = events[outside][0]
        why = f"an event at x {event['x']}, y {event['y']} is outside of the sensor of 1280 by 720 pixels"
        raise _unfit(path, "event", why, "Give a recording of the 1 megapixel sensor")
    return np.asarray(events[np.argsort(events["t"], kind="stable")])


def _encoding(path: Path) -> tuple[int, int, int]:
    """Return the number of the encoding, the first byte after the header, and the bytes of a word or of a DAT event."""
    try:
        with path.open("rb") as file:
            header, begin = b"", 0
            while (line := file.readline(1000)).startswith(b"%"):
                header += line.lower()
                begin = file.tell()
                if line.strip() == b"% end":
                    break
            file.seek(begin)
            kind = tuple(file.read(2))
    except OSError as error:
        raise _unfit(path, "data", f"it cannot be read: {reason(error)}", "Check its permissions") from error
    wide = {int(a or b) for a, b in re.findall(rb"width[ =](\d+)|% geometry (\d+)x", header)}
    if wide - {SENSOR[1]}:
        raise _unfit(path, "data", f"its sensor has {min(wide)} columns", "Give a recording of the 1 megapixel sensor")
    if path.suffix == ".dat":
        if kind not in DAT_KINDS:
            raise _unfit(path, "data", f"its events are of type and size {kind}", "Give a .dat of CD events")
        return DAT, begin + 2, 8
    found = {WORDS.get(a or b) for a, b in re.findall(rb"% evt ([\d.]+)|% format evt([\d.]+)", header)}
    known = found.pop() if len(found) == 1 and not re.search(rb"endianness\W+big", header) else None
    if known is None:
        why = "the header does not name EVT2 or EVT3, little-endian, as the one encoding"
        raise _unfit(path, "data", why, "Give a .raw in one of them with its header, or a .dat")
    return known[0], begin, known[1]


def _unfit(path: Path, field: str, why: str, remedy: str) -> DataError:
    return DataError(f"{path} cannot be used: {why}", field=field, value=str(path), remedy=remedy)
