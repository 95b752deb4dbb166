"""Window energies of a long uniform trace, streamed from its file: memory does not grow with the trace."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rig.errors import DataError, UsageError
from rig.types import Floats

BLOCK_BYTES = 1 << 18
"""Read at once: what the processor's second cache holds together with its conversion to double precision."""
KINDS = (np.dtype("<f4"), np.dtype("<f8"))


@dataclass(frozen=True)
class _Part:
    """Samples ``start`` to ``end`` of one window, each with this weight."""

    start: int
    end: int
    weight: float
    window: int


def window_energies(path: Path, windows_s: Floats, rate_hz: float, *, t0_s: float = 0.0) -> NDArray[np.float64]:
    """Joules in each window of a trace in watts, shape (k,) for ``windows_s`` of shape (k, 2), in any order.

    The trace is raw little-endian float32 (``.f32``), ``.npy`` (one axis, float32 or float64), or an Arrow IPC stream
    with a column ``value`` (``.arrows``, as in a run directory). Reading k is the mean over ``t0_s + k / rate_hz`` to
    ``t0_s + (k + 1) / rate_hz``; a reading that a window cuts counts by the part inside. Sums are in double precision,
    pairwise within a block (relative error against exact summation below 1e-12 for readings of one sign).

    Raises ``DataError`` for a file that is no such trace, for windows outside it and for readings that are no numbers,
    ``UsageError`` for a rate that cannot be.
    """
    if not (math.isfinite(rate_hz) and rate_hz > 0.0):
        raise UsageError(f"rate_hz is {rate_hz}", field="rate_hz", value=rate_hz, remedy="Give the sampling rate in Hz")
    try:
        if path.suffix == ".arrows":
            return _arrow(path, windows_s, rate_hz, t0_s)
        with path.open("rb", buffering=0) as file:
            kind, offset = _layout(path, file)
            length = path.stat().st_size - offset
            if length % kind.itemsize:
                raise _bad(path, "ends within a reading", length)
            parts = _parts(np.asarray(windows_s, dtype=np.float64), rate_hz, t0_s, length // kind.itemsize)
            return _sums(parts, _blocks(file, kind, offset, parts), len(windows_s), path) / rate_hz
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror or error}", None) from error


def _layout(path: Path, file: BinaryIO) -> tuple[np.dtype[Any], int]:
    """The type of the readings and where they begin."""
    if path.suffix != ".npy":
        return KINDS[0], 0
    try:
        layout: Any = np.lib.format
        version = layout.read_magic(file)
        shape, _, kind = (layout.read_array_header_1_0 if version == (1, 0) else layout.read_array_header_2_0)(file)
    except ValueError as error:
        raise _bad(path, f"is no .npy file: {error}", None) from error
    offset = file.tell()
    if len(shape) != 1 or kind not in KINDS or path.stat().st_size - offset != shape[0] * kind.itemsize:
        raise _bad(path, f"holds {kind} of shape {shape}, not one axis of float32 or float64, whole", str(kind))
    return kind, offset


def _parts(windows_s: Floats, rate_hz: float, t0_s: float, n: int) -> list[_Part]:
    """Whole readings and cut ones of every window, sorted by where they begin."""
    if windows_s.ndim != 2 or windows_s.shape[1:] != (2,):
        raise DataError("windows are not pairs", field="windows", value=windows_s.shape, remedy="Give shape (k, 2)")
    parts: list[_Part] = []
    for k, (low, high) in enumerate(((windows_s - t0_s) * rate_hz).tolist()):
        if not (-1e-6 <= low <= high <= n + 1e-6):
            raise DataError(
                f"window {k} runs from reading {low:.9g} to {high:.9g} of {n}",
                field="windows",
                value=k,
                remedy="Windows must lie inside the trace, begin before end",
            )
        parts += _pieces(max(low, 0.0), min(high, float(n)), k)
    return sorted(parts, key=lambda p: p.start)


def _pieces(low: float, high: float, window: int) -> list[_Part]:
    """The reading that a window cuts at its begin, the whole ones, and the one that it cuts at its end."""
    first, last = math.ceil(low), math.floor(high)
    if last < first:
        return [_Part(last, last + 1, high - low, window)]
    pieces = ((first - 1, first, first - low), (first, last, 1.0), (last, last + 1, high - last))
    return [_Part(a, b, weight, window) for a, b, weight in pieces if b > a and weight > 0.0]


def _blocks(file: BinaryIO, kind: np.dtype[Any], offset: int, parts: list[_Part]) -> Iterator[tuple[int, Floats]]:
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


def _stretches(parts: list[_Part], gap: int) -> list[tuple[int, int]]:
    """Ranges of readings that hold parts; what is less than a block apart is read through."""
    out: list[tuple[int, int]] = []
    for part in parts:
        if out and part.start <= out[-1][1] + gap:
            out[-1] = (out[-1][0], max(out[-1][1], part.end))
        else:
            out.append((part.start, part.end))
    return out


def _sums(parts: list[_Part], blocks: Iterator[tuple[int, Floats]], windows: int, path: Path) -> NDArray[np.float64]:
    """Weighted sums of the readings, by window."""
    totals = [0.0] * windows
    waiting, active = 0, list[_Part]()
    for start, block in blocks:
        end = start + len(block)
        while waiting < len(parts) and parts[waiting].start < end:
            active.append(parts[waiting])
            waiting += 1
        for part in active:
            held = block[max(part.start - start, 0) : part.end - start]
            totals[part.window] += part.weight * float(np.add.reduce(held, dtype=np.float64))
        active = [part for part in active if part.end > end]
    broken = [k for k, total in enumerate(totals) if not math.isfinite(total)]
    if broken:
        raise _bad(path, f"holds readings that are no numbers in window {broken[0]}", broken[0])
    return np.array(totals, dtype=np.float64)


def _arrow(path: Path, windows_s: Floats, rate_hz: float, t0_s: float) -> NDArray[np.float64]:
    """A stream of record batches, mapped rather than read, twice: to count the readings, and to sum them."""
    import pyarrow as pa

    def batches() -> Iterator[pa.Array]:
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
            for batch in reader:
                yield batch.column("value")

    try:
        counts = []
        for values in batches():
            if not pa.types.is_floating(values.type) or values.null_count:
                raise _bad(path, f"has a column value of {values.type} with {values.null_count} nulls", None)
            counts.append(len(values))
        parts = _parts(np.asarray(windows_s, dtype=np.float64), rate_hz, t0_s, sum(counts))
        starts = np.concatenate([[0], np.cumsum(counts)]).tolist()
        held = ((start, v.to_numpy()) for start, v in zip(starts, batches(), strict=False))
        return _sums(parts, _cut(held), len(windows_s), path) / rate_hz
    except (pa.ArrowException, KeyError, EOFError) as error:
        raise _bad(path, f"is no trace in Arrow: {str(error)[:100]}", None) from error


def _cut(held: Iterator[tuple[int, Floats]]) -> Iterator[tuple[int, Floats]]:
    for start, values in held:
        step = BLOCK_BYTES // values.itemsize
        for first in range(0, len(values), step):
            yield start + first, values[first : first + step]


def _bad(path: Path, what: str, value: object) -> DataError:
    return DataError(f"{path.name} {what}", field="trace", value=value, remedy="Check the file, its type and length")
