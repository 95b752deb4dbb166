"""A long short-term memory in numpy on this computer that learns a series and forecasts it.

It is the published baseline of chaotic function prediction (NeuroBench, "Chaotic Function Prediction"): one layer of
100 cells that reads the last 50 points, a ReLU, and a linear readout. Learning is not part of the span.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np

from drivers.devices.cpu.lstm_training import Memories, Weights, drawn, fitted, normalised, step
from drivers.devices.cpu.numpy_device import Model, forecasting_device
from rig.bench.option_checks import within
from rig.bench.settings import Positive, of_settings
from rig.network.counting import Synapses, linear, memory_of
from rig.network.description import Layer, Memory, NetworkInfo
from rig.types import Device, Floats

NAME = "numpy-lstm"


@dataclass(frozen=True, slots=True)
class Lstm:
    """The options. See ``open_device``."""

    cells: Annotated[int, partial(within, 1, 10_000)] = 100
    window: Annotated[int, partial(within, 1, 10_000)] = 50
    epochs: Annotated[int, partial(within, 1, 10**6)] = 200
    learning_rate: Positive = 0.01
    washout: Annotated[int, partial(within, 0, 10**6)] = 45
    seed: int = 0


@of_settings
def open_device(settings: Lstm) -> Device:
    """Open a network; ``seed`` and the seed of sample k draw the first weights for sample k.

    It reads the last ``window`` points. It learns for ``epochs``, but not from the first ``washout`` points of a
    series. Learning 750 points takes some ten seconds, before the span. Raises ``UsageError`` for options out of range.
    """
    s = settings
    unlearnt = drawn(s.cells, s.window, np.random.default_rng([s.seed, 0]))

    def learn(series: Floats, rng: np.random.Generator) -> tuple[Trained, dict[str, Any]]:
        first = drawn(s.cells, s.window, rng)
        weights, memories, read, losses = fitted(first, series, s.washout, s.epochs, s.learning_rate)
        return Trained(weights, memories, read), {"training_loss": losses}

    model = Model(
        NAME,
        f"long short-term memory of {s.cells} cells",
        f"{s.epochs} epochs of the first half of each sample by Adam on the squared error at a learning rate of "
        f"{s.learning_rate:g}; the last network is taken",
        {"cells": s.cells, "window": s.window, "washout": s.washout},
        Trained(unlearnt, Memories.none(s.cells), np.zeros(s.window)),
    )
    return forecasting_device(model, learn, s.washout, s.seed)


@dataclass(frozen=True, slots=True)
class Trained:
    """A network that has read a series: its weights, its state, and the points to read next, oldest first."""

    weights: Weights
    memories: Memories
    window: Floats

    def forecast(self, points: int) -> tuple[Floats, Mapping[str, Floats]]:
        """Return forecasts of shape (points,), and the inputs of each layer: (points, ...) by name of the source."""
        cells = len(self.memories.hidden)
        inputs, before, found = np.zeros((points, len(self.window))), np.zeros((points, cells)), np.zeros(points)
        read, window, memories = np.zeros((points, cells)), self.window.copy(), self.memories
        with np.errstate(all="ignore"):  # a forecast may diverge, which is also an answer
            for k in range(points):
                inputs[k], before[k] = normalised(window) * self.weights.norm[0] + self.weights.norm[1], memories.hidden
                memories = step(self.weights, inputs[k] @ self.weights.into, memories)
                read[k] = np.maximum(memories.hidden, 0.0)
                found[k] = read[k] @ self.weights.out[:-1] + self.weights.out[-1]
                window = np.append(window[1:], found[k])
        return found, {"input": inputs, "state before": before, "lstm": read, "output": found[:, None]}

    def synapses(self) -> tuple[Synapses, ...]:
        """Return the connections; products of gates are not connections."""
        return (
            linear("input-lstm", "input", "lstm", self.weights.into),
            linear("lstm-lstm", "state before", "lstm", self.weights.back),
            linear("readout", "lstm", "output", self.weights.out[:-1, None]),
        )

    def network(self) -> NetworkInfo:
        """Return the description, with the memory of the published network."""
        w, cells = self.weights, len(self.memories.hidden)
        arrays = {"input": w.into, "recurrent": w.back, "readout": w.out[:-1, None]}
        others = {"biases": w.bias.ravel(), "readout bias": w.out[-1:], "normalisation": w.norm.ravel()}
        memory = (*memory_of(arrays), *memory_of(others), Memory("state", "states", 2 * cells, 64))
        memory += memory_of({"past points": self.window}, "buffers")
        layers = (Layer("lstm", cells), Layer("output", 1))
        connections = tuple(s.connection for s in self.synapses())
        return NetworkInfo(layers, connections, memory, None, "doubles, two biases for each gate, as torch keeps them")
