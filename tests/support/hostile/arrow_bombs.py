"""Files of a recording that are small on disk, but large or slow once they are read."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.faults.forge import hash_again, read

MIB = 1 << 20


def put(run: Path, name: str, batches: list[pa.RecordBatch], compression: str | None = None) -> None:
    """Replace a file by these batches, with fitting hashes."""
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(run / name), "w") as sink, pa.ipc.new_stream(sink, batches[0].schema, options=options) as stream:
        for batch in batches:
            stream.write_batch(batch)
    hash_again(run)


def rows_of(run: Path, name: str, count: int) -> pa.RecordBatch:
    """Return the first row of a table, repeated ``count`` times."""
    return read(run / name).take(pa.array(np.zeros(count, np.int64))).combine_chunks().to_batches()[0]


def with_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    """Return the batch with one column replaced."""
    at = batch.schema.names.index(name)
    arrays = [column if k == at else batch.column(k) for k in range(batch.num_columns)]
    return pa.record_batch(arrays, names=batch.schema.names)


def one_text_for_all(run: Path) -> None:
    """Write 3300 replies with the same output of 1 MiB, which is stored once: read, they take 3.5 GB."""
    rows = rows_of(run, "replies.arrows", 3300)
    text = pa.array(['"' + "a" * MIB + '"'])
    coded = pa.DictionaryArray.from_arrays(pa.array(np.zeros(3300, np.int32)), text)
    put(run, "replies.arrows", [with_column(rows, "output", coded)])


def runs_of_one_value(run: Path) -> None:
    """Write 16 million rows with the same issue, run-end encoded: they take a few bytes on disk."""
    many = 1 << 24
    value = pa.RunEndEncodedArray.from_arrays(pa.array([many], pa.int32()), pa.array([1], pa.int64()))
    nothing = [pa.nulls(many) for _ in range(10)]
    names = read(run / "replies.arrows").column_names
    put(run, "replies.arrows", [pa.record_batch([value, *nothing], names=names)])


def rows_of_nothing(run: Path) -> None:
    """Write 2 billion rows of nulls, which take no bytes on disk."""
    names = read(run / "replies.arrows").column_names
    nothing = pa.Array.from_buffers(pa.null(), 2**31 - 1, [None])
    put(run, "replies.arrows", [pa.record_batch([nothing] * len(names), names=names)])


REFUSED: Mapping[str, Callable[[Path], None]] = {
    f.__name__: f for f in (one_text_for_all, runs_of_one_value, rows_of_nothing)
}


def empty_batches(run: Path, name: str, count: int) -> None:
    """Add this many empty batches at the end of a file."""
    rows = read(run / name).to_batches()
    put(run, name, [*rows, *[rows[0].slice(0, 0)] * count])
