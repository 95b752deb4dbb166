"""Write numbers for readers, with SI prefixes and two digits of uncertainty; groups, titles and texts of figures.

This module is quick to import.
"""

import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from rig.analysis.result.figure_catalogue import CATALOGUE, Scale, entry_of, title_of
from rig.analysis.result.quantity import LITERAL, PEER, TRIMMED, Component, FigureKey, Quantity
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
_DUST, _NOTHING = 1e-13, 1e-24
"""A half-width below this fraction of its number, or below the smallest prefix, is a rounding error."""
_PREFIXABLE = {"W", "J", "s", "Hz", "A", "V", "Ohm"}
SUFFIXES = {"s": "s", "w": "W", "j": "J", "hz": "Hz", "v": "V", "a": "A", "ohm": "Ohm"}
"""The units that names end in: ``timeout_s``."""
KINDS = {  # in the order of tables
    "overall": "All phases and measured rails",
    "service": "Service",
    "arrivals": "Arrivals",
    "scene changes": "Scene changes",
    "average": "Average while serving",
    "solver": "Solver",
    "complexity": "Complexity of the network",
    "spiking": "Spiking network",
    LITERAL: "By the text of the benchmark: power over the spans themselves",
    PEER: "Recorder's own figures, by its method",
    "phase": "By phase",
    "rail": "By rail",
    "phase and rail": "By phase and rail",
    "cross-check": "Cross-checks from trimmed windows",
}
_ORDER = list(CATALOGUE)
PER_SECOND = {"throughput_samples_hz": "samples/s", "throughput_inferences_hz": "inferences/s"}
"""The units of throughputs where hertz are hard to read."""
_TWINS = {
    "energy_per_inference_integrated_j": "energy_per_inference_j", "throughput_inferences_hz": "throughput_samples_hz",
}  # fmt: skip
"""Each quantity with another quantity that it often equals."""
_PERCENTILES = (50, 90, 99)
_DETAILS = (  # figures of a solver that a terminal does not show
    "gap_{target}_spread_problems", "gap_{target}_spread_solves",
    "time_to_gap_{target}_{threshold}_official_s", "energy_to_gap_{target}_{threshold}_official_j",
)  # fmt: skip


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
    half = 0.0 if half <= max(_DUST * abs(value), _NOTHING) else half
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
    ends = [factor * end for end in q.interval()]
    if abs(sum(ends) - 2.0 * value) >= 10.0**-decimals:
        low, high = (_fixed(end, max(decimals, 0)) for end in ends)
        fine = decimals > 0 or abs(value) >= 1000.0
        return _fixed(value, decimals) if fine else _significant(value, 3), f"{low}{ENDS}{high}", unit
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
    value, half, unit = quantity_parts(q, scale)
    sign = "" if value.startswith("-") or not value.strip("0.") else "+"
    return f"{sign}{value}{within(half)} {unit}".rstrip()


def within(half: str) -> str:
    """Return the text after a value: its half-width after ±, both ends in brackets, or nothing."""
    return "" if not half else f" ({half})" if ENDS in half else f" ± {half}"


def si(value: float | None, unit: str, digits: int = 4, scale: Scale = "auto") -> str:
    """Return a plain number with an SI prefix; None is ``not stated``."""
    if value is None:
        return NOT_STATED
    if not abs(value) <= sys.float_info.max:  # an integer may be too large for a float
        return NO_NUMBER
    factor, text = prefix(abs(value), unit, scale)
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


# ---- groups, titles and texts of figures -------------------------------------------------


class Group(NamedTuple):
    """Figures that belong in one table."""

    kind: str
    heading: str
    entries: tuple[tuple[FigureKey, Quantity], ...]


def kind_of(key: FigureKey) -> str:
    """Return the kind, one of ``KINDS``, to which a figure belongs."""
    if key.method:
        return "cross-check" if key.method == TRIMMED else key.method
    family = entry_of(key).family
    if family != "overall" or not (key.phase or key.rail):
        return family
    return "phase and rail" if key.phase and key.rail else "phase" if key.phase else "rail"


def heading(key: FigureKey) -> str:
    """Return the heading of the group to which a figure belongs."""
    kind = kind_of(key)
    where = [f"phase {clean(key.phase)}"] if key.phase else []
    where += [f"rail {clean(key.rail)}"] if key.rail else []
    if kind in ("cross-check", LITERAL):
        return ", ".join(["Trimmed windows" if kind == "cross-check" else "By the text", *where])
    if kind in ("phase", "rail", "phase and rail"):
        words = ", ".join(where)
        return words[0].upper() + words[1:]
    return "Recorder" if kind == PEER else kind.capitalize()


def title(key: FigureKey) -> str:
    """Return the title of a figure without its phase and rail, which are in the heading of its group."""
    rail = f", rail {key.rail}" if key.rail and kind_of(key) == "average" else ""
    return clean(title_of(key) + rail)


def groups(quantities: Mapping[FigureKey, Quantity]) -> list[Group]:
    """Return figures grouped for tables in the order of ``KINDS``, without figures that repeat another one."""
    found: dict[tuple[str, str], list[tuple[FigureKey, Quantity]]] = {}
    for key, q in quantities.items():
        twin = quantities.get(replace(key, quantity=_TWINS.get(key.quantity, "")))
        if twin is not None and text_of(key, twin) == text_of(key, q):
            continue
        found.setdefault((kind_of(key), heading(key)), []).append((key, q))
    kinds = list(KINDS)
    ranked = sorted(found.items(), key=lambda item: kinds.index(item[0][0]))
    return [Group(kind, text, tuple(sorted(rows, key=_place))) for (kind, text), rows in ranked]


def _place(entry: tuple[FigureKey, Quantity]) -> int:
    """Return the sort key of a figure: overall figures as in the catalogue, others as given, averages of rails last."""
    key = entry[0]
    family = entry_of(key).family
    if family == "overall" and key.method != PEER:
        return _ORDER.index(key.quantity)
    return len(_ORDER) + (family == "average" and bool(key.rail))


def brief(group: Group, scheduled: bool) -> Group:
    """Return the figures of a group that are printed on a terminal.

    Without scheduled arrivals, service is throughput, three percentiles and early stopping. If there is an official
    target, figures of other targets are left out. The average of a single rail is not repeated.
    """
    entries = list(group.entries)
    if group.kind == "service":
        entries = [e for e in entries if scheduled or e[0].quantity in PER_SECOND or _is_latency(e[0])]
    if group.kind == "solver":
        official = any(key.target == "official" for key, _ in entries)
        entries = [e for e in entries if not official or e[0].target in ("", "official")]
        entries = [e for e in entries if e[0].quantity not in _DETAILS]
    if group.kind == "average":
        rails = [e for e in entries if e[0].rail]
        entries = [e for e in entries if not e[0].rail] if len(rails) == 1 < len(entries) else entries
    return Group(group.kind, group.heading, tuple(entries))


def _is_latency(key: FigureKey) -> bool:
    if key.quantity == "latency_p{percentile}_s":
        return key.percentile in _PERCENTILES
    return key.quantity == "latency_p{percentile}_early_stopping_s"


def parts_of(key: FigureKey, q: Quantity) -> tuple[str, str, str]:
    """Return (value, half-width, unit) of a figure as text.

    A throughput below 1 Hz is shown in samples or inferences per second.
    """
    return quantity_parts(_readable(key, q), entry_of(key).scale)


def short_text(key: FigureKey, q: Quantity) -> str:
    """Return a figure as text, without ± if its uncertainty is not stated: ``341.2 ± 3.1 µW``, ``120 Hz``."""
    value, half, unit = parts_of(key, q)
    return f"{value}{within(half)} {unit}".strip()


def text_of(key: FigureKey, q: Quantity) -> str:
    """Return a figure as text for readers: ``341.2 ± 3.1 µW``."""
    return quantity_text(_readable(key, q), entry_of(key).scale)


def _readable(key: FigureKey, q: Quantity) -> Quantity:
    """Return the quantity; a throughput below one a second gets no prefix, since millihertz are hard to read."""
    return replace(q, unit=PER_SECOND.get(key.quantity, q.unit)) if 0.0 < q.value < 1.0 else q
