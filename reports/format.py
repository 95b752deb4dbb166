"""Write numbers for readers: with SI prefixes and two digits of uncertainty.

This module is quick to import.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rig.analysis.result.catalogue import Scale
from rig.analysis.result.quantity import Component, Quantity
from rig.terminal import clean

NOT_STATED = "not stated"
NO_NUMBER = "n/a"
ENDS = " to "
"""The word between the ends of an interval whose sides are unequal."""

_PREFIXES = {
    **{-24: "y", -21: "z", -18: "a", -15: "f", -12: "p", -9: "n", -6: "µ", -3: "m", 0: ""},
    **{3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E", 21: "Z", 24: "Y"},
}
_ROUNDING = 1e-10
"""A share of less than this many percent is a rounding error."""
_DUST = 1e-13
"""A half-width below this fraction of its number is a rounding error."""
_PREFIXABLE = {"W", "J", "s", "Hz", "A", "V", "Ohm"}
SUFFIXES = {"s": "s", "w": "W", "j": "J", "hz": "Hz", "v": "V", "a": "A", "ohm": "Ohm"}
"""The units that names end in: ``timeout_s``."""


class BudgetLine(NamedTuple):
    """One independent contribution: standard uncertainty, and share of the variance (0 to 1, or NaN)."""

    source: str
    u: float
    share: float
    dof: float
    shared: str | None


# ---- numbers ------------------------------------------------------------------------------


def prefix(magnitude: float, unit: str, scale: Scale = "auto") -> tuple[float, str]:
    """Return the factor and the unit with which to print a value of about ``magnitude``."""
    if unit == "1":
        share = scale == "percent" or (scale == "auto" and magnitude <= 1.0)
        return (100.0, "%") if share else (1.0, "")
    base = unit.partition("/")[0]
    if base not in _PREFIXABLE or not math.isfinite(magnitude) or magnitude <= 0.0:
        return 1.0, unit
    exponent = 3 * math.floor(math.log10(magnitude) / 3 + 1e-12)
    if base == "s":
        exponent = min(exponent, 0)
    exponent = max(-24, min(24, exponent))
    return 10.0**-exponent, _PREFIXES[exponent] + unit


def quantity_parts(q: Quantity, scale: Scale = "auto") -> tuple[str, str, str]:
    """Return (value, half-width of the 95 % interval, unit) as text; both numbers share one prefix and one last digit.

    The half-width is empty if no uncertainty is stated. If one side of the interval is wider, as for a share of counts,
    both ends are returned instead: ``61.5 to 99.8``.
    """
    value = float(q.value)
    if not math.isfinite(value):
        return NO_NUMBER, "", ""
    half = _half_width(q)
    half = 0.0 if half <= _DUST * abs(value) else half
    factor, unit = prefix(max(abs(value), half if q.unit != "1" and math.isfinite(half) else 0.0), q.unit, scale)
    value, half = value * factor, half * factor
    value = 0.0 if unit == "%" and abs(value) < _ROUNDING else value
    if not (math.isfinite(half) and half > 0.0):
        whole = half == 0.0 and value == round(value) and abs(value) < 1e12
        return f"{value:.0f}" if whole else _significant(value, 4), "" if half == 0.0 else "unknown", unit
    exponent = int(f"{half:.1e}".split("e")[1])
    decimals = 1 - exponent
    if max(abs(value), half) >= 1e6 or decimals > 12:
        digits = max(0, min(15, math.floor(math.log10(max(abs(value), half))) - exponent + 1))
        return f"{value:.{digits}e}", f"{half:.1e}", unit
    if q.limits is not None and abs(factor * sum(q.limits) - 2.0 * value) >= 10.0**-decimals:
        low, high = (_fixed(factor * end, max(decimals, 0)) for end in q.limits)
        return _fixed(value, decimals) if decimals > 0 else _significant(value, 3), f"{low}{ENDS}{high}", unit
    return _fixed(value, decimals), _fixed(half, decimals), unit


def quantity_text(q: Quantity, scale: Scale = "auto") -> str:
    """Return a quantity with the half-width of its 95 % interval: ``341.2 ± 3.1 µW``, ``87.5 ± 1.2 %``."""
    value, half, unit = quantity_parts(q, scale)
    tail = f" {unit}" if unit else ""
    if value == NO_NUMBER:
        return value
    if not half:
        return f"{value}{tail}" if q.stated else f"{value}{tail} (no uncertainty stated)"
    return f"{value}{within(half)}{tail}"


def signed(q: Quantity, scale: Scale = "auto") -> str:
    """Return a change as text, with its sign."""
    value, half, unit = quantity_parts(q, scale)
    sign = "" if value.startswith("-") or not value.strip("0.") else "+"
    return f"{sign}{value}{within(half)} {unit}".rstrip()


def within(half: str) -> str:
    """Return the text after a value: its half-width after ±, both ends in brackets, or nothing."""
    return "" if not half else f" ({half})" if ENDS in half else f" ± {half}"


def si(value: float | None, unit: str, digits: int = 4) -> str:
    """Return a plain number with an SI prefix; None is ``not stated``."""
    if value is None:
        return NOT_STATED
    if not abs(value) <= sys.float_info.max:  # an integer may be too large for a float
        return NO_NUMBER
    factor, text = prefix(abs(value), unit)
    return f"{_significant(value * factor, digits)} {text}".rstrip()


def budget(q: Quantity) -> list[BudgetLine]:
    """Return independent contributions, largest first; components with a shared origin are summed with their signs."""
    merged: dict[str, list[Component]] = {}
    for position, c in enumerate(q.components):
        merged.setdefault(f"shared {c.shared}" if c.shared is not None else f"own {position}", []).append(c)
    sums = [(parts, sum(c.u for c in parts)) for parts in merged.values()]
    total = sum(u * u for _, u in sums)
    lines = [
        BudgetLine(
            source=" + ".join(dict.fromkeys(c.source for c in parts)),
            u=abs(u),
            share=u * u / total if total > 0 and math.isfinite(total) else math.nan,
            dof=min(c.dof for c in parts),
            shared=parts[0].shared,
        )
        for parts, u in sums
    ]
    return sorted(lines, key=lambda line: -line.u if math.isfinite(line.u) else -math.inf)


def _half_width(q: Quantity) -> float:
    try:
        return abs(q.half_width())
    except OverflowError:
        return math.inf


def _fixed(value: float, decimals: int) -> str:
    text = f"{round(value, decimals):.{max(decimals, 0)}f}"
    return text[1:] if text.startswith("-") and not text.strip("-0.") else text


def _significant(value: float, digits: int) -> str:
    if value == 0.0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if not -4 <= exponent < 7:
        return f"{value:.{digits - 1}e}"
    text = _fixed(value, digits - 1 - exponent)
    return text.rstrip("0").rstrip(".") if "." in text else text


# ---- text ---------------------------------------------------------------------------------


def flatten(value: Any, key: str = "", depth: int = 3, unit: str = "") -> Iterable[tuple[str, str]]:
    """Return nested JSON as (keys joined by colons, text) pairs.

    A unit at the end of a key is added to its number, and to every number nested below that key.
    """
    stem, _, suffix = key.rpartition("_")
    if suffix in SUFFIXES and stem and _counts(value):
        key, unit = stem, SUFFIXES[suffix]
    if isinstance(value, Mapping) and value and depth > 0:
        for k, v in value.items():
            yield from flatten(v, f"{key}: {k}" if key else str(k), depth - 1, unit)
    else:
        yield clean(key), say(value, unit)


def _counts(value: Any) -> bool:
    """Return whether a value holds only numbers, which a unit can follow."""
    if isinstance(value, (Mapping, list, tuple)):
        parts = value.values() if isinstance(value, Mapping) else value
        return bool(value) and all(map(_counts, parts))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def say(value: Any, unit: str = "") -> str:
    """Return any JSON value as short text, a number with its ``unit``; an empty value is ``not stated``."""
    if unit and isinstance(value, (int, float)) and not isinstance(value, bool):
        return si(value, unit)
    if value is None or (isinstance(value, (str, list, tuple, dict)) and not value):
        return NOT_STATED
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return cut(", ".join(say(v, unit) for v in value[:50]) + (", …" if len(value) > 50 else ""))
    if isinstance(value, Mapping):
        return cut("; ".join(f"{clean(k)}: {say(v, unit)}" for k, v in list(value.items())[:50]))
    return cut(f"{value:.6g}" if isinstance(value, float) else clean(value))


def cut(text: str, limit: int = 400) -> str:
    """Return a text of at most ``limit`` characters; a longer one ends in an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
