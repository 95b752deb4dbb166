"""The network before it was fitted to the chip: the same neurons in floating point, with unrounded weights.

One forward pass serves training, with many samples at once, and the device ``xylo-float``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
"""float32 or float64; a forward pass keeps the type of its weights."""
Link = tuple[int, int]
"""Two connected layers, by their position; the input is 0."""
MOST_SPIKES, MOST_SPIKES_OUT = 31, 1
"""The most spikes that a hidden and an output neuron of the chip send in one time step."""


@dataclass(frozen=True, slots=True, eq=False)
class Neurons:
    """One layer of current-based leaky integrate-and-fire neurons.

    In each time step a current keeps the share ``keep_syn`` of its value, and a membrane keeps ``keep_mem``. Both
    shares have shape (neurons,), like ``threshold`` and ``bias``. ``most`` is the largest number of spikes in one step.
    With ``decays_first``, an input has decayed once when it reaches the membrane, as on the chip.
    """

    keep_syn: Floats
    keep_mem: Floats
    threshold: Floats
    bias: Floats
    most: int
    decays_first: bool


def chip_neurons(shift_syn: NDArray[np.int64], shift_mem: NDArray[np.int64], last: bool) -> Neurons:
    """Return neurons that behave like the chip's, with a threshold of 1, from the shifts of their decays."""
    keep_syn, keep_mem = ((1 - 2.0**-shift).astype(np.float32) for shift in (shift_syn, shift_mem))
    one = np.ones(len(shift_syn), np.float32)
    return Neurons(keep_syn, keep_mem, one, 0 * one, MOST_SPIKES_OUT if last else MOST_SPIKES, True)


@dataclass(frozen=True, slots=True, eq=False)
class LayerTrace:
    """The inputs of one layer from each source, its output, and its membranes before the reset.

    Each has the shape (steps, ..., neurons), for an input with the neurons of its source.
    """

    arriving: Mapping[int, Floats]
    spikes: Floats
    before_reset: Floats


@dataclass(frozen=True, slots=True, eq=False)
class FloatNetwork:
    """Layers from the first hidden one to the output, and the weights of each connection (sources, targets).

    A connection is a pair of positions; the input is 0. A recurrent connection leads only from a layer to itself.
    Spikes of a layer arrive at another layer ``delay`` steps later, and at the same layer one step later. Events of the
    input arrive at once.
    """

    layers: tuple[Neurons, ...]
    weights: Mapping[Link, Floats]
    delay: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of inputs, then the number of neurons of each layer."""
        inputs = next(len(weights) for (a, _), weights in self.weights.items() if a == 0)
        return (inputs, *(len(neurons.threshold) for neurons in self.layers))

    def run(self, events: Floats) -> list[LayerTrace]:
        """Run from the resting state; ``events`` has shape (steps, ..., inputs)."""
        sent, traces = [events], []
        for place, neurons in enumerate(self.layers, 1):
            sources = [a for a, b in self.weights if b == place and a != place]
            arriving = {a: _later(sent[a], self.delay if a else 0) for a in sources}
            drive = sum(values @ self.weights[a, place] for a, values in arriving.items())
            spikes, before_reset = _run_layer(neurons, np.asarray(drive), self.weights.get((place, place)))
            traces.append(LayerTrace(arriving, spikes, before_reset))
            sent.append(spikes)
        return traces


def _later(sent: Floats, delay: int) -> Floats:
    return np.concatenate((np.zeros_like(sent[:delay]), sent[: len(sent) - delay])) if delay else sent


def _run_layer(neurons: Neurons, drive: Floats, back: Floats | None) -> tuple[Floats, Floats]:
    """Return spikes and membranes before reset for a drive of shape (steps, ..., neurons)."""
    current, membrane, sent = (np.zeros_like(drive[0]) for _ in range(3))
    spikes, before_reset = np.empty_like(drive), np.empty_like(drive)
    for step, arrives in enumerate(drive):
        given = current + arrives if back is None else current + arrives + sent @ back
        current = given * neurons.keep_syn
        membrane = membrane * neurons.keep_mem + (current if neurons.decays_first else given) + neurons.bias
        before_reset[step] = membrane
        sent = np.clip(np.floor(membrane / neurons.threshold), 0, neurons.most)
        membrane = membrane - sent * neurons.threshold
        spikes[step] = sent
    return spikes, before_reset
