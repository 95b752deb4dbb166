"""The protocol of a backend, which runs a Xylo network on a chip or a simulator, and the simulated chip.

A backend takes rasters of events, and returns output spikes, spans and activity. The real chip is in ``chip``. The
simulated chip can learn words from a few samples. Its readout then has one prototype of integers for each word. The
features of a sample are the spike counts of the neurons of the last hidden layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from drivers.devices.training_data import LEARNING, base_words, prototypes, shots_of
from drivers.devices.xylo import rockpool_import
from drivers.devices.xylo.networks.complexity import Inspection, inspection_of
from drivers.devices.xylo.networks.network import LIMITS, Network
from drivers.devices.xylo.published_power import IDLE_W, LIVE_IDLE_W, LIVE_PHASE_W, PHASE_W
from drivers.links.virtual_time import VirtualTime
from rig.errors import DataError
from rig.network.description import Activity, NetworkInfo
from rig.types import Floats, Sample, SimulatedBench, Span, Workload

PHASES = ("preprocess", "inference")
TICK_NS = 80
"""The tick of the simulated counter: 80 ns, as the 12.5 MHz of the board's FPGA."""

Raster = NDArray[np.int64]
WEIGHT, THRESHOLD = 127, 16_000
"""The largest weight of 8 bits, and the largest threshold: about half the largest value of a membrane of 16 bits."""
CURRENT_SHIFT, MEMBRANE_SHIFT = 1, 15
"""Shifts of the readout's neurons: the current decays in a few steps, and the membrane integrates it."""


@dataclass(frozen=True, slots=True)
class Job:
    """One sample to process. Each of ``phases`` runs ``times`` times. The front end hears it for ``listening_s``.

    The ``raster`` of a sample to learn from has one more axis, the first, for its shots.
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
    """Runs a network on jobs, one after another.

    The network is at rest when a sample begins, except on a chip that listens to its microphone.
    """

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
        """Simulate every bin. Each bin takes the mean time of the cycle model at the core clock."""
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
        plant.install(*((LIVE_IDLE_W, LIVE_PHASE_W) if live else (IDLE_W, PHASE_W)))
        self.finished, self.timer, self.close = self._time.finished, self._time.timer, self._time.clear

    def begin(self, job: Job) -> None:
        """Occupy the bench from now on, or as soon as the chip is free."""
        found = self.backend.infer(job.raster) if "inference" in job.phases else None
        lasting_s = {"preprocess": job.listening_s, "inference": found.seconds if found else 0.0}
        spans = tuple(self._time.occupy(k, round(lasting_s[k] * job.times * 1e9), job.times) for k in job.phases)
        spikes, activity = (found.output.sum(axis=0).tolist(), found.activity) if found else (None, None)
        self._time.give(Done(job.sample_id, spikes, spans, activity))

    def work(self, job: Job, seconds: float) -> None:
        """Occupy the bench with a job of one phase that gives no answer."""
        span = self._time.occupy(job.phases[0], round(seconds * job.times * 1e9), job.times)
        self._time.give(Done(job.sample_id, None, (span,), None))


def _cycles_config(spec: Mapping[str, Any]) -> SimpleNamespace:
    """Return the fields of a chip configuration that the cycle model reads.

    Rockpool's own ``config_from_specification`` needs samna; a simulation must not.
    """
    neurons = [SimpleNamespace(alias_target=next(iter(row), None)) for row in spec["aliases"]]
    return SimpleNamespace(
        input=SimpleNamespace(weights=spec["weights_in"][:, :, 0]),
        reservoir=SimpleNamespace(weights=spec["weights_rec"][:, :, 0], neurons=neurons),
        readout=SimpleNamespace(weights=spec["weights_out"]),
        synapse2_enable=False,
    )


class Learner:
    """The ``Backend`` of a simulated chip that learns the words of a workload, and knows its base words from the start.

    Raises ``DataError`` for a workload without base words, or with more words than the chip has outputs.
    """

    def __init__(
        self,
        network: Network,
        workload: Workload,
        core_clock_hz: float,
        plant: SimulatedBench,
        encode: Callable[[Sample], Raster],
    ) -> None:
        to_learn = [sample for sample in workload.samples if sample.learn]
        self._words = {sample.id: str(sample.label) for sample in to_learn}
        base, shown = base_words(workload)
        self._base, self._first, self._clock_hz = len(base), workload.samples[0].id, core_clock_hz
        self._means: dict[str, Floats] = {}
        self.network = _with_readout(network, [*base, *self._words.values()])
        self._chip = SimulatedChip(SimBackend.open(self.network, core_clock_hz), plant, live=True)
        for word, heard in shown():
            self._learn(word, [encode(shot) for shot in shots_of(replace(to_learn[0], payload=heard))])
        self.finished, self.timer, self.close = self._chip.finished, self._chip.timer, self._chip.close

    @property
    def simulator(self) -> SimBackend:
        """Return the simulator of the present network."""
        return self._chip.backend

    def info(self) -> NetworkInfo:
        """Return the description of the network as if all words were learnt and no weight of the readout were zero."""
        spec = dict(self.network.specification)
        spec["weights_out"] = np.ones_like(spec["weights_out"])
        return inspection_of(replace(self.network, specification=spec)).info

    def begin(self, job: Job) -> None:
        """Answer, or learn a word from its shots (samples).

        The first sample of a round makes the chip forget learnt words.
        """
        if job.phases == (LEARNING,):
            self._chip.work(job, self._learn(self._words[job.sample_id], list(job.raster)))
            return
        if job.sample_id == self._first and len(self._means) > self._base:
            self._means = dict(list(self._means.items())[: self._base])
            self._write(len(job.raster))
        self._chip.begin(job)

    def _learn(self, word: str, shots: Sequence[Raster]) -> float:
        """Learn a word from samples, and return the seconds that the core takes for them."""
        heard = [self.simulator.infer(raster) for raster in shots]
        self._means[word] = np.mean([each.hidden[:, -self.network.layers[-2] :].sum(axis=0) for each in heard], axis=0)
        self._write(len(shots[0]))
        return sum(each.seconds for each in heard)

    def _write(self, steps: int) -> None:
        """Fit the readout to samples of ``steps`` steps. A neuron with the score 0 then fires in half the steps."""
        means = np.array(list(self._means.values()))
        weights, biases = prototypes(means)
        weights, biases = weights - weights.mean(axis=0), biases - biases.mean()  # a common offset changes no decision
        most = 2.0 * np.abs(means @ weights.T + biases).max() / steps or 1.0
        scale = min(WEIGHT / (np.abs(weights).max() or 1.0), THRESHOLD / most)
        threshold, known = math.ceil(scale * most), [self.network.classes.index(word) for word in self._means]
        spec = {**self.network.specification}
        spec["weights_out"], spec["bias_out"] = np.zeros_like(spec["weights_out"]), np.zeros_like(spec["bias_out"])
        spec["weights_out"][-weights.shape[1] :, known] = np.rint(scale * weights.T)
        spec["bias_out"][known] = np.rint(scale * biases / steps + threshold / 2)
        spec["threshold_out"] = np.full_like(spec["threshold_out"], threshold)
        self.network = replace(self.network, specification=spec)
        self._chip.backend = SimBackend.open(self.network, self._clock_hz)


def _with_readout(network: Network, words: Sequence[str]) -> Network:
    """Return a network whose last hidden layer leads to one neuron for each word, without weights yet."""
    if len(words) > LIMITS["output"]:
        what = f"the workload has {len(words)} words, and a Xylo has {LIMITS['output']} output neurons"
        remedy = "Give a folder with fewer base words, and ask for fewer words (sessions, way)"
        raise DataError(what, field="workload", value=len(words), remedy=remedy)
    last, every = len(network.layers) - 1, np.ones(len(words), np.int64)
    spec = {
        **network.specification,
        "weights_out": np.zeros((sum(network.layers[1:-1]), len(words)), np.int64),
        "dash_syn_out": CURRENT_SHIFT * every,
        "dash_mem_out": MEMBRANE_SHIFT * every,
        "threshold_out": THRESHOLD * every,
        "bias_out": 0 * every,
        "weight_shift_out": 0,
    }
    links = (*(link for link in network.links if link[1] != last), (last - 1, last))
    layers, classes = (*network.layers[:-1], len(words)), tuple(words)
    return replace(network, classes=classes, layers=layers, links=links, specification=spec, floats=None)
