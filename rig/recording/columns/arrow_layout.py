"""Find the parts of an Arrow stream, and their sizes in memory, before any data are decoded.

The messages of a stream are FlatBuffers, as in Arrow's ``Message.fbs`` and ``Schema.fbs``. A FlatBuffers table begins
with the distance to its vtable, which has the offset of each field. A compressed stream is refused.
"""

import struct
from collections.abc import Iterator
from contextlib import suppress
from operator import add
from typing import NamedTuple

import pyarrow as pa

from rig.errors import StoreError
from rig.recording.columns.arrow_stream import BATCH, DICTIONARY, MARK, SCHEMA
from rig.recording.disk.files import Opened

SMALL, RATIO_MOST = 20 << 20, 8
"""A file may take ``SMALL`` bytes in memory, or ``RATIO_MOST`` bytes for each byte on disk, whichever is more."""
MOST_EMPTY = 10_000
WINDOW = 1 << 16
_HEADER, _OF_DICTIONARY, _ROWS, _NODES, _BUFFERS, _COMPRESSION = 2, 1, 0, 1, 2, 3
"""Places of fields in Message, DictionaryBatch and RecordBatch."""
_TYPE, _BODY, FIELDS = 1, 3, 4


class Damaged(ValueError):
    """A message of a stream is damaged or incomplete."""


class Message(NamedTuple):
    """A record batch or a dictionary: rows, the number of absent values of each column, and the buffers in order.

    A buffer is a pair: its offset in the file, and its size in bytes.
    """

    kind: int
    rows: int
    nulls: tuple[int, ...]
    buffers: tuple[tuple[int, int], ...]

    @property
    def becomes(self) -> int:
        """Return the size in memory in bytes; a row takes at least one byte."""
        return self.rows + sum(size for _, size in self.buffers)


class _Bytes:
    """The bytes of a file, read in windows, so that small messages need few reads."""

    def __init__(self, file: Opened) -> None:
        self._file, self._from, self._window = file, 0, memoryview(b"")

    def read(self, at: int, count: int) -> memoryview:
        if not self._from <= at <= at + count <= self._from + len(self._window):
            self._from, self._window = at, self._file.read(at, max(count, WINDOW))
        found = self._window[at - self._from : at - self._from + count]
        if len(found) < count:
            raise Damaged(f"it ends {count - len(found)} bytes early")
        return found


def messages(file: Opened, schema: list[pa.Schema]) -> Iterator[Message]:
    """Append the schema of a stream to the list ``schema``, and then yield every record batch and dictionary.

    Raises ``Damaged`` if the file is not a complete stream. Raises ``StoreError`` if it is compressed or has too many
    batches without rows.
    """
    held, at, empty = _Bytes(file), 0, 0
    while at < file.size:
        mark, length = struct.unpack("<Ii", held.read(at, 8))
        if mark != MARK or length < 0 or length > file.size - at:
            raise Damaged(f"no message begins at byte {at}")
        if not length:
            return
        meta = bytes(held.read(at + 8, length))
        try:
            root = _fields(meta, _follow(meta, 0))
            kind, size = _number(meta, root[_TYPE], "<B"), _number(meta, root[_BODY], "<q")
            body = at + 8 + length
            if not 0 <= size <= file.size - body:
                raise Damaged(f"the message at byte {at} is cut off")
            if kind == SCHEMA and not schema:
                schema.append(pa.ipc.read_schema(pa.BufferReader(held.read(at, 8 + length))))
            elif kind in (DICTIONARY, BATCH) and schema:
                message = _message(file.name, meta, root[_HEADER], kind, body, size)
                empty += kind == BATCH and not message.rows
                if empty > MOST_EMPTY:
                    what, remedy = f"{file.name} holds more than {MOST_EMPTY} batches without a row", "Check its source"
                    raise StoreError(what, field="bounds", value=empty, remedy=remedy)
                yield message
            else:
                raise Damaged(f"the message at byte {at} is of the kind {kind}")
        except (struct.error, pa.ArrowException, OSError) as error:
            raise Damaged(f"the message at byte {at} cannot be read: {error}") from error
        at = body + size


def _message(name: str, meta: bytes, header: int, kind: int, body: int, size: int) -> Message:
    batch = _fields(meta, _follow(meta, header))
    if kind == DICTIONARY:
        batch = _fields(meta, _follow(meta, batch[_OF_DICTIONARY]))
    if batch[_COMPRESSION]:
        remedy = "Write it without compression; columns are found by their place in the file"
        raise StoreError(f"{name} is compressed", field="compression", value=name, remedy=remedy)
    nodes, places = _numbers(meta, batch[_NODES]), _numbers(meta, batch[_BUFFERS])
    rows, offsets, lengths = _number(meta, batch[_ROWS], "<q"), places[::2], places[1::2]
    if rows < 0 or min(nodes, default=0) < 0:
        raise Damaged(f"a message of {rows} rows states a negative number of rows or absent values")
    if min(places, default=0) < 0 or max(map(add, offsets, lengths), default=0) > size:
        raise Damaged("a message has a buffer outside of it")
    return Message(kind, rows, nodes[1::2], tuple(zip(map(body.__add__, offsets), lengths, strict=True)))


def becomes_of(file: Opened, row_bytes: int = 0) -> int:
    """Return the size in memory of a stream up to a damaged message (bytes), plus ``row_bytes`` for each row."""
    total = 0
    with suppress(Damaged):
        for message in messages(file, []):
            total += message.becomes + row_bytes * message.rows
    return total


def check_becomes(name: str, becomes: int, size: int, ratio_most: int = RATIO_MOST) -> None:
    """Raise ``StoreError`` for a file that takes far more bytes in memory (``becomes``) than on disk (``size``)."""
    if becomes > (most := max(SMALL, ratio_most * size)):
        what, remedy = f"{name} unpacks to more than {most} bytes", "No recording is like this; check its source"
        raise StoreError(what, field="bounds", value=becomes, remedy=remedy)


def buffers_of(type_: pa.DataType) -> int:
    """Return how many buffers a column has in a message. Raises ``Damaged`` for nested types and view types."""
    if pa.types.is_null(type_):
        return 0
    if has_text(type_):
        return 3
    if not any(is_(type_) for is_ in (pa.types.is_primitive, pa.types.is_decimal, pa.types.is_dictionary)):
        raise Damaged(f"a column of {type_}")
    return 2


def has_text(type_: pa.DataType) -> bool:
    """Return whether a column has texts or bytes, which have an additional buffer of offsets."""
    return any(is_(type_) for is_ in _TEXTS)


_TEXTS = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)


def _numbers(meta: bytes, place: int) -> tuple[int, ...]:
    """Return the numbers of a list of pairs at a field's ``place``, one pair after another."""
    if not place:
        return ()
    vector = _follow(meta, place)
    (count,) = struct.unpack_from("<I", meta, vector)
    if 16 * count > len(meta):
        raise Damaged("a list in a message is longer than the message")
    return struct.unpack_from(f"<{2 * count}q", meta, vector + 4)


def _number(meta: bytes, place: int, kind: str) -> int:
    return int(struct.unpack_from(kind, meta, place)[0]) if place else 0


def _fields(meta: bytes, table: int) -> tuple[int, ...]:
    """Return the places of the fields of a table; 0 for a field that is left out."""
    vtable = table - struct.unpack_from("<i", meta, table)[0]
    if vtable < 0:
        raise Damaged("a message refers to bytes before it")
    size = struct.unpack_from("<H", meta, vtable)[0]
    known = struct.unpack_from(f"<{size // 2 - 2}H", meta, vtable + 4)
    return tuple([table + at if at else 0 for at in known] + [0] * FIELDS)


def _follow(meta: bytes, at: int) -> int:
    return int(at + struct.unpack_from("<I", meta, at)[0])
