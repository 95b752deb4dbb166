"""Groups, titles and texts of figures for readers.

This module is quick to import.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from reports.format import quantity_parts, quantity_text, within
from rig.analysis.result.catalogue import CATALOGUE, entry_of, title_of
from rig.analysis.result.figure_key import LITERAL, PEER, TRIMMED, FigureKey
from rig.analysis.result.quantity import Quantity
from rig.terminal import clean

KINDS = {  # in the order of tables
    "overall": "Whole device",
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
    target, only gaps to it are shown. The average of a single rail is not repeated.
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
