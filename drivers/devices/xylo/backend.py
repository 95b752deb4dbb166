"""What runs a Xylo network: the protocol of both backends, and the simulated chip.

In: rasters of events. Out: output spikes, spans and what the network did. The chip itself is in ``chip``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from drivers.devices.xylo import power as xylo_power
from drivers.devices.xylo import rockpool_import
from drivers.devices.xylo.complexity import Inspection, inspection_of
from drivers.devices.xylo.network import Network
from rig.network.description import Activity
from rig.types import Plant, Span

PHASES = ("preprocess", "inference")
TICK_NS = 80
"""The tick of the simulated counter, 12.5 MHz as in the board's FPGA."""

Raster = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Job:
    """One sample to process, each of ``phases`` ``times`` times; ``listening_s`` is how long the front end hears it."""

    sample_id: str
    raster: Raster
    listening_s: float
    times: int
    phases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """A processed job. ``spikes`` of one processing, by class, are None without inference."""

    sample_id: str
    spikes: Sequence[int] | None
    spans: tuple[Span, ...]
    activity: Activity | None


class Backend(Protocol):
    """Runs a network on jobs, one after another; every sample begins with the network at rest."""

    def begin(self, job: Job) -> None: ...
    def finished(self, timeout_s: float) -> Sequence[Done]: ...
    def timer(self) -> int: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Inference:
    """The result of one raster.

    ``output`` holds the spikes of the output neurons, int64, shape (bins, classes); ``seconds`` is the time on the
    chip; one execution of the network is one bin.
    """

    output: NDArray[np.int64]
    seconds: float
    activity: Activity


@dataclass(frozen=True, slots=True)
class SimBackend:
    """XyloSim and the cycle model."""

    simulator: Any
    cycles_model: Any
    cycles_config: SimpleNamespace
    inspection: Inspection
    core_clock_hz: float

    @classmethod
    def open(cls, network: Network, core_clock_hz: float) -> SimBackend:
        """Import Rockpool and build the simulated chip. Raises ``MissingExtraError`` without Rockpool."""
        xylo = rockpool_import.load_xylo_audio2()
        simulator = xylo.simulator.from_specification(**network.specification)
        config = _cycles_config(network.specification)
        return cls(simulator, xylo.cycles_model, config, inspection_of(network), core_clock_hz)

    def infer(self, raster: Raster) -> Inference:
        """Simulate every bin; each lasts the cycle model's mean at the core clock."""
        self.simulator.reset_state()
        out, _, recorded = self.simulator.evolve(raster, record=True)
        output = np.asarray(out, dtype=np.int64)
        hidden = np.asarray(recorded["Spikes"], dtype=np.int64)
        cycles, _ = self.cycles_model(self.cycles_config, raster, hidden, output)
        seconds = float(cycles) * len(raster) / self.core_clock_hz
        return Inference(output, seconds, self.inspection.activity(raster, recorded, output))


class SimulatedChip:
    """The ``Backend`` on a simulated bench, in its virtual time. The front end is live, or replays each sample."""

    def __init__(self, backend: SimBackend, plant: Plant, live: bool) -> None:
        self._backend, self._plant = backend, plant
        self._open_ns = self._busy_until_ns = plant.clock.now_ns()
        self._pending: deque[tuple[int, Done]] = deque()
        if live:
            plant.install(xylo_power.LIVE_IDLE_W, xylo_power.LIVE_PHASE_W)
        else:
            plant.install(xylo_power.IDLE_W, xylo_power.PHASE_W)

    def begin(self, job: Job) -> None:
        """Occupy the bench from now, or from when the chip is free."""
        spikes: Sequence[int] | None = None
        activity: Activity | None = None
        lasting_s = {"preprocess": job.listening_s}
        if "inference" in job.phases:
            result = self._backend.infer(job.raster)
            activity, lasting_s["inference"] = result.activity, result.seconds
            spikes = result.output.sum(axis=0).tolist()
        spans = tuple(self._occupy(name, lasting_s[name] * job.times, job.times) for name in job.phases)
        self._pending.append((self._busy_until_ns, Done(job.sample_id, spikes, spans, activity)))

    def finished(self, timeout_s: float) -> Sequence[Done]:
        """Sleep until the oldest job ends, or for ``timeout_s``; jobs that are then done."""
        if not self._pending:
            return ()
        clock = self._plant.clock
        clock.sleep_until(min(self._pending[0][0], clock.now_ns() + round(max(timeout_s, 0.0) * 1e9)))
        done = []
        while self._pending and self._pending[0][0] <= clock.now_ns():
            done.append(self._pending.popleft()[1])
        return tuple(done)

    def timer(self) -> int:
        """The simulated counter now; it started at 0 when the device was opened."""
        return self._tick(self._plant.clock.now_ns())

    def close(self) -> None:
        """Forget what is pending."""
        self._pending.clear()

    def _tick(self, ns: int) -> int:
        return (ns - self._open_ns) // TICK_NS

    def _occupy(self, phase: str, seconds: float, executions: int) -> Span:
        on_ns = max(self._plant.clock.now_ns(), self._busy_until_ns)
        off_ns = on_ns + round(seconds * 1e9)
        self._plant.occupy(phase, on_ns, off_ns)
        self._busy_until_ns = off_ns
        return Span(phase, self._tick(on_ns), self._tick(off_ns), executions)


def _cycles_config(spec: Mapping[str, Any]) -> SimpleNamespace:
    """The few fields of a chip configuration that the cycle model reads.

    Rockpool's own ``config_from_specification`` needs samna, which a simulation must not.
    """
    neurons = [SimpleNamespace(alias_target=None)] * len(spec["threshold"])
    return SimpleNamespace(
        input=SimpleNamespace(weights=spec["weights_in"][:, :, 0]),
        reservoir=SimpleNamespace(weights=spec["weights_rec"][:, :, 0], neurons=neurons),
        readout=SimpleNamespace(weights=spec["weights_out"]),
        synapse2_enable=False,
    )
