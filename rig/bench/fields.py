"""Fields of TOML and JSON tables: the kind that a value must have, and its conversion (None for a bad value)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rig.errors import closest


class Field(NamedTuple):
    """How a value is converted, the required kind in words, and whether the table needs the value."""

    coerce: Callable[[Any], Any]
    wanted: str
    needed: bool = False


@dataclass(frozen=True)
class Checked:
    """The good values of a table by name, and each bad one: its name, the problem, the value and the remedy."""

    values: dict[str, Any] = field(default_factory=dict)
    problems: list[tuple[str, str, Any, str]] = field(default_factory=list)


def check_table(table: Mapping[str, Any], fields: Mapping[str, Field]) -> Checked:
    """Check every value of a table."""
    found = Checked()
    for name, known in fields.items():
        if known.needed and name not in table:
            found.problems.append((name, "is missing", None, f"Give {known.wanted}"))
    for name, value in table.items():
        if name in fields:
            good = fields[name].coerce(value)
            if good is None:
                found.problems.append((name, f"is {value!r}", value, f"Give {fields[name].wanted}"))
            else:
                found.values[name] = good
        else:
            found.problems.append((name, "is unknown here", value, closest(name, fields)))
    return found


def of(kind: type, *, empty: bool = True) -> Callable[[Any], Any]:
    """Accept a value of one type; without ``empty``, refuse an empty text or list."""
    return lambda x: x if isinstance(x, kind) and (x or empty) else None


def number(x: Any) -> float | None:
    """Return a finite number; true and false are refused."""
    return float(x) if isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x) else None


def positive(x: Any) -> float | None:
    """Return a finite number above zero."""
    return number(x) if number(x) is not None and x > 0 else None


def between(low: float, high: float) -> Callable[[Any], float | None]:
    """Accept a finite number from ``low`` to ``high``."""
    return lambda x: float(x) if number(x) is not None and low <= x <= high else None


text, table, not_negative = of(str, empty=False), of(dict), between(0.0, math.inf)
