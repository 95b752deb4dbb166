"""Window energies of a long trace, streamed from its file, so that memory does not grow with the trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rig.analysis.streaming.sums import Block, Parts, Sums, Watts, check_inside, grid_sums, parts_of
from rig.errors import DataError, UsageError
from rig.types import Floats

BLOCK_BYTES = 1 << 18
"""Bytes in one block; the second-level cache holds a block together with its conversion to double precision."""
KINDS = (np.dtype("<f4"), np.dtype("<f8"))
AS_IS = Watts()


def file_sums(
    path: Path,
    kind: np.dtype[Any] | None,
    windows_s: Floats,
    rate_hz: float,
    *,
    t0_s: float = 0.0,
    watts: Watts = AS_IS,
    told: Callable[[int, int], None] | None = None,
) -> Sums:
    """Return sums over windows, shape (k, 2), of a raw file.

    The file holds little-endian numbers of ``kind``; if ``kind`` is None, it is a ``.npy``. Reading k is the mean from
    ``t0_s + k / rate_hz`` to ``t0_s + (k + 1) / rate_hz``, in raw units of ``watts``. If the end of a window cuts a
    reading, the part inside counts. Sums are in double precision, pairwise within a block (relative error against exact
    summation below 1e-12 for readings of one sign). Missing readings are counted and not refused. After every block,
    ``told(done, of)`` is called with the number of readings that were passed and the number of all readings.

    Raises ``DataError`` for a file that is not such a trace and for windows outside it, ``UsageError`` for an invalid
    rate, and ``OSError``.
    """
    check_rate(rate_hz)
    with path.open("rb", buffering=0) as file:
        kind, offset = _layout(path, file) if kind is None else (kind, 0)
        length = path.stat().st_size - offset
        if length % kind.itemsize:
            raise bad(path, f"ends within a reading: {length} bytes are not a multiple of {kind.itemsize}", length)
        n = length // kind.itemsize
        parts = _parts(windows_s, rate_hz, t0_s, n)
        blocks = _blocks(file, kind, offset, parts)
        return grid_sums(parts, heard(blocks, n, told), len(windows_s), rate_hz, watts, path.name)


def check_rate(rate_hz: float) -> None:
    """Raise ``UsageError`` for an invalid sampling rate."""
    if not (math.isfinite(rate_hz) and rate_hz > 0.0):
        raise UsageError(f"rate_hz is {rate_hz}", field="rate_hz", value=rate_hz, remedy="Give the sampling rate in Hz")


def _layout(path: Path, file: BinaryIO) -> tuple[np.dtype[Any], int]:
    """The type of the readings of a ``.npy`` and where they begin."""
    try:
        layout: Any = np.lib.format
        version = layout.read_magic(file)
        shape, _, kind = (layout.read_array_header_1_0 if version == (1, 0) else layout.read_array_header_2_0)(file)
    except ValueError as error:
        raise bad(path, f"is not a .npy file: {error}", None) from error
    offset = file.tell()
    if len(shape) != 1 or kind not in KINDS or path.stat().st_size - offset != shape[0] * kind.itemsize:
        raise bad(
            path, f"holds {kind} of shape {shape}, but it must hold one complete axis of float32 or float64", str(kind)
        )
    return kind, offset


def _parts(windows_s: Floats, rate_hz: float, t0_s: float, n: int) -> Parts:
    """Whole readings and cut ones of every window. Raises ``DataError`` for windows that are not inside ``n``."""
    if windows_s.ndim != 2 or windows_s.shape[1:] != (2,):
        raise DataError("windows are not pairs", field="windows", value=windows_s.shape, remedy="Give shape (k, 2)")
    low, high = ((windows_s - t0_s) * rate_hz).T
    check_inside(low, high, n, (t0_s, t0_s + n / rate_hz))
    return parts_of(np.maximum(low, 0.0), np.minimum(high, float(n)))


def _stretches(parts: Parts, gap: int) -> list[tuple[int, int]]:
    """Ranges of readings that hold parts; gaps shorter than a block are read too."""
    if not len(parts.start):
        return []
    reach = np.maximum.accumulate(parts.end)
    breaks = np.flatnonzero(parts.start[1:] > reach[:-1] + gap)
    starts, ends = parts.start[np.append(0, breaks + 1)], reach[np.append(breaks, len(reach) - 1)]
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _blocks(file: BinaryIO, kind: np.dtype[Any], offset: int, parts: Parts) -> Iterator[Block]:
    """Index of its first reading and each block that holds any part, in one buffer that is used again."""
    buffer = np.empty(BLOCK_BYTES // kind.itemsize, kind)
    raw = memoryview(buffer.data).cast("B")
    for low, high in _stretches(parts, len(buffer)):
        file.seek(offset + low * kind.itemsize)
        for start in range(low, high, len(buffer)):
            held = 0
            wanted = min(len(buffer), high - start) * kind.itemsize
            while held < wanted:
                count = file.readinto(raw[held:wanted])  # type: ignore[attr-defined]
                if not count:
                    raise OSError("the file became shorter while it was read")
                held += count
            yield start, buffer[: wanted // kind.itemsize]


def heard(blocks: Iterable[Block], n: int, told: Callable[[int, int], None] | None) -> Iterator[Block]:
    """Yield the same blocks, and call ``told`` after each with how many of ``n`` readings have passed."""
    for start, values in blocks:
        yield start, values
        if told is not None:
            told(start + len(values), n)


def in_order(arrays: Iterable[NDArray[Any]]) -> Iterator[Block]:
    """Yield each array with the index of its first reading."""
    start = 0
    for values in arrays:
        yield start, values
        start += len(values)


def cut(held: Iterable[Block]) -> Iterator[Block]:
    """Yield long blocks in shorter blocks that fit into the cache."""
    for start, values in held:
        step = BLOCK_BYTES // values.itemsize
        for first in range(0, len(values), step):
            yield start + first, values[first : first + step]


def bad(path: Path, what: str, value: object) -> DataError:
    """Return the error for a file that is not such a trace."""
    return DataError(f"{path.name} {what}", field="trace", value=value, remedy="Check the file, its type and length")
