"""Rows, readings and events as what goes to disk: Arrow batches, and lines of JSON."""

from __future__ import annotations

import dataclasses
import json
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
    """Readings of one rail; ``meta`` goes into the schema. Raises ``TypeError`` for what is no array of numbers."""
    given = {name: getattr(chunk, name) for name in ("value", "start_tick", "end_tick", "flags")}
    arrays = {name: columns.numbers(values) for name, values in given.items() if values is not None}
    schema = pa.schema([(k, v.type) for k, v in arrays.items()], metadata=dict(meta))
    return pa.record_batch(list(arrays.values()), schema=schema)


def line(event: Mapping[str, Any]) -> bytes:
    """One event as JSON; a number that is none becomes null. Raises ``TypeError`` or ``ValueError``."""
    try:
        return json.dumps(event, default=_plain, allow_nan=False).encode()
    except ValueError:
        loose = json.loads(json.dumps(event, default=_plain), parse_constant=lambda _: None)
        return json.dumps(loose, allow_nan=False).encode()


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (set, tuple)):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
