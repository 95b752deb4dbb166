"""What the network did as a picture: operations by connection, and silent neurons by layer."""

from __future__ import annotations

from typing import Any

from reports.figures.style import GRID, HALF_IN, HUES, INK, key_below, new_figure
from rig.analysis.result.figure_key import FigureKey, Figures
from rig.terminal import clean

_KINDS = ("effective_acs_per_sample", "effective_macs_per_sample")
_ROW_IN, _TOP_IN, _GAP_IN, _BOTTOM_IN = 0.36, 0.3, 0.75, 0.75
_MOST = 8


def layers_figure(quantities: Figures) -> Any:
    """Return operations of each connection over its dense ones, above the sparsity of each layer; None without any.

    Of many connections, those with the most dense operations are shown, and of many layers the first ones.
    """
    dense = {k.layer: q.value for k, q in quantities.items() if k.layer and k.quantity == "dense_operations_per_sample"}
    sparsity = {k.layer: q.value for k, q in quantities.items() if k.layer and k.quantity == "activation_sparsity"}
    if not dense or not sparsity:
        return None
    kept = set(sorted(dense, key=lambda name: -dense[name])[:_MOST])
    connections, layers = [name for name in dense if name in kept], list(sparsity)[:_MOST]
    rows = [len(connections) * _ROW_IN, len(layers) * _ROW_IN]
    height = _TOP_IN + rows[0] + _GAP_IN + rows[1] + _BOTTOM_IN
    figure = new_figure(height, HALF_IN)
    upper = figure.add_axes((0.04, 1 - (_TOP_IN + rows[0]) / height, 0.92, rows[0] / height))
    lower = figure.add_axes((0.04, _BOTTOM_IN / height, 0.92, rows[1] / height))
    for row, name in enumerate(connections):
        own = [quantities[FigureKey(kind, layer=name)].value for kind in _KINDS]
        _bar(upper, row, [(dense[name], GRID)], f"{clean(name)}: {sum(own):,.0f} of {dense[name]:,.0f}")
        _bar(upper, row, list(zip(own, HUES, strict=False)))
    for row, name in enumerate(layers):
        _bar(lower, row, [(1.0, GRID)], f"{clean(name)}: {100 * sparsity[name]:.3g} %")
        _bar(lower, row, [(sparsity[name], HUES[2])])
    _finished(upper, len(connections), "synaptic operations per sample, by connection", "effective of dense")
    _finished(lower, len(layers), "activation sparsity, by layer", "share of neurons without output")
    key_below(figure, ["accumulates (ACs)", "multiply-accumulates (MACs)"])
    return figure


def _bar(axis: Any, row: int, parts: list[tuple[float, str]], text: str = "") -> None:
    begin = 0.0
    for value, colour in parts:
        axis.barh(row + 0.68, value, left=begin, height=0.4, color=colour)
        begin += value
    axis.text(0.0, row + 0.27, text, va="center", color=INK, fontsize=8)


def _finished(axis: Any, rows: int, title: str, label: str) -> None:
    axis.set_ylim(rows, 0.0)
    axis.set_yticks([])
    axis.xaxis.set_major_formatter(lambda v, _: f"{v:,.6g}")
    axis.locator_params(axis="x", nbins=5)
    axis.set_xlabel(label)
    axis.spines["left"].set_visible(False)
    axis.set_title(title)
