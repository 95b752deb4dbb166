"""Compute idle, active and dynamic power of each rail and of their sum, for all phases and for each phase.

A span is a time in which the device works, by its stamps, and a gap is the time between two spans.
"""

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from rig.analysis.power import estimators, notes_and_refusals as findings
from rig.analysis.power.clipped_and_missing import (
    MAX_MISSING,
    beyond_range,
    in_step_with,
    in_turn,
    missing_while_busy,
    unseen,
)
from rig.analysis.power.estimators import Estimate, Idle, Margin, Scope, TooShort
from rig.analysis.power.model.rail_model import RailModel
from rig.analysis.power.span_ends_and_idle_doubts import doubts_of_idle, ends, moved, rests_for, smoothed
from rig.analysis.power.uncertainty_budget import CORE_METHOD, IDLE_METHOD, LEVELS, METHOD, powers
from rig.analysis.result.finding import Finding, note
from rig.analysis.result.quantity import LITERAL, TRIMMED, Component, FigureKey, Figures, Quantity, linear
from rig.analysis.timing.activity_signal import merged
from rig.analysis.timing.counted_spans import Activity
from rig.analysis.timing.execution_time import BusyTime
from rig.analysis.timing.readings import Readings

ALIKE = "noise that rails have in common"
NOTED = 1e-3
"""A margin above this part of dynamic power gets a note."""


PowerFigures = tuple[Figures, tuple[Finding, ...]]
"""Figures of power, with their notes, refusals and failed checks."""


def power_figures(
    readings: Sequence[Readings],
    models: Mapping[str, RailModel],
    activity: Activity,
    busy: Mapping[str, BusyTime],
    contradictions: Mapping[str, tuple[Finding, ...]],
    together: RailModel | None,
) -> PowerFigures:
    """Return the power of every rail, and then of their sum. ``together`` is the model of the sum of their readings.

    If a rail has no model in ``models``, its power is refused. It is also refused if its readings contradict the
    recording; ``contradictions`` are the failed checks of each rail.
    """
    found = [
        (Figures(), (*findings.instrument_notes(r), findings.contradicted(r.rail.name, checks), *checks))
        if (checks := contradictions.get(r.rail.name))
        else rail_figures(r, models.get(r.rail.name), activity, busy)
        for r in readings
    ]
    figures = Figures()
    for own, _ in found:
        figures |= own
    whole = Figures()
    if together is not None and activity.phases:
        for scope in estimators.scopes_of(activity, busy):
            whole |= _scope_figures(together, scope)[0]
    sums, missing = totals(figures, [r.rail.name for r in readings], list(activity.phases), whole)
    all_rails = together or (next(iter(models.values())) if len(models) == len(readings) == 1 else None)
    last = list(activity.phases.values())[-1:]
    rests_s = rests_for(all_rails, last[0].windows_s) if all_rails is not None and last else 0.0
    late = [findings.late_stamps_note(rests_s)] if rests_s else []
    return figures | sums, (*(f for _, told in found for f in told), *missing, *late)


def rail_figures(
    readings: Readings, model: RailModel | None, activity: Activity, busy: Mapping[str, BusyTime]
) -> PowerFigures:
    """Return idle, active and dynamic power of one rail, for all phases together and for each phase."""
    name = readings.rail.name
    told = list(findings.instrument_notes(readings))
    if model is None:
        none = Finding(f"readings of rail {name} that are numbers", f"0 of {len(readings.ok)}", "at least 1", False)
        return Figures(), (*told, findings.without_idle(readings, activity), *([] if readings.ok.any() else [none]))
    if not activity.phases:
        return Figures(), tuple(told)
    told += [*findings.trace_notes(model, activity), *(scale := list(findings.gain_findings(model)))]
    figures = Figures()
    if any(f.effect == "refusal" for f in scale):
        return figures, tuple(told)
    for scope in estimators.scopes_of(activity, busy):
        own, found = _scope_figures(model, scope)
        figures |= own
        told += found
    told += findings.other_idle_notes(model, figures.get(FigureKey("dynamic_power_w", rail=name)))
    if len(activity.phases) == 1:
        (only,) = activity.phases
        figures |= Figures({replace(key, phase=only): q for key, q in figures.items() if not key.method})
    return figures, tuple(told)


def _scope_figures(model: RailModel, scope: Scope) -> PowerFigures:
    """Return the power of one rail over one scope: of whole spans, or of their cores.

    Cores are used if the idle level beside most spans cannot be read.
    """
    margin = moved(model, scope.windows_s)
    doubts = list(doubts_of_idle(model, scope.windows_s, late=margin.bias_w > 0.0))
    weight, idle_u_w = model.trace.idle_under(merged(scope.windows_s))
    idle = weight, math.hypot(idle_u_w, *(w / math.sqrt(3.0) for w, _ in doubts))
    inner = estimators.core(model, scope.windows_s, idle)
    if isinstance(inner, TooShort):
        return _fitted_figures(model, scope, inner, idle)
    of = estimators.touched(model, scope.windows_s, scope.other_s, idle)
    full = estimators.whole(model, of, idle, inner) if of is not None and of.share >= estimators.MIN_SHARE else None
    notes = [note(f"Rail {model.rail.name}: {why}. Idle is uncertain by {w:.2g} W") for w, why in doubts if why]
    notes += _told(model, scope, margin, 0.0)
    if of is not None and full is not None:
        beside = ends(model, scope.windows_s, of, full, inner)
        margin += beside
        notes += _told(model, scope, beside, full.value_w)
    return _stated(model, scope, inner if full is None else full, inner, margin, notes)


def _told(model: RailModel, scope: Scope, margin: Margin, power_w: float) -> list[Finding]:
    """Return the note on a bias, unless it is far below the power."""
    if margin.bias_w <= NOTED * abs(power_w):
        return []
    return [
        note(f"Rail {model.rail.name}, {scope.words}: {margin.told}. {margin.bias_w:.3g} W of power is stated as bias")
    ]


def _fitted_figures(model: RailModel, scope: Scope, short: TooShort, idle: Idle) -> PowerFigures:
    """Return power fitted to readings that no span fills alone; none if spans are long enough but lack readings."""
    why = findings.too_short(model, scope, short)
    fit = estimators.fitted(model, scope.windows_s, scope.other_s, idle) if short.window_s <= short.needed_s else None
    if fit is None:
        return Figures(), (why,)
    told = note(
        f"Rail {model.rail.name}: of {scope.words}, {why.reason}, so power is fitted to the parts of readings that "
        f"spans and gaps fill. Power drawn less than one reading before or after a span counts as the span's. For less "
        f"uncertainty: {why.remedy}"
    )
    return _stated(model, scope, fit[0], fit[0], fit[1], [told])


def _stated(
    model: RailModel, scope: Scope, chosen: Estimate, inner: Estimate, margin: Margin, notes: list[Finding]
) -> PowerFigures:
    """Return the power by the chosen estimate, or a refusal if too many readings are clipped or missing."""
    if (beyond := beyond_range(model, chosen)) is not None:
        return Figures(), (beyond,)
    lost = missing_while_busy(model.readings, scope.windows_s)
    if lost > MAX_MISSING:
        return Figures(), (findings.readings_lost(model, scope, lost),)
    loops = in_step_with(model, scope.phases, inner.value_w)
    hidden = unseen(model, inner, scope.windows_s, lost) + loops + model.once(in_turn)
    margin += smoothed(model, scope.windows_s, chosen.value_w)
    notes = [*notes, *_told(model, scope, loops, inner.value_w)]
    seen = estimators.covered_share(model.readings, merged(scope.windows_s))
    busy = replace(scope.busy, n=round(scope.busy.n * seen))
    if chosen is inner:
        hidden, margin = hidden + margin, Margin()
    method = CORE_METHOD if chosen is inner else METHOD
    figures = powers(model, chosen, "idle_power_w", busy, {"": (IDLE_METHOD, Margin())})
    stated = {"": (method, margin + hidden), LITERAL: ("mean over the spans", hidden)}
    for figure in ("active_power_w", "dynamic_power_w"):
        figures |= powers(model, chosen, figure, busy, stated)
        figures |= powers(model, inner, figure, busy, {TRIMMED: (CORE_METHOD, hidden)})
    return Figures({replace(key, phase=scope.phase): q for key, q in figures.items()}), tuple(notes)


def totals(
    figures: Figures, rails: Sequence[str], phases: Sequence[str], whole: Figures
) -> tuple[Figures, list[Finding]]:
    """Return sums over rails, and a refusal of each sum for which some rails have the figure and others lack it.

    If a rail lacks a figure by a method other than the rig's own, its sum is left out without a refusal. ``whole`` are
    figures of the summed readings. If they are less certain than the sums, rails have errors in common.
    """
    out: dict[FigureKey, Quantity] = {}
    refusals: list[Finding] = []
    for method in ("", TRIMMED, LITERAL):
        for phase in ("", *phases):
            for quantity in LEVELS:
                key = FigureKey(quantity, phase, method=method)
                known = {rail: q for rail in rails if (q := figures.get(replace(key, rail=rail))) is not None}
                if known and len(known) == len(rails):
                    terms = [(1.0, _labelled(q, rail) if len(rails) > 1 else q) for rail, q in known.items()]
                    same = whole.get(key if len(phases) > 1 else replace(key, phase=""))
                    out[key] = no_more_certain(linear(terms, "W", terms[0][1].method), same)
                elif known and not method:
                    refusals.append(findings.not_of_every_rail(key))
    return Figures(out), refusals


def no_more_certain(total: Quantity, whole: Quantity | None) -> Quantity:
    """Return a sum over rails that is no more certain than the same figure of the summed readings ``whole``.

    Only errors that rails do not share through an instrument or a clock are compared.
    """
    if whole is None:
        return total
    own, other = (sum(c.u**2 for c in q.components if (c.shared or "1/f:").startswith("1/f:")) for q in (total, whole))
    more = (Component(ALIKE, math.sqrt(other - own)),) if other > own else ()
    return replace(total, components=(*total.components, *more))


def _labelled(q: Quantity, rail: str) -> Quantity:
    """Return the quantity with the rail's name in the sources of components that only this rail has."""
    parts = tuple(c if c.shared is not None else replace(c, source=f"{c.source}, {rail}") for c in q.components)
    return replace(q, components=parts)
