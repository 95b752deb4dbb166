"""Energy per inference as a picture: by phase, and in each by rail."""

from __future__ import annotations

from typing import Any

from reports.figures.style import HALF_IN, HUES, INK, key_below, new_figure
from reports.format import prefix, si
from reports.names import text_of
from rig.analysis.result.figure_key import FigureKey, Figures
from rig.terminal import clean

_ENERGY = "energy_per_inference_j"
_ROW_IN, _TOP_IN, _BOTTOM_IN = 0.55, 0.3, 0.8
_MOST = 8


def energy_figure(quantities: Figures) -> Any:
    """Return a bar for each phase, divided by rails; None where there is one phase and one rail, or no energy."""
    found = {key: q.value for key, q in quantities.items() if key.quantity == _ENERGY and not (key.method or key.layer)}
    phases = [key for key in found if key.phase and not key.rail]
    bars = (phases or [key for key in found if key.of_whole])[:_MOST]
    rails = list(dict.fromkeys(key.rail for key in found if key.rail))[:_MOST]
    parts = {bar: [found.get(FigureKey(_ENERGY, bar.phase, rail), 0.0) for rail in rails] for bar in bars}
    parts = {bar: own if any(own) else [found[bar]] for bar, own in parts.items()}
    if len(bars) * max(map(len, parts.values()), default=0) < 2:
        return None
    factor, unit = prefix(max(found[bar] for bar in bars), "J")
    height = _TOP_IN + _BOTTOM_IN + _ROW_IN * len(bars)
    figure = new_figure(height, HALF_IN)
    axis = figure.add_axes((0.04, _BOTTOM_IN / height, 0.92, 1 - (_TOP_IN + _BOTTOM_IN) / height))
    for row, (bar, own) in enumerate(parts.items()):
        begin = 0.0
        for k, value in enumerate(own):
            style = {"height": 0.4, "color": HUES[k % len(HUES)], "edgecolor": "white", "linewidth": 0.8}
            axis.barh(row + 0.45, value * factor, left=begin, **style)
            begin += value * factor
        name = clean(bar.phase) or "all phases"
        axis.text(0.0, row + 0.06, f"{name}: {text_of(bar, quantities[bar])}", va="center", color=INK, fontsize=8)
    axis.set_ylim(len(bars), -0.1)
    axis.set_yticks([])
    axis.set_xlabel(unit)
    axis.spines["left"].set_visible(False)
    axis.set_title("energy per inference, by phase" + (" and rail" if rails else ""))
    of_rails = [quantities.get(FigureKey(_ENERGY, rail=rail)) for rail in rails]
    told = [clean(r) + ("" if q is None else f" {si(q.value, 'J', 3)}") for r, q in zip(rails, of_rails, strict=True)]
    key_below(figure, told if max(map(len, parts.values())) > 1 else [])
    return figure
