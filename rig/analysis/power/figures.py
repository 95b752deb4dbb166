"""Idle, active and dynamic power of each rail and of their sum, for all phases and for each phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rig.analysis.figure_key import LITERAL, TRIMMED, FigureKey, Figures
from rig.analysis.power.budget import active_power, dynamic_power, idle_power
from rig.analysis.power.coverage import missing_while_busy
from rig.analysis.power.estimators import (
    MIN_SHARE,
    MOST_GAPS,
    Estimate,
    TooShort,
    gaps_seen,
    idle_moved_w,
    integrated,
    trimmed,
    unseen_between,
    with_idle_in_gaps,
)
from rig.analysis.power.gap_level import by_gaps
from rig.analysis.power.loops_in_step import with_loops_in_step
from rig.analysis.power.power_notes import instrument_notes, other_idle_notes, trace_notes
from rig.analysis.power.power_refusals import MAX_MISSING, beyond_range, readings_lost, too_short, without_idle
from rig.analysis.power.rail_model import RailModel
from rig.analysis.power.scope import Scope, scopes_of
from rig.analysis.power.span_ends import cut_off_w, outlasts, smeared_w
from rig.analysis.power.span_mean import literal_figures, span_mean
from rig.analysis.power.unseen_spans import missing_w, with_unseen_spans
from rig.analysis.quantity import Component, Quantity, linear
from rig.analysis.refusal import Refusal
from rig.analysis.timing.consistency import REMEDY
from rig.analysis.timing.execution_time import BusyTime
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.timeline import Activity
from rig.analysis.verdict import Check

POWERS = ("idle_power_w", "active_power_w", "dynamic_power_w")
INTEGRATED_METHOD = "integrated outward into idle"
TRIMMED_METHOD = "mean of trimmed windows"


@dataclass(frozen=True)
class PowerFigures:
    """Figures of power, refusals of figures, and notes."""

    figures: Figures = field(default_factory=Figures)
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    """What of a recording contradicts itself; each check fails."""


def power_figures(
    readings: Sequence[Readings],
    models: Mapping[str, RailModel],
    activity: Activity,
    busy: Mapping[str, BusyTime],
    contradictions: Mapping[str, tuple[Check, ...]] | None = None,
) -> PowerFigures:
    """Return the power of every rail, and then of their sum.

    If a rail has no model in ``models``, its power is refused. It is also refused if its readings contradict the
    recording; ``contradictions`` are the failed checks of each rail.
    """
    against = contradictions or {}
    found = [
        _contradicted(r, checks)
        if (checks := against.get(r.rail.name))
        else rail_figures(r, models.get(r.rail.name), activity, busy)
        for r in readings
    ]
    figures = Figures()
    for one in found:
        figures |= one.figures
    sums, missing = totals(figures, [r.rail.name for r in readings], list(activity.phases))
    refusals = [refusal for one in found for refusal in one.refusals]
    notes = [note for one in found for note in one.notes]
    checks = tuple(check for one in found for check in one.checks)
    return PowerFigures(figures | sums, (*refusals, *missing), tuple(notes), checks)


def rail_figures(
    readings: Readings,
    model: RailModel | None,
    activity: Activity,
    busy: Mapping[str, BusyTime],
) -> PowerFigures:
    """Return idle, active and dynamic power of one rail, for all phases together and for each phase."""
    name = readings.rail.name
    notes = list(instrument_notes(readings))
    if model is None:
        refusal = Refusal(f"rail {name}", *without_idle(readings, activity))
        numbers = int(np.count_nonzero(readings.ok))
        none = Check(f"readings of rail {name} that are numbers", f"0 of {len(readings.ok)}", "at least 1", False)
        return PowerFigures(Figures(), (refusal,), tuple(notes), () if numbers else (none,))
    if not activity.phases:
        return PowerFigures(notes=tuple(notes))
    model = with_idle_in_gaps(by_gaps(model, activity.busy_windows_s()))
    differ = model.gaps.differs
    notes += trace_notes(model, activity, model.gaps.level_w if differ else None)
    figures = Figures()
    refusals: list[Refusal] = []
    for scope in scopes_of(activity, busy):
        found = _scope_figures(model, scope, differ)
        whole = with_unseen_spans(found.figures, model, scope.windows_s)
        stepped, told = with_loops_in_step(whole, model, activity.phases, scope.phase)
        figures |= stepped
        refusals += found.refusals
        notes += [*found.notes, *told]
    notes += other_idle_notes(model, figures.get(FigureKey("dynamic_power_w", rail=name)))
    if len(activity.phases) == 1:
        (only,) = activity.phases
        figures |= Figures({replace(key, phase=only): q for key, q in figures.items() if not key.method})
    return PowerFigures(figures, tuple(refusals), tuple(notes))


def _contradicted(r: Readings, checks: tuple[Check, ...]) -> PowerFigures:
    """A refusal of the power of a rail whose recording contradicts itself."""
    reason = "; ".join(f"{check.rule}: {check.found}" for check in checks)
    refusal = Refusal(f"power on rail {r.rail.name}", reason, REMEDY)
    return PowerFigures(Figures(), (refusal,), tuple(instrument_notes(r)), checks)


def _scope_figures(model: RailModel, scope: Scope, differ: bool) -> PowerFigures:
    """Power of one rail over one scope; ``differ`` says that gaps between spans are not at idle."""
    cut = trimmed(model, scope.windows_s)
    whole = None if differ else integrated(model, scope.windows_s, scope.other_s)
    if isinstance(cut, TooShort):
        if whole is None or whole.share < MIN_SHARE or gaps_seen(model, scope.windows_s) < MOST_GAPS:
            return PowerFigures(refusals=(too_short(model, scope, cut),))
        note = (
            f"Rail {model.rail.name}: a window of {scope.words} lasts {cut.window_s:.3g} s, too short for a whole "
            "reading, so power is the area above idle alone. Nothing separates it from what is drawn within a reading "
            "of a window"
        )
        dynamic = dynamic_power(model, whole, scope.busy, INTEGRATED_METHOD)
        return _stated(model, scope, whole, dynamic, PowerFigures(notes=(note,)), differ)
    if whole is not None and whole.share >= MIN_SHARE:
        return _integrated_figures(model, scope, whole, cut, differ)
    return _trimmed_figures(model, scope, cut, differ)


def _integrated_figures(model: RailModel, scope: Scope, whole: Estimate, cut: Estimate, differ: bool) -> PowerFigures:
    """Power by integration, with that of trimmed windows beside it as a check."""
    difference_w = abs(cut.value_w - whole.value_w)
    bias_w = max(difference_w - model.noise_u_w(cut.dynamic - whole.dynamic), 0.0)
    crossed = _biased(dynamic_power(model, cut, scope.busy, TRIMMED_METHOD), bias_w)
    dynamic = dynamic_power(model, whole, scope.busy, INTEGRATED_METHOD)
    notes: tuple[str, ...] = ()
    if more := outlasts(model, whole, scope.windows_s):
        notes = (
            f"Rail {model.rail.name}: around each span of {scope.words}, {more:.2g} readings more are above idle "
            "than it can touch. How far the integrated mean is above that of trimmed windows is stated as bias",
        )
    if more or model.readings.inferred or unseen_between(model, scope.windows_s):
        # no reading can separate work between spans, such as the host's, from a burst at their ends, and a filter that
        # nobody declared may be the device's own begins and ends
        dynamic = _biased(dynamic, bias_w)
    key = FigureKey("dynamic_power_w", scope.phase, model.rail.name, method=TRIMMED)
    check = Figures({key: crossed, replace(key, quantity="active_power_w"): active_power(model, cut, crossed)})
    return _stated(model, scope, whole, dynamic, PowerFigures(check, notes=notes), differ)


def _trimmed_figures(model: RailModel, scope: Scope, cut: Estimate, differ: bool) -> PowerFigures:
    """Power of trimmed windows, whose bias holds what the ends of spans and a slow filter hide from them."""
    dynamic = dynamic_power(model, cut, scope.busy, TRIMMED_METHOD)
    notes: tuple[str, ...] = ()
    ends_w, placed_w = cut_off_w(model, scope.windows_s, cut)
    if ends_w:
        placed = Component("place of spans beside other levels", placed_w)
        dynamic = _biased(replace(dynamic, components=(*dynamic.components, placed)), ends_w)
        notes = (
            f"Rail {model.rail.name}: trimmed windows leave out the ends of spans of {scope.words}, whose readings "
            f"differ by {ends_w:.3g} W of mean power. This is stated as bias",
        )
    if smeared := smeared_w(model, scope.windows_s, cut):
        dynamic = _biased(dynamic, smeared)
        notes += (
            f"Rail {model.rail.name}: gaps begin with what spans of {scope.words} lack at their begin. This may be a "
            "filter that is not declared (filter_tau_s) or a capacitor behind the meter, or the device itself. Spans "
            f"may draw {smeared:.3g} W of mean power more or less by this. This is stated as bias",
        )
    return _stated(model, scope, cut, dynamic, PowerFigures(notes=notes), differ)


def _biased(q: Quantity, more: float) -> Quantity:
    return replace(q, bias=q.bias + more)


def _stated(
    model: RailModel, scope: Scope, chosen: Estimate, dynamic: Quantity, beside: PowerFigures, differ: bool
) -> PowerFigures:
    """Idle, active and dynamic power by the chosen estimate, ``beside`` others, unless readings do not show it."""
    if (beyond := beyond_range(model, chosen)) is not None:
        return PowerFigures(refusals=(beyond,))
    lost = missing_while_busy(model.readings, scope.windows_s)
    if lost > MAX_MISSING:
        return PowerFigures(refusals=(readings_lost(model, scope, lost),))
    lost_w = missing_w(model, scope.windows_s, dynamic.value, lost)
    dynamic = _biased(dynamic, lost_w)
    idle, moved_w = idle_power(model, chosen), idle_moved_w(model)
    key = FigureKey("dynamic_power_w", scope.phase, model.rail.name)
    literal = span_mean(model, scope.windows_s, scope.other_s, differ)
    by_text = Figures()
    if literal is not None and literal.share >= MIN_SHARE:
        least_w = dynamic.bias if dynamic.method == INTEGRATED_METHOD else lost_w
        by_text = literal_figures(model, literal, scope.windows_s, scope.busy, key, least_w)
        text = replace(key, method=LITERAL)
        by_text |= Figures({text: _biased(by_text[text], moved_w)})
    figures = (
        beside.figures
        | by_text
        | {
            replace(key, quantity="idle_power_w"): _biased(idle, moved_w),
            replace(key, quantity="active_power_w"): active_power(model, chosen, dynamic),
            key: _biased(dynamic, moved_w),
        }
    )
    return replace(beside, figures=figures)


def totals(figures: Figures, rails: Sequence[str], phases: Sequence[str]) -> tuple[Figures, list[Refusal]]:
    """Return sums over rails.

    If a rail lacks a figure, the total is refused.
    """
    out: dict[FigureKey, Quantity] = {}
    refusals: list[Refusal] = []
    for method in ("", TRIMMED, LITERAL):
        for phase in ("", *phases):
            for quantity in POWERS:
                key = FigureKey(quantity, phase, method=method)
                known = {rail: q for rail in rails if (q := figures.get(replace(key, rail=rail))) is not None}
                if known and len(known) == len(rails):
                    terms = [(1.0, _labelled(q, rail) if len(rails) > 1 else q) for rail, q in known.items()]
                    out[key] = linear(terms, "W", terms[0][1].method)
                elif known and not method:
                    refusals.append(Refusal(key, "not every rail has this figure", "See the refusals by rail"))
    return Figures(out), refusals


def _labelled(q: Quantity, rail: str) -> Quantity:
    """The quantity with the rail's name in the sources of components that only this rail has."""
    parts = tuple(c if c.shared is not None else replace(c, source=f"{c.source}, {rail}") for c in q.components)
    return replace(q, components=parts)
