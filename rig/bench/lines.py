"""Find the line of each key in a TOML text; ``tomllib`` does not give lines."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

Where = tuple[str, ...]


def lines_of(text: str) -> dict[Where, int]:
    """Return the line (from 1) of every table and key of a valid TOML text, by its path from the top.

    Each statement is parsed alone, below the header of its table. A statement of several lines has the number of its
    first line. Tables of an array share the array's path, with the line of the first table.
    """
    found: dict[Where, int] = {}
    header, waiting, first = "", "", 1
    for number, line in enumerate(text.split("\n"), start=1):
        first = first if waiting else number
        waiting += line + "\n"
        is_header = waiting.lstrip().startswith("[")
        try:
            data = tomllib.loads(waiting if is_header else header + waiting)
        except tomllib.TOMLDecodeError:  # the statement continues in the next line
            continue
        for where in _paths(data):
            found.setdefault(where, first)
        header = waiting if is_header else header
        waiting = ""
    return found


def _paths(data: Any, above: Where = ()) -> Iterator[Where]:
    if isinstance(data, list):
        for item in data:
            yield from _paths(item, above)
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield (*above, key)
            yield from _paths(value, (*above, key))


def line_of(lines: Mapping[Where, int], where: Where) -> int:
    """Return the line of a path, or of the nearest table around it; 1 for the whole file."""
    while where and where not in lines:
        where = where[:-1]
    return lines.get(where, 1)
