"""Read and check tables; each error is a ``StoreError`` that names the value that does not fit.

A table is read whole, after its size in memory is computed from its messages and accepted.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice

import numpy as np
import pyarrow as pa

from rig.recording.columns import arrow_layout as layout
from rig.recording.columns.buffers import array_of, arrow_of, sizes_of, valid
from rig.recording.columns.packing import of
from rig.recording.columns.stored import check_columns
from rig.recording.columns.tables import ADDED, TABLES
from rig.recording.disk.files import Opened
from rig.recording.disk.size_limits import TEXT_CHARACTERS, check_json
from rig.recording.events import LIMIT, malformed
from rig.recording.validation import BOUNDS, bad_spans

NEVER_NULL = {
    "samples": ("id",),
    "replies": ("issue", "sample_id", "warmup"),
    "progress": ("issue", "sample_id", "tick", "cost"),
    "activity": ("issue", "sample_id", "layer", "counter"),
}
FEW, SMALL_BYTES = 4096, 1 << 16
"""A small column has at most this many rows and bytes."""
SPAN = ("on_tick", "off_tick", "executions")
TOGETHER = 1000
"""The number of batches that are converted together, because small batches would be slow one by one."""
TEXTS_MOST = 32
"""If each row had its own copy of its text, texts might take at most this many bytes for each byte of their file."""


def read_table(file: Opened | None, name: str, truncated: list[str]) -> pa.Table:
    """Return the whole batches of a table; an incomplete file is named in ``truncated``.

    Raises ``StoreError`` for columns that are not the table's, and for a file that would become far larger in memory.
    """
    schema = pa.schema({k: pa.list_(pa.int64()) if type_ == "list" else type_ for k, type_ in TABLES[name].items()})
    if file is None:
        return pa.Table.from_batches([], schema)
    row = sum(8 if f.type.num_fields or layout.has_text(f.type) else -(-f.type.bit_width // 8) for f in schema)
    layout.check_becomes(file.name, layout.becomes_of(file, row), file.size)
    parts, spelt = [], 0
    batches = _batches(file, truncated)
    while together := list(islice(batches, TOGETHER)):
        table = pa.Table.from_batches(together)
        with suppress(pa.ArrowException):  # types that cannot be unified are refused below
            table = table.unify_dictionaries().combine_chunks()
        spelt += sum(_spelt(chunk) for column in table.columns for chunk in column.chunks)
        layout.check_becomes(file.name, spelt, file.size, TEXTS_MOST)
        parts.append(fitted_table(table, name, schema).combine_chunks())
    return pa.concat_tables(parts) if parts else pa.Table.from_batches([], schema)


def _spelt(column: pa.Array) -> int:
    """Return the bytes that texts in a dictionary would take if each row had its own copy."""
    if not (pa.types.is_dictionary(column.type) and layout.has_text(column.type.value_type)):
        return 0
    return int(sizes_of(column.dictionary)[array_of(column.indices, 0)[valid(column.indices)]].sum())


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


def fitted_table(table: pa.Table, name: str, schema: pa.Schema) -> pa.Table:
    """Check the columns that a reader needs, and return them cast to their types.

    Raises ``StoreError``.
    """
    for late in ADDED.get(name, ()):
        if late not in table.column_names:
            table = table.append_column(late, pa.nulls(len(table), schema.field(late).type))
    if missing := [c for c in schema.names if c not in table.column_names]:
        raise malformed(name, f"lacks the columns {', '.join(missing)}", missing)
    columns = {}
    for field in schema:
        if _may_grow(table[field.name].type):
            raise malformed(name, f"has a column {field.name} of {table[field.name].type}", field.name)
        try:
            columns[field.name] = _cast(table[field.name], field.type)
        except (pa.ArrowException, KeyError) as error:
            raise malformed(name, f"has a column {field.name} that is not {field.type}: {error}", field.name) from error
        _check_column(name, field.name, columns[field.name])
    if name == "replies":
        _check_replies(columns)
    return pa.table(columns, schema=schema)


def _cast(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Cast a column as Arrow does; small columns do without ``pyarrow.compute``, whose import takes longer."""
    coded = pa.types.is_dictionary(column.type) and column.type.value_type == type_ == pa.string()
    if coded and len(column) <= FEW and column.nbytes <= SMALL_BYTES:
        return pa.chunked_array([arrow_of(of(column.to_pylist(), "string"), type_)])
    return column if column.type == type_ else column.cast(type_)


def _may_grow(type_: pa.DataType) -> bool:
    """Return whether a cast may make a column larger in memory; dictionaries of texts do not count."""
    coded = pa.types.is_dictionary(type_) and not layout.has_text(type_.value_type)
    return coded or pa.types.is_run_end_encoded(type_) or "view" in str(type_)


def _check_column(table: str, name: str, column: pa.ChunkedArray) -> None:
    if name in NEVER_NULL[table] and column.null_count:
        raise malformed(table, f"has a null in the column {name}", name)
    if pa.types.is_string(column.type) and name != "output":
        large = any(sizes_of(chunk).max(initial=0) > TEXT_CHARACTERS for chunk in column.chunks)
        longest = max(map(len, filter(None, column.to_pylist() if large else ())), default=0)
        if longest > TEXT_CHARACTERS:
            raise malformed(table, f"has a text of {longest} characters in the column {name}", longest)
    bounded = name in BOUNDS or pa.types.is_integer(column.type)
    if not bounded or len(column) == column.null_count or (table == "replies" and name in SPAN):
        return
    values = array_of(column, 0)[valid(column)]
    low, high = BOUNDS.get(name, (-LIMIT + 1, LIMIT - 1))
    if not (low <= values.min() and values.max() <= high):  # also refuses NaN
        raise malformed(table, f"has a number out of bounds in the column {name}", values.min())


def _check_replies(columns: Mapping[str, pa.ChunkedArray]) -> None:
    on, off, phase = (valid(columns[c]) for c in ("on_tick", "off_tick", "phase"))
    if np.any(on != off) or np.any(on & ~phase):
        raise malformed("replies", "has a span without both ticks and a phase", "on_tick")
    for text in dict.fromkeys(text for text in columns["output"].to_pylist() if text is not None):
        check_json(text.encode(), "an output in replies")
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise malformed("replies", f"has an output that is not JSON: {text[:40]!r}", text[:40]) from error


def without_bad_spans(replies: pa.Table) -> tuple[pa.Table, tuple[str, ...]]:
    """Return the replies without the spans that do not fit, and a sentence for each such span.

    The answers of these spans and their host stamps are kept.
    """
    on, off, times = (array_of(replies[c]) for c in SPAN)
    bad = {k: why for k, why in bad_spans(on, off, times) if replies["on_tick"][k].is_valid}
    if not bad:
        return replies, ()
    names = replies["sample_id"]
    for name in ("phase", *SPAN):
        values = replies[name].to_pylist()
        for k in bad:
            values[k] = None
        at = replies.schema.get_field_index(name)
        replies = replies.set_column(at, replies.schema.field(at), [pa.array(values, replies.schema.field(at).type)])
    return replies, tuple(f"the span of sample {names[k].as_py()}, which {why}" for k, why in bad.items())
