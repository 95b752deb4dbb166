"""The pictures of a report as SVG: power over time, execution times, what the uncertainty is made of.

Figures are drawn without pyplot, and the same result gives the same bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reports.format import budget, clean, prefix, quantity_text, si, title
from reports.trace_figure import COLOURS, TRACE, margins, power_figure
from rig.quantity import Quantity
from rig.result import Result

Floats = NDArray[np.floating[Any]]

_INK, _MUTED, _GRID = "#1a1f26", "#5b6570", "#d9dee3"
_BUDGET_OF = ("dynamic_power_w", "active_power_w", "energy_per_inference_j", "execution_time_s")
_RC: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "neurorig",
    "text.parse_math": False,
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": _MUTED,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "text.color": _INK,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "legend.frameon": False,
    "path.simplify": True,
}


def draw(result: Result) -> dict[str, bytes]:
    """SVG by figure name (``power``, ``latency``, ``budget``); a figure without data is left out."""
    from matplotlib import rc_context, rcParamsDefault

    base: dict[Any, Any] = {k: v for k, v in rcParamsDefault.items() if not k.startswith("backend")}
    with rc_context({**base, **_RC}):
        figures = {
            "power": power_figure(result.series),
            "latency": _latency(result.series.execution_times_s, result.quantities),
            "budget": _budget(result.quantities),
        }
        return {name: _svg(f, name, result.simulated) for name, f in figures.items() if f is not None}


def _figure(height_in: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(9.2, height_in), facecolor="white")


def _svg(figure: Any, name: str, simulated: bool) -> bytes:
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    if simulated:
        figure.text(0.995, 0.004, "SIMULATED", ha="right", va="bottom", color="#a3195b", weight="bold")
        mark = {"ha": "center", "va": "center", "rotation": 18, "size": 64, "weight": "bold"}
        figure.text(0.5, 0.5, "SIMULATED", color="#a3195b", alpha=0.10, zorder=10, **mark)
    out = io.BytesIO()
    silent = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(out, metadata={**silent, "Title": name})
    text = re.sub(r"<metadata>.*?</metadata>", "", out.getvalue().decode(), flags=re.S)
    return re.sub(r'(?<= d=")[^"]*', _rounded, text).encode()


def _rounded(path: re.Match[str]) -> str:
    return re.sub(r"(\.\d\d)\d+", r"\1", path[0])


# ---- execution times ----------------------------------------------------------------------


def _latency(times_s: Floats, quantities: Mapping[str, Quantity]) -> Any:
    times = np.sort(np.asarray(times_s, dtype=np.float64)[np.isfinite(times_s)])
    if not len(times):
        return None
    factor, unit = prefix(float(np.median(np.abs(times))), "s")
    x = times * factor
    figure = _figure(4.2)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[1.2, 1.0])
    margins(figure, top=0.35, gap=0.2)
    wide = x[0] > 0 and x[-1] / np.median(x) > 50
    count = int(np.clip(np.sqrt(len(x)), 8, 60))
    room = max(0.02 * (x[-1] - x[0]), 1e-3 * abs(x[-1]), 1e-9)
    low, high = (x[0] * 0.9, x[-1] * 1.1) if wide else (x[0] - room, x[-1] + room)
    edges = np.geomspace(low, high, count + 1) if wide else np.linspace(low, high, count + 1)
    upper.hist(x, bins=edges, color=COLOURS["inference"], alpha=0.75, edgecolor="white", linewidth=0.4)
    upper.set_ylabel("inferences")
    upper.yaxis.get_major_locator().set_params(integer=True)
    upper.set_title(f"execution time per inference, n = {len(x)}")
    at = np.unique(np.linspace(0, len(x) - 1, min(len(x), 500)).astype(int))
    lower.step(x[at], (at + 1) / len(x), where="post", color=TRACE, linewidth=1.2)
    lower.set(ylim=(0, 1.04), ylabel="share at most", xlabel=unit)
    if wide:
        lower.set_xscale("log")
        lower.xaxis.set_major_formatter(lambda v, _: f"{v:g}")
    _percentiles((upper, lower), quantities, factor)
    return figure


def _percentiles(axes: tuple[Any, Any], quantities: Mapping[str, Quantity], factor: float) -> None:
    styles = (("mean", "_", "-"), ("p50", "_p50_", "--"), ("p90", "_p90_", "-."), ("p99", "_p99_", ":"))
    colours = (_INK, COLOURS["postprocess"], COLOURS["preprocess"], COLOURS["mark"])
    for (label, infix, dash), colour in zip(styles, colours, strict=True):
        q = quantities.get(f"execution_time{infix}s")
        if q is None or not np.isfinite(q.value):
            continue
        for axis in axes:
            axis.axvline(q.value * factor, color=colour, linestyle=dash, linewidth=1.3, zorder=4)
        axes[0].plot([], [], color=colour, linestyle=dash, label=f"{label}: {quantity_text(q)}")
    if axes[0].get_legend_handles_labels()[0]:
        axes[0].legend(loc="upper right")


# ---- uncertainty --------------------------------------------------------------------------


def _budget(quantities: Mapping[str, Quantity]) -> Any:
    usable = (n for n in _BUDGET_OF if n in quantities and quantities[n].u > 0)
    name = next(usable, None)
    if name is None:
        return None
    q = quantities[name]
    lines = [line for line in budget(q) if np.isfinite(line.share)]
    rows = [(clean(x.source)[:48], x.share, f"{100 * x.share:.1f} %, u = {si(x.u, q.unit, 2)}") for x in lines[:8]]
    if lines[8:]:
        rows.append((f"{len(lines) - 8} more", sum(x.share for x in lines[8:]), ""))
    if not rows:
        return None
    figure = _figure(0.9 + 0.32 * len(rows))
    axis = figure.subplots()
    margins(figure, top=0.35, left=0.3 + 0.075 * max(len(source) for source, _, _ in rows))
    y = np.arange(len(rows))[::-1]
    axis.barh(y, [100 * share for _, share, _ in rows], height=0.62, color=COLOURS["inference"], alpha=0.85)
    for place, (_, share, text) in zip(y, rows, strict=True):
        axis.text(100 * share + 0.8, place, text, va="center", color=_INK)
    axis.set_yticks(y, [source for source, _, _ in rows])
    axis.set(xlim=(0, 130), xticks=range(0, 101, 20), xlabel="share of the variance, %")
    axis.grid(visible=False, axis="y")
    bias = f"; bias bound {si(q.bias, q.unit, 2)}, outside the variance" if q.bias else ""
    axis.set_title(f"{title(name)}: {quantity_text(q)}{bias}")
    return figure
