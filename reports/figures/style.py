"""The look of every picture of a report: colours, sizes, margins.

This module is quick to import.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

WIDTH_IN = 9.2
"""The width of a picture that fills the page."""
PAIR_IN, KEY_IN = 2.95, 1.95
"""Height of two panels side by side, and the width of the legend beside them."""
INK, MUTED, GRID = "#1a1f26", "#5b6570", "#d9dee3"
TRACE = "#0b3c5d"
COLOURS = {  # Okabe and Ito's palette, which colour-blind readers can distinguish
    "idle": "#b8bec5", "load": "#56b4e9", "host_preprocess": "#f0e442", "preprocess": "#e69f00",
    "inference": "#0072b2", "solve": "#cc79a7", "postprocess": "#009e73", "warm-up": "#7a6a53", "mark": "#d55e00",
}  # fmt: skip
HUES = tuple(COLOURS[name] for name in ("inference", "preprocess", "postprocess", "solve", "load", "mark", "warm-up"))
SIM = "#a3195b"
LIMIT = "#b3420a"  # a bound, and what exceeds it
RC: dict[Any, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "neurorig", "text.parse_math": False, "path.simplify": True,
    "font.family": ["DejaVu Sans", "sans-serif"], "font.size": 9.0,
    "axes.titlesize": 9.0, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.titley": 1.0,  # otherwise the extents of all ticks decide where a title is
    "axes.edgecolor": MUTED, "axes.labelcolor": INK, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "axes.axisbelow": True, "axes.formatter.useoffset": False,
    "grid.color": GRID, "grid.linewidth": 0.6,
    "text.color": INK, "xtick.color": MUTED, "ytick.color": MUTED, "legend.frameon": False,
}  # fmt: skip


def new_figure(height_in: float) -> Any:
    """Return an empty figure that fills the page's width."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH_IN, height_in), facecolor="white")


def margins(figure: Any, top: float, left: float = 0.8, gap: float = 0.0) -> None:
    """Set the positions of stacked axes in inches.

    The layout solver of matplotlib gives results that differ in the last bit from call to call.
    """
    width, height = figure.get_size_inches()
    rows = len(figure.axes)
    mean = (height - top - 0.55 - gap * (rows - 1)) / rows
    edges = {"left": left / width, "right": 1 - 0.15 / width, "top": 1 - top / height, "bottom": 0.55 / height}
    figure.subplots_adjust(**edges, hspace=gap / mean)


def panel() -> tuple[Any, Any]:
    """Return a figure with one panel, and room for a legend at its right."""
    figure = new_figure(PAIR_IN)
    axis = figure.subplots()
    margins(figure, 0.35)
    figure.subplots_adjust(right=1 - KEY_IN / WIDTH_IN)
    return figure, axis


def panel_pair(wspace: float, sharey: bool = False) -> tuple[Any, Any, Any]:
    """Return a figure with two panels side by side, the left one wider, and room for a legend at the right."""
    figure = new_figure(PAIR_IN)
    left, right = figure.subplots(1, 2, sharey=sharey, width_ratios=[1.5, 1.0])
    sides = {"left": 0.8 / WIDTH_IN, "right": 1 - KEY_IN / WIDTH_IN}
    figure.subplots_adjust(**sides, top=1 - 0.35 / PAIR_IN, bottom=0.55 / PAIR_IN, wspace=wspace)
    return figure, left, right


def key_beside(figure: Any, axes: Sequence[Any]) -> None:
    """Put a legend beside the panels, so that it hides no marks."""
    keys = [axis.get_legend_handles_labels() for axis in axes]
    handles, labels = ([x for key in keys for x in key[k]] for k in (0, 1))
    place = (1 - (KEY_IN - 0.05) / WIDTH_IN, 1 - 0.3 / PAIR_IN)
    figure.legend(handles, labels, loc="upper left", bbox_to_anchor=place, borderaxespad=0.0, fontsize=8)


def log_axis(side: Any, set_scale: Any) -> None:
    """Make an axis logarithmic, with plain numbers at its ticks."""
    set_scale("log")
    side.set_major_formatter(lambda v, _: f"{v:g}")
    side.set_minor_formatter(lambda v, _: "")


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the style of the reports; the user's own settings have no effect."""
    backend = None if "matplotlib" in sys.modules else os.environ.pop("MPLBACKEND", None)
    from matplotlib import rc_context, rcParams, rcParamsDefault

    if backend is not None:  # an unknown name would fail the import, and no backend is used here
        os.environ["MPLBACKEND"] = backend
        with suppress(ValueError):
            rcParams["backend"] = backend
    base: dict[Any, Any] = {k: v for k, v in rcParamsDefault.items() if not k.startswith("backend")}
    with rc_context({**base, **RC}):
        yield


def svg_of(figure: Any, name: str, simulated: Set[bool]) -> bytes:
    """Return the figure as SVG, marked if all of it ({True}) or a part of it is simulated."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    if True in simulated:
        told = "SIMULATED" if False not in simulated else "SIMULATED in part"
        figure.text(0.995, 0.004, told, ha="right", va="bottom", color=SIM, weight="bold", gid="simulated")
    if simulated == {True}:
        size = 7 * figure.get_figwidth()
        mark = {"ha": "center", "va": "center", "rotation": 18, "size": size, "weight": "bold"}
        figure.text(0.5, 0.5, "SIMULATED", color=SIM, alpha=0.10, zorder=10, **mark)
    out = io.BytesIO()
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(out, metadata={**dict.fromkeys(("Date", "Creator", "Format", "Type")), "Title": name})
    text = re.sub(r"<metadata>.*?</metadata>", "", out.getvalue().decode(), flags=re.S)
    return re.sub(r'(?<= d=")[^"]*', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), text).encode()
