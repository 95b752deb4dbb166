"""Refuses an Arrow stream whose compressed batches become far larger than recordings do, before one is unpacked.

The layout is that of Arrow's ``Message.fbs`` as a FlatBuffer: a table begins with the distance back to its vtable,
which holds the place of each field. A compressed buffer begins with its length unpacked, or -1 if it is stored as it
is. Recordings of the rig are not compressed.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa

from rig.errors import StoreError

SMALL, RATIO_MOST = 64 << 20, 200
"""Whatever unpacks to more than both, in bytes and for each byte, is a bomb."""
_HEADER, _OF_DICTIONARY, _BUFFERS, _COMPRESSION = 2, 1, 2, 3
"""Places of fields in Message, DictionaryBatch and RecordBatch."""


def check_unpacked(path: Path) -> None:
    """Raise ``StoreError`` for a stream that unpacks to far more than its size. A torn or damaged one passes."""
    total, most = 0, max(SMALL, RATIO_MOST * path.stat().st_size)
    try:
        with pa.memory_map(str(path)) as source:
            messages = pa.ipc.MessageReader.open_stream(source)
            while total <= most:
                message = messages.read_next_message()
                total += _unpacked(message) if message.type in ("record batch", "dictionary") else 0
    except (StopIteration, pa.ArrowException, OSError, EOFError, struct.error):
        return  # its reader takes the batches before
    what, remedy = f"{path.name} unpacks to more than {most} bytes", "No recording is like this; see its origin"
    raise StoreError(what, field="bounds", value=total, remedy=remedy)


def _unpacked(message: pa.ipc.Message) -> int:
    """The bytes that a batch unpacks to; 0 if it is not compressed."""
    meta = message.metadata.to_pybytes()
    batch = _follow(meta, _field(meta, _follow(meta, 0), _HEADER))
    batch = _follow(meta, _field(meta, batch, _OF_DICTIONARY)) if message.type == "dictionary" else batch
    if not _field(meta, batch, _COMPRESSION):
        return 0
    vector = _follow(meta, _field(meta, batch, _BUFFERS))
    (count,) = struct.unpack_from("<I", meta, vector)
    places = struct.iter_unpack("<qq", meta[vector + 4 : vector + 4 + 16 * count])
    return sum(max(0, struct.unpack_from("<q", message.body, at)[0]) for at, size in places if size)


def _field(meta: bytes, table: int, number: int) -> int:
    """Where a field of a table stands; 0 where it is left out."""
    vtable = table - struct.unpack_from("<i", meta, table)[0]
    size = struct.unpack_from("<H", meta, vtable)[0]
    inner = struct.unpack_from("<H", meta, vtable + 4 + 2 * number)[0] if 4 + 2 * number < size else 0
    return table + inner if inner else 0


def _follow(meta: bytes, at: int) -> int:
    return int(at + struct.unpack_from("<I", meta, at)[0])
