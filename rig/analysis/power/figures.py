"""Placed readings and spans to named quantities: times, powers by rail and phase, energies."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.power.budget import BusyTime, active_power, dynamic_power, idle_power, noise_u
from rig.analysis.power.coverage import hidden_w, missing_notes, overload_note, watched
from rig.analysis.power.estimators import (
    MIN_SHARE,
    Estimate,
    TooShort,
    gaps_differ,
    gaps_unseen,
    integrated,
    stamp_jitter_s,
    trimmed,
)
from rig.analysis.power.rail_model import View
from rig.analysis.quantity import Quantity, linear, product
from rig.analysis.result import Refusal
from rig.analysis.timing.activity_signal import merged
from rig.analysis.timing.execution_time import mean_time, per_inference_s, spread
from rig.analysis.timing.synchronise import Placed
from rig.analysis.timing.timebase import Timebase
from rig.analysis.timing.timeline import Activity, Phase
from rig.types import Floats, Rail

Figures = dict[str, Quantity]
POWERS = ("idle_power_w", "active_power_w", "dynamic_power_w")
MAX_CLIPPED = 0.1
MAX_HIDDEN = 0.01
"""Of dynamic power: what readings at the end of the range may hide beyond noise before power is refused."""
INTEGRATED = "integrated outward into idle"
TRIMMED = "mean of trimmed windows"


@dataclass(frozen=True)
class Scope:
    """A set of windows that is powered: all phases (name "") or one, against everything else."""

    phase: str
    windows_s: Floats
    other_s: Floats
    busy: BusyTime
    executions: float
    """In a typical span."""

    @property
    def prefix(self) -> str:
        """What the names of its quantities begin with."""
        return f"phase.{self.phase}." if self.phase else ""


@dataclass(frozen=True)
class RailFigures:
    """What one rail yields."""

    figures: Figures
    refusals: tuple[Refusal, ...]
    notes: tuple[str, ...]


def timing(activity: Activity, device: Timebase, views: list[View]) -> tuple[Figures, dict[str, BusyTime]]:
    """Execution times by phase and in all, and the busy time that power is taken over."""
    figures: Figures = {}
    busy: dict[str, BusyTime] = {}
    for name, phase in activity.phases.items():
        jitter = _stamp_jitter(phase, device, views)
        busy[name] = BusyTime(phase.busy_s, {name: jitter}, phase.n)
        figures[f"phase.{name}.execution_time_s"] = mean_time(phase, device, jitter, f"stamps:{name}")
        each = (phase.windows_s[:, 1] - phase.windows_s[:, 0]) / phase.inferences
        figures.update(spread(each, device, f"phase.{name}.", float(np.median(phase.inferences))))
    if figures:
        means = [(1.0, figures[f"phase.{name}.execution_time_s"]) for name in activity.phases]
        figures["execution_time_s"] = linear(means, "s", "sum over phases")
        looped = min(float(np.median(p.inferences)) for p in activity.phases.values())
        figures.update(spread(per_inference_s(activity), device, "", looped))
        jitters = {name: b.jitter_u_s[name] for name, b in busy.items()}
        union = merged(activity.busy_windows_s())
        seconds, n = sum(b.seconds for b in busy.values()), max(b.n for b in busy.values())
        together_s = float(np.sum(union[:, 1] - union[:, 0]))
        if together_s < seconds * (1.0 - 1e-9):
            seconds = together_s
            method = "time in which any phase ran, over inferences: phases of different samples overlapped"
            figures["busy_time_per_inference_s"] = Quantity(together_s / max(n, 1), "s", (), 0.0, n, method)
        busy[""] = BusyTime(seconds, jitters, n)
    return figures, busy


def _stamp_jitter(phase: Phase, device: Timebase, views: list[View]) -> float:
    """Doubt of the total busy time from jittering stamps: the scatter of spans that no trace confirms; and what a

    pin may lag or lead differently at begin and end, which no repetition averages.
    """
    length = phase.windows_s[:, 1] - phase.windows_s[:, 0]
    lag = len(length) * device.lag_s * math.sqrt(2.0 / 3.0)
    if len(length) < 3:
        return lag
    scatter = float(np.std(length, ddof=1))
    if scatter <= device.step_s:
        return lag
    jitter = math.sqrt(len(length)) * min([scatter, *(stamp_jitter_s(v, phase.windows_s) for v in views)])
    return math.hypot(jitter, lag)


def rail_figures(p: Placed, activity: Activity, busy: dict[str, BusyTime]) -> RailFigures:
    """Idle, active and dynamic power of one rail, for all phases together and for each."""
    rail, view = p.rail, p.view
    notes: list[str] = []
    supply = p.readings.supply
    for r in (rail, *([supply.rail] if supply is not None else [])):
        if r.accuracy is None:
            notes.append(f"Rail {r.name}: instrument uncertainty not stated (no calibration was declared)")
    if supply is not None:
        notes.append(
            f"Rail {rail.name}: power is its amperes times the volts of {supply.rail.name}, reading by reading"
        )
    if view is None:
        remedy = "Lengthen the idle windows (--option idle_s=SECONDS)"
        return RailFigures(
            {}, (Refusal(f"rail {rail.name}", "no reading lies in an idle window", remedy),), tuple(notes)
        )
    if not activity.phases:
        return RailFigures({}, (), tuple(notes))
    notes += missing_notes(rail.name, view.readings, activity.busy_windows_s())
    if (overload := overload_note(rail.name, view)) is not None:
        notes.append(overload)
    differ, level = gaps_differ(view)
    if differ:
        notes.append(
            f"Rail {rail.name}: between spans the device draws {level:+.3g} W against the idle windows, "
            "so trimmed windows are used instead of integration into the gaps"
        )
    if gaps_unseen(view, activity.busy_windows_s()):
        notes.append(
            f"Rail {rail.name}: no reading lies between spans, so what is drawn there counts as theirs; where trimmed "
            "windows disagree, that is stated as bias. Leave more time between spans, or use a faster meter"
        )
    figures: Figures = {}
    refusals: list[Refusal] = []
    for scope in _scopes(activity, busy):
        found = _scope_figures(rail, view, scope, p.timebase.rate_sigma, differ)
        if isinstance(found, Refusal):
            refusals.append(found)
        else:
            figures.update(found)
    if len(activity.phases) == 1:
        figures.update(_as_phase(figures, next(iter(activity.phases))))
    return RailFigures(figures, tuple(refusals), tuple(notes))


def _scopes(activity: Activity, busy: dict[str, BusyTime]) -> Iterator[Scope]:
    """All phases at once, unless they were issued apart; then each, where it is not the same thing."""
    if not activity.apart:
        every = np.concatenate([p.executions for p in activity.phases.values()])
        yield Scope("", activity.busy_windows_s(), activity.excluded_s(), busy[""], float(np.median(every)))
    if len(activity.phases) > 1 or activity.apart:
        for name, phase in activity.phases.items():
            others = [q.windows_s for n, q in activity.phases.items() if n != name]
            other = np.concatenate([activity.excluded_s(), *others])
            yield Scope(name, phase.windows_s, other, busy[name], float(np.median(phase.executions)))


def _as_phase(figures: Figures, phase: str) -> Figures:
    """The only phase's figures are those of the whole."""
    return {
        f"phase.{phase}.{k}": q for k, q in figures.items() if k.rpartition(".")[2] in POWERS and k.startswith("rail.")
    }


def _scope_figures(rail: Rail, view: View, scope: Scope, rate_sigma: float, differ: bool) -> Figures | Refusal:
    cut = trimmed(view, scope.windows_s)
    if isinstance(cut, TooShort):
        return _too_short(rail, view, scope, cut)
    if (beyond := _beyond_range(rail, view, cut)) is not None:
        return beyond
    whole = None if differ else integrated(view, scope.windows_s, scope.other_s)
    check = dynamic_power(view, rail, cut, scope.busy, rate_sigma, TRIMMED)
    chosen: Estimate = cut
    dynamic = check
    figures: Figures = {}
    name = f"{scope.prefix}rail.{rail.name}."
    if whole is not None and whole.share >= MIN_SHARE:
        chosen = whole
        dynamic = dynamic_power(view, rail, whole, scope.busy, rate_sigma, INTEGRATED)
        apart = abs(cut.value_w - whole.value_w)
        doubt = noise_u(view, cut.dynamic - whole.dynamic)
        check = replace(check, bias=check.bias + max(apart - doubt, 0.0))
        if gaps_unseen(
            view, scope.windows_s
        ):  # it may be work of the host's between spans, or a burst at their ends: nobody saw
            dynamic = replace(dynamic, bias=dynamic.bias + max(apart - doubt, 0.0))
        figures[f"trimmed.{name}dynamic_power_w"] = check
        figures[f"trimmed.{name}active_power_w"] = active_power(view, rail, cut, check)
    figures[f"{name}idle_power_w"] = idle_power(view, rail, chosen)
    figures[f"{name}active_power_w"] = active_power(view, rail, chosen, dynamic)
    figures[f"{name}dynamic_power_w"] = dynamic
    return figures


def _beyond_range(rail: Rail, view: View, cut: Estimate) -> Refusal | None:
    """Too much at the end of the range, or too much there that noise does not explain."""
    clipped = float(np.mean(view.readings.overload[view.busy])) if np.any(view.busy) else 0.0
    hidden, unexplained = hidden_w(view)
    lost = float(np.abs(cut.dynamic[unexplained]) @ hidden[unexplained]) / max(abs(cut.value_w), 1e-300)
    if clipped <= MAX_CLIPPED and lost <= MAX_HIDDEN:
        return None
    reason = f"{clipped:.1%} of the readings while busy are at the end of the meter's range"
    if lost > MAX_HIDDEN:
        reason += f", and may hide {lost:.1%} of dynamic power: they are higher than noise explains"
    return Refusal(f"power on rail {rail.name}", reason, "Choose a higher range and measure again")


def _too_short(rail: Rail, view: View, scope: Scope, short: TooShort) -> Refusal:
    within = watched(view.readings, scope.windows_s)
    if within < MIN_SHARE:
        return Refusal(
            f"power of {scope.phase or 'all phases'} on rail {rail.name}",
            f"the trace holds {within:.0%} of the spans: it begins or ends among them",
            "See why the meter stopped (the end of the recording says so), and measure again",
        )
    longer = short.needed_s / max(short.window_s, 1e-12)
    repeat, times = math.ceil(longer * scope.executions), math.ceil(longer)
    return Refusal(
        f"power of {scope.phase or 'all phases'} on rail {rail.name}",
        f"a window lasts {short.window_s:.3g} s and {short.share:.0%} of the windows hold a whole reading after "
        f"trimming; it would have to last {short.needed_s:.3g} s",
        f"Measure with --repeat {repeat} or more, with sequences {times} times as long (--amortise), "
        "or with a faster meter",
    )


def totals(figures: Figures, rails: list[str], phases: list[str]) -> tuple[Figures, list[Refusal]]:
    """Sums over rails; a rail that is missing refuses the total rather than shrinking it."""
    out: Figures = {}
    refusals: list[Refusal] = []
    for check in ("", "trimmed."):
        for prefix in ("", *(f"phase.{name}." for name in phases)):
            for name in POWERS:
                parts = [figures.get(f"{check}{prefix}rail.{rail}.{name}") for rail in rails]
                known = [q for q in parts if q is not None]
                if known and len(known) == len(parts):
                    terms = [
                        (1.0, _labelled(q, rail) if len(rails) > 1 else q) for q, rail in zip(known, rails, strict=True)
                    ]
                    out[f"{check}{prefix}{name}"] = linear(terms, "W", known[0].method)
                elif known and not check:
                    refusals.append(Refusal(f"{prefix}{name}", "not every rail has it", "See the refusals by rail"))
    return out, refusals


def _labelled(q: Quantity, rail: str) -> Quantity:
    """Components that are a rail's own, called after it."""
    parts = tuple(c if c.shared is not None else replace(c, source=f"{c.source}, {rail}") for c in q.components)
    return replace(q, components=parts)


def energies(figures: Figures, rails: list[str], phases: list[str]) -> Figures:
    """Energy per inference: active power times mean execution time (NeuroBench, ASC), and by integration."""
    out: Figures = {}
    for scope in ("", *(f"phase.{name}." for name in phases)):
        time_s = figures.get(f"{scope}busy_time_per_inference_s") or figures.get(f"{scope}execution_time_s")
        for inner in ("", *(f"rail.{rail}." for rail in rails)):
            active, dynamic = (figures.get(f"{scope}{inner}{n}") for n in ("active_power_w", "dynamic_power_w"))
            if time_s is None or active is None or dynamic is None:
                continue
            spec = f"active power ({active.method}) x mean execution time"
            out[f"{scope}{inner}energy_per_inference_j"] = product(active, time_s, "J", spec)
            out[f"{scope}{inner}dynamic_energy_per_inference_j"] = product(dynamic, time_s, "J", dynamic.method)
            cut = figures.get(f"trimmed.{scope}{inner}active_power_w")
            if dynamic.method == INTEGRATED:
                integral = product(active, time_s, "J", "integral outward into idle, with idle under it")
                out[f"{scope}{inner}energy_per_inference_integrated_j"] = integral
            if cut is not None:
                trimmed_spec = "active power (trimmed windows) x mean execution time"
                out[f"trimmed.{scope}{inner}energy_per_inference_j"] = product(cut, time_s, "J", trimmed_spec)
    return out


def apart_totals(figures: Figures, phases: list[str]) -> Figures:
    """Where phases were measured one at a time: energies add up, power is their sum over the time."""
    parts = [figures.get(f"phase.{p}.energy_per_inference_j") for p in phases]
    dynamic = [figures.get(f"phase.{p}.dynamic_energy_per_inference_j") for p in phases]
    time_s = figures.get("execution_time_s")
    if time_s is None or any(q is None for q in (*parts, *dynamic)):
        return {}
    total = linear([(1.0, q) for q in parts if q is not None], "J", "sum of phases measured apart")
    above = linear([(1.0, q) for q in dynamic if q is not None], "J", "sum of phases measured apart")
    method = "energy of phases measured apart over their time"
    return {
        "energy_per_inference_j": total,
        "dynamic_energy_per_inference_j": above,
        "active_power_w": total.scaled(1.0 / time_s.value, "W", method),
        "dynamic_power_w": above.scaled(1.0 / time_s.value, "W", method),
    }
