"""How every picture of a report looks: colours, sizes, margins. Cheap to import."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

WIDTH_IN = 9.2
INK, MUTED, GRID = "#1a1f26", "#5b6570", "#d9dee3"
TRACE = "#0b3c5d"
COLOURS = {  # Okabe and Ito's palette, told apart by colour-blind readers
    "idle": "#b8bec5",
    "load": "#56b4e9",
    "host_preprocess": "#f0e442",
    "preprocess": "#e69f00",
    "inference": "#0072b2",
    "solve": "#cc79a7",
    "postprocess": "#009e73",
    "warm-up": "#7a6a53",
    "mark": "#d55e00",
}
LIMIT = "#b3420a"  # a bound, and what went past it
RC: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "neurorig",
    "text.parse_math": False,
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "path.simplify": True,
}


def new_figure(height_in: float) -> Any:
    """An empty figure of the width that all share."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH_IN, height_in), facecolor="white")


def margins(figure: Any, top: float, left: float = 0.8, gap: float = 0.0) -> None:
    """Place stacked axes by inches; matplotlib's own solver differs in the last bit from call to call."""
    width, height = figure.get_size_inches()
    rows = len(figure.axes)
    mean = (height - top - 0.55 - gap * (rows - 1)) / rows
    edges = {"left": left / width, "right": 1 - 0.15 / width, "top": 1 - top / height, "bottom": 0.55 / height}
    figure.subplots_adjust(**edges, hspace=gap / mean)
