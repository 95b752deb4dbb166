"""The clock of a meter by its brackets, and how late spans are on it by the edges of a GPIO input."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rig.analysis.timing.readings import Volts, volts_of
from rig.analysis.timing.timebase import RECTANGLE, SURE, Timebase
from rig.analysis.timing.timeline import Activity, timebase_of
from rig.errors import DataError
from rig.recording.reader import Run
from rig.recording.traces import Trace
from rig.types import Floats


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
            sigma_s = math.hypot(device.look_s / RECTANGLE, device.lag_s / math.sqrt(3.0))
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
        return SURE * max((against.sigma_at(float(t)) for t in ends_s), default=0.0)

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
