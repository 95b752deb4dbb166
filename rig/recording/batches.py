"""Rows and readings as Arrow batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from rig.recording import columns
from rig.recording.tables import TABLES
from rig.types import Chunk


def table_batch(name: str, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """Rows in the order of a table's columns. Raises what ``columns.of`` does."""
    schema = TABLES[name]
    arrays = [columns.of(values, f.type) for values, f in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def trace_batch(chunk: Chunk, meta: Mapping[str, str]) -> pa.RecordBatch:
    """Readings of one rail; ``meta`` goes into the schema. Raises ``TypeError`` for what is not an array of numbers."""
    given = {name: getattr(chunk, name) for name in ("value", "start_tick", "end_tick", "flags")}
    arrays = {name: columns.numbers(values) for name, values in given.items() if values is not None}
    schema = pa.schema([(k, v.type) for k, v in arrays.items()], metadata=dict(meta))
    return pa.record_batch(list(arrays.values()), schema=schema)
