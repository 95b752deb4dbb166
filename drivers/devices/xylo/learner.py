"""A simulated Xylo that learns words from a few samples: its readout holds a prototype of each word in integers.

The features of a sample are the spikes of each neuron of the last hidden layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from drivers.devices.training_data import LEARNING, base_words, prototypes, shots_of
from drivers.devices.xylo.backend import Job, Raster, SimBackend, SimulatedChip
from drivers.devices.xylo.networks.complexity import inspection_of
from drivers.devices.xylo.networks.network import LIMITS, Network
from rig.errors import DataError
from rig.network.description import NetworkInfo
from rig.types import Floats, Sample, SimulatedBench, Workload

WEIGHT, THRESHOLD = 127, 16_000
"""The largest weight of 8 bits, and the largest threshold: half the range of a membrane of 16 bits."""
CURRENT_SHIFT, MEMBRANE_SHIFT = 1, 15
"""Shifts of the readout's neurons: the current decays in a few steps, and the membrane integrates it."""


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
        """Return the description of the network with a weight for each word, learnt or not."""
        spec = dict(self.network.specification)
        spec["weights_out"] = np.ones_like(spec["weights_out"])
        return inspection_of(replace(self.network, specification=spec)).info

    def begin(self, job: Job) -> None:
        """Answer, or learn the shots of a word; at the first sample of a round it forgets all learnt words."""
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
        features = [each.hidden[:, -self.network.layers[-2] :].sum(axis=0) for each in heard]
        self._means[word] = np.mean(features, axis=0)
        self._write(len(shots[0]))
        return sum(each.seconds for each in heard)

    def _write(self, steps: int) -> None:
        """Fit the readout to samples of ``steps`` steps: a neuron of score 0 fires in half the steps."""
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
