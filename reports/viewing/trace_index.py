"""Index a trace in one pass, to draw any part of it: a pyramid of its readings, and the begins of the buckets.

The index is stored beside the reports, with the SHA-256 of its trace. Only pictures use it.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from reports.viewing.pyramid import FACTOR, FINEST, Level, PyramidBuilder
from rig.errors import RigError
from rig.recording.columns.arrow_layout import becomes_of, check_becomes
from rig.recording.columns.arrow_stream import END, batch, opening
from rig.recording.columns.buffers import array_of
from rig.recording.columns.packing import numbers
from rig.recording.columns.stored import Batches
from rig.recording.disk.files import Folder, Opened
from rig.recording.layout import DERIVED
from rig.recording.reader import Run
from rig.recording.traces.conversion import SUPPLIES_V, to_watts
from rig.recording.traces.traces import Trace
from rig.types import Indices, Rail

SCHEMA = "neurorig-pyramid/2"
COLUMNS = ("least", "mean", "most", "count")
INDEX_BYTES = 1 << 30
"""The largest index that is read."""
BLOCK = 1 << 18
"""This many readings are converted together."""
Told = Callable[[int, int], None]


@dataclass(frozen=True)
class Index:
    """The index of a trace.

    ``ticks`` (k + 1,) are the begins of the buckets of the finest level (k,), and the end of the last one; empty if
    readings have equal distances.
    """

    levels: tuple[Level, ...]
    ticks: Indices


def index_of(run: Run, trace: Trace, batches: Batches, told: Told | None = None) -> Index:
    """Return the index of a rail in the file of ``batches``, from ``derived/``, or built now and stored there.

    A stored index is used only if it names the SHA-256 of this trace. A folder that cannot be written is no error.
    """
    known = {} if run.stop is None else run.stop.files
    digest = known.get(batches.file.name) or batches.file.sha256()
    place = f"{DERIVED}/pyramid/{PurePosixPath(batches.file.name).stem}.arrow"
    index = _stored(run.folder, place, digest, trace)
    if index is None:
        index = _built(trace, told)
        with suppress(RigError, OSError):
            run.folder.write(place, _packed(index, digest))
    return index


def _built(trace: Trace, told: Told | None) -> Index:
    builder, n = PyramidBuilder(), len(trace.value)
    for first in range(0, n, BLOCK):
        builder.add(shown(trace.value[first : first + BLOCK], trace.rail))
        if told is not None:
            told(min(first + BLOCK, n), n)
    if trace.uniform or not n:
        return Index(builder.levels(), np.zeros(0, np.int64))
    begun = [trace.start_tick[first : first + BLOCK : FINEST] for first in range(0, n, BLOCK)]
    return Index(builder.levels(), np.concatenate([*begun, trace.end_tick[-1:]]))


def _packed(index: Index, digest: str) -> bytes:
    """Return the index as an Arrow stream: a row for each bucket of each level; only the finest have ticks."""
    columns = {c: np.concatenate([np.zeros(0), *(getattr(x, c) for x in index.levels)]) for c in COLUMNS}
    steps = [np.full(len(x.mean), x.step) for x in index.levels]
    columns["step"] = np.concatenate([np.zeros(0, np.int64), *steps])
    columns["tick"] = np.zeros(len(columns["step"]), np.int64)
    columns["tick"][: len(index.ticks[:-1])] = index.ticks[:-1]
    meta = {"schema": SCHEMA, "trace_sha256": digest, "end_tick": str(index.ticks[-1] if len(index.ticks) else "")}
    packed = {name: numbers(column) for name, column in columns.items()}
    return opening(packed, meta) + batch(packed, {}) + END


def _stored(folder: Folder, place: str, digest: str, trace: Trace) -> Index | None:
    """Return the stored index of the trace with this digest; None if there is none that fits."""
    try:
        stored = Opened(folder, place, INDEX_BYTES)
        check_becomes(place, becomes_of(stored), stored.size)
        with pa.ipc.open_stream(pa.py_buffer(stored.read(0, stored.size))) as reader:
            table, meta = reader.read_all(), reader.schema.metadata or {}
        if (meta.get(b"schema"), meta.get(b"trace_sha256")) != (SCHEMA.encode(), digest.encode()):
            return None
        step = array_of(table["step"])
        levels = [Level(int(s), *(array_of(table[c])[step == s] for c in COLUMNS)) for s in np.unique(step)]
        finest = -(-len(trace.value) // FINEST)
        due = [finest] if finest else []
        while due and due[-1] > 1:
            due.append(-(-due[-1] // FACTOR))
        if [len(x.mean) for x in levels] != due or any(x.step != FINEST * FACTOR**j for j, x in enumerate(levels)):
            return None
        ticks = array_of(table["tick"])[:finest]
        ticks = np.append(ticks, int(meta[b"end_tick"])) if finest and not trace.uniform else ticks[:0]
    except (RigError, pa.ArrowException, KeyError, ValueError, OSError):
        return None
    return Index(tuple(levels), ticks)


# ---- readings -----------------------------------------------------------------------------


def power_of(rail: Rail) -> bool:
    """Return whether power follows from the readings of a rail alone."""
    c = rail.conversion
    fed = c.unit == "A" and c.supply_rail is None and SUPPLIES_V[0] <= (c.supply_v or 0.0) <= SUPPLIES_V[1]
    return rail.kind in ("mean", "point") and (c.unit == "W" or fed)


def shown(values: NDArray[Any], rail: Rail) -> NDArray[Any]:
    """Return readings in watts if power follows from them alone, otherwise unchanged."""
    if not power_of(rail) or rail.conversion.unit == "W":
        return values
    return to_watts(values.astype(np.float64), rail.conversion)
