"""The highest rate that a search found: which probes held their rates, and which higher rates failed."""

from __future__ import annotations

from collections.abc import Sequence

from rig.analysis.result.figure_key import FigureKey, Figures
from rig.analysis.result.quantity import Quantity
from rig.analysis.result.result import Result
from rig.analysis.result.series import RateProbe
from rig.analysis.sessions.part import Part

RATE = "arrival_hz"
"""The option of a scenario that a search for the highest rate varies."""
_NOT_OF_RATE = "device and meters"


def failed_rules(result: Result) -> list[str]:
    """Return the rules that a probe fails, except rules on simulation and meters, which do not concern its rate."""
    return [c.rule for c in (result.validity.checks if result.validity else ()) if not c.ok and c.rule != _NOT_OF_RATE]


def rate_probes(parts: Sequence[Part]) -> tuple[RateProbe, ...]:
    """Return the probes of a search for the highest rate, in order; none for a session without such a search."""
    probes = [part for part in parts if part.purpose == "probe" and RATE in part.run.start.scenario.options]
    return tuple(_probe(part.result) for part in probes)


def _probe(result: Result) -> RateProbe:
    rules = result.start.rules
    share = 0.0 if rules is None or rules.percentile is None else rules.percentile
    latency = result.quantities.get(FigureKey("latency_p{percentile}_s", percentile=100.0 * share))
    return RateProbe(float(result.start.scenario.options[RATE]), not failed_rules(result), latency)


def peak_rate(probes: Sequence[RateProbe]) -> Figures:
    """Return the highest rate that held; its bias bound reaches to the lowest rate above it that failed."""
    held = max((p.rate_hz for p in probes if p.held), default=None)
    if held is None:
        return Figures()
    above = min((p.rate_hz for p in probes if not p.held and p.rate_hz > held), default=held)
    method = "highest rate of the search that kept every rule, for this draw of arrivals; the next higher one broke one"
    return Figures({FigureKey("peak_rate_hz"): Quantity(held, "Hz", (), above - held, len(probes), method)})
