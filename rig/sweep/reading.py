"""Read a grid from arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rig.errors import UsageError
from rig.session.setup import workload_for


def with_workload(given: Mapping[str, Any]) -> dict[str, Any]:
    """Add the scenario's default workload to the given fields of ``GridSpec`` if they name none."""
    return {"workload": workload_for(given.get("scenario", ""))} | dict(given)


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
