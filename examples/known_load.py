"""A known load as a device: a resistor that one line of a serial port switches on and off.

    rig measure --device examples/known_load.py:open_device --workload examples/known_load.py:open_workload --simulate

While it is on, the load uses ``supply_v ** 2 / ohms`` watts, and no power while it is off. So every figure of power is
known in advance. With ``--simulate`` the load and its meter are SIMULATED. Without it, the line RTS of ``port`` drives
a MOSFET between the resistor and ground.
"""

from collections.abc import Callable, Sequence

import numpy as np

import rig
from rig.errors import refused
from rig.types import MARK_PHASE, Budget, Clock, Reply, Sample, SimulatedBench, Span

RAIL, PHASE = "load", "inference"


class Load:
    """A load that is on for the duration of each sample. The host's clock stamps both edges."""

    def __init__(
        self, clock: Clock, info: rig.DeviceInfo, switch: Callable[[bool], None], bench: SimulatedBench | None
    ) -> None:
        self._clock, self._info, self._switch, self._bench = clock, info, switch, bench
        self._on: list[tuple[str, int, int]] = []

    def info(self) -> rig.DeviceInfo:
        """Return the load's description. Its true power is in the details of the recording."""
        return self._info

    def stage(self, samples: Sequence[Sample]) -> None:
        """Do nothing, because a load needs no samples."""

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        """Switch the load on."""
        (sample,) = samples
        self._on.append((sample.id, *self._begin(PHASE, sample.duration_s)))

    def poll(self, timeout_s: float) -> Sequence[Reply]:
        """Switch the load off when its time is over."""
        if not self._on:
            return ()
        sample_id, on_ns, due_ns = self._on[0]
        self._clock.sleep_until(min(due_ns, self._clock.now_ns() + round(timeout_s * 1e9)))
        if self._clock.now_ns() < due_ns:
            return ()
        self._on.clear()
        return [Reply(sample_id, None, (Span(PHASE, on_ns, self._end()),))]

    def pulse(self, seconds: float) -> Span:
        """Switch the load on for a while, so that readings and stamps can be aligned."""
        on_ns, due_ns = self._begin(MARK_PHASE, seconds)
        self._clock.sleep_until(due_ns)
        return Span(MARK_PHASE, on_ns, self._end())

    def close(self) -> None:
        """Switch the load off."""
        self._switch(False)

    def _begin(self, phase: str, seconds: float) -> tuple[int, int]:
        self._switch(True)
        on_ns = self._clock.now_ns()
        due_ns = on_ns + round(seconds * 1e9)
        if self._bench is not None:
            self._bench.occupy(phase, on_ns, due_ns)
        return on_ns, due_ns

    def _end(self) -> int:
        self._switch(False)
        return self._clock.now_ns()


def open_device(
    clock: Clock, bench: SimulatedBench | None = None, *, ohms: float = 100.0, supply_v: float = 1.8, port: str = ""
) -> rig.Device:
    """Open a load of ``ohms`` at ``supply_v``, measured at its terminals, on the line RTS of ``port``."""
    true_w = supply_v**2 / ohms
    details = {"true_w": true_w, "ohms": ohms, "supply_v": supply_v}
    description = f"resistor of {ohms:g} ohm at {supply_v:g} V, switched"
    if bench is None:
        info = rig.DeviceInfo("known-load", "hardware", description, details=details)
        return Load(clock, info, _line(port), None)
    bench.install({RAIL: 0.0}, {PHASE: {RAIL: true_w}, MARK_PHASE: {RAIL: true_w}})
    info = rig.DeviceInfo("known-load", "simulator", f"SIMULATED {description}", onboard_meter="mock", details=details)
    return Load(clock, info, lambda on: None, bench)


def open_workload(*, count: int = 20, on_s: float = 0.5) -> rig.SampleSet:
    """Open ``count`` samples; the load is on for ``on_s`` seconds for each."""
    samples = [Sample(f"on-{k}", np.array([on_s]), duration_s=on_s) for k in range(count)]
    return rig.workload(samples, name="known-load", task="switch a load", details={"on_s": on_s})


def _line(port: str) -> Callable[[bool], None]:
    if not port:
        raise refused("port", port, "Add --option port=/dev/ttyUSB0, or --simulate", "no port switches the load")
    import serial

    line = serial.Serial()
    line.port, line.rts = port, False
    line.open()
    return lambda on: setattr(line, "rts", on)
