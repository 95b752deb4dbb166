"""Compute energy per inference, from power and time or from phases measured one at a time, and average power.

A span is a time in which the device works, by its stamps.
"""

from collections.abc import Sequence

import numpy as np

from rig.analysis.power.estimators import Margin, touched, whole
from rig.analysis.power.figures import no_more_certain
from rig.analysis.power.model.rail_model import RailModel
from rig.analysis.power.uncertainty_budget import METHOD, powers
from rig.analysis.result.quantity import LITERAL, TRIMMED, FigureKey, Figures, Quantity, linear, product
from rig.analysis.timing.counted_spans import LEARNING, Activity
from rig.analysis.timing.execution_time import BusyTime

LEARNT = {
    "execution_time_s": "learning_time_per_class_s",
    "energy_per_inference_j": "learning_energy_per_class_j",
    "dynamic_energy_per_inference_j": "learning_dynamic_energy_per_class_j",
}
AVERAGE = "mean from the first request to the last completion, or to the end of the last stride of a stream"


def energy_figures(
    times: Figures, powers: Figures, rails: Sequence[str], phases: Sequence[str], per_phase: bool
) -> Figures:
    """Return energy per inference, as active power times mean execution time (NeuroBench, ASC) and by integration.

    If phases were measured one at a time (``per_phase``), their totals are among the figures.
    """
    out = Figures()
    for phase in ("", *phases):
        if (time_s := _busy_time(times, phase)) is not None:
            for rail in ("", *rails):
                out |= _of_scope(powers, time_s, phase, rail)
    if not per_phase:
        return out
    return out | _per_phase_totals(times, out, phases, "") | _per_phase_totals(times, out, phases, LITERAL)


def _busy_time(times: Figures, phase: str) -> Quantity | None:
    """Return the busy time per inference of one or all phases: the execution time, unless samples overlapped."""
    own = times.get(FigureKey("busy_time_per_inference_s", phase))
    return own or times.get(FigureKey("execution_time_s", phase))


def _of_scope(powers: Figures, time_s: Quantity, phase: str, rail: str) -> Figures:
    """Return energies of one phase and rail by each method: main, mean over the spans, and trimmed windows."""
    out = Figures()
    for method, words in (("", ""), (LITERAL, ""), (TRIMMED, "trimmed windows")):
        active, dynamic = (
            powers.get(FigureKey(quantity, phase, rail, method)) for quantity in ("active_power_w", "dynamic_power_w")
        )
        if active is None or dynamic is None:
            continue
        told = f"active power ({words or active.method}) x mean execution time"
        out |= {FigureKey("energy_per_inference_j", phase, rail, method): product(active, time_s, "J", told)}
        if method != TRIMMED:
            above = product(dynamic, time_s, "J", dynamic.method)
            out |= {FigureKey("dynamic_energy_per_inference_j", phase, rail, method): above}
        if not method and dynamic.method == METHOD:
            integral = product(active, time_s, "J", "energy of whole spans, with idle under them")
            out |= {FigureKey("energy_per_inference_integrated_j", phase, rail): integral}
    return out


def with_learning(figures: Figures) -> Figures:
    """Return the figures, and add time and energy to learn a class: one execution of the phase ``learning``.

    Quantities of ``learning``, except idle power, have no figure over all phases, because no sample runs all phases.
    """
    own = {key.quantity for key in figures if key.phase == LEARNING}
    known = {FigureKey(name): figures.get(FigureKey(of, LEARNING)) for of, name in LEARNT.items()}
    apart = {key: q for key, q in figures.items() if key.phase or key.quantity not in own - {"idle_power_w"}}
    return Figures({**apart, **{key: q for key, q in known.items() if q is not None}})


def _per_phase_totals(times: Figures, energies: Figures, phases: Sequence[str], by: str) -> Figures:
    """Return totals of phases that were measured one at a time.

    Energies are added. Power is total energy over total time.
    """
    active, dynamic = (
        [energies.get(FigureKey(quantity, phase, method=by)) for phase in phases]
        for quantity in ("energy_per_inference_j", "dynamic_energy_per_inference_j")
    )
    spent_s = sum(q.value for phase in phases if (q := _busy_time(times, phase)) is not None)
    if any(q is None for q in (*active, *dynamic)):
        return Figures()
    total, above = (
        linear([(1.0, q) for q in parts if q is not None], "J", "sum of phases measured one at a time")
        for parts in (active, dynamic)
    )
    method = "energy of phases measured one at a time over their time"
    return Figures({
        FigureKey("energy_per_inference_j", method=by): total,
        FigureKey("dynamic_energy_per_inference_j", method=by): above,
        FigureKey("active_power_w", method=by): total.scaled(1.0 / spent_s, "W", method),
        FigureKey("dynamic_power_w", method=by): above.scaled(1.0 / spent_s, "W", method),
    })  # fmt: skip


def average_figures(
    models: Sequence[RailModel],
    together: RailModel | None,
    activity: Activity,
    window_s: tuple[float, float],
    samples: int,
) -> Figures:
    """Return the average power of each rail and of all rails over ``window_s`` in run seconds, and energy per sample.

    ``together`` is the model of the sum of the readings of all rails; its rail has no name.
    There is no figure if the trace of a rail does not cover the window, if warm-up or other activity reaches into it
    from outside, or if the window is shorter than two periods of the readings.
    """
    on_s, off_s = window_s
    if not (off_s > on_s and samples and models):
        return Figures()
    window = np.array([[on_s, off_s]])
    busy = BusyTime(off_s - on_s, {}, samples)
    excluded_s = activity.excluded_s()
    other_s = excluded_s[(excluded_s[:, 0] < on_s) | (excluded_s[:, 1] > off_s)]
    rails = Figures()
    for model in (*models, *([] if together is None else [together])):
        idle = model.trace.idle_under(window)
        of = touched(model, window, other_s, idle)
        if of is None or off_s - on_s < 2.0 * model.readings.period_s:
            return Figures()
        e = whole(model, of, idle)
        (average,) = powers(model, e, "active_power_w", busy, {"": (AVERAGE, Margin())}).values()
        rails |= {FigureKey("average_power_w", rail=model.rail.name): average}
    of_sum = rails.get(FigureKey("average_power_w"))
    total = no_more_certain(linear([(1.0, q) for key, q in rails.items() if key.rail], "W", AVERAGE), of_sum)
    per_sample = total.scaled((off_s - on_s) / samples, "J", "average power x duration over samples completed")
    return rails | {FigureKey("average_power_w"): total, FigureKey("average_energy_per_sample_j"): per_sample}
