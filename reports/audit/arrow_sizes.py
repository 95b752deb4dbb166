"""How large the compressed batches of an Arrow stream become, as they declare, before any of them is unpacked.

The layout is that of Arrow's ``Message.fbs`` as a FlatBuffer: a table begins with the distance back to its vtable,
which holds the place of each field. Each compressed buffer begins with its length unpacked, or -1 if it is stored as
it is.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

_HEADER, _BATCH_OF_DICTIONARY, _BUFFERS, _COMPRESSION = 2, 1, 2, 3
"""Places of fields in Message, DictionaryBatch and RecordBatch."""


def unpacked_bytes(path: Path) -> Iterator[int]:
    """Yield the bytes that each batch of a stream unpacks to; 0 for one that is not compressed.

    Raises ``ValueError`` for a batch that declares what it cannot hold.
    """
    with contextlib.suppress(StopIteration, pa.ArrowException, OSError, EOFError), pa.memory_map(str(path)) as source:
        messages = pa.ipc.MessageReader.open_stream(source)
        while True:
            message = messages.read_next_message()
            if message.type in ("record batch", "dictionary"):
                yield _unpacked(message.metadata.to_pybytes(), message.body, message.type == "dictionary")


def _unpacked(meta: bytes, body: pa.Buffer, dictionary: bool) -> int:
    try:
        (root,) = struct.unpack_from("<I", meta)
        batch = _follow(meta, _field(meta, root, _HEADER))
        batch = _follow(meta, _field(meta, batch, _BATCH_OF_DICTIONARY)) if dictionary else batch
        if not _field(meta, batch, _COMPRESSION):
            return 0
        vector = _follow(meta, _field(meta, batch, _BUFFERS))
        (count,) = struct.unpack_from("<I", meta, vector)
        places = struct.unpack_from(f"<{2 * count}q", meta, vector + 4)
        lengths = [struct.unpack_from("<q", body, at)[0] for at, size in zip(*[iter(places)] * 2, strict=True) if size]
    except struct.error as error:
        raise ValueError(f"a batch declares what it cannot hold: {error}") from error
    return sum(max(length, 0) for length in lengths)


def _field(meta: bytes, table: int, number: int) -> int:
    """Where a field of a table stands; 0 where it is left out."""
    vtable = table - struct.unpack_from("<i", meta, table)[0]
    size = struct.unpack_from("<H", meta, vtable)[0]
    inner = struct.unpack_from("<H", meta, vtable + 4 + 2 * number)[0] if 4 + 2 * number < size else 0
    return table + inner if inner else 0


def _follow(meta: bytes, at: int) -> int:
    return int(at + struct.unpack_from("<I", meta, at)[0])
