"""Checks of what was measured: idle, windows, clocks, readings, instruments, rails, arithmetic."""

import contextlib
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any

import numpy as np

from reports.audit.clocks import line
from reports.audit.evidence import Evidence, NotApplicable, Verdict, agreed, broken, doubted, each, unlike
from reports.audit.figures import device_line, execution_times, mean_of, spans, windows_of
from reports.audit.folder.reading import Run, clean, traces
from reports.audit.power.estimate import Level, RailPower, idle_windows, power_rails
from reports.audit.power.placing import shortened, touch
from rig.recording.records import DeviceRecord, MeterRecord

LOST_MOST, OVER_MOST = 0.05, 0.01
"""The largest shares of readings that may be missing or at the end of the range."""
ASLEEP = 0.03
"""Idle windows may be below the gaps between spans by at most this part of dynamic power."""
SLEPT = (
    "asleep in idle, or something else works in the gaps, such as the host: idle is {:.3g} W below the gaps, in their "
    "middle too. Keep the device ready in idle, or leave gaps over three times as long as the host's work"
)
BESIDE = "something else works beside the spans, such as the host, or idle was asleep"
SLEEPS = "the device sleeps in the gaps, or it worked in the idle windows"
CALIBRATED_DAYS = 730
DATED_NS = 10**18
"""An imported run whose first reading is later than this (in 2001) counts time from 1970."""
BUSY, TIME = "busy_time_per_inference_s", "execution_time_s"
PRODUCTS = ("active_power_w", "dynamic_power_w", "energy_per_inference_j")
STEP_BOUNDS = 2.0
"""Dynamic power below this many times its bound is no step in the trace, because noise may look like spans."""
INTEGRAL, JOULES_MOST = "energy_per_inference_integrated_j", 0.05
"""Integrated energy may differ from power times time of the same runs by at most this part, besides both intervals."""
SAID = ("kind", "aperture_s", "gain_id", "pin", "pin_lag_s")
"""The fields of a rail that the reader does not compare between the start line and the trace."""
DRAWN = ("active_power_w", "average_power_w", "runtime_power_w")
"""Figures of the whole device's power at work; they are never below zero."""


def _metered(e: Evidence) -> list[tuple[str, Run]]:
    found = [(name, run) for name, run in e.subject.runs if power_rails(run)]
    if not found:
        raise NotApplicable("no power was recorded")
    return found


def _rails(e: Evidence) -> Iterator[tuple[str, Run, str, RailPower]]:
    """Yield each rail for which power was found: its place, its run, its name and its power."""
    for part in e.subject.parts:
        for run in part.runs:
            for name, rail in part.rails.get(run.path.name, {}).items():
                yield f"{part.name}/{run.path.name}", run, name, rail


def idle(e: Evidence) -> Verdict:
    faults = [f"{name}: no idle window" for name, run in _metered(e) if not len(idle_windows(run))]
    faults += broken(e, "shortest idle window")
    found, doubts = "long enough", []
    held = ((f"{part.name}/{own}", rails.values()) for part in e.subject.parts for own, rails in part.rails.items())
    for where, rails in held:
        if not rails:
            continue
        apart = any(rail.apart for rail in rails)
        area = sum((rail.area for rail in rails), Level(0.0, 0.0))
        dynamic = sum(rail.inner.w for rail in rails) if apart else area.w
        gap, level = np.nansum([rail.gap_w for rail in rails]), sum(rail.idle.w for rail in rails)
        above = f"dynamic power is {dynamic:.4g} W above the idle windows, {dynamic - gap:.4g} W above the gaps"
        found = f"in {where} idle windows are at {level:.4g} W, gaps between spans at {level + gap:.4g} W; {above}"
        below = gap > ASLEEP * abs(area.w)
        if apart and below and not all(rail.rests for rail in rails if rail.apart):
            faults.append(f"{where}: {SLEPT.format(gap)}")
        elif apart:
            doubts.append(f"{where}: {above}; {BESIDE if below else SLEEPS}")
        if not apart and area.w <= STEP_BOUNDS * area.bound_w:
            doubts.append(f"{where}: the readings show no step at the spans; the meter may watch another rail")
    doubted(faults, doubts)
    return faults, found, "at least as long as the rule asks; not below the gaps"


def window_places(e: Evidence) -> Verdict:
    def faults_of(run: Run) -> Iterator[str]:
        idle = idle_windows(run)
        idle = idle[np.argsort(idle[:, 0])]
        if np.any(idle[1:, 0] < idle[:-1, 1]) or np.any(idle[:, 1] < idle[:, 0]):
            yield "idle windows overlap"
        stamped, slack = spans(run), device_line(run).bound_s + 1e-6
        if touch(shortened(idle, slack, slack), windows_of(stamped)).any():
            yield "a span lies in an idle window"

    faults = each(e, faults_of) + broken(e, "spans that")
    for where, run, name, rail in _rails(e):
        stamped, margin = spans(run), rail.clock_bound_s + 2 * rail.facts.period_s
        inside = stamped.on.min() >= rail.facts.first_s - margin and stamped.off.max() <= rail.facts.last_s + margin
        if run.ended and not inside:
            faults.append(f"{where}: spans lie outside the trace of {name}")
        if moved := rail.misplaced_s:
            late = f"{abs(moved):.3g} s {'later' if moved > 0 else 'earlier'} than they are stamped"
            faults.append(f"{where}: the trace of {name} shows the spans {late}")
    return faults, "inside", "spans between issue and answer, inside the trace, outside of idle windows"


def clocks(e: Evidence) -> Verdict:
    found, faults = [], each(e, _two_clocks)
    for own, run in e.subject.runs:
        for name, rows in run.brackets.items():
            clock, t0 = line(run, name), int(run.start["t0_ns"])
            at = clock.seconds(rows[:, 1])
            slack = clock.bound_s + clock.rate_bound * float(np.ptp(at)) + 1e-6
            told = next(one for one in run.start["clocks"] if one["name"] == name)
            off = abs(clock.s_per_tick * told["tick_hz"] - 1)
            if off > told.get("tolerance", 1e-3) + clock.rate_bound:
                faults.append(f"{own}: the clock {name!r} is {off:.2g} off its declared rate")
            out = np.max(np.maximum((rows[:, 0] - t0) * 1e-9 - at, at - (rows[:, 2] - t0) * 1e-9), initial=0.0)
            found.append((float(out), slack, f"{own}: the clock {name!r}"))
    if not found and not faults:
        raise NotApplicable("every stamp is of the host's clock")
    faults += [f"{of} leaves its brackets by {out:.3g} s, allowed {ok:.3g} s" for out, ok, of in found if out > ok]
    worst, _, of = max(found, default=(0.0, 0.0, "none"))
    allowed = "half of the quickest round trip, plus what the uncertain rate adds"
    return faults, f"at most {worst:.2g} s outside of a bracket ({of})", allowed


def _lost(run: Run) -> Iterator[str]:
    """Yield a fault for each trace of an ended run that does not hold as many readings as arrived."""
    for name, batches in zip(traces(run), run.whole.trace_files, strict=True) if run.stop is not None else ():
        if (held := int(batches.row[-1])) != run.arrived.get(name, held):
            yield f"the trace of {clean(name)} holds {held} readings, but {run.arrived[name]} arrived"


def _two_clocks(run: Run) -> Iterator[str]:
    """Yield a fault for each clock that a device or meter describes differently from the run."""
    listed, start = run.whole.clocks(), run.whole.start
    parts: list[DeviceRecord | MeterRecord] = [start.device, *start.meters]
    for part in parts:
        if part.clock is not None and part.clock != listed.get(part.clock.name, part.clock):
            yield f"{clean(part.name)} describes its clock {clean(part.clock.name)!r} otherwise than the run does"


def _meters(run: Run) -> list[tuple[Any, Any]] | None:
    """Return name and serial number of each meter of a power run. Other facts differ whenever the meter is opened."""
    return [(one["name"], one.get("serial_number")) for one in run.start["meters"]] if run.purpose == "power" else None


def readings(e: Evidence) -> Verdict:
    _metered(e)
    if e.quick:
        raise NotApplicable("left out by --quick")
    faults = [f"{part.name}/{own}: {why}" for part in e.subject.parts for own, why in part.refused.items()]
    faults += each(e, _lost)
    least = math.inf
    for where, _, name, rail in _rails(e):
        least = min(least, rail.readings_per_span)
        over = rail.facts.overload / max(1, rail.facts.count)
        faults += [f"{where}, rail {name}: {rail.unseen:.1%} of the readings are missing"] * (rail.unseen > LOST_MOST)
        faults += [f"{where}, rail {name}: {over:.1%} of the readings are at the end of the range"] * (over > OVER_MOST)
    allowed = f"at most {LOST_MOST:.0%} missing and {OVER_MOST:.0%} clipped"
    return faults, f"{least:.3g} readings in a span, or more", allowed


def instrument(e: Evidence) -> Verdict:
    faults, without = [], 0
    for name, run in _metered(e):
        for meter in run.start["meters"]:
            calibrated = _day((meter.get("calibration") or {}).get("date"))
            made, without = _made(run.start), without + (calibrated is None)
            if calibrated and not made:
                faults.append(f"{name}: it is not recorded when the run was made")
            elif calibrated and made and not 0 <= (age := (made - calibrated).days) <= CALIBRATED_DAYS:
                faults.append(f"{name}: {clean(meter.get('name'))} was calibrated {age} days before the run")
    if not faults and without:
        raise NotApplicable(f"{without} times no date of a calibration certificate is recorded")
    return faults, "every instrument was calibrated", f"at most {CALIBRATED_DAYS} days before the run"


def _made(start: Mapping[str, Any]) -> date | None:
    """Return the day of a run. For an import that counts time from 1970, it is the day of its first reading."""
    dated = start.get("imported") and start["t0_ns"] > DATED_NS
    return datetime.fromtimestamp(start["t0_ns"] * 1e-9, UTC).date() if dated else _day(start.get("created_utc"))


def _day(told: object) -> date | None:
    with contextlib.suppress(ValueError):
        return date.fromisoformat(str(told)[:10])
    return None


def rails(e: Evidence) -> Verdict:
    def faults_of(run: Run) -> Iterator[str]:
        told = {rail.name: rail for meter in run.whole.start.meters for rail in meter.rails}
        declared, recorded = set(map(clean, told)), set(map(clean, traces(run)))
        for name, own in ((name, trace.rail) for name, trace in traces(run).items() if name in told):
            if differ := [key for key in SAID if getattr(told[name], key) != getattr(own, key)]:
                yield f"rail {clean(name)} has another {', '.join(differ)} in its trace than in the start line"
        if missing := sorted(declared - recorded):
            yield f"no trace of the declared rails {', '.join(missing)}"
        if declared and (extra := sorted(recorded - declared)):
            yield f"traces of undeclared rails {', '.join(extra)}"

    metered = _metered(e)
    held = [f"{name}: {fault}" for name, run in metered for fault in _volts_told(run)]
    held += [
        f"{row['name']}: power runs have different rails"
        for row, parts in e.subject.configurations or [({"name": part.name}, [part]) for part in e.subject.parts]
        if len({tuple(sorted(traces(r))) for part in parts for r in part.runs if r.purpose == "power"}) > 1
    ]
    held += unlike(e, "power runs have {} sets of meters", _meters)
    plain = [(f"{part.name}/{name}", found) for part in e.subject.parts for name, found in part.plain.items()]
    for where, key, f in ((where, key, found[key]) for where, found in plain for key in DRAWN if key in found):
        if f.value + f.bound < 0:
            held.append(f"{where}: {key} is {f.value:.4g}; the sign of a current clamp or shunt is reversed")
    return agreed(e, each(e, faults_of) + held, "power_w")


def _powered_s(e: Evidence) -> dict[str, float]:
    """Return the busy time per inference of each run, and its mean over the power runs of each session, by scope.

    If times scatter, the mean of the performance runs differs from that of the power runs by chance.
    """
    found = dict[str, float]()
    for part in e.subject.parts:
        each = [(run, (own.get(BUSY) or own[TIME]).value) for run in part.runs if (own := execution_times(run))]
        found |= {clean(run.path.name): seconds for run, seconds in each}
        if powered := [seconds for run, seconds in each if run.purpose == "power"]:
            found[clean(part.folder.relative_to(e.subject.path).as_posix())] = mean_of(powered)
    return found


def _volts_told(run: Run) -> Iterator[str]:
    """Yield a fault if no conversion of a current uses the voltage or shunt of the command line or the meters."""
    used = [trace.rail.conversion for trace in traces(run).values() if trace.rail.conversion.unit == "A"]
    for name in ("supply_v", "burden_ohm"):
        found = re.findall(rf"\b{name}=([0-9][0-9.e+-]*)", " ".join(map(str, run.start.get("argv") or ())))
        told = {float(text) for text in found if text.count(".") < 2 and text[-1].isdigit()}
        told |= {v for m in run.start["meters"] if isinstance(v := (m.get("details") or {}).get(name), float)}
        own = {getattr(each, name) for each in used} - {None}
        if own and told and not told & own:
            values = (", ".join(map(str, sorted(each))) for each in (own, told))
            yield "{} is {} in the conversion, and {} as stated".format(name, *values)


def arithmetic(e: Evidence) -> Verdict:
    faults, counted, lasted = [], 0, _powered_s(e)
    for scope, held in e.claims.items():
        values = defaultdict(lambda: math.nan, {key: claim.value for key, claim in held.items()})
        idle, time = values["idle_power_w"], values[BUSY if BUSY in held else TIME]
        for prefix in ("", "literal."):
            active, dynamic, joules = (values[prefix + key] for key in PRODUCTS)
            sums = (active - dynamic - idle, active, "dynamic_power_w is not active less idle power")
            products = (joules - active * time, joules, "energy_per_inference_j is not power times time")
            for apart, scale, fault in (sums, products):
                counted += not math.isnan(apart)
                faults += [f"{scope}: {prefix}{fault}"] if abs(apart) > 1e-6 * abs(scale) else []
        if INTEGRAL in held and PRODUCTS[0] in held and scope in lasted:
            watts, integral, seconds = held[PRODUCTS[0]], held[INTEGRAL], lasted[scope]
            apart = abs(watts.value * seconds - integral.value) - watts.half_width * seconds - integral.half_width
            if apart > JOULES_MOST * abs(integral.value):
                product = f"{PRODUCTS[0]} is {watts.value:.4g} W for {seconds:.4g} s"
                faults.append(f"{scope}: {product}, and {INTEGRAL} is {integral.value:.4g} J")
    if not counted:
        raise NotApplicable("no power and energy are claimed together")
    return faults, f"{counted} sums and products", "equal within one in a million; integrated energy within 5 %"
