"""Read a grid from a TOML file or from arguments."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rig.errors import UsageError, reason, refused
from rig.recording.disk.bounded import read_bounded
from rig.session.setup import workload_for
from rig.sweep.grid import GridSpec, plain


def from_file(path: Path) -> GridSpec:
    """Read a grid in TOML, with the fields of ``GridSpec``. Raises ``UsageError`` that names the line or the key."""
    try:
        content = tomllib.loads(read_bounded(path).decode())
    except OSError as error:
        raise refused("file", str(path), "Name a grid in TOML", f"{path} cannot be read: {reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise refused("file", str(path), "Correct this line", f"{path} is not TOML: {error}") from error
    for table in ("options", "vary"):
        if isinstance(content.get(table), dict):
            content[table] = {key: _as_texts(f"{table}.{key}", value) for key, value in _flat(content[table])}
    try:
        return msgspec.convert(with_workload(content), GridSpec)
    except msgspec.ValidationError as error:
        known = ", ".join(GridSpec.__struct_fields__)
        raise refused("file", str(path), f"Keys are {known}", f"{path}: {str(error).replace('$.', '')}") from error


def with_workload(given: Mapping[str, Any]) -> dict[str, Any]:
    """Add the scenario's default workload to the given fields of ``GridSpec`` if they name none."""
    scenario = given.get("scenario")
    return {"workload": workload_for(scenario if isinstance(scenario, str) else "")} | dict(given)


def from_texts(texts: Iterable[str], what: str) -> dict[str, str]:
    """Return ``key=value`` texts by key. Raises ``UsageError`` for another form, or a key that is given twice."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            remedy = f"Write --{what} KEY=VALUE"
            raise UsageError(f"--{what} {text!r} is not key=value", field=what, value=text, remedy=remedy)
        if key in found:
            raise UsageError(f"--{what} {key} is given twice", field=what, value=key, remedy="Give it once")
        found[key] = value
    return found


def values_in(key: str, text: str) -> tuple[str, ...]:
    """Return the values of ``--vary key=v1,v2``. Raises ``UsageError`` for an empty one."""
    values = tuple(value.strip() for value in text.split(","))
    if values != ("",) and "" in values:
        raise UsageError(f"--vary {key}={text} has an empty value", field=key, value=text, remedy="Write v1,v2,v3")
    return () if values == ("",) else values


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and their values: TOML reads ``device.seed = 1`` as a table inside a table."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _as_texts(key: str, value: Any) -> str | list[str]:
    several = key.startswith("vary.")
    items = value if several else [value]
    if not isinstance(items, list) or not all(isinstance(item, (str, int, float)) for item in items):
        wanted = "a list of numbers, texts, true or false" if several else "a number, a text, true or false"
        raise UsageError(f"{key} is {value!r}", field=key, value=str(value), remedy=f"Give {wanted}")
    found = [plain(item) for item in items]
    return found if several else found[0]
