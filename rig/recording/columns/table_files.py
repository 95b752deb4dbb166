"""Read a table of a recording, after its size in memory is computed from its messages and accepted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from rig.recording.columns.arrow_layout import becomes_of, check_becomes, has_text
from rig.recording.columns.stored import check_columns
from rig.recording.columns.tables import TABLES
from rig.recording.disk.files import Opened
from rig.recording.validation import fitted_table

TOGETHER = 1000
"""The number of batches that are converted together, because small batches would be slow one by one."""

TEXTS_MOST = 32
"""Texts stored once for many rows may take at most this many bytes for each byte of their file."""


def read_table(file: Opened | None, name: str, truncated: list[str]) -> pa.Table:
    """Return the whole batches of a table; an incomplete file is named in ``truncated``.

    Raises ``StoreError`` for columns that are not the table's, and for a file that would become far larger in memory.
    """
    schema = TABLES[name]
    if file is None:
        return pa.Table.from_batches([], schema)
    row = sum(8 if f.type.num_fields or has_text(f.type) else -(-f.type.bit_width // 8) for f in schema)
    check_becomes(file.name, becomes_of(file, row), file.size)
    parts, spelt = [], 0
    batches = _batches(file, truncated)
    while together := list(islice(batches, TOGETHER)):
        spelt += sum(_spelt(batch) for batch in together)
        check_becomes(file.name, spelt, file.size, TEXTS_MOST)
        parts.append(fitted_table(pa.Table.from_batches(together), name, schema).combine_chunks())
    return pa.concat_tables(parts) if parts else pa.Table.from_batches([], schema)


def _spelt(batch: pa.RecordBatch) -> int:
    """Return the bytes that the texts of a batch would take if each row had its own copy."""
    coded = [c for c in batch.columns if pa.types.is_dictionary(c.type) and has_text(c.type.value_type)]
    lengths = (pc.take(pc.binary_length(column.dictionary), column.indices) for column in coded)
    return sum(pc.sum(each).as_py() or 0 for each in lengths)


def _batches(file: Opened, truncated: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file, except empty ones, after Arrow has validated them; stop at a damaged one."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(file.read(0, file.size))) as reader:
            check_columns(file.name, reader.schema)
            for batch in reader:
                if batch.num_rows:
                    batch.validate(full=True)
                    yield batch
    except (pa.ArrowException, EOFError, OSError, MemoryError):
        truncated.append(file.name)
