"""Draw solves: the gap to the target over time, and the share of solves that reached each gap."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from reports.format import prefix
from reports.pictures.colour_sheet import COLOURS, INK, LEFT, LIMIT, MUTED, TRACE, WIDTH, Panel, Sheet, Span
from rig.analysis.result.quantity import Quantity
from rig.analysis.result.series import Solve
from rig.analysis.solving.gap_to_target import THRESHOLDS, by_preference
from rig.terminal import clean
from rig.types import Floats, Indices

_LINES = 40  # at most this many solves are drawn one by one; more are drawn as a band
_MARKS = 600
_MOMENTS = 300
_ROOM = 1.5
_HEIGHT, _LOWER = 130.0, 90.0
_DASHES = (("", COLOURS["inference"]), ("5 2", COLOURS["postprocess"]), ("1 1.5", COLOURS["mark"]))
_GAPS = (-1.0, *(-gap for gap in THRESHOLDS), 0.0, *THRESHOLDS, 0.5, 1.0, 10.0, 100.0)
Path = tuple[Floats, Floats]
Key = list[tuple[str, str, str] | tuple[str, str, int, bool]]


def solver_figure(solves: Sequence[Solve], runtime_w: Quantity | None = None) -> Sheet | None:
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
    first = float(np.min(times[times >= 1e-6 * last], initial=last))  # the first cost may be claimed at 0 s
    about_s, log = math.sqrt(first * last), last > 10.0 * first
    factor, unit = prefix(about_s, "s")
    paths = [(factor * np.maximum(t, first / _ROOM), g) for t, g in paths]
    x = (first * factor / _ROOM, last * factor * _ROOM) if log else (0.0, 1.05 * last * factor)
    label = f"time of the solve, {unit}"
    low, high = 1.3 * min(0.0, *(g.min() for _, g in paths)), 1.3 * max(0.15, *(g.max() for _, g in paths))
    gaps = {_bent(v): f"{100 * v:g} %" for v in _GAPS if low <= v <= high}
    sheet = Sheet(f"gap to the {clean(target).replace('_', ' ')} target, n = {len(paths)}", 2.0 * WIDTH)
    ends = _bent(low or -0.002), _bent(high)
    key = _closing(sheet, sheet.panel(x, ends, _HEIGHT, label, log, marks_y=gaps), x, paths)
    sheet.note("share of solves within each gap", bold=True)
    shares = {float(v): f"{v} %" for v in range(0, 101, 25)}
    key += _reached(sheet, sheet.panel(x, (0.0, 104.0), _LOWER, label, log, marks_y=shares), paths)
    if runtime_w is not None and runtime_w.value > 0:
        scale, joules = prefix(about_s * runtime_w.value, "J")
        low_j, high_j = (at / factor * runtime_w.value * scale for at in x)
        sheet.scale(low_j, high_j, f"energy of the solve, {joules}", LEFT, log=log)
    sheet.key(key)
    return sheet


def _bent(gap: Any) -> Any:
    """Return where gaps lie on the axis, which is linear near 0 and logarithmic beyond."""
    return np.arcsinh(np.divide(gap, THRESHOLDS[-1]))


def _target(solves: Sequence[Solve]) -> tuple[str, list[Solve]]:
    """Return the target that most solves have (if several do, the preferred one), and the solves with this target."""
    names = [name for s in solves for name, cost in s.targets.items() if cost]
    target = max(by_preference(names), key=names.count, default="")
    return target, [s for s in solves if s.targets.get(target)]


def _path(solve: Solve, target: float) -> Path:
    """Return times (s) and the best gap so far, each of shape (k,); the last also counts the returned solution."""
    order = np.argsort(solve.at_s, kind="stable")
    times = np.append(solve.at_s[order], solve.seconds)
    costs = np.append(solve.cost_at[order], solve.cost if np.isfinite(solve.cost) else solve.claimed)
    known = np.isfinite(times) & np.isfinite(costs)
    gaps = (np.minimum.accumulate(costs[known]) - target) / abs(target) if np.any(known) else costs[known]
    return np.maximum(times[known], 0.0), gaps


def _closing(sheet: Sheet, panel: Panel, x: Span, paths: Sequence[Path]) -> Key:
    across, up = panel
    for level in (*THRESHOLDS, 0.0):
        colour, width, dash = (LIMIT, 0.8, "4 2") if level else (MUTED, 0.8, "")
        sheet.line((across(x[0]), across(x[1])), (up(_bent(level)),) * 2, colour, width, dash)
    if len(paths) <= _LINES:
        for t, g in paths:
            at = _few(len(t))
            sheet.steps(across(t[at]), up(_bent(g[at])), TRACE, width=0.9, opacity=0.45)
        key: Key = [(TRACE, "a solve", "")]
    else:
        grid = np.geomspace(min(float(t[0]) for t, _ in paths), max(float(t[-1]) for t, _ in paths), _MOMENTS)
        held = np.array([_held(t, g, grid) for t, g in paths])
        worst = np.where(np.isfinite(held), held, np.nanmax(held, initial=1.0, where=np.isfinite(held)))
        least, middle, most = (up(_bent(level(worst, axis=0))) for level in (np.min, np.median, np.max))
        sheet.fill(across(grid), least[:-1], most[:-1], TRACE, 0.3)
        sheet.steps(across(grid), middle, TRACE, width=1.3)
        key = [(TRACE, "median of solves; the band has all", "")]
    for t, g in [paths[k] for k in _few(len(paths))]:
        sheet.mark(across(t[-1]), up(_bent(g[-1])), INK, hollow=True, radius=3.0)
    return [*key, (INK, "solution given", 0, True)]


def _reached(sheet: Sheet, panel: Panel, paths: Sequence[Path]) -> Key:
    (across, up), key = panel, Key()
    last = max(t[-1] for t, _ in paths)
    for threshold, (dash, colour) in zip(THRESHOLDS, _DASHES, strict=True):
        when = np.array([t[g <= threshold][0] if np.any(g <= threshold) else np.inf for t, g in paths])
        when = np.sort(when[np.isfinite(when)])
        if len(when):
            at, share = _few(len(when)), 100.0 * np.arange(1, len(when) + 1) / len(paths)
            way = np.concatenate([when[:1], when[at], [last]]), np.concatenate([[0.0], share[at], share[-1:]])
            sheet.steps(across(way[0]), up(way[1]), colour, width=1.5, dash=dash)
        key.append((colour, f"gap of {100 * threshold:g} %: {len(when)} of {len(paths)}", dash))
    return key


def _held(t: Floats, g: Floats, grid: Floats) -> Floats:
    """Return the best gap at each moment of ``grid``; inf before the first claim."""
    at = np.searchsorted(t, grid, side="right") - 1
    return np.where(at >= 0, g[np.maximum(at, 0)], np.inf)


def _few(n: int) -> Indices:
    return np.unique(np.linspace(0, n - 1, min(n, _MARKS)).astype(np.int64))
