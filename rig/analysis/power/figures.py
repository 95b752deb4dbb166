"""Idle, active and dynamic power of each rail and of their sum, for all phases and for each phase."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rig.analysis.figure_key import LITERAL, TRIMMED, FigureKey, Figures
from rig.analysis.power.budget import active_power, dynamic_power, idle_power
from rig.analysis.power.coverage import (
    covered_share,
    hidden_w,
    missing_notes,
    missing_while_busy,
    overload_note,
)
from rig.analysis.power.estimators import (
    MIN_SHARE,
    MOST_GAPS,
    Estimate,
    TooShort,
    gaps_differ,
    gaps_seen,
    gaps_without_reading,
    idle_moved_w,
    integrated,
    length_error_s,
    stamp_jitter_s,
    trimmed,
)
from rig.analysis.power.gap_level import by_gaps
from rig.analysis.power.rail_model import RailModel
from rig.analysis.power.range_floor import floor_note
from rig.analysis.power.span_ends import cut_off_w, outlasts, smeared_w
from rig.analysis.power.span_mean import literal_figures, span_mean
from rig.analysis.power.unseen_spans import idle_notes, missing_w, with_unseen_spans
from rig.analysis.quantity import Quantity, linear
from rig.analysis.refusal import Refusal
from rig.analysis.timing.consistency import REMEDY
from rig.analysis.timing.execution_time import BusyTime, StampsU
from rig.analysis.timing.timebase import Timebase
from rig.analysis.timing.timeline import Activity, Phase, Readings
from rig.analysis.verdict import Check
from rig.types import Floats

POWERS = ("idle_power_w", "active_power_w", "dynamic_power_w")
MAX_CLIPPED = 0.1
"""Power is refused if more than this share of the busy readings is at the end of the range."""
MAX_HIDDEN = 0.01
"""Power is refused if clipped readings that noise does not explain may hide more than this part of dynamic power."""
MAX_MISSING = 0.25
"""Share of readings missing in spans, and not elsewhere, above which power is refused."""
FINE_STEP = 5e-5
"""Part of busy time that the step of all stamps together may cost before the trace is asked."""
INTEGRATED_METHOD = "integrated outward into idle"
TRIMMED_METHOD = "mean of trimmed windows"


@dataclass(frozen=True)
class Scope:
    """A set of windows that has a power figure: one phase, or all phases under the name "".

    All other activity is outside the scope.
    """

    phase: str
    windows_s: Floats
    other_s: Floats
    busy: BusyTime
    executions: float
    """Executions in a typical span."""

    @property
    def words(self) -> str:
        """Return the words for the phase in a refusal."""
        return self.phase or "all phases"


@dataclass(frozen=True)
class PowerFigures:
    """Figures of power, refusals of figures, and notes."""

    figures: Figures = field(default_factory=Figures)
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    """What of a recording contradicts itself; each check fails."""


def stamps_u_s(activity: Activity, device: Timebase, models: Sequence[RailModel]) -> dict[str, StampsU]:
    """Return the uncertainty of the total busy time of each phase.

    It comes from the jitter of stamps with the lag of a pin, and from the step of stamps.
    """
    return {
        name: StampsU(_stamp_jitter_u_s(phase, device, models), _stamp_step_u_s(activity, name, device, models))
        for name, phase in activity.phases.items()
    }


def _stamp_step_u_s(activity: Activity, name: str, device: Timebase, models: Sequence[RailModel]) -> float:
    """The step of the stamps averages over spans, unless spans keep step with the clock of their stamps.

    Stamps do not show this. The trace does: energy over power is the length of the spans, whatever their stamps.
    """
    windows_s = activity.phases[name].windows_s
    count = len(windows_s)
    own_s, most_s = math.sqrt(count / 6.0) * device.step_s, count * device.step_s / math.sqrt(3.0)
    if count < 2 or not models or most_s < FINE_STEP * activity.phases[name].busy_s:
        return most_s
    others = [p.windows_s for n, p in activity.phases.items() if n != name]
    other_s = np.concatenate([activity.excluded_s(), *others])
    seen_s = min(length_error_s(model, windows_s, other_s, own_s) for model in models)
    return math.hypot(own_s, min(seen_s, most_s))


def _stamp_jitter_u_s(phase: Phase, device: Timebase, models: Sequence[RailModel]) -> float:
    """Jitter is the scatter of the spans that no trace confirms; a pin's lag is the same in every span."""
    length = phase.windows_s[:, 1] - phase.windows_s[:, 0]
    lag = len(length) * device.lag_s * math.sqrt(2.0 / 3.0)
    if len(length) < 3:
        return lag
    scatter = float(np.std(length, ddof=1))
    if scatter <= device.step_s:
        return lag
    jitter = math.sqrt(len(length)) * min([scatter, *(stamp_jitter_s(m, phase.windows_s) for m in models)])
    return math.hypot(jitter, lag)


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
    notes = list(_instrument_notes(readings))
    if model is None:
        refusal = Refusal(f"rail {name}", *_without_idle(readings, activity))
        numbers = int(np.count_nonzero(readings.ok))
        none = Check(f"readings of rail {name} that are numbers", f"0 of {len(readings.ok)}", "at least 1", False)
        return PowerFigures(Figures(), (refusal,), tuple(notes), () if numbers else (none,))
    if not activity.phases:
        return PowerFigures(notes=tuple(notes))
    model = by_gaps(model, activity.busy_windows_s())
    differ, level_w = gaps_differ(model)
    notes += _trace_notes(model, activity, level_w if differ else None)
    figures = Figures()
    refusals: list[Refusal] = []
    for scope in _scopes(activity, busy):
        found = _scope_figures(model, scope, differ)
        figures |= with_unseen_spans(found.figures, model, scope.windows_s)
        refusals += found.refusals
        notes += found.notes
    if len(activity.phases) == 1:
        (only,) = activity.phases
        figures |= Figures({replace(key, phase=only): q for key, q in figures.items() if not key.method})
    return PowerFigures(figures, tuple(refusals), tuple(notes))


def _contradicted(r: Readings, checks: tuple[Check, ...]) -> PowerFigures:
    """A refusal of the power of a rail whose recording contradicts itself."""
    reason = "; ".join(f"{check.rule}: {check.found}" for check in checks)
    refusal = Refusal(f"power on rail {r.rail.name}", reason, REMEDY)
    return PowerFigures(Figures(), (refusal,), tuple(_instrument_notes(r)), checks)


def _without_idle(r: Readings, activity: Activity) -> tuple[str, str]:
    """Why a rail has no reading in an idle window, and what to change."""
    if not np.any(r.ok):
        return "no reading is a number", "Check the range and the wires of the meter, and what its driver delivers"
    first_s, last_s = float(r.start_s[0]), float(r.end_s[-1])
    windows = np.concatenate([activity.idle_s, activity.busy_windows_s()])
    if len(windows) and (last_s < windows.min() or first_s > windows.max()):
        until = f"{windows.min():.3g} to {windows.max():.3g} s"
        reason = f"its readings lie at {first_s:.6g} to {last_s:.6g} s, but the run at {until}"
        remedy = "Stamp readings by the clock that the meter's factory is given. A meter on real time needs a device"
        return reason, f"{remedy} on real time, which the device mock is not"
    return "no reading lies in an idle window", "Lengthen the idle windows (--option idle_s=SECONDS)"


def _instrument_notes(readings: Readings) -> Iterator[str]:
    supply = readings.supply
    for rail in (readings.rail, *([supply.rail] if supply is not None else [])):
        if rail.accuracy is None:
            yield f"Rail {rail.name}: instrument uncertainty not stated (no calibration was declared)"
    if supply is not None:
        sag = supply.sag
        how = (
            ""
            if sag is None
            else f". Within a reading of this voltage it follows the current, by {sag.ohm:.3g} +- {sag.ohm_u:.2g} ohm"
        )
        yield (
            f"Rail {readings.rail.name}: power is its current times the voltage of {supply.rail.name}, reading by "
            f"reading{how}"
        )


def _trace_notes(model: RailModel, activity: Activity, gap_w: float | None) -> Iterator[str]:
    """Notes on what the trace covers; ``gap_w`` is the level between spans above idle if it differs from idle."""
    name = model.rail.name
    yield from idle_notes(model, activity)
    yield from missing_notes(name, model.readings, activity.busy_windows_s())
    if (overload := overload_note(name, model)) is not None:
        yield overload
    if model.gap is not None:
        yield f"Rail {name}: idle wanders, so idle under the spans is taken from the gaps between them"
    if (floor := floor_note(model.readings)) is not None:
        yield floor
    if gap_w is not None:
        yield (
            f"Rail {name}: between spans the device draws {gap_w:+.3g} W compared with the idle windows, "
            "so trimmed windows are used instead of integration into the gaps"
        )
    if gap_w is not None and gap_w < 0.0 and not idle_moved_w(model):
        yield (
            f"Rail {name}: the device sleeps between its spans. Idle power is that of the idle windows, in which it is "
            "configured and ready, not that of sleep; dynamic power is counted from there"
        )
    if lost := missing_while_busy(model.readings, activity.busy_windows_s()):
        yield (
            f"Rail {name}: {lost:.1%} of the readings in spans are missing, more than elsewhere. What they would have "
            "shown is stated as bias"
        )
    if moved_w := idle_moved_w(model):
        yield (
            f"Rail {name}: idle moved during the activity by {moved_w:.3g} W more than the idle windows show. This is "
            "stated as bias of idle and dynamic power. Warm up longer, or keep idle windows closer to the spans"
        )
    if gaps_without_reading(model, activity.busy_windows_s()):
        yield (
            f"Rail {name}: no reading lies between spans, so energy drawn there counts as energy of the spans. The "
            "difference from trimmed windows is stated as bias. Leave more time between spans, or use a faster meter"
        )


def _scopes(activity: Activity, busy: Mapping[str, BusyTime]) -> Iterator[Scope]:
    """All phases together unless they were issued one at a time, then each phase if there are several."""
    if not activity.per_phase:
        every = np.concatenate([p.executions for p in activity.phases.values()])
        yield Scope("", activity.busy_windows_s(), activity.excluded_s(), busy[""], float(np.median(every)))
    if len(activity.phases) > 1 or activity.per_phase:
        for name, phase in activity.phases.items():
            others = [q.windows_s for n, q in activity.phases.items() if n != name]
            other = np.concatenate([activity.excluded_s(), *others])
            yield Scope(name, phase.windows_s, other, busy[name], float(np.median(phase.executions)))


def _scope_figures(model: RailModel, scope: Scope, differ: bool) -> PowerFigures:
    """Power of one rail over one scope; ``differ`` says that gaps between spans are not at idle."""
    cut = trimmed(model, scope.windows_s)
    whole = None if differ else integrated(model, scope.windows_s, scope.other_s)
    if isinstance(cut, TooShort):
        if whole is None or whole.share < MIN_SHARE or gaps_seen(model, scope.windows_s) < MOST_GAPS:
            return PowerFigures(refusals=(_too_short(model, scope, cut),))
        note = (
            f"Rail {model.rail.name}: a window of {scope.words} lasts {cut.window_s:.3g} s, too short for a whole "
            "reading, so power is the area above idle alone. Nothing separates it from what is drawn within a reading "
            "of a window"
        )
        dynamic = dynamic_power(model, whole, scope.busy, INTEGRATED_METHOD)
        return _stated(model, scope, whole, dynamic, PowerFigures(notes=(note,)), differ)
    key = FigureKey("dynamic_power_w", scope.phase, model.rail.name)
    dynamic = dynamic_power(model, cut, scope.busy, TRIMMED_METHOD)
    chosen: Estimate = cut
    check = Figures()
    notes: tuple[str, ...] = ()
    if whole is not None and whole.share >= MIN_SHARE:
        chosen = whole
        difference_w = abs(cut.value_w - whole.value_w)
        bias_w = max(difference_w - model.noise_u_w(cut.dynamic - whole.dynamic), 0.0)
        crossed = replace(dynamic, bias=dynamic.bias + bias_w)
        dynamic = dynamic_power(model, whole, scope.busy, INTEGRATED_METHOD)
        if more := outlasts(model, whole, scope.windows_s):
            notes = (
                f"Rail {model.rail.name}: around each span of {scope.words}, {more:.2g} readings more are above idle "
                "than it can touch. How far the integrated mean is above that of trimmed windows is stated as bias",
            )
        if more or gaps_without_reading(model, scope.windows_s):
            # no reading can separate work between spans, such as the host's, from a burst at their ends
            dynamic = replace(dynamic, bias=dynamic.bias + bias_w)
        trimmed_key = replace(key, method=TRIMMED)
        active = active_power(model, cut, crossed)
        check = Figures({trimmed_key: crossed, replace(trimmed_key, quantity="active_power_w"): active})
    elif ends_w := cut_off_w(model, scope.windows_s, cut):
        dynamic = replace(dynamic, bias=dynamic.bias + ends_w)
        notes = (
            f"Rail {model.rail.name}: trimmed windows leave out the ends of spans of {scope.words}, whose readings "
            f"differ by {ends_w:.3g} W of mean power. This is stated as bias",
        )
    if chosen is cut and (smeared := smeared_w(model, scope.windows_s, cut)):
        dynamic = replace(dynamic, bias=dynamic.bias + smeared)
        notes += (
            f"Rail {model.rail.name}: neither spans of {scope.words} nor the gaps between them show a level, as behind "
            f"a slow filter that is not declared (filter_tau_s). The area above idle differs by {smeared:.3g} W of "
            "mean power. This is stated as bias",
        )
    return _stated(model, scope, chosen, dynamic, PowerFigures(check, notes=notes), differ)


def _stated(
    model: RailModel, scope: Scope, chosen: Estimate, dynamic: Quantity, beside: PowerFigures, differ: bool
) -> PowerFigures:
    """Idle, active and dynamic power by the chosen estimate, ``beside`` others, unless readings do not show it."""
    if (beyond := _beyond_range(model, chosen)) is not None:
        return PowerFigures(refusals=(beyond,))
    lost = missing_while_busy(model.readings, scope.windows_s)
    if lost > MAX_MISSING:
        reason = f"{lost:.1%} of the readings of {scope.words} are missing, more than elsewhere"
        remedy = "See why the meter loses readings while the device works, and measure again"
        refusal = Refusal(f"power of {scope.words} on rail {model.rail.name}", reason, remedy)
        return PowerFigures(refusals=(refusal,))
    lost_w = missing_w(model, scope.windows_s, dynamic.value, lost)
    dynamic = replace(dynamic, bias=dynamic.bias + lost_w)
    idle, moved_w = idle_power(model, chosen), idle_moved_w(model)
    key = FigureKey("dynamic_power_w", scope.phase, model.rail.name)
    literal = span_mean(model, scope.windows_s, scope.other_s, differ)
    by_text = Figures()
    if literal is not None and literal.share >= MIN_SHARE:
        least_w = dynamic.bias if dynamic.method == INTEGRATED_METHOD else lost_w
        by_text = literal_figures(model, literal, scope.windows_s, scope.busy, key, least_w)
    figures = (
        beside.figures
        | by_text
        | {
            replace(key, quantity="idle_power_w"): replace(idle, bias=idle.bias + moved_w),
            replace(key, quantity="active_power_w"): active_power(model, chosen, dynamic),
            key: replace(dynamic, bias=dynamic.bias + moved_w),
        }
    )
    return replace(beside, figures=figures)


def _beyond_range(model: RailModel, e: Estimate) -> Refusal | None:
    """A refusal if too many readings are at the end of the range, or hide too much that noise does not explain."""
    r = model.readings
    clipped = r.count(r.overload & model.busy) / max(r.count(model.busy), 1)
    hidden, unexplained = hidden_w(model)
    lost = float(np.abs(e.dynamic[unexplained]) @ hidden[unexplained]) / max(abs(e.value_w), 1e-300)
    if clipped <= MAX_CLIPPED and lost <= MAX_HIDDEN:
        return None
    reason = f"{clipped:.1%} of the readings while busy are at the end of the meter's range"
    if lost > MAX_HIDDEN:
        reason += f"; noise does not explain them, and they may hide {lost:.1%} of dynamic power"
    return Refusal(f"power on rail {model.rail.name}", reason, "Choose a higher range and measure again")


def _too_short(model: RailModel, scope: Scope, short: TooShort) -> Refusal:
    share = covered_share(model.readings, scope.windows_s)
    if share < MIN_SHARE or short.window_s > short.needed_s:
        share = min(share, short.share)
        return Refusal(
            f"power of {scope.words} on rail {model.rail.name}",
            f"the trace holds {share:.0%} of the spans: the meter started, stopped or lost readings during the work",
            "See in the log of the recording why readings are missing, and measure again",
        )
    longer = short.needed_s / max(short.window_s, 1e-12)
    repeat, times = math.ceil(longer * scope.executions), math.ceil(longer)
    return Refusal(
        f"power of {scope.words} on rail {model.rail.name}",
        f"a window lasts {short.window_s:.3g} s, but it must last {short.needed_s:.3g} s; after trimming, "
        f"{short.share:.0%} of the windows hold a whole reading",
        f"Measure with --repeat {repeat} or more, with sequences {times} times as long (--amortise), "
        "or with a faster meter",
    )


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
