"""The protocol of what runs a Xylo network, a chip or a simulator, and the simulated chip.

In: rasters of events. Out: output spikes, spans and activity. The real chip is in ``chip``. The simulated
chip's declared power, in watts by rail, is published as a total; its split over rails is assumed. This project measured
none of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from drivers.devices.xylo import rockpool_import
from drivers.devices.xylo.networks.complexity import Inspection, inspection_of
from drivers.devices.xylo.networks.network import Network
from drivers.links.virtual_time import VirtualTime
from rig.network.description import Activity
from rig.types import SimulatedBench, Span

SOURCE = (
    "published Xylo Audio 2 acoustic scene figures (arXiv 2410.23776): active 692 uW, "
    "57.6 uJ per inference of which 28.4 uJ dynamic; idle = active * (1 - 28.4 / 57.6)"
)
ASSUMPTION = (
    "the split over rails, and all that the analog front end adds while pre-processing, "
    "are assumptions: the publication gives totals of the inference only"
)

ACTIVE_W = 692e-6
DYNAMIC_W = ACTIVE_W * 28.4 / 57.6
_IDLE_SHARE = {"io": 0.18, "afe_core": 0.10, "afe_ldo": 0.02, "snn_core": 0.70}
_INFERENCE_SHARE = {"io": 0.15, "snn_core": 0.85}
_FRONT_END_W = {"afe_core": 36e-6, "afe_ldo": 4e-6}

IDLE_W = {rail: share * (ACTIVE_W - DYNAMIC_W) for rail, share in _IDLE_SHARE.items()}
PHASE_W = {
    "preprocess": {rail: idle + _FRONT_END_W.get(rail, 0.0) for rail, idle in IDLE_W.items()},
    "inference": {rail: idle + DYNAMIC_W * _INFERENCE_SHARE.get(rail, 0.0) for rail, idle in IDLE_W.items()},
}

FRONT_END_RAILS = tuple(_FRONT_END_W)
"""The rails that supply only the analog front end."""
LIVE_IDLE_W = PHASE_W["preprocess"]
"""Idle power while the front end listens all the time."""
LIVE_PHASE_W = {
    phase: {rail: watts + _FRONT_END_W.get(rail, 0.0) for rail, watts in PHASE_W["inference"].items()}
    for phase in ("inference", "learning")
}
PHASES = ("preprocess", "inference")
TICK_NS = 80
"""The tick of the simulated counter: 80 ns, as the 12.5 MHz of the board's FPGA."""

Raster = NDArray[np.int64]


def profile() -> dict[str, Any]:
    """Return the profile as JSON values, with its source and what in it is assumed."""
    return {"idle_w": IDLE_W, "phase_w": PHASE_W, "source": SOURCE, "assumption": ASSUMPTION}


@dataclass(frozen=True, slots=True)
class Job:
    """One sample to process: each of ``phases`` runs ``times`` times; the front end hears it for ``listening_s``.

    The ``raster`` of a sample to learn from has one more axis, for its shots.
    """

    sample_id: str
    raster: Raster
    listening_s: float
    times: int
    phases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """A processed job. ``spikes`` are those of one repetition, by class, or None without inference.

    ``tries`` is the number of tries until the spans were known.
    """

    sample_id: str
    spikes: Sequence[int] | None
    spans: tuple[Span, ...]
    activity: Activity | None
    tries: int = 1


class Backend(Protocol):
    """Runs a network on jobs, one after another; every sample begins with the network at rest."""

    def begin(self, job: Job) -> None: ...
    def finished(self, timeout_s: float) -> Sequence[Done]: ...
    def timer(self) -> int: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Inference:
    """The result of one raster.

    ``output`` and ``hidden`` hold the spikes of the output and the hidden neurons, int64, shape (bins, neurons);
    ``seconds`` is the time on the chip. One execution of the network is one bin.
    """

    output: NDArray[np.int64]
    hidden: NDArray[np.int64]
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
        """Simulate every bin; each lasts the mean time of the cycle model at the core clock."""
        self.simulator.reset_state()
        out, _, recorded = self.simulator.evolve(raster, record=True)
        output = np.asarray(out, dtype=np.int64)
        hidden = np.asarray(recorded["Spikes"], dtype=np.int64)
        cycles, _ = self.cycles_model(self.cycles_config, raster, hidden, output)
        seconds = float(cycles) * len(raster) / self.core_clock_hz
        return Inference(output, hidden, seconds, self.inspection.activity(raster, recorded, output))


class SimulatedChip:
    """The ``Backend`` on a simulated bench, in its virtual time. The front end is live, or replays each sample."""

    def __init__(self, backend: SimBackend, plant: SimulatedBench, live: bool) -> None:
        self.backend, self._time = backend, VirtualTime[Done](plant, TICK_NS)
        if live:
            plant.install(LIVE_IDLE_W, LIVE_PHASE_W)
        else:
            plant.install(IDLE_W, PHASE_W)
        self.finished, self.timer, self.close = self._time.finished, self._time.timer, self._time.clear

    def begin(self, job: Job) -> None:
        """Occupy the bench from now on, or as soon as the chip is free."""
        spikes: Sequence[int] | None = None
        activity: Activity | None = None
        lasting_s = {"preprocess": job.listening_s}
        if "inference" in job.phases:
            result = self.backend.infer(job.raster)
            activity, lasting_s["inference"] = result.activity, result.seconds
            spikes = result.output.sum(axis=0).tolist()
        spans = tuple(self._time.occupy(k, round(lasting_s[k] * job.times * 1e9), job.times) for k in job.phases)
        self._time.give(Done(job.sample_id, spikes, spans, activity))

    def work(self, job: Job, seconds: float) -> None:
        """Occupy the bench with a job of one phase that gives no answer."""
        span = self._time.occupy(job.phases[0], round(seconds * job.times * 1e9), job.times)
        self._time.give(Done(job.sample_id, None, (span,), None))


def _cycles_config(spec: Mapping[str, Any]) -> SimpleNamespace:
    """Return the few fields of a chip configuration that the cycle model reads.

    Rockpool's own ``config_from_specification`` needs samna; a simulation must not.
    """
    neurons = [SimpleNamespace(alias_target=None)] * len(spec["threshold"])
    return SimpleNamespace(
        input=SimpleNamespace(weights=spec["weights_in"][:, :, 0]),
        reservoir=SimpleNamespace(weights=spec["weights_rec"][:, :, 0], neurons=neurons),
        readout=SimpleNamespace(weights=spec["weights_out"]),
        synapse2_enable=False,
    )
