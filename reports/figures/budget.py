"""The components of the uncertainty of each key figure, as one bar."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from reports.figures.sheet import Sheet, hue
from reports.figures.style import HUES
from reports.format import ENDS, budget
from reports.names import parts_of, title
from rig.analysis.result.figure_key import FigureKey, Figures
from rig.terminal import clean

_LEAST = 0.09
"""A part of a bar with at least this share of the variance shows its number."""
_WHOLE = 0.995
"""A source with at least this share of the variance is treated as the only one; a line of text says so."""
OTHERS = "others"


def budget_figure(quantities: Figures, keys: Sequence[FigureKey], rails: Collection[str]) -> Sheet | None:
    """Return a bar for each of ``keys`` with several sources; sources that differ only by rail are joined.

    A figure with one source has a line of text. Return None if no figure has several sources.
    """
    shown = {key: _shares(quantities, key, rails) for key in keys if key in quantities and quantities[key].u > 0}
    bars = {key: shares for key, shares in shown.items() if shares and max(shares.values()) < _WHOLE}
    if not bars:
        return None
    weight: dict[str, float] = {}
    for shares in bars.values():
        for source, share in shares.items():
            weight[source] = weight.get(source, 0.0) + share
    ranked = sorted(weight, key=lambda source: -weight[source])
    named = ranked[: len(HUES) - (len(ranked) > len(HUES))]
    labels = [*named, OTHERS] if len(ranked) > len(named) else named
    sheet = Sheet("what each ± is made of")
    for key, shares in bars.items():
        own = [shares.get(source, 0.0) for source in named]
        own += [1.0 - sum(own)] if len(labels) > len(named) else []
        parts = [(100.0 * x, hue(k), str(k + 1) if x >= _LEAST else "") for k, x in enumerate(own)]
        sheet.bar(_told(quantities, key), parts, 100.0)
    sheet.scale(0.0, 100.0, "share of the variance, %")
    sheet.key([(hue(k), f"{k + 1} {label}") for k, label in enumerate(labels)])
    for key in (key for key, shares in shown.items() if shares and key not in bars):
        sheet.note(f"{_told(quantities, key)}, all of it {max(shown[key], key=shown[key].__getitem__)}")
    return sheet


def _told(quantities: Figures, key: FigureKey) -> str:
    _, half, unit = parts_of(key, quantities[key])
    return f"{title(key)}: {half if ENDS in half else f'± {half}'} {unit}".rstrip()


def _shares(quantities: Figures, key: FigureKey, rails: Collection[str]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for line in budget(quantities[key]):
        if math.isfinite(line.share):
            stem, _, rail = line.source.rpartition(", ")
            source = clean(stem if rail in rails and stem else line.source)
            shares[source] = shares.get(source, 0.0) + line.share
    return shares
