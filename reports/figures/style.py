"""The colours of every picture of a report. This module is quick to import."""

from __future__ import annotations

INK, MUTED, GRID = "#1a1f26", "#5b6570", "#d9dee3"
TRACE = "#0b3c5d"
COLOURS = {  # Okabe and Ito's palette, which colour-blind readers can distinguish
    "idle": "#b8bec5", "load": "#56b4e9", "host_preprocess": "#f0e442", "preprocess": "#e69f00",
    "inference": "#0072b2", "solve": "#cc79a7", "postprocess": "#009e73", "warm-up": "#7a6a53", "mark": "#d55e00",
}  # fmt: skip
HUES = tuple(COLOURS[name] for name in ("inference", "preprocess", "postprocess", "solve", "load", "mark", "warm-up"))
SIM = "#a3195b"
LIMIT = "#b3420a"  # a bound, and what exceeds it
