"""A search for the highest rate as a picture: the latency at each rate that was tried."""

from __future__ import annotations

from typing import Any

import numpy as np

from reports.figures.style import LIMIT, TRACE, margins, new_figure
from reports.format import prefix
from reports.names import title
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.result import Result

_HEIGHT_IN = 2.6


def peak_figure(result: Result) -> Any:
    """Draw latency against rate, with failed rates and the bound; None without a search."""
    probes = sorted((p for p in result.series.probes if p.latency is not None), key=lambda p: p.rate_hz)
    rules, bound_s = result.start.rules, result.start.scenario.latency_bound_s
    if not probes or rules is None or rules.percentile is None:
        return None
    rates, latencies = [p.rate_hz for p in probes], [p.latency for p in probes if p.latency is not None]
    factor, unit = prefix(max(q.value for q in latencies), "s")
    figure = new_figure(_HEIGHT_IN)
    axis = figure.subplots()
    values = [q.value * factor for q in latencies]
    axis.plot(rates, values, color=TRACE, linewidth=0.9, zorder=2)
    for held, mark, colour, label in ((True, "o", TRACE, "keeps every rule"), (False, "x", LIMIT, "breaks one")):
        chosen = [k for k, p in enumerate(probes) if p.held is held]
        x, y = [rates[k] for k in chosen], [values[k] for k in chosen]
        limits = np.reshape([latencies[k].interval() for k in chosen], (-1, 2)).T
        ends = np.abs(factor * limits - y)
        axis.errorbar(x, y, yerr=ends, fmt=mark, color=colour, ms=4, elinewidth=0.9, zorder=3, label=label)
    if isinstance(bound_s, float) and bound_s > 0:
        axis.axhline(bound_s * factor, color=LIMIT, linestyle=(0, (6, 2)), linewidth=1.2, label="bound")
    axis.set_ylim(bottom=0.0)
    axis.set_xlabel("samples per second, mean")
    axis.set_ylabel(unit)
    axis.set_title(f"{title(FigureKey('latency_p{percentile}_s', percentile=100 * rules.percentile))}, by rate")
    axis.legend(loc="upper left", fontsize=8)
    margins(figure, 0.35)
    return figure
