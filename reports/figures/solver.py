"""Solves as a picture: the gap to the target over time, and the share of solves that reached each gap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from reports.figures.style import COLOURS, INK, LIMIT, MUTED, PAIR_IN, TRACE, Floats, key_beside, log_axis, panel_pair
from reports.format import prefix
from rig.analysis.result.quantity import Quantity
from rig.analysis.result.series import Solve
from rig.analysis.solving.gap import THRESHOLDS
from rig.analysis.solving.targets import by_preference
from rig.terminal import clean

_LINES = 40  # at most this many solves are drawn one by one; more are drawn as a band
_MARKS = 600
_MOMENTS = 300
_ROOM = 1.5
_DASHES = (("-", COLOURS["inference"]), ((0, (5, 2)), COLOURS["postprocess"]), ((0, (1, 1.5)), COLOURS["mark"]))
Path = tuple[Floats, Floats]


def solver_figure(solves: Sequence[Solve], runtime_w: Quantity | None = None) -> Any:
    """Draw the best gap so far over the time of each solve, and the share at each threshold; None without data.

    With ``runtime_w``, a second axis shows energy: this power times the time, as in the figures.
    """
    target, own = _target(solves)
    paths = [_path(s, s.targets[target]) for s in own]
    paths = [(t, g) for t, g in paths if len(t)]
    if not paths:
        return None
    times = np.concatenate([t for t, _ in paths])
    last = max(float(times.max()), 1e-9)
    first = float(np.min(times[times >= 1e-6 * last], initial=last))  # the first claim may come with the graph, at 0
    factor, unit = prefix(math.sqrt(first * last), "s")
    paths = [(np.maximum(t, first / _ROOM), g) for t, g in paths]
    figure, left, right = panel_pair(0.22)
    _closing(left, paths, factor)
    _reached(right, paths, last, factor)
    left.set_title(f"gap to the {clean(target).replace('_', ' ')} target, n = {len(paths)}")
    right.set_title("share of solves as close")
    for axis in (left, right):
        if last > 10.0 * first:
            log_axis(axis.xaxis, axis.set_xscale)
            axis.xaxis.get_major_locator().set_params(numticks=6)
            axis.set_xlim(first * factor / _ROOM, last * factor * _ROOM)
        else:
            axis.set_xlim(0.0, 1.05 * last * factor)
        axis.set_xlabel(f"time of the solve, {unit}")
        if runtime_w is not None and runtime_w.value > 0:
            _energy_axis(axis, runtime_w.value / factor, math.sqrt(first * last) * runtime_w.value)
            figure.subplots_adjust(top=1 - 0.72 / PAIR_IN)
    key_beside(figure, (left, right))
    return figure


def _energy_axis(axis: Any, watts: float, about_j: float) -> None:
    """Add an axis of energy above the panel: ``watts`` times the axis of time."""
    factor, unit = prefix(about_j, "J")
    above = axis.secondary_xaxis("top", functions=(lambda t: t * watts * factor, lambda e: e / (watts * factor)))
    above.set_xlabel(f"energy of the solve, {unit}")
    above.xaxis.set_major_formatter(lambda v, _: f"{v:g}")
    above.xaxis.set_minor_formatter(lambda v, _: "")


def _target(solves: Sequence[Solve]) -> tuple[str, list[Solve]]:
    """Return the target that most solves have (of several, the preferred one), and its solves."""
    names = [name for s in solves for name, cost in s.targets.items() if cost]
    target = max(by_preference(names), key=names.count, default="")
    return target, [s for s in solves if s.targets.get(target)]


def _path(solve: Solve, target: float) -> Path:
    """Return times (s) and the best gap claimed by then, each of shape (k,); the last is of the returned solution."""
    order = np.argsort(solve.at_s, kind="stable")
    times = np.append(solve.at_s[order], solve.seconds)
    costs = np.append(solve.cost_at[order], solve.cost if np.isfinite(solve.cost) else solve.claimed)
    known = np.isfinite(times) & np.isfinite(costs)
    gaps = (np.minimum.accumulate(costs[known]) - target) / abs(target) if np.any(known) else costs[known]
    return np.maximum(times[known], 0.0), gaps


def _closing(axis: Any, paths: Sequence[Path], factor: float) -> None:
    axis.set_yscale("symlog", linthresh=THRESHOLDS[-1], linscale=0.6)
    if len(paths) <= _LINES:
        for k, (t, g) in enumerate(paths):
            at = _few(len(t))
            label = "a solve" if k == 0 else None
            axis.step(t[at] * factor, g[at], where="post", color=TRACE, alpha=0.45, linewidth=0.9, label=label)
    else:
        grid = np.geomspace(min(float(t[0]) for t, _ in paths), max(float(t[-1]) for t, _ in paths), _MOMENTS)
        held = np.array([_held(t, g, grid) for t, g in paths])
        shape: dict[str, Any] = {"step": "post", "color": TRACE, "linewidth": 0}
        worst = np.where(np.isfinite(held), held, np.nanmax(held, initial=1.0, where=np.isfinite(held)))
        axis.fill_between(grid * factor, worst.min(axis=0), worst.max(axis=0), alpha=0.3, label="all solves", **shape)
        median = np.median(worst, axis=0)
        axis.step(grid * factor, median, where="post", color=TRACE, linewidth=1.3, label="median of solves")
    ends = np.array([(t[-1], g[-1]) for t, g in paths])[_few(len(paths))]
    given = {"linestyle": "", "marker": "o", "ms": 4.0, "mfc": "white", "mec": INK, "mew": 0.9, "zorder": 4}
    axis.plot(ends[:, 0] * factor, ends[:, 1], label="solution given", **given)
    for threshold in THRESHOLDS:
        axis.axhline(threshold, color=LIMIT, linewidth=0.8, linestyle=(0, (4, 2)), zorder=1.5)
    axis.axhline(0.0, color=MUTED, linewidth=0.8, zorder=1.5)
    top = max(float(g.max()) for _, g in paths)
    low = min(float(g.min()) for _, g in paths)
    ticks = [0.0, *THRESHOLDS, 0.5, 1.0, 10.0, 100.0]
    ticks = [v for v in [-1.0, -0.1, *ticks] if 1.3 * min(low, 0.0) <= v <= 1.3 * max(top, 0.15)]
    axis.set_yticks(ticks, [f"{100 * v:g} %" for v in ticks])
    axis.set_yticks([], minor=True)
    axis.set_ylim(1.3 * low if low < 0 else -0.002, 1.3 * max(top, 0.15))


def _reached(axis: Any, paths: Sequence[Path], last: float, factor: float) -> None:
    for threshold, (dash, colour) in zip(THRESHOLDS, _DASHES, strict=True):
        when = np.array([t[g <= threshold][0] if np.any(g <= threshold) else np.inf for t, g in paths])
        when = np.sort(when[np.isfinite(when)])
        label = f"gap of {100 * threshold:g} %: {len(when)} of {len(paths)}"
        share = 100.0 * np.arange(1, len(when) + 1) / len(paths)
        at = _few(len(when))
        x = np.concatenate([when[:1], when[at], [last]]) if len(when) else np.array([])
        y = np.concatenate([[0.0], share[at], share[-1:]]) if len(when) else np.array([])
        axis.step(x * factor, y, where="post", color=colour, linestyle=dash, linewidth=1.5, label=label)
    axis.set_ylim(0, 104)
    axis.set_yticks(range(0, 101, 25), [f"{v} %" for v in range(0, 101, 25)])


def _held(t: Floats, g: Floats, grid: Floats) -> Floats:
    """Return the best gap at each moment of ``grid``; inf before the first claim."""
    at = np.searchsorted(t, grid, side="right") - 1
    return np.where(at >= 0, g[np.maximum(at, 0)], np.inf)


def _few(n: int) -> Any:
    return np.unique(np.linspace(0, n - 1, min(n, _MARKS)).astype(int)) if n else np.array([], dtype=int)
