"""``evaluate(run) -> Result``: the one place that calls the estimators. Pure: recording in, figures out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rig.align import Excess, align
from rig.budget import BusyTime, active_power, dynamic_power, idle_power, noise_u
from rig.errors import DataError
from rig.latency import mean_time, per_inference_s, spread
from rig.power import Estimate, TooShort, View, gaps_differ, integrated, stamp_jitter_s, trimmed, view_of
from rig.quantity import Quantity, linear, product
from rig.result import ClockSummary, RailSeries, Refusal, Result, Series
from rig.run import Run
from rig.sync import Timebase
from rig.timeline import Activity, Phase, Readings, activity_of, readings_of, timebase_of
from rig.types import Floats, Rail

Figures = dict[str, Quantity]


def evaluate(run: Run) -> Result:
    """All figures of a run. Raises ``DataError`` when the recording contradicts itself."""
    notes: list[str] = []
    refusals: list[Refusal] = []
    figures: Figures = {}
    device_clock = run.start["device"].get("clock")
    device = timebase_of(run, device_clock["name"] if device_clock else "host")
    activity = activity_of(run, device)
    figures.update(_scores(run))
    clocks = {device.clock.name: device}
    placed = _place_meters(run, activity, device, clocks)
    views = {rail.name: _view(readings, meter, activity) for rail, readings, meter in placed}
    timing, busy = _timing(activity, device, [v for v in views.values() if v is not None])
    figures.update(timing)
    rails: list[str] = []
    for rail, _, meter in placed:
        own, refused, remarks = _rail_figures(rail, views[rail.name], meter, activity, busy)
        figures.update(own)
        refusals += refused
        notes += remarks
        rails.append(rail.name)
    figures.update(_totals(figures, rails, activity, refusals))
    figures.update(_energies(figures, rails, activity))
    if not placed:
        refusals.append(Refusal("power", "no trace was recorded", "Measure with --meter"))
    if not activity.phases:
        refusals.append(Refusal("time and power", "no span was recorded", "The run ended before the first reply"))
    if run.stop is None:
        notes.append("The recording has no stop line: it ended in a crash and is read to its last whole batch")
    elif not run.sealed:
        notes.append("The recording is not sealed: events.jsonl.sha256 is absent")
    notes += [f"{name} ends in a torn batch, which was left out" for name in run.truncated]
    return Result(
        run_id=str(run.start["run_id"]),
        run_digest=run.digest,
        complete=run.stop is not None and run.error is None,
        simulated=_simulated(run),
        start=run.start,
        quantities=figures,
        refusals=tuple(refusals),
        notes=tuple(dict.fromkeys(notes)),
        clocks={name: _summary(tb) for name, tb in clocks.items()},
        series=_series(activity, placed),
    )


def _simulated(run: Run) -> bool:
    infos = [run.start["device"], *run.start["meters"]]
    return any(i.get("mode") != "hardware" for i in infos)


def _scores(run: Run) -> Figures:
    """Accuracy by counting outputs against labels; 1e-6 resolution is not an uncertainty, so none is stated."""
    labels = dict(zip(run.samples["id"].to_pylist(), run.samples["label"].to_pylist(), strict=True))
    table = run.replies.select(["sample_id", "output", "warmup"]).to_pylist()
    hits: dict[str, list[bool]] = {}
    for row in table:
        label = labels.get(row["sample_id"])
        if label is None or row["output"] is None or row["warmup"]:
            continue
        output = json.loads(row["output"])
        said = output.get("label") if isinstance(output, dict) else output
        hits.setdefault(label, []).append(said == label)
    flat = [h for hs in hits.values() for h in hs]
    if not flat:
        return {}
    recall = [sum(h) / len(h) for h in hits.values()]
    method = "outputs equal to labels, counted"
    return {
        "accuracy": Quantity(sum(flat) / len(flat), "1", (), 0.0, len(flat), method),
        "balanced_accuracy": Quantity(sum(recall) / len(recall), "1", (), 0.0, len(flat), "mean recall by class"),
    }


def _view(readings: Readings, meter: Timebase, activity: Activity) -> View | None:
    sigma = _sigma_over(meter, activity)
    return view_of(readings, activity, sigma, max(meter.considered.get("brackets", 0.0), sigma))


def _timing(activity: Activity, device: Timebase, views: list[View]) -> tuple[Figures, dict[str, BusyTime]]:
    figures: Figures = {}
    busy: dict[str, BusyTime] = {}
    for name, phase in activity.phases.items():
        jitter = _stamp_jitter(phase, device, views)
        busy[name] = BusyTime(phase.busy_s, jitter, phase.n, f"stamps:{name}")
        figures[f"phase.{name}.execution_time_s"] = mean_time(phase, device, jitter, busy[name].tag)
        each = (phase.windows_s[:, 1] - phase.windows_s[:, 0]) / phase.inferences
        figures.update(spread(each, device, f"phase.{name}."))
    if figures:
        means = [(1.0, figures[f"phase.{name}.execution_time_s"]) for name in activity.phases]
        figures["execution_time_s"] = linear(means, "s", "sum over phases")
        figures.update(spread(per_inference_s(activity), device, ""))
        total = sum(b.seconds for b in busy.values())
        n = max(b.n for b in busy.values())
        busy[""] = BusyTime(total, math.hypot(*(b.jitter_u_s for b in busy.values())), n, "stamps")
        if len(activity.phases) == 1:
            busy[""] = replace(busy[""], tag=next(iter(busy.values())).tag)
    return figures, busy


def _stamp_jitter(phase: Phase, device: Timebase, views: list[View]) -> float:
    """Doubt of the total busy time from jittering stamps: the scatter of spans that no trace confirms."""
    length = phase.windows_s[:, 1] - phase.windows_s[:, 0]
    if len(length) < 3:
        return 0.0
    scatter = float(np.std(length, ddof=1))
    if scatter <= 1.0 / device.clock.tick_hz:
        return 0.0
    return math.sqrt(len(length)) * min([scatter, *(stamp_jitter_s(v, phase.windows_s) for v in views)])


def _place_meters(
    run: Run, activity: Activity, device: Timebase, clocks: dict[str, Timebase]
) -> list[tuple[Rail, Readings, Timebase]]:
    """Readings of every rail on the device's axis: brackets first, then marks and spans in the trace."""
    placed: list[tuple[Rail, Readings, Timebase]] = []
    for name, trace in run.traces.items():
        if len(trace.value) < 2:
            continue
        first = timebase_of(run, trace.clock, name)
        if trace.clock not in clocks:
            readings = readings_of(trace, first)
            clocks[trace.clock] = _aligned(readings, activity, device, first)
        timebase = clocks[trace.clock]
        placed.append((trace.rail, readings_of(trace, timebase), timebase))
    return placed


def _aligned(readings: Readings, activity: Activity, device: Timebase, first: Timebase) -> Timebase:
    """The bracketed map, or one moved onto the activity in the trace, whichever states less doubt."""
    sigma = math.hypot(first.sigma_s, device.sigma_s)
    rate_sigma = math.hypot(first.rate_sigma, device.rate_sigma)
    half_run = 0.5 * float(readings.end_s[-1] - readings.start_s[0])
    best = replace(first, sigma_s=sigma, rate_sigma=rate_sigma, considered={"brackets": sigma})
    if first.clock.name in (device.clock.name, "host"):
        return best
    view = view_of(readings, activity, sigma, sigma)
    if view is None:
        return best
    trains: dict[str, Mapping[str, Floats]] = {}
    spans = {name: p.windows_s for name, p in activity.phases.items()} | {"warmup": activity.warmup_s}
    if len(activity.marks_s):
        trains["marks"] = {"mark": activity.marks_s}
    trains["activity"] = spans | ({"mark": activity.marks_s} if len(activity.marks_s) else {})
    considered = dict(best.considered)
    for method, train in trains.items():
        excess = _excess(view, best)
        reach = 3.0 * best.sigma_s + 2.0 * best.rate_sigma * half_run
        found = align(excess, train, reach)
        if found is None:
            continue
        considered[method] = found.sigma_s
        if found.sigma_s < best.sigma_s:
            rate_sigma = min(found.rate_sigma, best.rate_sigma) if found.rate_sigma else best.rate_sigma
            at_ref = found.shift_s + found.rate * (best.ref_s - found.ref_s)
            best = best.adjusted(at_ref, found.rate, found.sigma_s, rate_sigma, method)
            view = replace(view, readings=_moved(view.readings, found.shift_s, found.rate, found.ref_s))
    return replace(best, considered=considered)


def _moved(r: Readings, shift_s: float, rate: float, ref_s: float) -> Readings:
    return r.moved(r.start_s + shift_s + rate * (r.start_s - ref_s), r.end_s + shift_s + rate * (r.end_s - ref_s))


def _excess(view: View, timebase: Timebase) -> Excess:
    r = view.readings
    first, last = float(r.start_s[0]), float(r.end_s[-1])
    low, high = float(view.idle_weights(first) @ r.watts), float(view.idle_weights(last) @ r.watts)
    line = low + (high - low) * (view.middle_s - first) / max(last - first, 1e-12)
    ok = r.ok
    return Excess(r.start_s[ok], r.end_s[ok], (r.watts - line)[ok], view.noise.busy_w, r.period_s, r.tau_s)


def _rail_figures(
    rail: Rail, view: View | None, meter: Timebase, activity: Activity, busy: dict[str, BusyTime]
) -> tuple[Figures, list[Refusal], list[str]]:
    """Idle, active and dynamic power of one rail, for all phases together and for each."""
    figures: Figures = {}
    refusals: list[Refusal] = []
    notes: list[str] = []
    if rail.accuracy is None:
        notes.append(f"Rail {rail.name}: instrument uncertainty not stated (no calibration was declared)")
    if view is None:
        refusals.append(
            Refusal(
                f"rail {rail.name}",
                "no reading lies wholly in an idle window",
                "Lengthen the idle window (--option idle_s=SECONDS)",
            )
        )
        return figures, refusals, notes
    if not activity.phases:
        return figures, refusals, notes
    differ, level = gaps_differ(view)
    if differ:
        notes.append(
            f"Rail {rail.name}: between spans the device draws {level:+.3g} W against the idle windows, "
            "so trimmed windows are used instead of integration into the gaps"
        )
    scopes = {"": activity.busy_windows_s()} if not activity.apart else {}
    scopes |= {f"phase.{name}.": p.windows_s for name, p in activity.phases.items()}
    if len(activity.phases) == 1:
        scopes.pop(f"phase.{next(iter(activity.phases))}.", None) if "" in scopes else None
    for prefix, windows in scopes.items():
        phase = prefix.removeprefix("phase.").removesuffix(".")
        others = [p.windows_s for n, p in activity.phases.items() if phase and n != phase]
        other = np.concatenate([activity.excluded_s(), *others])
        found = _scope(rail, view, windows, other, busy[phase], meter.rate_sigma, differ)
        if isinstance(found, Refusal):
            refusals.append(found)
            continue
        figures.update({f"{prefix}rail.{rail.name}.{k}": q for k, q in found.items()})
        if len(activity.phases) == 1 and not phase:
            only = f"phase.{next(iter(activity.phases))}."
            figures.update({f"{only}rail.{rail.name}.{k}": q for k, q in found.items() if k in POWERS})
    return figures, refusals, notes


MAX_CLIPPED = 0.1
POWERS = ("idle_power_w", "active_power_w", "dynamic_power_w")


def _sigma_over(meter: Timebase, activity: Activity) -> float:
    """Doubt of the map at the far end of the activity."""
    windows = activity.busy_windows_s()
    if not len(windows):
        return meter.sigma_s
    return max(meter.sigma_at(float(windows.min())), meter.sigma_at(float(windows.max())))


def _scope(
    rail: Rail, view: View, windows: Floats, other: Floats, busy: BusyTime, rate_sigma: float, differ: bool
) -> Figures | Refusal:
    cut = trimmed(view, windows)
    if isinstance(cut, TooShort):
        return _too_short(rail, busy, cut)
    clipped = float(np.mean(view.readings.overload[view.busy])) if np.any(view.busy) else 0.0
    if clipped > MAX_CLIPPED:
        return Refusal(
            f"power on rail {rail.name}",
            f"{clipped:.0%} of the readings while busy are at the end of the meter's range",
            "Choose a higher range and measure again",
        )
    whole = None if differ else integrated(view, windows, other)
    figures: Figures = {}
    if whole is not None and whole.share >= 0.5:
        dynamic = dynamic_power(view, rail, whole, busy, rate_sigma, "integrated outward into idle")
        chosen: Estimate = whole
    else:
        dynamic = dynamic_power(view, rail, cut, busy, rate_sigma, "mean of trimmed windows")
        chosen = cut
    figures["idle_power_w"] = idle_power(view, rail, chosen, busy)
    figures["active_power_w"] = active_power(view, rail, chosen, dynamic)
    figures["dynamic_power_w"] = dynamic
    if chosen is whole:
        check = dynamic_power(view, rail, cut, busy, rate_sigma, "mean of trimmed windows")
        apart = cut.value_w - whole.value_w
        doubt = noise_u(view, cut.dynamic - whole.dynamic)
        check = replace(check, bias=check.bias + max(abs(apart) - doubt, 0.0))
        figures["trimmed.dynamic_power_w"] = check
        figures["trimmed.active_power_w"] = active_power(view, rail, cut, check)
    return figures


def _too_short(rail: Rail, busy: BusyTime, short: TooShort) -> Refusal:
    times = math.ceil(short.needed_s / max(short.window_s, 1e-12))
    scope = busy.tag.removeprefix("stamps").removeprefix(":") or "all phases"
    return Refusal(
        f"power of {scope} on rail {rail.name}",
        f"a window lasts {short.window_s:.3g} s and holds no whole reading after trimming "
        f"({short.share:.0%} of the windows do); it would have to last {short.needed_s:.3g} s",
        f"Measure with --repeat {times} or more, with sequences {times} times as long (--amortise), "
        "or with a faster meter",
    )


def _totals(figures: Figures, rails: list[str], activity: Activity, refusals: list[Refusal]) -> Figures:
    """Sums over rails; a rail that is missing refuses the total rather than shrinking it."""
    out: Figures = {}
    prefixes = ["", *(f"phase.{name}." for name in activity.phases)]
    for prefix in prefixes:
        for name in (*POWERS, "trimmed.dynamic_power_w", "trimmed.active_power_w"):
            parts = [figures.get(f"{prefix}rail.{rail}.{name}") for rail in rails]
            if parts and all(p is not None for p in parts):
                known = [p for p in parts if p is not None]
                out[f"{prefix}{name}"] = linear([(1.0, p) for p in known], "W", known[0].method)
            elif any(p is not None for p in parts) and name in POWERS:
                refusals.append(Refusal(f"{prefix}{name}", "not every rail has it", "See the refusals by rail"))
    return out


def _energies(figures: Figures, rails: list[str], activity: Activity) -> Figures:
    """Energy per inference: active power times mean execution time, and by integration."""
    out: Figures = {}
    spec = "active power x mean execution time"
    for scope in ["", *(f"phase.{name}." for name in activity.phases)]:
        time_s = figures.get(f"{scope}execution_time_s")
        for inner in ["", *(f"rail.{rail}." for rail in rails)]:
            prefix = f"{scope}{inner}"
            active, dynamic, idle = (
                figures.get(f"{prefix}{n}") for n in ("active_power_w", "dynamic_power_w", "idle_power_w")
            )
            if time_s is None or active is None or dynamic is None or idle is None:
                continue
            cut = figures.get(f"{prefix}trimmed.active_power_w")
            out[f"{prefix}energy_per_inference_j"] = product(active, time_s, "J", spec)
            out[f"{prefix}dynamic_energy_per_inference_j"] = product(dynamic, time_s, "J", dynamic.method)
            if dynamic.method.startswith("integrated"):
                out[f"{prefix}energy_per_inference_integrated_j"] = product(active, time_s, "J", dynamic.method)
            if cut is not None:
                out[f"{prefix}trimmed.energy_per_inference_j"] = product(cut, time_s, "J", "trimmed " + spec)
    return out


def _summary(tb: Timebase) -> ClockSummary:
    return ClockSummary(
        tb.clock.name, tb.method, tb.sigma_s, tb.rate - 1.0, tb.rate_sigma, tb.brackets, dict(tb.considered)
    )


def _series(activity: Activity, placed: list[tuple[Rail, Readings, Timebase]]) -> Series:
    return Series(
        rails=tuple(RailSeries(r.rail, r.start_s, r.end_s, np.where(r.ok, r.watts, np.nan)) for _, r, _ in placed),
        phase_windows_s={name: p.windows_s for name, p in activity.phases.items()},
        warmup_windows_s=activity.warmup_s,
        idle_windows_s=activity.idle_s,
        mark_windows_s=activity.marks_s,
        execution_times_s=per_inference_s(activity),
    )


__all__ = ["DataError", "evaluate"]
