"""The clock of a meter by its brackets, and its map moved onto the edges of a GPIO input."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rig.analysis.timing.gpio_alignment import match
from rig.analysis.timing.gpio_edges import GpioInput, expected, observed, quiet_s
from rig.analysis.timing.readings import volts_of
from rig.analysis.timing.supply import Volts
from rig.analysis.timing.timebase import Timebase
from rig.analysis.timing.timeline import Activity, timebase_of
from rig.errors import DataError
from rig.recording.reader import Run
from rig.recording.traces import Trace
from rig.types import Floats

DISAGREE = 4.0
"""A note is made if a GPIO input and the trace differ by more than this many standard deviations."""


@dataclass(frozen=True)
class MeterClock:
    """The clock of a meter by its brackets, and what it is aligned with; the recording ended at ``end_s``."""

    run: Run
    bracketed: Timebase
    activity: Activity
    device: Timebase
    end_s: float

    @property
    def against_device(self) -> Timebase:
        """Return the bracketed map with its sigmas against the device's clock."""
        first, device = self.bracketed, self.device
        sigma_s = math.hypot(first.sigma_s, device.sigma_s)
        rate_sigma = math.hypot(first.rate_sigma, device.rate_sigma)
        found = replace(first, sigma_s=sigma_s, rate_sigma=rate_sigma, considered={"brackets": sigma_s})
        if self.stamps_spans and device.look_s > 0:
            # the device's spans are edges that this meter saw, so only the input's own errors remain
            sigma_s = math.hypot(device.look_s / math.sqrt(12.0), device.lag_s / math.sqrt(3.0))
            found = replace(found, sigma_s=sigma_s, rate_sigma=0.0)
        return found

    @property
    def stamps_spans(self) -> bool:
        """Return whether the device stamps its spans on this clock."""
        return self.bracketed.clock.name == self.device.clock.name

    def reach_s(self, windows_s: Floats) -> float:
        """Return how far the brackets may misplace windows, shape (k, 2)."""
        against = self.against_device
        ends_s = (windows_s.min(), windows_s.max()) if len(windows_s) else ()
        return 3.0 * max((against.sigma_at(float(t)) for t in ends_s), default=0.0)

    def volts_beside(self, traces: list[Trace]) -> list[Trace]:
        """Return the traces of volts that these rails name and the recording holds."""
        names = dict.fromkeys(t.rail.conversion.supply_rail for t in traces)
        return [self.run.traces[n] for n in names if n is not None and n in self.run.traces]

    def clock_of(self, volts: Trace, own: Timebase) -> Timebase:
        """Return the map of the clock of a trace of volts, which is ``own`` if the amperes have the same clock."""
        return own if volts.clock == own.clock.name else timebase_of(self.run, volts.clock, volts.rail.name)

    def volts(self, trace: Trace, own: Timebase) -> Volts | None:
        """Return the volts of a rail of amperes that names them; ``own`` maps the clock of the amperes.

        Raises ``DataError`` if the recording does not hold them.
        """
        name = trace.rail.conversion.supply_rail
        if name is None:
            return None
        found = self.run.traces.get(name)
        if found is None or found.rail.conversion.unit != "V" or not len(found.value):
            what = "is not in the recording" if found is None else "holds no volts"
            raise DataError(
                f"rail {name}, which rail {trace.rail.name} names as its supply, {what}",
                field="supply_rail",
                value=name,
                remedy="Record the voltage as a rail in V, or state it as supply_v",
            )
        return volts_of(found, self.clock_of(found, own))


# ---- by the edges of a GPIO input ---------------------------------------------------------


def by_edges(meter: MeterClock, traced: Timebase) -> tuple[Timebase, tuple[str, ...]]:
    """Return the map by GPIO edges if it is less uncertain than ``traced``, and notes on how well the edges fit."""
    activity, first, every = meter.activity, meter.bracketed, meter.run.traces.values()
    inputs = [
        t for t in every if t.clock == first.clock.name and t.rail.kind == "edges" and t.rail.pin and len(t.value)
    ]
    spans = np.concatenate([activity.busy_windows_s(), activity.warmup_s, activity.marks_s])
    if not inputs or not len(spans) or meter.stamps_spans:
        return traced, ()
    bracketed = meter.against_device
    reach_s = 3.0 * bracketed.sigma_s + bracketed.rate_sigma * float(np.ptp(spans))
    best, considered, notes = traced, dict(traced.considered), list[str]()
    for trace in inputs:
        name, rail, pin = trace.rail.name, trace.rail, trace.rail.pin or "level"
        look_s = first.rate / rail.rate_hz if rail.rate_hz > 0 else 1.0 / first.clock.tick_hz
        wanted = expected(spans, pin)
        found = observed(first.seconds(trace.end_tick), trace.value, pin, look_s, quiet_s(wanted))
        input_ = GpioInput(look_s, rail.pin_lag_s, meter.device.step_s)
        fit = match(wanted, found, reach_s, 2.0 * bracketed.rate_sigma, input_)
        if isinstance(fit, str):
            notes.append(f"Input {name}: its edges are not used for alignment: {fit}")
            continue
        considered["edges"] = min(fit.sigma_s, considered.get("edges", math.inf))
        if fit.missing or fit.extra:
            notes.append(
                f"Input {name}: {fit.matched} edges fit the spans, {fit.missing} are missing, {fit.extra} extra"
            )
        rate_sigma = min(fit.rate_sigma, bracketed.rate_sigma)
        moved = _at(first, fit.ref_s).adjusted(fit.shift_s, fit.rate, fit.sigma_s, rate_sigma, "edges")
        notes += _disagreement(moved, traced, name, float(spans.mean()))
        best = moved if moved.sigma_s < best.sigma_s else best
    return replace(best, considered=considered), tuple(notes)


def _at(timebase: Timebase, ref_s: float) -> Timebase:
    """Return the same map with its reference at the tick nearest to ``ref_s``."""
    ticks = round((ref_s - timebase.ref_s) * timebase.clock.tick_hz / timebase.rate)
    seconds = ticks * timebase.rate / timebase.clock.tick_hz
    return replace(timebase, ref_tick=timebase.ref_tick + ticks, ref_s=timebase.ref_s + seconds)


def _disagreement(moved: Timebase, traced: Timebase, name: str, at_s: float) -> list[str]:
    """Return a note if a GPIO input and the trace put the activity at different times."""
    if traced.method == "brackets":
        return []
    tick = traced.ref_tick + round((at_s - traced.ref_s) * traced.clock.tick_hz / traced.rate)
    by_s = float(np.diff([float(t.seconds(np.array([tick]))[0]) for t in (moved, traced)])[0])
    u_s = math.hypot(moved.sigma_at(at_s), traced.sigma_at(at_s))
    if abs(by_s) <= DISAGREE * u_s:
        return []
    return [
        f"Input {name} and the {traced.method} in the trace are {abs(by_s):.3g} s apart, and their combined "
        f"uncertainty is {u_s:.2g} s"
    ]
