"""What one pass over a trace leaves to find any part of it again: a pyramid, and where its buckets are in the file.

It is stored beside the reports, with the SHA-256 of the trace that it was made from. Only pictures use it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rig.analysis.streaming.run import RailFile, batches_at, watts_of
from rig.analysis.streaming.sums import Watts
from rig.errors import RigError
from rig.recording.atomic_write import folder_inside, not_stored, write_whole
from rig.recording.columns import array_of, numbers
from rig.recording.layout import DERIVED, is_recorded, sha256_of
from rig.recording.pyramid import FACTOR, FINEST, Level, PyramidBuilder
from rig.recording.reader import Run
from rig.types import Indices

SCHEMA = "neurorig-pyramid/1"
COLUMNS, PLACES = ("least", "mean", "most", "count"), ("row", "offset", "tick")
BLOCK = 1 << 18
"""How many readings are converted together."""
Told = Callable[[int, int], None]


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


def index_of(run: Run, file: RailFile, told: Told | None = None) -> Index:
    """Return the index of a rail, from ``derived/`` or built and stored there.

    A stored index counts only for the trace whose SHA-256 it states. A folder that cannot be written is no error.
    """
    known = {} if run.stop is None else run.stop.files
    digest = known.get(file.path.relative_to(run.path).as_posix()) or sha256_of(file.path)
    place = f"{DERIVED}/pyramid/{file.path.stem}.arrow"
    index = _stored(run.path, place, digest, file)
    if index is None:
        index = _built(file, told)
        with suppress(RigError):
            folder_inside(run.path, (run.path / place).parent)
            write_whole(run.path / place, _packed(index, digest), refuse=not_stored)
    return index


def _built(file: RailFile, told: Told | None) -> Index:
    builder, done = PyramidBuilder(), 0
    rows, offsets, ticks = ([np.zeros(0, np.int64)] for _ in range(3))
    for offset, batch in batches_at(file.path):
        if not batch.num_rows:
            continue
        for first in range(0, batch.num_rows, BLOCK):
            builder.add(shown(array_of(batch.slice(first, BLOCK).column("value")), file))
        begun = len(range(-done % FINEST, batch.num_rows, FINEST))  # buckets that begin in this batch
        rows.append(np.full(begun, done))
        offsets.append(np.full(begun, offset))
        if file.grid is None:
            ticks.append(array_of(batch.column("start_tick"))[-done % FINEST :: FINEST])
            end = array_of(batch.column("end_tick"))[-1:]
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
        step = array_of(table["step"])
        levels = []
        for s in np.unique(step):
            levels.append(Level(int(s), *(array_of(table[c])[step == s] for c in COLUMNS)))
        finest = -(-file.readings // FINEST)
        due, k = [], finest
        while k:
            due.append(k)
            k = -(-k // FACTOR) if k > 1 else 0
        if [len(x.mean) for x in levels] != due or any(x.step != FINEST * FACTOR**j for j, x in enumerate(levels)):
            return None
        rows, offsets, ticks = (array_of(table[name])[:finest] for name in PLACES)
        ticks = np.append(ticks, int(meta[b"end_tick"])) if file.grid is None and finest else ticks[:0]
    except (RigError, pa.ArrowException, KeyError, ValueError, OSError):
        return None
    return Index(tuple(levels), rows, offsets, ticks)


# ---- readings -----------------------------------------------------------------------------


def power_of(file: RailFile) -> Watts | None:
    """Return how the readings of a rail become watts, or None where they alone do not."""
    try:
        return watts_of(file.rail)
    except RigError:
        return None


def shown(values: NDArray[Any], file: RailFile) -> NDArray[Any]:
    """Return readings in watts where they alone give power, and else as they are."""
    watts = power_of(file)
    return values if watts is None or watts == Watts() else watts.of(values)
