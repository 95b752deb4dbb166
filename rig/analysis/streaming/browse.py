"""Looking into one rail of a run directory: any stretch of it in a few columns, however long the trace is.

Wide stretches come from the pyramid, narrow ones from the readings themselves. No figure is computed from either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rig.analysis.streaming.run import RailFile, extent_s, watts_of
from rig.analysis.streaming.sums import Watts
from rig.analysis.timing.timebase import Timebase
from rig.errors import RigError
from rig.recording.atomic_write import folder_inside, not_stored, write_whole
from rig.recording.columns import numbers
from rig.recording.layout import DERIVED, is_recorded, sha256_of
from rig.recording.pyramid import FACTOR, FINEST, Level, PyramidBuilder
from rig.recording.reader import Run
from rig.types import ClockInfo, Floats, Indices

SCHEMA = "neurorig-pyramid/1"
COLUMNS, PLACES = ("least", "mean", "most", "count"), ("row", "offset", "tick")
MOST_READ = 1500 * FINEST
"""A longer stretch is never read reading by reading, also where the pyramid has fewer columns of it than asked for."""
BLOCK = 1 << 18
"""How many readings are converted together."""
Told = Callable[[int, int], None]


@dataclass(frozen=True)
class Look:
    """A stretch of a trace in columns, ready to be drawn.

    ``edges_s`` (n + 1,) bound the columns in run seconds. ``least``, ``mean`` and ``most`` (n,) are in the unit of the
    trace, and NaN where no reading is a number. ``single`` says that each column is one reading.
    """

    edges_s: Floats
    least: Floats
    mean: Floats
    most: Floats
    readings: int
    missing: int
    single: bool


@dataclass(frozen=True)
class Index:
    """What one pass over a trace leaves to find any part of it again.

    For each bucket of the finest level (k,), ``offsets`` hold where the batch with its first reading begins in the
    file, and ``rows`` the first reading of that batch. ``ticks`` (k + 1,) hold when each of these buckets begins and
    the last one ends, and are empty if the readings are on a grid.
    """

    levels: tuple[Level, ...]
    rows: Indices
    offsets: Indices
    ticks: Indices


@dataclass(frozen=True)
class LongTrace:
    """One rail that can be looked into; ``unit`` is W where its readings alone give power, and else their own."""

    file: RailFile
    clock: Timebase
    unit: str
    index: Index

    @property
    def extent_s(self) -> tuple[float, float]:
        """Return when the trace begins and ends, in run seconds."""
        return extent_s(self.file, self.clock)

    def look(self, low_s: float, high_s: float, columns: int) -> Look:
        """Return the readings between two moments in at most ``columns`` columns, or each by itself if they are few.

        Readings that are partly between them are included. ``columns`` is at least 1.
        """
        first, last = self._between(low_s, high_s)
        fitting = [level for level in self.index.levels if level.step * columns <= last - first]
        if not fitting and last - first <= MOST_READ:
            return self._from_readings(first, last, (low_s, high_s), columns)
        level = fitting[-1] if fitting else self.index.levels[0]
        a, b = first // level.step, -(-last // level.step)
        edges = self._seconds(np.minimum(np.arange(a, b + 1) * level.step, self.file.readings))
        held = min(b * level.step, self.file.readings) - a * level.step
        parts = (level.least[a:b], level.mean[a:b], level.most[a:b], level.count[a:b])
        return _look(edges, parts, held, columns)

    def clipped(self, windows_s: Floats) -> Indices:
        """Return how many readings that begin in each window are at the end of the meter's range, shape (k,).

        ``windows_s`` has shape (k, 2). Readings that the instrument flagged count too. This reads the whole trace.
        """
        counts, row, top = np.zeros(len(windows_s), np.int64), 0, self.file.rail.range_max
        for batch in self.file.batches():
            over = np.zeros(batch.num_rows, bool) if top is None else _numbers(batch) >= top
            if "flags" in batch.schema.names:
                over |= batch.column("flags").to_numpy(zero_copy_only=False) != 0
            elif top is None:
                break
            if len(at := np.flatnonzero(over)):
                stamps = batch.column("start_tick").to_numpy()[at] if self.file.grid is None else None
                begin = self._seconds(row + at) if stamps is None else self.clock.seconds(stamps)
                counts += np.diff(np.searchsorted(begin, windows_s), axis=1)[:, 0]
            row += batch.num_rows
        return counts

    def _from_readings(self, first: int, last: int, between_s: tuple[float, float], columns: int) -> Look:
        values, ticks = self._read(first, last)
        if ticks is None:
            edges = self._seconds(np.arange(first, first + len(values) + 1))
        else:
            starts = self.clock.seconds(ticks)
            end = self._seconds(np.array([first + len(values)]))
            edges = np.append(starts, np.maximum(end, starts[-1:]) if len(starts) else end)
            low = max(int(np.searchsorted(starts, between_s[0], side="right")) - 1, 0)
            high = int(np.searchsorted(starts, between_s[1], side="left"))
            values, edges = values[low:high], edges[low : high + 1]
        values = _shown(values, self.file).astype(np.float64)
        good = np.isfinite(values)
        values = np.where(good, values, np.nan)
        return _look(edges, (values, values, values, good.astype(np.int64)), len(values), columns)

    def _between(self, low_s: float, high_s: float) -> tuple[int, int]:
        """The first reading of a stretch and the one after its last; whole buckets if readings have their own ticks."""
        n = self.file.readings
        if self.file.grid is None:
            at = self.clock.seconds(self.index.ticks)
            low = int(np.searchsorted(at, low_s, side="right")) - 1
            high = int(np.searchsorted(at, high_s, side="left"))
            return max(low, 0) * FINEST, min(max(high, low + 1, 0) * FINEST, n)
        begin, end = self.extent_s
        per_s = n / (end - begin)
        first = int(np.clip(np.floor((low_s - begin) * per_s), 0, n))
        return first, int(np.clip(np.ceil((high_s - begin) * per_s), first, n))

    def _seconds(self, reading: Indices) -> Floats:
        """When readings begin; those with their own ticks must be the first of a bucket, or the end of the trace."""
        if self.file.grid is None:
            return self.clock.seconds(self.index.ticks[-(-reading // FINEST)])
        begin, end = self.extent_s
        return np.asarray(begin + (end - begin) / max(self.file.readings, 1) * reading)

    def _read(self, first: int, last: int) -> tuple[NDArray[Any], Indices | None]:
        """The raw readings of a stretch, and their ticks if they have their own."""
        parts = list[pa.RecordBatch]()
        if first < last:
            bucket = first // FINEST
            row = int(self.index.rows[bucket])
            for _, batch in batches_at(self.file.path, int(self.index.offsets[bucket])):
                skip = max(first - row, 0)
                parts.append(batch.slice(skip, max(last - row - skip, 0)))
                row += batch.num_rows
                if row >= last:
                    break
        values = [_numbers(part) for part in parts]
        stamps = [part.column("start_tick").to_numpy() for part in parts if self.file.grid is None]
        ticks = None if self.file.grid is not None else np.concatenate([np.zeros(0, np.int64), *stamps])
        return np.concatenate([np.zeros(0), *values]), ticks


def long_trace(run: Run, file: RailFile, clock: Timebase, told: Told | None = None) -> LongTrace:
    """Return a rail that can be looked into; its index is taken from ``derived/``, or built and stored there.

    A stored index counts only for the trace whose SHA-256 it states. A folder that cannot be written is no error.
    """
    name = file.path.relative_to(run.path).as_posix()
    known = {} if run.stop is None else run.stop.files
    digest = known.get(name) or sha256_of(file.path)
    place = f"{DERIVED}/pyramid/{file.path.stem}.arrow"
    index = _stored(run.path, place, digest, file)
    if index is None:
        index = _built(file, told)
        with suppress(RigError):
            folder_inside(run.path, (run.path / place).parent)
            write_whole(run.path / place, _packed(index, digest), refuse=not_stored)
    return LongTrace(file, clock, "W" if _power(file) else file.rail.conversion.unit, index)


def placed(file: RailFile, begin_s: float, end_s: float) -> Timebase:
    """Return a straight clock by which a trace begins and ends at two moments of the run."""
    if file.grid is not None:
        first, last = file.grid.t0_tick, file.grid.t0_tick + file.readings * file.grid.period_tick
    else:
        ticks = [
            (b.column("start_tick")[0].as_py(), b.column("end_tick")[-1].as_py()) for b in file.batches() if len(b)
        ]
        (first, _), (_, last) = ticks[0], ticks[-1]
    rate = (end_s - begin_s) / max(last - first, 1)
    return Timebase(ClockInfo("picture", 1.0), round(first), begin_s, rate, 0.0, 0.0, "its ends")


def batches_at(path: Path, offset: int = 0, *, mapped: bool = False) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield whole batches of an Arrow stream and where each begins, from ``offset``, or from the first batch if 0.

    A file that is still written, or that a crash cut off, ends with its last whole batch. With ``mapped``, what is not
    looked at is not read; the pages that are count as memory of the process.
    """
    try:
        with pa.memory_map(str(path)) if mapped else pa.OSFile(str(path)) as source:
            schema = pa.ipc.read_schema(source)
            source.seek(offset or source.tell())
            while True:
                at = source.tell()
                yield at, pa.ipc.read_record_batch(pa.ipc.read_message(source), schema)
    except (pa.ArrowException, EOFError, OSError):
        return


# ---- the index ----------------------------------------------------------------------------


def _built(file: RailFile, told: Told | None) -> Index:
    builder, done = PyramidBuilder(), 0
    rows, offsets, ticks = ([np.zeros(0, np.int64)] for _ in range(3))
    for offset, batch in batches_at(file.path):
        if not batch.num_rows:
            continue
        for first in range(0, batch.num_rows, BLOCK):
            builder.add(_shown(_numbers(batch.slice(first, BLOCK)), file))
        begun = len(range(-done % FINEST, batch.num_rows, FINEST))  # buckets that begin in this batch
        rows.append(np.full(begun, done))
        offsets.append(np.full(begun, offset))
        if file.grid is None:
            ticks.append(batch.column("start_tick").to_numpy()[-done % FINEST :: FINEST])
            end = batch.column("end_tick").to_numpy()[-1:]
        done += batch.num_rows
        if told is not None:
            told(done, file.readings)
    found = [np.concatenate(parts) for parts in (rows, offsets, [*ticks, end] if done and file.grid is None else ticks)]
    return Index(builder.levels(), *found)


def _packed(index: Index, digest: str) -> bytes:
    """The index as an Arrow file: a row for each bucket of each level, of which the finest have a place in it."""
    columns = {c: np.concatenate([np.zeros(0), *(getattr(x, c) for x in index.levels)]) for c in COLUMNS}
    steps = [np.full(len(x.mean), x.step) for x in index.levels]
    columns["step"] = np.concatenate([np.zeros(0, np.int64), *steps])
    for name in PLACES:
        columns[name] = np.zeros(len(columns["step"]), np.int64)
        place = getattr(index, f"{name}s")
        columns[name][: len(index.rows)] = place[: len(index.rows)] if len(place) else 0
    meta = {"schema": SCHEMA, "trace_sha256": digest, "end_tick": str(index.ticks[-1] if len(index.ticks) else "")}
    batch = pa.record_batch([numbers(c) for c in columns.values()], list(columns)).replace_schema_metadata(meta)
    out = BytesIO()
    with pa.ipc.new_file(out, batch.schema) as file:
        file.write_batch(batch)
    return out.getvalue()


def _stored(run: Path, place: str, digest: str, file: RailFile) -> Index | None:
    """The stored index of the trace with this digest; None where there is none that fits."""
    try:
        if not is_recorded(run, place):
            return None
        with pa.memory_map(str(run / place)) as source, pa.ipc.open_file(source) as reader:
            table, meta = reader.read_all(), reader.schema.metadata or {}
        if (meta.get(b"schema"), meta.get(b"trace_sha256")) != (SCHEMA.encode(), digest.encode()):
            return None
        step = table["step"].to_numpy()
        levels = []
        for s in np.unique(step):
            part = table.filter(pa.array(step == s))
            levels.append(Level(int(s), *(part[c].to_numpy() for c in COLUMNS)))
        finest = -(-file.readings // FINEST)
        due, k = [], finest
        while k:
            due.append(k)
            k = -(-k // FACTOR) if k > 1 else 0
        if [len(x.mean) for x in levels] != due or any(x.step != FINEST * FACTOR**j for j, x in enumerate(levels)):
            return None
        rows, offsets, ticks = (table[name].to_numpy()[:finest] for name in PLACES)
        ticks = np.append(ticks, int(meta[b"end_tick"])) if file.grid is None and finest else ticks[:0]
    except (RigError, pa.ArrowException, KeyError, ValueError, OSError):
        return None
    return Index(tuple(levels), rows, offsets, ticks)


# ---- readings -----------------------------------------------------------------------------


def _power(file: RailFile) -> Watts | None:
    """How the readings of a rail become watts, or None where they alone do not."""
    try:
        return watts_of(file.rail)
    except RigError:
        return None


def _numbers(batch: pa.RecordBatch) -> NDArray[Any]:
    return np.asarray(batch.column("value").to_numpy(zero_copy_only=False))


def _shown(values: NDArray[Any], file: RailFile) -> NDArray[Any]:
    """Readings in the unit of the trace."""
    watts = _power(file)
    return values if watts is None or watts == Watts() else watts.of(values)


def _look(edges: Floats, parts: tuple[Any, ...], readings: int, columns: int) -> Look:
    """Buckets gathered to at most ``columns`` columns, or to twice as many where they are single readings."""
    least, mean, most, count = parts
    missing = readings - int(count.sum())
    if len(mean) <= 2 * columns:
        return Look(edges, least, mean, most, readings, missing, readings == len(mean))
    at = np.unique(np.linspace(0, len(mean), columns + 1).astype(np.int64))
    total, held = np.add.reduceat(np.where(count > 0, mean, 0.0) * count, at[:-1]), np.add.reduceat(count, at[:-1])
    means = np.divide(total, held, out=np.full(len(held), np.nan), where=held > 0)
    return Look(
        edges[at], np.fmin.reduceat(least, at[:-1]), means, np.fmax.reduceat(most, at[:-1]), readings, missing, False
    )
