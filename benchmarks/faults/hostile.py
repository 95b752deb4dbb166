"""Hostile values, and the places in a document where they can be put."""

import json
import random
from collections.abc import Iterator
from typing import Any

ESCAPE = "\x1b]0;owned\x07\x1b[2J"
DEEPEST = 12
"""Fields are changed only down to this depth."""
MARK = "\ue000here\ue000"
"""Marks the place for one of ``RAW`` until the document is text."""


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**53 + 1, 2**62 - 1, 2**62, -(2**63), 2**64, 10**30, 0.5, -0.5, 1e308, -1e308,
    5e-324, float("nan"), float("inf"), float("-inf"), "", "x", "1", "host", "nan", "../../x", "/etc/passwd", ESCAPE,
    "\u202e\u2066x", "\ud800", "\x00", "a\nb", "<script>", [], {}, [None], [[]], {"": None},
    {"x": {"y": []}}, [1, 2, 3], [[2**62, 0, -1]], nested(200), nested(900), "inference", "mock", "core", [ESCAPE],
    {ESCAPE: ESCAPE}, "n" * 50_000,
)  # fmt: skip
HUGE, HUGE_SHARE = "n" * 5_000_000, 0.002
RAW: tuple[bytes, ...] = (
    b"9" * 5000, b"1e400", b"-" + b"9" * 400, b"[" * 3000 + b"]" * 3000, b'{"a":' * 1500 + b"1" + b"}" * 1500, b"NaN",
    b"-Infinity", b'"\\ud800"', b"1.0", b"1e2",
)  # fmt: skip
"""Texts of values that a reader of JSON may not accept, or may read as another value; each replaces one field."""


def hostile(draw: random.Random) -> Any:
    """Draw a value. A value of megabytes is rare, because it takes longer than all others."""
    return HUGE if draw.random() < HUGE_SHARE else draw.choice(HOSTILE)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each field of a document down to ``DEEPEST``, and of at most three elements of each list."""
    if len(at) == DEEPEST:  # recordings are not so deep; deeper fields come from an earlier change
        return
    pairs: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = list(enumerate(value[:3]))
    for key, inner in pairs:
        yield (*at, key)
        yield from places(inner, (*at, key))


def change(document: Any, draw: random.Random, value: Any) -> str:
    """Change, remove or add one field in place; return which."""
    if isinstance(value, (list, dict)):  # a copy, because a later change may alter it
        value = json.loads(json.dumps(value))
    known = [p for p in places(document) if p not in (("seq",), ("prev",))]
    if not known:
        return "-"
    path = draw.choice(known)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    how = draw.random()
    if how < 0.1:
        del inner[path[-1]]
    elif how < 0.15 and isinstance(inner, list):
        inner.append(inner[path[-1]])
    elif how < 0.2 and isinstance(inner, dict):
        inner[f"{path[-1]}_more"] = value
    else:
        inner[path[-1]] = value
    return ".".join(map(str, path))


def with_raw(document: Any, draw: random.Random) -> bytes:
    """Return a document as text, with one of ``RAW`` at the place of ``MARK``.

    Raises ``RecursionError`` for a list that is too deep.
    """
    return json.dumps(document).encode().replace(json.dumps(MARK).encode(), draw.choice(RAW))
