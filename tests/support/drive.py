"""Tiny recordings of an event camera in the layout of Prophesee's set: a car that crosses the picture."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

BOX = np.dtype([
    ("t", "<i8"), ("x", "<f4"), ("y", "<f4"), ("w", "<f4"), ("h", "<f4"), ("class_id", "u1"), ("track_id", "<i4"),
    ("class_confidence", "<f4"),
])  # fmt: skip
EVENT = np.dtype([("t", "<i8"), ("x", "<i2"), ("y", "<i2"), ("p", "u1")])
WIDE, HIGH = 240, 160


def place(t_us: int) -> tuple[int, int]:
    """Return the car's position, in pixels of the sensor of 1280 by 720."""
    return 40 + t_us // 10_000, 280


def boxes(frames: int, class_id: int = 2) -> np.ndarray:
    """Return a box in the middle of each frame of 50 ms."""
    times = [50_000 * k + 25_000 for k in range(frames)]
    return np.array([(t, *place(t), WIDE, HIGH, class_id, 7, 1.0) for t in times], BOX)


def surfaces(frames: int) -> np.ndarray:
    """Fill the car's area with recent events (200 of 255), in a time surface of half the sensor's size."""
    out = np.zeros((frames, 6, 360, 640), np.uint8)
    for k in range(frames):
        x, y = (v // 2 for v in place(50_000 * k + 25_000))
        out[k, :, y : y + HIGH // 2, x : x + WIDE // 2] = 200
    return out


def events(frames: int) -> np.ndarray:
    """Return ten events a millisecond, anywhere on the car."""
    rng = np.random.default_rng(0)
    times = np.sort(rng.integers(0, 50_000 * frames, 500 * frames))
    spots = np.array([place(int(t)) for t in times]) + rng.integers(0, [WIDE, HIGH], (len(times), 2))
    return np.array([(t, x, y, t % 2) for t, (x, y) in zip(times.tolist(), spots.tolist(), strict=True)], EVENT)


def write(folder: Path, frames: int = 40, kind: str = "h5", class_id: int = 2) -> Path:
    """Write ``test/car_td`` and its boxes; ``kind`` is h5, dat, evt2 or evt3."""
    (folder / "test").mkdir(parents=True, exist_ok=True)
    np.save(folder / "test" / "car_bbox.npy", boxes(frames, class_id))
    path = folder / "test" / f"car_td.{kind if kind in ('h5', 'dat') else 'raw'}"
    if kind == "h5":
        import h5py

        with h5py.File(path, "w") as file:
            file.create_dataset("data", data=surfaces(frames), chunks=(1, 6, 360, 640), compression="gzip")
    elif kind == "dat":
        path.write_bytes(dat(events(frames)))
    else:
        path.write_bytes(raw(kind, events(frames)))
    return path


def dat(held: np.ndarray) -> bytes:
    """Return a .dat file of events; times are kept to 32 bits."""
    words = [[t & 0xFFFFFFFF, p << 28 | y << 14 | x] for t, x, y, p in held.tolist()]
    return b"% Version 2\n% Height 720\n% Width 1280\n\x0c\x08" + np.array(words, "<u4").tobytes()


def raw(kind: str, held: np.ndarray, begin_us: int = 0, header: str = "") -> bytes:
    """Return a .raw file of events, ``evt2`` or ``evt3``, whose camera ran for ``begin_us`` before the first."""
    words: list[int] = []
    high = line = -1
    for t, x, y, p in held.tolist():
        now = t + begin_us
        if kind == "evt2":
            words += [0x8 << 28 | now >> 6 & 0xFFFFFFF] if now >> 6 != high else []
            words += [p << 28 | (now & 63) << 22 | x << 11 | y]
            high = now >> 6
        else:
            words += [0x8000 | now >> 12 & 0xFFF] if now >> 12 != high else []
            words += [0x6000 | now & 0xFFF, *([y] if y != line else []), 0x2000 | p << 11 | x]
            high, line = now >> 12, y
    text = header or f"% evt {kind[-1]}.0\n% format {kind.upper()};height=720;width=1280\n% end\n"
    return text.encode() + np.array(words, "<u4" if kind == "evt2" else "<u2").tobytes()


SMALL_DETECTOR = """
import torch

class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.look = torch.nn.Conv2d(6, 1, 1, bias=False)
        torch.nn.init.constant_(self.look.weight, 1 / 6)

    def forward(self, frames):
        seen = self.look(torch.nn.functional.avg_pool2d(frames, 20))[0, 0]
        rows, columns = torch.nonzero(seen > 5.0, as_tuple=True)
        if not len(rows):
            return torch.zeros((0, 6))
        x, y = columns.min(), rows.min()
        wide, high = columns.max() + 1 - x, rows.max() + 1 - y
        return torch.tensor([[2.0, 0.9, *(20.0 * float(v) for v in (x, y, wide, high))]])
"""
"""A module that pools a surface over blocks of 20 pixels, and returns one car around all active blocks."""


def has(module: str) -> bool:
    return find_spec(module) is not None
