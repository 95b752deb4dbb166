"""Encode columns as an Arrow IPC stream, without pyarrow, which would take 26 MiB in the process that records.

A stream is a schema, then dictionaries and record batches. Each is a message: a FlatBuffers table, as in Arrow's
``Message.fbs`` and ``Schema.fbs``, and then the buffers, padded to 8 bytes. In a table as it is written here, each
field takes 8 bytes, and what a field refers to follows the table.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

MARK = 0xFFFFFFFF
END = struct.pack("<Ii", MARK, 0)
SCHEMA, DICTIONARY, BATCH = 1, 2, 3
_V5 = 4
_TYPES = {"binary": 4, "string": 5, "bool": 6, "list": 12}
"""Numbers of types. Integers, with size in bits and sign, are 2, and floats, with precision, are 3."""


class Column(NamedTuple):
    """A column of a batch: its type, the number of rows and of absent values, and its buffers.

    The type is ``bool``, ``string``, ``binary``, ``list`` or, for numbers, NumPy's ``dtype.str``. The first buffer has
    a bit for each value that is present, or no bytes if all are. ``items`` is the column of the items of lists. If
    there are ``texts``, the column is dictionary-encoded: its numbers, of int32, refer to them.
    """

    type: str
    rows: int
    absent: int
    buffers: tuple[Any, ...]
    items: "tuple[Column, ...]" = ()
    texts: "Column | None" = None


def opening(columns: Mapping[str, Column], meta: Mapping[str, str]) -> bytes:
    """Return the first message of a stream: names and types of columns, and ``meta`` as the schema's metadata."""
    fields = _vector([_field(k, name, column) for k, (name, column) in enumerate(columns.items())])
    pairs = _vector([_table(_string(key), _string(value)) for key, value in meta.items()])
    return b"".join(_message(SCHEMA, _table(0, fields, pairs), 0, []))


def batch(columns: Mapping[str, Column], known: Mapping[str, Column]) -> bytes:
    """Return a record batch, after each dictionary that differs from the one in ``known``, which was written before."""
    parts = list[Any]()
    for k, (name, column) in enumerate(columns.items()):
        if column.texts and column.texts != known.get(name):
            table, size, body = _batch([column.texts])
            parts += _message(DICTIONARY, _table(k, table), size, body)
    return b"".join([*parts, *_message(BATCH, *_batch(columns.values()))])


def _field(number: int, name: str, column: Column) -> bytes:
    """Return the description of a column; ``number`` stands for its dictionary in the stream."""
    type_ = (column.texts or column).type
    if type_ in _TYPES:
        kind, of = _TYPES[type_], _table()
    elif type_[1] == "f":
        kind, of = 3, _table(int(type_[2:]) // 4)
    else:
        kind, of = 2, _table(8 * int(type_[2:]), int(type_[1] == "i"))
    coded = _table(number, _table(32, 1)) if column.texts else None
    return _table(_string(name), 1, kind, of, coded, _vector([_field(0, "item", items) for items in column.items]))


def _batch(columns: Iterable[Column]) -> tuple[bytes, int, list[Any]]:
    """Return the table of a batch, the size of its buffers in bytes, and the padded buffers."""
    nodes, places, parts, at = list[int](), list[int](), list[Any](), 0
    for column in columns:
        for each in (column, *column.items):
            nodes += each.rows, each.absent
            for buffer in each.buffers:
                size = memoryview(buffer).nbytes
                places += at, size
                parts += buffer, bytes(-size % 8)
                at += size + -size % 8
    return _table(nodes[0], _pairs(nodes), _pairs(places)), at, parts


def _message(kind: int, header: bytes, size: int, body: list[Any]) -> list[Any]:
    meta = _table(_V5, kind, header, size)
    return [struct.pack("<Ii", MARK, len(meta)), meta, *body]


# ---- FlatBuffers: every part begins 4 bytes before its first 4 bytes, so that what follows those is at a multiple of 8


def _table(*fields: int | bytes | None) -> bytes:
    """Return a table of numbers and parts; a part is also a complete FlatBuffer, whose first 4 bytes refer to it."""
    n, parts = len(fields), [field if isinstance(field, bytes) else b"" for field in fields]
    places = (0 if field is None else 4 + 8 * k for k, field in enumerate(fields))
    vtable = _padded(struct.pack(f"<{n + 2}H", 4 + 2 * n, 4 + 8 * n, *places))
    begins = accumulate(map(len, parts), initial=8 + 8 * n + len(vtable))
    slots = (begin - 4 - 8 * k if parts[k] else fields[k] or 0 for k, begin in enumerate([*begins][:n]))
    return struct.pack(f"<Ii{n}q", 4, -4 - 8 * n, *slots) + vtable + b"".join(parts)


def _vector(parts: Sequence[bytes]) -> bytes:
    """Return a list of parts."""
    n = len(parts)
    begins = accumulate(map(len, parts), initial=8 + 8 * -(-n // 2))
    places = (begin - 4 - 4 * k for k, begin in enumerate([*begins][:n]))
    return _padded(struct.pack(f"<4x{n + 1}I", n, *places)) + b"".join(parts)


def _pairs(numbers: Sequence[int]) -> bytes:
    """Return a list of pairs of int64."""
    return struct.pack(f"<4xI{len(numbers)}q", len(numbers) // 2, *numbers)


def _string(text: str) -> bytes:
    data = text.encode()
    return _padded(struct.pack("<4xI", len(data)) + data + b"\0")


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)
