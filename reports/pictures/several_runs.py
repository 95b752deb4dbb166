"""Draw what several runs show: the latency at each rate that a search tried, and each trial against the mean of all."""

from collections.abc import Mapping

import numpy as np

from reports.format import prefix, title
from reports.pictures.colour_sheet import CROSS, EDGE, LIMIT, MUTED, TRACE, WIDTH, Sheet
from rig.analysis.result.quantity import FigureKey, Quantity
from rig.analysis.result.result import Result

_HEIGHT = 120.0


def peak_figure(result: Result) -> Sheet | None:
    """Draw latency against rate, with failed rates and the bound; None without a search."""
    probes = sorted(result.series.probes, key=lambda p: p.rate_hz)
    tried = [(p.rate_hz, p.latency, p.held) for p in probes if p.latency is not None]
    rules, bound_s = result.start.rules, result.start.scenario.latency_bound_s
    if not tried or rules is None or rules.percentile is None:
        return None
    rates, latencies, held = zip(*tried, strict=True)
    factor, unit = prefix(max(q.value for q in latencies), "s")
    values, ends = (factor * np.array(x) for x in ([q.value for q in latencies], [q.interval() for q in latencies]))
    bound = bound_s * factor if isinstance(bound_s, float) and bound_s > 0 else 0.0
    most = 1.08 * max(*values, bound, ends.max(initial=0.0, where=np.isfinite(ends)))
    room = 0.03 * (rates[-1] - rates[0]) or 0.5 * rates[-1]
    x = rates[0] - room, rates[-1] + room
    name = title(FigureKey("latency_p{percentile}_s", percentile=100 * rules.percentile))
    sheet = Sheet(f"{name}, by rate, {unit}", 2.0 * WIDTH)
    across, up = sheet.panel(x, (0.0, most), _HEIGHT, "samples per second, mean")
    sheet.path(across(np.array(rates)), up(values), TRACE, 0.9)
    looks = {True: (TRACE, "keeps every rule", 0), False: (LIMIT, "breaks a rule", CROSS)}
    for rate, value, limits, kept in zip(rates, values, np.clip(ends, 0.0, most), held, strict=True):
        colour, _, shape = looks[kept]
        sheet.point(across(rate), up(value), tuple(up(limits)), colour, shape)
    key: list[tuple[str, str, int | str]] = [looks[kept] for kept in looks if kept in held]
    if bound:
        sheet.line((across(x[0]), across(x[1])), (up(bound), up(bound)), LIMIT, 1.2, "6 2")
        key.append((LIMIT, "bound", "6 2"))
    sheet.key(key)
    return sheet


def trials_figure(trials: Mapping[FigureKey, tuple[Quantity, ...]], tolerance: float | None) -> Sheet | None:
    """Draw each trial's distance from the mean of all, with its 95 % interval; None without several trials."""
    rows = {}
    for key, found in trials.items():
        if mean := float(np.mean([q.value for q in found])):
            off = np.array([q.value / mean - 1.0 for q in found])
            half = np.array([q.half_width() / abs(mean) for q in found])
            rows[key] = 100.0 * np.column_stack([off, np.where(np.isfinite(half), half, 0.0)])
    if not rows:
        return None
    allowed = 100.0 * (tolerance or 0.0)
    end = 1.08 * max(allowed, *(float(np.abs(r).sum(axis=1).max()) for r in rows.values()), 1e-9)
    sheet = Sheet("trials, with 95 % intervals")
    top, middle, unit = sheet.y, 0.5 * WIDTH, (0.5 * WIDTH - EDGE) / end
    for key, points in rows.items():
        worst = np.format_float_positional(np.abs(points[:, 0]).max(), 2, fractional=False, trim="-")
        sheet.text(EDGE, sheet.y + 11.0, f"{title(key)}: {len(points)} trials, farthest {worst} %")
        sheet.y += 16.0
        for off, half in points.tolist():
            x, sheet.y = middle + off * unit, sheet.y + 7.0
            sheet.line((x - half * unit, x + half * unit), (sheet.y, sheet.y), TRACE)
            sheet.dot(x, sheet.y, TRACE)
        sheet.y += 9.0
    for side in (-allowed, allowed) if tolerance is not None else ():
        sheet.line((middle + side * unit,) * 2, (top + 14.0, sheet.y), LIMIT, 1.2, "5 2")
    sheet.line((middle, middle), (top + 14.0, sheet.y), MUTED, 0.8)
    sheet.scale(-end, end, "from the mean of the trials, %")
    if tolerance is not None:
        sheet.note(f"dashed: the rules' {allowed:g} %")
    return sheet
