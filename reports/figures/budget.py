"""What the uncertainty of each key figure is made of, as one bar."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from reports.figures.style import HALF_IN, HUES, INK, key_below, new_figure
from reports.format import budget
from reports.names import parts_of, title
from rig.analysis.result.figure_key import FigureKey, Figures
from rig.terminal import clean

_ROW_IN, _TOP_IN, _BOTTOM_IN, _KEY_IN = 0.47, 0.3, 0.42, 0.16
_LEAST = 0.09
"""Share of the variance from which a part of a bar has its number written in it."""
OTHERS = "others"


def budget_figure(quantities: Figures, keys: Sequence[FigureKey], rails: Collection[str]) -> Any:
    """Return a bar for each of ``keys`` that states components; sources that differ by the rail alone are one."""
    bars = {key: _shares(quantities, key, rails) for key in keys if key in quantities and quantities[key].u > 0}
    bars = {key: shares for key, shares in bars.items() if shares}
    if not bars:
        return None
    weight: dict[str, float] = {}
    for shares in bars.values():
        for source, share in shares.items():
            weight[source] = weight.get(source, 0.0) + share
    ranked = sorted(weight, key=lambda source: -weight[source])
    named = ranked[: len(HUES) - (len(ranked) > len(HUES))]
    labels = [*named, OTHERS] if len(ranked) > len(named) else named
    key_in = 0.1 + _KEY_IN * -(-len(labels) // 2)
    height = _TOP_IN + _BOTTOM_IN + key_in + _ROW_IN * len(bars)
    figure = new_figure(height, HALF_IN)
    axis = figure.add_axes((0.04, (_BOTTOM_IN + key_in) / height, 0.92, _ROW_IN * len(bars) / height))
    for row, (key, shares) in enumerate(bars.items()):
        own = [shares.get(source, 0.0) for source in named]
        own += [1.0 - sum(own)] if len(labels) > len(named) else []
        _bar(axis, row, own)
        _, half, unit = parts_of(key, quantities[key])
        axis.text(0.0, row + 0.08, f"{title(key)}: ± {half} {unit}", va="center", color=INK, fontsize=8)
    axis.set(ylim=(len(bars), -0.1), xlim=(0, 100), yticks=[], xlabel="share of the variance, %")
    axis.spines["left"].set_visible(False)
    axis.set_title("what each ± is made of")
    key_below(figure, [f"{k + 1} {label}" for k, label in enumerate(labels)])
    return figure


def _shares(quantities: Figures, key: FigureKey, rails: Collection[str]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for line in budget(quantities[key]):
        if math.isfinite(line.share):
            stem, _, rail = line.source.rpartition(", ")
            source = clean(stem if rail in rails and stem else line.source)
            shares[source] = shares.get(source, 0.0) + line.share
    return shares


def _bar(axis: Any, row: int, shares: Sequence[float]) -> None:
    begin = 0.0
    for k, share in enumerate(shares):
        axis.barh(row + 0.5, 100 * share, left=begin, height=0.36, color=HUES[k], edgecolor="white", linewidth=0.8)
        if share >= _LEAST:
            axis.text(begin + 50 * share, row + 0.5, str(k + 1), ha="center", va="center", color="black", fontsize=7.5)
        begin += 100 * share
