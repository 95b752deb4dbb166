"""How long do window energies of a long trace take, beside only reading its file, and in how much memory?

    python -m benchmarks.reduce_trace [--samples 1000000000] [--format f32|npy] [--folder /tmp]

Makes a float32 trace, reads it once to warm the cache, then in turn reads it by ``readinto`` into one buffer and
reduces it (``rig.analysis.streaming.energies``), five times each; checks every energy against ``math.fsum`` on a
tenth of the windows; and deletes the file. Prints both times, their ratio, the largest relative error and the
anonymous memory, and last one JSON line. Exits 1 when a goal is missed: three times the time of reading, 512 MiB,
1e-9.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from rig.analysis.streaming.energies import BLOCK_BYTES, file_sums
from rig.types import Floats

GOAL_RATIO, GOAL_MIB, GOAL_ERROR = 3.0, 512.0, 1e-9
RATE_HZ = 1e6
ROUNDS = 5
PIECE = 1 << 22


def main() -> int:
    """Make, measure, compare; the exit code is 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--samples", type=int, default=1_000_000_000)
    parser.add_argument("--format", choices=("f32", "npy"), default="f32")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--windows", type=int, default=1000)
    args = parser.parse_args()
    free = shutil.disk_usage(args.folder).free
    if free < 8 * args.samples:
        print(f"{args.folder} has {free / 1e9:.1f} GB free; {8 * args.samples / 1e9:.1f} GB are asked for")
        return 1
    path = args.folder / f"reduce_trace.{args.format}"
    try:
        make(path, args.samples)
        return measure(path, args.samples, args.windows)
    finally:
        path.unlink(missing_ok=True)


def make(path: Path, samples: int) -> None:
    """Float32 watts: a level, a slow drift and noise. Written in pieces."""
    rng = np.random.default_rng(7)
    noise = rng.normal(0.0, 0.05, PIECE).astype(np.float32)
    with path.open("wb") as file:
        if path.suffix == ".npy":
            layout: Any = np.lib.format
            layout.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (samples,)})
        for start in range(0, samples, PIECE):
            count = min(PIECE, samples - start)
            values = np.float32(1.0 + 0.5 * start / samples) + np.roll(noise, start % 997)[:count]
            file.write(values.tobytes())


def measure(path: Path, samples: int, count: int) -> int:
    """Time both in turn, check the sums, print."""
    edges = np.linspace(0.0, samples / RATE_HZ, count + 1)
    windows = np.column_stack([edges[:-1], edges[1:]])  # they cover the whole trace, most cut a reading
    kind = np.dtype("<f4") if path.suffix == ".f32" else None
    read(path)
    reading, reducing = [], []
    energies: Floats = np.zeros(count)
    for _ in range(ROUNDS):
        began = time.perf_counter()
        read(path)
        reading.append(time.perf_counter() - began)
        began = time.perf_counter()
        energies = file_sums(path, kind, windows, RATE_HZ).energy_j
        reducing.append(time.perf_counter() - began)
    memory_mib = anonymous_mib()
    error = max(abs(energies[k] / exact(path, windows[k]) - 1.0) for k in range(0, count, max(count // 20, 1)))
    ratio = min(reducing) / min(reading)
    found = {
        "samples": samples, "format": path.suffix, "windows": count, "read_s": min(reading), "reduce_s": min(reducing),
        "ratio": ratio, "largest_relative_error": error, "anonymous_mib": memory_mib,
    }  # fmt: skip
    print(f"{samples:,} readings, {path.stat().st_size / 1e9:.2f} GB, {count} windows, best of {ROUNDS} in turn")
    print(f"  readinto one buffer of {BLOCK_BYTES >> 10} KiB   {min(reading):8.3f} s")
    print(f"  window energies                 {min(reducing):8.3f} s   {ratio:.2f} times (goal {GOAL_RATIO})")
    print(f"  largest error against math.fsum {error:8.1e}     (goal {GOAL_ERROR})")
    print(f"  anonymous memory                {memory_mib:8.0f} MiB (goal {GOAL_MIB:.0f})")
    print(json.dumps(found))
    return 0 if ratio <= GOAL_RATIO and memory_mib <= GOAL_MIB and error <= GOAL_ERROR else 1


def read(path: Path) -> None:
    """The whole file into one buffer, again and again, and nothing done with it."""
    buffer = bytearray(BLOCK_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def exact(path: Path, window_s: np.ndarray) -> float:
    """Energy of one window by ``math.fsum`` over its readings, the cut ones by the part inside."""
    low, high = window_s * RATE_HZ
    first, last = math.floor(low), min(math.ceil(high), path.stat().st_size)
    values = slice_of(path, first, last)
    inside = np.minimum(np.arange(first, last) + 1, high) - np.maximum(np.arange(first, last), low)
    return math.fsum((values.astype(np.float64) * inside).tolist()) / RATE_HZ


def slice_of(path: Path, first: int, last: int) -> np.ndarray:
    """Readings ``first`` to ``last`` by another way than ``rig.analysis.streaming.energies``'s."""
    if path.suffix == ".npy":
        return np.asarray(np.load(path, mmap_mode="r")[first:last])
    return np.asarray(np.memmap(path, "<f4", "r")[first:last])


def anonymous_mib() -> float:
    """Anonymous memory of this process, from the kernel."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024.0


if __name__ == "__main__":
    sys.exit(main())
