"""Draw what makes up a figure as bars: the components of its uncertainty, and the phases and rails of its energy.

The activity of the network has bars too: operations by connection, and silent neurons by layer.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Sequence

from reports.format import ENDS, budget, parts_of, prefix, si, text_of, title
from reports.pictures.colour_sheet import GRID, HUES, Sheet, hue
from rig.analysis.result.quantity import FigureKey, Figures
from rig.terminal import clean

_LEAST = 0.09
"""A part of a bar with at least this share of the variance is marked with its number."""
_WHOLE = 0.995
"""A source with at least this share of the variance is treated as the only source; a line of text says so."""
OTHERS = "others"
_ENERGY = "energy_per_inference_j"
_MOST_BARS = 8
_OPERATIONS = ("effective_acs_per_sample", "effective_macs_per_sample")
_MOST_LAYERS = 8


def budget_figure(quantities: Figures, keys: Sequence[FigureKey], rails: Collection[str]) -> Sheet | None:
    """Return a bar for each figure in ``keys`` whose uncertainty has several sources; the rails of a source are joined.

    A figure with one source has a line of text. Return None if no figure has several sources.
    """
    shown = {key: _shares(quantities, key, rails) for key in keys if key in quantities and quantities[key].u > 0}
    bars = {key: shares for key, shares in shown.items() if shares and max(shares.values()) < _WHOLE}
    if not bars:
        return None
    weight = defaultdict[str, float](float)
    for source, share in (pair for shares in bars.values() for pair in shares.items()):
        weight[source] += share
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
    shares = defaultdict[str, float](float)
    for line in budget(quantities[key]):
        if math.isfinite(line.share):
            stem, _, rail = line.source.rpartition(", ")
            shares[clean(stem if rail in rails and stem else line.source)] += line.share
    return shares


def energy_figure(quantities: Figures) -> Sheet | None:
    """Return a bar for each phase, divided by rails; None if there is one phase and one rail, or no energy."""
    found = {key: q.value for key, q in quantities.items() if key.quantity == _ENERGY and not (key.method or key.layer)}
    phases = [key for key in found if key.phase and not key.rail]
    bars = (phases or [key for key in found if key.of_whole])[:_MOST_BARS]
    rails = list(dict.fromkeys(key.rail for key in found if key.rail))[:_MOST_BARS]
    parts = {bar: [max(found.get(FigureKey(_ENERGY, bar.phase, rail), 0.0), 0.0) for rail in rails] for bar in bars}
    parts = {bar: own if any(own) else [max(found[bar], 0.0)] for bar, own in parts.items()}
    longest = max(map(sum, parts.values()), default=0.0)
    if len(bars) * max(map(len, parts.values()), default=0) < 2 or not 0.0 < longest < float("inf"):
        return None
    factor, unit = prefix(longest, "J")
    sheet = Sheet("energy per inference, by phase" + (" and rail" if len(rails) > 1 else ""))
    for bar, own in parts.items():
        told = f"{clean(bar.phase) or 'all phases'}: {text_of(bar, quantities[bar])}"
        sheet.bar(told, [(value * factor, hue(k), "") for k, value in enumerate(own)], longest * factor)
    sheet.scale(0.0, longest * factor, f"energy per inference, {unit}")
    if max(map(len, parts.values())) > 1:
        of_rails = [quantities.get(FigureKey(_ENERGY, rail=rail)) for rail in rails]
        sums = ["" if q is None else f" {si(q.value, 'J', 3)}" for q in of_rails]
        sheet.key([(hue(k), f"{clean(rail)}{sums[k]}") for k, rail in enumerate(rails)])
    return sheet


def layers_figure(quantities: Figures) -> Sheet | None:
    """Return two panels: effective beside dense operations of each connection, and the sparsity of each layer.

    If there are many, the connections with the most dense operations and the first layers are drawn. None without data.
    """
    dense = {k.layer: q.value for k, q in quantities.items() if k.layer and k.quantity == "dense_operations_per_sample"}
    sparsity = {k.layer: q.value for k, q in quantities.items() if k.layer and k.quantity == "activation_sparsity"}
    if not dense or not sparsity:
        return None
    kept = set(sorted(dense, key=lambda name: -dense[name])[:_MOST_LAYERS])
    most = max(*dense.values(), 1.0)
    sheet = Sheet("synaptic operations per sample, by connection")
    for name in (name for name in dense if name in kept):
        own = [quantities[FigureKey(kind, layer=name)].value for kind in _OPERATIONS]
        told = f"{clean(name)}: {sum(own):,.0f} of {dense[name]:,.0f}"
        rest = (max(dense[name] - sum(own), 0.0), GRID, "")
        sheet.bar(told, [*((value, hue(k), "") for k, value in enumerate(own)), rest], most)
    sheet.scale(0.0, most, "effective of dense")
    sheet.key([(hue(0), "accumulates (ACs)"), (hue(1), "multiply-accumulates (MACs)")])
    sheet.y += 8.0
    sheet.note("activation sparsity, by layer", bold=True)
    for name in list(sparsity)[:_MOST_LAYERS]:
        silent = 100.0 * sparsity[name]
        sheet.bar(f"{clean(name)}: {silent:.3g} %", [(silent, hue(2), ""), (100.0 - silent, GRID, "")], 100.0)
    sheet.scale(0.0, 100.0, "share of neurons without output, %")
    return sheet
