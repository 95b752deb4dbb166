"""Measure pre-processing separately: as phases, or as the power of a front end that listens all the time.

NeuroBench, system track, ASC: "Execution time and energy of pre-processing must be included in benchmark measurement,
and will be reported separately from inference". An analog front end is measured as "the analog hardware running in
real-time".
"""

from collections.abc import Sequence

from rig.analysis.result.finding import Finding, refusal
from rig.analysis.result.quantity import FigureKey, Figures, linear
from rig.recording.reader import Run
from rig.types import Preprocessing

POWER = FigureKey("preprocessing_power_w")
ENERGY = FigureKey("preprocessing_energy_per_inference_j")
ALLOWED = "phases, rails of a front end that listens, or none and why"


def front_end_figures(run: Run, powers: Figures) -> tuple[Figures, tuple[Finding, ...]]:
    """Return power and energy per inference of a front end that listens all the time, and refusals.

    The power of the front end is the idle power of its rails, because it also listens while the device is at rest. Its
    energy per inference is this power times the duration of the input for one inference.
    """
    rails = (run.start.device.preprocessing or Preprocessing()).rails
    if not (rails and run.traces):
        return Figures(), ()
    known = {rail: powers.get(FigureKey("idle_power_w", rail=rail)) for rail in rails}
    if missing := [rail for rail, q in known.items() if q is None]:
        reason = f"the front end listens all the time, and no meter measured its own rails: {', '.join(missing)}"
        return Figures(), (refusal(POWER, reason, "Measure these rails, or let the front end work in timed spans"),)
    method = "idle power of the rails of the front end, which listens all the time"
    power = linear([(1.0, q) for q in known.values() if q is not None], "W", method)
    figures = Figures({POWER: power})
    if heard_s := _heard_s(run):
        figures |= {ENERGY: power.scaled(heard_s, "J", f"power of the front end x {heard_s:g} s that it hears")}
    return figures, ()


def preprocessing_checks(run: Run, phases: Sequence[str], figures: Figures) -> tuple[Finding, ...]:
    """Return the check that pre-processing is measured separately, if the rules ask for it."""
    rules, told = run.start.rules, run.start.device.preprocessing or Preprocessing()
    if rules is None or not rules.preprocessing:
        return ()
    found = [*told.phases, *told.rails] or ([told.none] if told.none else ["not declared"])
    recorded = all(phase in phases for phase in told.phases)
    shown = POWER in figures or not (told.rails and run.traces)
    stated = bool(told.phases or told.rails or told.none)
    missing = "" if recorded and shown else ", not measured by itself"
    rule = "pre-processing, reported separately from inference"
    ok = stated and recorded and shown
    return (Finding(rule, ", ".join(found) + missing, ALLOWED, ok, by="preprocessing"),)


def _heard_s(run: Run) -> float:
    """Return the seconds of input per inference, from a stream's stride or the durations of samples; 0 if unknown."""
    if stride_s := run.start.scenario.stride_s:
        return stride_s
    lasting = run.samples["duration_s"].to_pylist()
    return sum(s or 0.0 for s in lasting) / max(sum(n or 1 for n in run.samples["inferences"].to_pylist()), 1)
