"""Draw the activity of the network: operations by connection, and silent neurons by layer."""

from __future__ import annotations

from reports.figures.sheet import Sheet, hue
from reports.figures.style import GRID
from rig.analysis.result.figure_key import FigureKey, Figures
from rig.terminal import clean

_KINDS = ("effective_acs_per_sample", "effective_macs_per_sample")
_MOST = 8


def layers_figure(quantities: Figures) -> Sheet | None:
    """Return two panels: effective beside dense operations of each connection, and the sparsity of each layer.

    If there are many, the connections with the most dense operations and the first layers are drawn. None without data.
    """
    dense = {k.layer: q.value for k, q in quantities.items() if k.layer and k.quantity == "dense_operations_per_sample"}
    sparsity = {k.layer: q.value for k, q in quantities.items() if k.layer and k.quantity == "activation_sparsity"}
    if not dense or not sparsity:
        return None
    kept = set(sorted(dense, key=lambda name: -dense[name])[:_MOST])
    most = max(*dense.values(), 1.0)
    sheet = Sheet("synaptic operations per sample, by connection")
    for name in (name for name in dense if name in kept):
        own = [quantities[FigureKey(kind, layer=name)].value for kind in _KINDS]
        told = f"{clean(name)}: {sum(own):,.0f} of {dense[name]:,.0f}"
        rest = (max(dense[name] - sum(own), 0.0), GRID, "")
        sheet.bar(told, [*((value, hue(k), "") for k, value in enumerate(own)), rest], most)
    sheet.scale(0.0, most, "effective of dense")
    sheet.key([(hue(0), "accumulates (ACs)"), (hue(1), "multiply-accumulates (MACs)")])
    sheet.y += 8.0
    sheet.note("activation sparsity, by layer", bold=True)
    for name in list(sparsity)[:_MOST]:
        silent = 100.0 * sparsity[name]
        sheet.bar(f"{clean(name)}: {silent:.3g} %", [(silent, hue(2), ""), (100.0 - silent, GRID, "")], 100.0)
    sheet.scale(0.0, 100.0, "share of neurons without output, %")
    return sheet
