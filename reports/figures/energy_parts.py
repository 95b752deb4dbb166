"""Energy per inference as a picture: by phase, and by rail in each phase."""

from __future__ import annotations

from reports.figures.sheet import Sheet, hue
from reports.format import prefix, si
from reports.names import text_of
from rig.analysis.result.figure_key import FigureKey, Figures
from rig.terminal import clean

_ENERGY = "energy_per_inference_j"
_MOST = 8


def energy_figure(quantities: Figures) -> Sheet | None:
    """Return a bar for each phase, divided by rails; None if there is one phase and one rail, or no energy."""
    found = {key: q.value for key, q in quantities.items() if key.quantity == _ENERGY and not (key.method or key.layer)}
    phases = [key for key in found if key.phase and not key.rail]
    bars = (phases or [key for key in found if key.of_whole])[:_MOST]
    rails = list(dict.fromkeys(key.rail for key in found if key.rail))[:_MOST]
    parts = {bar: [max(found.get(FigureKey(_ENERGY, bar.phase, rail), 0.0), 0.0) for rail in rails] for bar in bars}
    parts = {bar: own if any(own) else [max(found[bar], 0.0)] for bar, own in parts.items()}
    longest = max(map(sum, parts.values()), default=0.0)
    if len(bars) * max(map(len, parts.values()), default=0) < 2 or not 0.0 < longest < float("inf"):
        return None
    factor, unit = prefix(longest, "J")
    sheet = Sheet("energy per inference, by phase" + (" and rail" if rails else ""))
    for bar, own in parts.items():
        told = f"{clean(bar.phase) or 'all phases'}: {text_of(bar, quantities[bar])}"
        sheet.bar(told, [(value * factor, hue(k), "") for k, value in enumerate(own)], longest * factor)
    sheet.scale(0.0, longest * factor, f"energy per inference, {unit}")
    if max(map(len, parts.values())) > 1:
        of_rails = [quantities.get(FigureKey(_ENERGY, rail=rail)) for rail in rails]
        sums = ["" if q is None else f" {si(q.value, 'J', 3)}" for q in of_rails]
        sheet.key([(hue(k), f"{clean(rail)}{sums[k]}") for k, rail in enumerate(rails)])
    return sheet
