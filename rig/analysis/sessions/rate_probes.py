"""Find the highest rate of a search from its probes; a probe is a run at one rate that keeps every rule or fails."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from rig.analysis.result.quantity import Component, FigureKey, Figures, Quantity
from rig.analysis.result.result import Result
from rig.analysis.result.series import RateProbe
from rig.analysis.service.early_stopping import allowed
from rig.analysis.service.serving import DRAWS, NOT_SHOWN, drawn_s, service_times_s, waited_s
from rig.analysis.sessions.part import Part

RATE = "arrival_hz"
"""The option of a scenario that a search for the highest rate varies."""
SEED = "arrival_seed"
"""The option that names a draw of arrivals."""
PEAK = FigureKey("peak_rate_hz")
DRAWN = "arrivals:"
"""Searches with the same draw of arrivals share an error. Its origin is this prefix and the seed."""
HALVINGS, FACTOR = 10, 4.0
"""For another draw of arrivals, ``HALVINGS`` bisections find the highest rate.

They search from the recorded rate divided by ``FACTOR`` to the recorded rate times ``FACTOR``.
"""
_NOT_OF_RATE = "device and meters"


def failed_rules(result: Result) -> list[str]:
    """Return the rules that a probe fails, except rules on simulation and meters, which do not concern its rate."""
    return [c.rule for c in (result.validity.checks if result.validity else ()) if not c.ok and c.rule != _NOT_OF_RATE]


def rate_probes(parts: Sequence[Part]) -> Iterator[tuple[RateProbe, Result]]:
    """Yield the probes of a search for the highest rate, in order, and their results; none without such a search."""
    for result in (part.result for part in parts if part.purpose == "probe"):
        rules, options = result.start.rules, result.start.scenario.options
        if RATE in options:
            share = 0.0 if rules is None or rules.percentile is None else rules.percentile
            latency = result.quantities.get(FigureKey("latency_p{percentile}_s", percentile=100.0 * share))
            yield RateProbe(float(options[RATE]), not failed_rules(result), latency), result


def peak_rate(parts: Sequence[Part]) -> Figures:
    """Return the highest rate at which every rule was kept.

    The bias bound reaches up to the next higher rate that failed. If the device holds one sample at a time, the
    uncertainty is the scatter over other draws of arrivals and times of service. Other devices get no interval, because
    their recordings do not show how long each sample was served. Without a percentile, a latency bound and a seed,
    there is no interval either.
    """
    tried = list(rate_probes(parts))
    held = [(probe.rate_hz, result) for probe, result in tried if probe.held]
    if not held:
        return Figures()
    peak_hz, of = max(held, key=lambda pair: pair[0])
    above_hz = min((p.rate_hz for p, _ in tried if not p.held and p.rate_hz > peak_hz), default=peak_hz)
    method = "highest rate of the search that kept every rule, for this draw of arrivals; " + (
        "the next higher rate broke a rule" if above_hz > peak_hz else "no higher rate broke a rule"
    )
    if not (drawn := _of_draw(of, peak_hz)):
        return Figures({PEAK: Quantity(peak_hz, "Hz", (), 0.0, len(tried), f"{method}; {NOT_SHOWN}")})
    return Figures({PEAK: Quantity(peak_hz, "Hz", drawn, above_hz - peak_hz, len(tried), method)})


def _of_draw(probe: Result, rate_hz: float) -> tuple[Component, ...]:
    """Return the scatter of the highest rate over draws of arrivals, simulated with the probe's service times.

    Searches with the same seed share their arrivals but not their service times, so both are drawn. Samples are served
    one at a time and in order: a sample begins when it is due and the previous sample is answered.
    """
    rules, scenario, due_s = probe.start.rules, probe.start.scenario, probe.series.requested_s
    bound_s, seed = scenario.latency_bound_s, scenario.options.get(SEED)
    if rules is None or rules.percentile is None or bound_s is None or seed is None or not probe.start.device.holds_one:
        return ()
    p, least, lasts_s = rules.percentile, rules.min_queries or 1, scenario.duration_s or rules.min_duration_s or 0.0
    service_s = service_times_s(due_s, due_s + probe.series.latency_s)
    rng, rates = np.random.default_rng(0), []
    for k in range(2 * DRAWS):
        many = math.ceil(FACTOR * len(due_s)) + least
        if k % 2 == 0:  # each draw of arrivals is used with two draws of service times
            at = np.cumsum(rng.exponential(size=many))
        each_s = drawn_s(rng, service_s, many)
        low_hz, high_hz = rate_hz / FACTOR, rate_hz * FACTOR
        for _ in range(HALVINGS):
            middle_hz = math.sqrt(low_hz * high_hz)
            n = min(max(least, int(np.searchsorted(at, lasts_s * middle_hz)) + 1), many)
            late = np.count_nonzero(waited_s(at[:n] / middle_hz, each_s[:n]) > bound_s)
            over = allowed(n, p) if rules.early_stopping else n - math.ceil(n * p)
            low_hz, high_hz = (middle_hz, high_hz) if late <= over else (low_hz, middle_hz)
        rates.append(math.sqrt(low_hz * high_hz))
    pairs = np.reshape(rates, (DRAWS, 2))
    of_service = float(np.mean(np.diff(pairs) ** 2)) / 2.0
    of_arrivals = max(float(np.var(pairs.mean(axis=1), ddof=1)) - of_service / 2.0, 0.0)
    parts = (
        Component("another draw of times of service", math.sqrt(of_service), DRAWS),
        Component("another draw of arrivals", math.sqrt(of_arrivals), DRAWS - 1, f"{DRAWN}{seed}"),
    )
    return tuple(part for part in parts if part.u)
