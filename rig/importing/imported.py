"""The result of an importer: traces, windows and the clocks that stamp them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rig.errors import SetupError
from rig.types import Bracket, Chunk, ClockInfo, DeviceInfo, MeterInfo, Rail

CRYSTAL = 1e-4
"""The relative limit for the rate error of an instrument's own oscillator if none is stated."""


def not_an_import(importer: str, found: object, wanted: str) -> SetupError:
    """Return the error for an importer that returned ``found`` instead of ``wanted``."""
    what = f"the importer {importer} returned {type(found).__name__}, not {wanted}"
    return SetupError(what, field="importer", value=importer, remedy=f"Let it return {wanted}")


@dataclass(frozen=True)
class ImportedTrace:
    """The readings of one rail, in chunks and in order.

    Without ticks in the chunks, the readings form a uniform grid from ``t0_tick`` on, at the rail's ``rate_hz``.
    """

    rail: str
    chunks: Iterable[Chunk]
    t0_tick: int = 0


@dataclass(frozen=True)
class ImportedSpan:
    """One window of activity, in ticks of the device's clock, or in host ns if the device has no clock.

    It covers ``executions`` runs of a sample of ``inferences`` inferences. No figure includes a ``warmup`` window.
    """

    phase: str
    on_tick: int
    off_tick: int
    executions: int = 1
    inferences: int = 1
    sample_id: str | None = None
    warmup: bool = False


@dataclass(frozen=True)
class ImportedRun:
    """One recording. Host time is the common time axis of its files, in ns; the run begins at host time ``t0_ns``.

    ``brackets`` relate every other clock to host time, by the name of the clock. Their width is the uncertainty of the
    relation. ``idle_ns`` are the declared idle windows in host time. ``peers`` are the ``peer`` lines, from which
    ``rig.analysis.scores.reference_methods`` computes the recorder's own figures. ``originals`` are the files, by their
    names in the run. ``notes`` are sentences about missing data in the files; the run keeps them.
    """

    name: str
    device: DeviceInfo
    meters: tuple[MeterInfo, ...]
    traces: tuple[ImportedTrace, ...]
    spans: tuple[ImportedSpan, ...]
    brackets: Mapping[str, tuple[Bracket, ...]]
    originals: Mapping[str, Path]
    idle_ns: tuple[tuple[int, int], ...] = ()
    t0_ns: int = 0
    task: str = ""
    peers: tuple[Mapping[str, Any], ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def clocks(self) -> dict[str, ClockInfo]:
        """Return every clock by name, with the host's."""
        own = [self.device.clock] if self.device.clock else []
        return {c.name: c for c in (ClockInfo("host", 1e9, 0.0), *own, *(m.clock for m in self.meters))}

    def placing(self, clock: str) -> Callable[[int], int]:
        """Return the map from a clock's ticks to host ns, by its first bracket and nominal rate."""
        if clock == "host":
            return int
        bracket = self.brackets[clock][0]
        middle, hz = (bracket.before_ns + bracket.after_ns) // 2, self.clocks()[clock].tick_hz
        return lambda tick: middle + round((tick - bracket.tick) * (1e9 / hz))

    def rail(self, name: str) -> tuple[MeterInfo, Rail]:
        """Return a rail by name, with its meter."""
        return next((meter, rail) for meter in self.meters for rail in meter.rails if rail.name == name)

    @property
    def span_clock(self) -> str:
        """Return the name of the clock that stamps the windows."""
        return self.device.clock.name if self.device.clock else "host"
