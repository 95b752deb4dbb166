"""Networks on devices as a picture: accuracy against energy and against time, and energy against operations."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from reports.figures.style import HUES, LIMIT, key_beside, log_axis, panel, panel_pair, styled, svg_of
from reports.format import prefix
from reports.names import title
from reports.sweeps.axes import logarithmic
from rig.analysis.result.catalogue import entry_of
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.quantity import Quantity
from rig.sweep.tracks import Track, Tracks, front

ACCURACY = FigureKey("accuracy")
COSTS = (FigureKey("energy_per_inference_j"), FigureKey("execution_time_s"))
_SHAPES = "os^Dv<>P*X"


def front_figure(found: Tracks) -> bytes | None:
    """Return SVG of accuracy against energy and against time; None without a point.

    Each device has a colour, each network a shape. A simulated track is hollow; a track that no other beats has a ring.
    A cost without tracks has no panel.
    """
    points = [t for t in found.tracks if ACCURACY in t.figures and any(key in t.figures for key in COSTS)]
    if not points:
        return None
    with styled():
        costs = [key for key in COSTS if any(key in t.figures for t in points)]
        figure, *axes = panel_pair(0.12, sharey=True) if len(costs) > 1 else panel()
        best = front(found.tracks)
        for axis, key in zip(axes, costs, strict=True):
            _costs(axis, [t for t in points if key in t.figures], key, found, best)
        axes[0].set_ylabel("accuracy (%)")
        _colours(axes[0], found, {t.device for t in points})
        networks = {t.network for t in points}
        for k, name in enumerate(found.networks):
            if len(networks) > 1 and name in networks:
                axes[0].plot([], [], linestyle="none", markersize=5, label=short(name), **_shape(k))
        _hollow(axes[0], points)
        if best:
            axes[0].plot([], [], "o", color=LIMIT, mfc="none", markersize=10, label="ring: on the front")
        key_beside(figure, axes)
        return svg_of(figure, "tracks", {t.simulated for t in points})


def line_figure(found: Tracks) -> bytes | None:
    """Return SVG of an execution's dynamic energy against its operations, with each line that was fitted, or None."""
    points = {device: of for device, of in found.points.items() if len(of) > 1}
    if not points:
        return None
    factor, unit = prefix(max(abs(p.dynamic.value) for of in points.values() for p in of), "J")
    with styled():
        figure, axis = panel()
        hollow = {t.device for t in found.tracks if t.simulated}
        for device, of in points.items():
            colour = HUES[found.devices.index(device) % len(HUES)]
            x, y = [p.operations for p in of], [p.dynamic.value * factor for p in of]
            half = [p.dynamic.half_width() * factor for p in of]
            filled = {"mfc": "white"} if device in hollow else {}
            axis.errorbar(x, y, yerr=half, fmt="o", color=colour, ms=4.2, elinewidth=1.0, capsize=2, **filled)
            line = found.lines[device]
            if line.per_operation is not None and line.per_execution is not None:
                ends = [0.0, max(x)]
                values = [factor * (line.per_execution.value + line.per_operation.value * at) for at in ends]
                axis.plot(ends, values, color=colour, linewidth=1.1)
        axis.set(xlabel="effective operations in an execution", ylabel=f"dynamic energy, last phase ({unit})")
        axis.set_xlim(left=0.0)
        _colours(axis, found, set(points))
        _hollow(axis, [t for t in found.tracks if t.device in points])
        key_beside(figure, [axis])
        return svg_of(figure, "energy", {t.simulated for t in found.tracks if t.device in points})


def _colours(axis: Any, found: Tracks, shown: Set[str]) -> None:
    for k, name in enumerate(found.devices):
        if name in shown:
            axis.plot([], [], "o", markersize=5, color=HUES[k % len(HUES)], label=short(name))


def _hollow(axis: Any, shown: Sequence[Track]) -> None:
    if any(t.simulated for t in shown):
        axis.plot([], [], "o", color="#666666", mfc="none", markersize=5, label="hollow: SIMULATED")


def short(name: str) -> str:
    """Return the short name of a device or network, without its folder and its file's function."""
    return name.rpartition("/")[2]


def _costs(axis: Any, shown: Sequence[Track], key: FigureKey, found: Tracks, best: Sequence[Track]) -> None:
    factor, unit = prefix(max(t.figures[key].value for t in shown), entry_of(key).unit)
    for t in shown:
        colour = HUES[found.devices.index(t.device) % len(HUES)]
        x, y = _ends(t.figures[key], factor), _ends(t.figures[ACCURACY], 100.0)
        mark = _shape(found.networks.index(t.network)) | {"color": colour}
        hollow = {"mfc": "white"} if t.simulated else {}
        axis.errorbar(x[0], y[0], xerr=x[1], yerr=y[1], ms=5, elinewidth=0.9, capsize=2, zorder=3, **mark, **hollow)
        if t in best:
            axis.plot(x[0], y[0], "o", ms=10, mfc="none", color=LIMIT, zorder=2)
    if logarithmic([t.figures[key].value for t in shown]):
        log_axis(axis.xaxis, axis.set_xscale)
    else:
        axis.locator_params(axis="x", nbins=3)  # labels of many digits overlap
    axis.set_xlabel(f"{title(key)} ({unit})")


def _ends(q: Quantity, factor: float) -> tuple[float, list[list[float]]]:
    low, high = q.interval() if q.stated else (q.value, q.value)
    return q.value * factor, [[max(q.value - low, 0.0) * factor], [max(high - q.value, 0.0) * factor]]


def _shape(k: int) -> dict[str, Any]:
    return {"marker": _SHAPES[k % len(_SHAPES)], "color": "#666666"}
