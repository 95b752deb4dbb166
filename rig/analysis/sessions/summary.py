"""Combine the runs of a session into one result: figures by purpose, means of trials, and rules over several runs.

Times come from the performance runs, accuracy from the accuracy run, power from the power runs.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from rig.analysis.power.energy import energy_figures
from rig.analysis.result.figure_catalogue import entry_of
from rig.analysis.result.finding import Finding, note
from rig.analysis.result.order_statistics import UNBOUND
from rig.analysis.result.quantity import PEER, Component, FigureKey, Figures, Quantity, coverage_factor, linear, widened
from rig.analysis.result.result import Result
from rig.analysis.sessions.part import Part
from rig.analysis.sessions.rate_probes import peak_rate, rate_probes
from rig.analysis.sessions.rules import ACCURACY, by_purpose, session_checks, trial_checks, trial_figures
from rig.analysis.sessions.speed import APART, other_speed
from rig.analysis.verdict.rule_checks import is_known
from rig.recording.events import changed
from rig.recording.session_json import SizeProbe
from rig.types import Floats

SCORES = (
    ACCURACY, "balanced_accuracy", "session_accuracy", "session_accuracy_old", "session_accuracy_new",
    "session_accuracy_mean", "map", "r2", "smape_mean", "smape_p{percentile}",
)  # fmt: skip
ROUNDING = 1e-12
"""Trials that differ by less than this part differ only by the rounding of their arithmetic."""
SAMPLES = "samples"
"""The origin of the uncertainty of a finite sample, which all trials share."""
SCATTER = "scatter of trials"
INTEGRATED = "energy_per_inference_integrated_j"
_EXECUTION_TIMES = (
    "execution_time_s", "execution_time_se_s", "execution_time_p{percentile}_s", "busy_time_per_inference_s",
)  # fmt: skip


def summarise(name: str, parts: Sequence[Part], probes: Sequence[SizeProbe] = ()) -> Result | None:
    """Return the result of a session, or None if there is none.

    For a search over problem sizes, it is the result of the largest size that was solved.
    """
    by = by_purpose(parts)
    lead = next((by[p][0] for p in ("power", "performance", "accuracy") if by[p]), None)
    if lead is None:
        return _searched(name, parts, probes)
    by = by_purpose([part for part in parts if part.configuration == lead.configuration])
    figures = _figures(by) | peak_rate(parts)
    ruling, rules, checks = lead.result.ruling, lead.run.start.rules, tuple[Finding, ...]()
    if ruling is not None and rules is not None:
        checks = session_checks(parts, by, rules, figures)
        ruling = ruling._replace(submittable=rules.submittable and is_known(rules))
    about = ["A session of " + ", ".join(f"{part.name} ({part.purpose})" for part in parts)]
    if seconds := _sequence_s(by):
        count = len(by["power"][0].run.samples)
        about.append(
            f"Power and execution time are of sequences of {seconds:g} s ({count} in each power run), per inference, "
            "so that work at the ends of a sequence is divided among its inferences. Accuracy, latency and the "
            "execution time of a single sample are of single samples"
        )
        if count == 1:
            about.append("One sequence does not show how sequences differ. Give more samples, or shorten --amortise")
    about += [*_changed(parts), *_other_pace(by)]
    about += [text for part in by["power"] or [lead] for text in part.result.notes]
    timed = [part.result for part in by["performance"] or [lead]]
    own: dict[str, Any] = {name: getattr(timed[0].series, name) for name in ("requested_s", "latency_s")}
    own |= {"trials": trial_figures(by), "probes": tuple(probe for probe, _ in rate_probes(parts))}
    own |= {"execution_times_s": _times_s(timed)}
    # refusals of a failed probe do not concern the other runs
    results = [part.result for part in parts if part.purpose != "probe"]
    return replace(_joined(name, lead.result, results, figures, [*map(note, about), *checks], **own), ruling=ruling)


def _changed(parts: Sequence[Part]) -> list[str]:
    """Return a note on what has several versions in the runs, such as a driver corrected in between."""
    what = ", ".join(changed(part.run.start.versions for part in parts))
    said = f"The runs are of several versions of {what}. Measure anew if the change concerns the measured work"
    return [said] if what else []


def _other_pace(by: Mapping[str, list[Part]]) -> list[str]:
    """Return a note if the power runs, which give average power, have another throughput than the performance runs."""
    key = FigureKey("throughput_samples_hz")
    each = (over_trials([part.result.quantities for part in by[purpose]]) for purpose in ("power", "performance"))
    own, stated = (figures.get(key) for figures in each)
    if own is None or stated is None or _sequence_s(by) or abs(own.value - stated.value) <= APART * stated.value:
        return []
    what = f"The power runs answered {own.value:.4g} samples a second, and the performance runs {stated.value:.4g}"
    return [f"{what}. Average power and energy per sample include pauses of the power runs: measure on an idle host"]


def together(name: str, sessions: Sequence[tuple[str, Sequence[Part], Result]]) -> Result:
    """Return one result for several sessions of one configuration, which count as trials.

    ``sessions`` holds the name, the runs and the result of each. Figures are means over the sessions. Rules about
    trials apply to the runs of all sessions together. Series are from the first session, except execution times, which
    are from all.
    """
    results = [result for _, _, result in sessions]
    first = results[0]
    if len(sessions) == 1:
        return first
    trials = [result.quantities for result in results]
    rules, by = first.start.rules, by_purpose([part for _, parts, _ in sessions for part in parts])
    checks = [check for session in sessions for check in _checks_of(*session)]
    if first.ruling is not None and rules is not None:
        over_all = trial_checks(by, rules)
        checks = [check for check in checks if check.rule.partition(": ")[2] not in {check.rule for check in over_all}]
        checks += over_all
    about = f"The mean of {len(sessions)} sessions: {', '.join(session for session, _, _ in sessions)}"
    mixed = _changed([part for _, parts, _ in sessions for part in parts])
    notes = dict.fromkeys([about, *mixed, *(text for result in results for text in result.notes)])
    own = {"trials": trial_figures(by), "execution_times_s": _times_s(results)}
    return _joined(name, first, results, Figures(over_trials(trials)), [*map(note, notes), *checks], **own)


def _times_s(results: Sequence[Result]) -> Floats:
    return np.concatenate([result.series.execution_times_s for result in results])


def _joined(
    name: str, first: Result, results: Sequence[Result], figures: Figures, told: Sequence[Finding], **series: Any
) -> Result:
    """Return the first result with the combined figures, more findings and series, and each refusal once."""
    return replace(
        first,
        run_id=name,
        complete=all(result.complete for result in results),
        simulated=any(result.simulated for result in results),
        quantities=figures,
        findings=(*told, *dict.fromkeys(f for result in results for f in result.refusals)),
        series=replace(first.series, **series),
    )


def _checks_of(session: str, parts: Sequence[Part], result: Result) -> Iterator[Finding]:
    """Yield the checks of one of several sessions, with its name before them; a run is named ``session.run``."""
    runs = tuple(f"{part.name}: " for part in parts)
    for check in () if result.validity is None else result.validity.checks:
        yield replace(check, rule=f"{session}{'.' if check.rule.startswith(runs) else ': '}{check.rule}", told=False)


def _searched(name: str, parts: Sequence[Part], probes: Sequence[SizeProbe]) -> Result | None:
    """Return the result of the largest size for which a solution better than cost 0 was found, or None without one."""
    solved = [(part, part.run.start.workload.nodes or 0) for part in parts if _solved(part)]
    if not probes or not solved:
        return None
    part, nodes = max(solved, key=lambda pair: pair[1])
    failed = [t for t in probes if not t.held and t.nodes > nodes]
    method = "the largest size for which a solution better than cost 0 was found"
    more = min(failed, key=lambda t: t.nodes, default=None)
    ended = f"{more.nodes} nodes failed: {more.found}" if more else "The search was ended before a size failed"
    figures = {FigureKey("largest_nodes"): Quantity(float(nodes), "1", (), 0.0, len(probes), method)}
    own = (FigureKey("cost_best"), FigureKey("overrun_max_s"), FigureKey("execution_time_s"))
    figures |= {key: part.result.quantities[key] for key in own if key in part.result.quantities}
    about = f"A search over {', '.join(str(t.nodes) for t in probes)} nodes"
    notes = tuple(map(note, (about, ended, *part.result.notes)))
    return replace(part.result, run_id=name, quantities=Figures(figures), findings=notes, ruling=None)


def _solved(part: Part) -> bool:
    best = part.result.quantities.get(FigureKey("cost_best"))
    return part.purpose == "probe" and best is not None and best.value < 0


def _figures(by: Mapping[str, list[Part]]) -> Figures:
    times = over_trials([p.result.quantities for p in by["performance"]])
    power = over_trials([p.result.quantities for p in by["power"]])
    scores = {k: q for p in by["accuracy"] for k, q in p.result.quantities.items() if k.quantity in SCORES}
    if by["accuracy"]:
        times = {k: q for k, q in times.items() if k.quantity not in SCORES}
    if not times:
        times = {k: q for k, q in power.items() if q.unit not in ("W", "J", "1/J")}
    own = {k: q for k, q in power.items() if q.unit in ("W", "J", "1/J") or k.method == PEER}
    amortised = _amortised(times, power) if _sequence_s(by) else {}
    if amortised:
        own.pop(FigureKey("average_energy_per_sample_j"), None)  # a sample of the power run is a sequence
    figures = Figures(times | scores | own | amortised | _complexity(by))
    return figures | _energies(by, figures, bool(amortised or not by["performance"]))


def _complexity(by: Mapping[str, list[Part]]) -> dict[FigureKey, Quantity]:
    """Return complexity over single samples: from the accuracy run, which issues them all, or else from other runs."""
    every = [part.result.quantities for part in (*by["accuracy"], *by["performance"], *by["power"])]
    found = ({k: q for k, q in figures.items() if entry_of(k).family == "complexity"} for figures in every)
    return next(filter(None, found), {})


def _sequence_s(by: Mapping[str, list[Part]]) -> float:
    """Return the length of the sequences over which power was measured, in seconds; 0 if measured on samples."""
    return (by["power"][0].run.start.scenario.amortise_s or 0.0) if by["power"] else 0.0


def _amortised(times: Mapping[FigureKey, Quantity], power: Mapping[FigureKey, Quantity]) -> dict[FigureKey, Quantity]:
    """Return execution times of the sequences, per inference; the time of a single sample has a separate name.

    The published baseline of Xylo does so: "the execution time result is divided by 10" (NeuroBench, system track
    baselines).
    """
    known = {key: q for key, q in times.items() if key.quantity == "execution_time_s"}
    single = {replace(key, quantity="execution_time_single_s"): q for key, q in known.items()}
    return single | {key: q for key, q in power.items() if key.quantity in _EXECUTION_TIMES}


def _energies(by: Mapping[str, list[Part]], figures: Figures, same_runs: bool) -> Figures:
    """Return energy by phase and in total: power times the reported time (NeuroBench, ASC).

    ``same_runs`` says that power and time are from the same runs, so that errors of the stamps cancel in the product.
    The integrated energy is from the power runs alone.
    """
    power = by["power"]
    if not power:
        return Figures()
    series = power[0].result.series
    phases, per_phase = list(series.phase_windows_s), power[0].run.start.scenario.per_phase
    if same_runs:
        times = figures
    else:
        u = other_speed(by)
        times = Figures({key: _of_other_runs(q, u) for key, q in figures.items() if q.unit == "s"})
    found = energy_figures(times, figures, [r.rail for r in series.rails], phases, per_phase and len(phases) > 1)
    if not same_runs:
        found |= _of_other_mix(found, times, phases)
    return Figures({key: q for key, q in found.items() if key in figures and key.quantity != INTEGRATED})


def _of_other_mix(energies: Figures, times: Figures, phases: Sequence[str]) -> dict[FigureKey, Quantity]:
    """Return total energies with one more component: how far each is from the sum of its phases' energies.

    In the sum, a phase is weighted by its share of the inferences. Power and time are from different runs, in which a
    phase may have taken different parts of the time. The difference is a limit (GUM 4.3.7).
    """
    out = {}
    for key, q in energies.items():
        parts = [energies.get(replace(key, phase=phase)) for phase in phases]
        if not key.phase and len(parts) > 1 and None not in parts:
            of, *n = (times[FigureKey("execution_time_s", phase)].n for phase in ("", *phases))
            apart = q.value - sum(k / of * part.value for k, part in zip(n, parts, strict=True) if part)
            mix = Component("mix of the phases", apart / math.sqrt(3.0))
            out[key] = replace(q, components=(*q.components, mix))
    return out


def _of_other_runs(q: Quantity, u: float) -> Quantity:
    """Return a time from other runs than the power runs; its stamp errors are then independent of the watts.

    ``u`` is its relative standard uncertainty because the power runs may have been slower or quicker.
    """
    of_stamps = ("stamps:", "ticks:")
    parts = (replace(c, shared=None) if (c.shared or "").startswith(of_stamps) else c for c in q.components)
    speed = [Component("speed of the power runs", u * q.value, shared="speed")] if u else []
    return replace(q, components=(*parts, *speed))


def over_trials(trials: Sequence[Figures]) -> dict[FigureKey, Quantity]:
    """Return the mean (``_mean``) or the extreme (``_extreme``) over trials of each figure that every trial has."""
    if len(trials) < 2:
        return dict(trials[0]) if trials else {}
    common = [key for key in trials[0] if all(key in t for t in trials)]
    return {key: _extreme(key, [t[key] for t in trials]) or _mean([t[key] for t in trials]) for key in common}


def _extreme(key: FigureKey, values: Sequence[Quantity]) -> Quantity | None:
    """Return the extreme over trials of a figure that is a largest or best value of its run; None for other figures."""
    words = key.quantity.split("_")
    of = max if "max" in words else min if "best" in words else None
    if of is None:
        return None
    chosen = of(values, key=lambda q: q.value)
    return replace(chosen, method=f"{chosen.method}; of {len(values)} trials")


def _mean(values: Sequence[Quantity]) -> Quantity:
    """Return the mean of trials, with an interval no narrower than Student's t of their scatter, rounding aside.

    Errors of single trials are part of this scatter; only its excess over them is added. The scatter counts as a normal
    error, widened to the interval of Student's t, because with two or three trials the effective degrees of freedom of
    a sum are too large. Errors that trials share, such as an error of calibration, cause no scatter. Trials repeat the
    same samples, so the uncertainty of a finite sample does not shrink with their number. A share of counts gets the
    mean of the trials' limits. A percentile gets this mean, widened by the scatter. If one trial has too few times to
    bound a percentile, the mean has no uncertainty.
    """
    n, each = len(values), [q.value for q in values]
    unbound = next((q.method for q in values if q.method.startswith(UNBOUND)), None)
    same = [(1.0 / n, _of_same_samples(q)) for q in values]
    mean = linear(same, values[0].unit, f"{unbound or values[0].method}; mean of {n} trials")
    mean = replace(mean, positive=values[0].positive)
    if unbound:
        return replace(mean, components=(), bias=0.0)
    dust = np.ptp(each) <= ROUNDING * max(map(abs, each))
    wider = coverage_factor(n - 1) / coverage_factor(math.inf)
    scatter = 0.0 if dust else wider * float(np.std(each, ddof=1)) / math.sqrt(n)
    apart = replace(mean, components=tuple(c for c in mean.components if c.shared is None))
    more = math.sqrt(max(scatter**2 - apart.u**2, 0.0))
    parts = (*mean.components, Component(SCATTER, more)) if more else mean.components
    if not all(q.limits for q in values):
        return replace(mean, components=parts)
    low, high = (sum(side) / n for side in zip(*(q.limits for q in values if q.limits), strict=True))
    if mean.positive:
        return replace(mean, components=parts, limits=widened(mean.value, (low, high), scatter))
    return replace(mean, limits=(low, high))


def _of_same_samples(q: Quantity) -> Quantity:
    parts = (replace(c, shared=SAMPLES) if c.source == "finite sample" else c for c in q.components)
    return replace(q, components=tuple(parts))
