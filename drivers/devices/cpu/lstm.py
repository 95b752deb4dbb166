"""A long short-term memory in numpy on this computer that learns a series and forecasts it.

It is the published baseline of chaotic function prediction (NeuroBench, "Chaotic Function Prediction"): one layer of
100 cells that reads the last 50 points, a ReLU, and a linear readout. The measured span does not include learning.

The cell is the one of torch, by Hochreiter and Schmidhuber with a forget gate: ``c' = f c + i g`` and
``h' = o tanh(c')``. Gates are in torch's order: input, forget, candidate, output. Learning uses Adam (Kingma and Ba).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Annotated, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from drivers.devices.cpu.numpy_device import forecasting_device, recurrent
from rig.bench.settings import Positive, of_settings, within
from rig.network.counting import Synapses, memory_of
from rig.network.description import Layer, Memory, NetworkInfo
from rig.types import Device, Floats

EPSILON = 1e-5
"""The constant that torch adds to the variance of a window before it divides by the root."""
NAME = "numpy-lstm"


@dataclass(frozen=True, slots=True)
class Weights:
    """The learnt parameters of ``n`` cells that read windows of ``m`` points.

    ``norm`` (2, m) scales and shifts a normalised window. ``into`` (m, 4 n) connects the window to the gates, and
    ``back`` (n, 4 n) connects the cells to them. ``bias`` is (2, 4 n), and ``out`` (n + 1,) weighs the cells and a
    constant.
    """

    norm: Floats
    into: Floats
    back: Floats
    bias: Floats
    out: Floats

    def arrays(self) -> Iterator[tuple[str, Floats]]:
        return ((f.name, getattr(self, f.name)) for f in fields(self))


def drawn(cells: int, window: int, rng: np.random.Generator) -> Weights:
    """Draw the first weights, uniform within 1 / sqrt(cells), as torch does."""
    bound = 1.0 / np.sqrt(cells)
    shapes = {"into": (window, 4 * cells), "back": (cells, 4 * cells), "bias": (2, 4 * cells), "out": (cells + 1,)}
    return Weights(
        norm=np.array([np.ones(window), np.zeros(window)]),
        **{name: rng.uniform(-bound, bound, shape) for name, shape in shapes.items()},
    )


def normalised(windows: Floats) -> Floats:
    """Return windows of shape (..., m) with mean 0 and variance 1 each (layer normalisation)."""
    centred = windows - windows.mean(axis=-1, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPSILON))


def step(weights: Weights, driven: Floats, hidden: Floats, cell: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the gates (4 n,) of one step, and the hidden state and the cell state (n,) after it.

    ``driven``, shape (4 n,), is the weighted input of the gates. The sigmoid of x is computed as tanh(x / 2) / 2 + 1/2.
    """
    n, halves = len(cell), _halves(len(cell))
    sums = driven + weights.bias.sum(axis=0) + hidden @ weights.back
    gates = np.tanh(sums * halves) * halves + (1.0 - halves)
    cell = gates[n : 2 * n] * cell + gates[:n] * gates[2 * n : 3 * n]
    return gates, gates[3 * n :] * np.tanh(cell), cell


def run(weights: Weights, known: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the gates for each normalised window, and hidden and cell states (points + 1, n) that begin with zeros."""
    n, points = len(weights.back), len(known)
    gates, hidden, cell = np.zeros((points, 4 * n)), np.zeros((points + 1, n)), np.zeros((points + 1, n))
    for k, driven in enumerate((known * weights.norm[0] + weights.norm[1]) @ weights.into):
        gates[k], hidden[k + 1], cell[k + 1] = step(weights, driven, hidden[k], cell[k])
    return gates, hidden, cell


def fitted(
    weights: Weights, series: Floats, washout: int, epochs: int, rate: float
) -> tuple[Trained, tuple[float, ...]]:
    """Learn to predict the next point of a series, shape (k,). Points before the series are taken as 0.

    Returns the network after the last epoch, ready to forecast, and the losses of the first, middle and last epoch.
    """
    window = weights.norm.shape[1]
    inputs = sliding_window_view(np.concatenate((np.zeros(window - 1), series)), window)
    first, second = ({name: np.zeros_like(a) for name, a in weights.arrays()} for _ in range(2))
    losses = []
    for epoch in range(1, epochs + 1):
        loss, gradient = loss_and_gradient(weights, inputs[:-1], series[1:], washout)
        losses.append(loss)
        moved = {}
        for name, g in gradient.arrays():
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.999 * second[name] + 0.001 * g**2
            mean, spread = first[name] / (1.0 - 0.9**epoch), second[name] / (1.0 - 0.999**epoch)
            moved[name] = getattr(weights, name) - rate * mean / (np.sqrt(spread) + 1e-8)
        weights = replace(weights, **moved)
    _, hidden, cell = run(weights, normalised(inputs[:-1]))
    return Trained(weights, hidden[-1], cell[-1], inputs[-1].copy()), (losses[0], losses[len(losses) // 2], losses[-1])


def loss_and_gradient(weights: Weights, inputs: Floats, wanted: Floats, washout: int) -> tuple[float, Weights]:
    """Return the mean squared error from point ``washout`` on, and its gradient through time (Werbos 1990)."""
    n, points, known = len(weights.back), len(inputs), normalised(inputs)
    gates, hidden, cell = run(weights, known)
    read = np.maximum(hidden[1:], 0.0)
    off = (read @ weights.out[:-1] + weights.out[-1] - wanted) * (np.arange(points) >= washout)
    scale = 2.0 / max(points - washout, 1)
    to_hidden = scale * off[:, None] * weights.out[:-1] * (hidden[1:] > 0.0)
    pulled = _through_time(weights, gates, cell, to_hidden)
    scaled = known * weights.norm[0] + weights.norm[1]
    to_window = pulled @ weights.into.T
    gradient = Weights(
        norm=np.array([(to_window * known).sum(axis=0), to_window.sum(axis=0)]),
        into=scaled.T @ pulled,
        back=hidden[:-1].T @ pulled,
        bias=np.broadcast_to(pulled.sum(axis=0), (2, 4 * n)),
        out=scale * np.append(off @ read, off.sum()),
    )
    return float((off**2).sum() * scale / 2.0), gradient


def _through_time(weights: Weights, gates: Floats, cell: Floats, to_hidden: Floats) -> Floats:
    """Return the gradient by the gates' sums, (points, 4 n), from the gradient by the hidden states, (points, n)."""
    points, n = to_hidden.shape
    bent = np.tanh(cell[1:])
    # derivatives of the gates: s (1 - s) for a sigmoid s, 1 - t**2 for a hyperbolic tangent t
    slope = np.where(_halves(n) < 1.0, gates * (1.0 - gates), 1.0 - gates**2).reshape(points, 4, n)
    i, f, g, o = gates.reshape(points, 4, n).transpose(1, 0, 2)
    by_cell = np.stack([g, cell[:-1], i], axis=1) * slope[:, :3]
    by_hidden, into_cell = bent * slope[:, 3], o * (1.0 - bent**2)
    pulled, of_hidden, of_cell = np.zeros((points, 4, n)), np.zeros(n), np.zeros(n)
    back = weights.back.T.copy()
    for k in range(points - 1, -1, -1):
        of_hidden += to_hidden[k]
        of_cell += of_hidden * into_cell[k]
        pulled[k, :3] = of_cell * by_cell[k]
        pulled[k, 3] = of_hidden * by_hidden[k]
        of_hidden = pulled[k].ravel() @ back
        of_cell *= f[k]
    return pulled.reshape(points, 4 * n)


def _halves(n: int) -> Floats:
    """Return 1/2 for each sigmoid gate and 1 for the candidate, which is a hyperbolic tangent; shape (4 n,)."""
    return np.repeat([0.5, 0.5, 1.0, 0.5], n)


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
    """Open a network. ``seed`` and the seed of a sample determine the first weights for this sample.

    The network reads the last ``window`` points. It learns for ``epochs``, but not from the first ``washout`` points of
    a series. Learning 750 points takes about ten seconds, before the measured span. Raises ``UsageError`` for options
    out of range.
    """
    s = settings
    unlearnt = drawn(s.cells, s.window, np.random.default_rng([s.seed, 0]))

    def learn(series: Floats, rng: np.random.Generator) -> tuple[Trained, dict[str, Any]]:
        made, losses = fitted(drawn(s.cells, s.window, rng), series, s.washout, s.epochs, s.learning_rate)
        return made, {"training_loss": losses}

    return forecasting_device(
        NAME,
        f"long short-term memory of {s.cells} cells",
        f"{s.epochs} epochs of the first half of each sample by Adam on the squared error at a learning rate of "
        f"{s.learning_rate:g}; the last network is taken",
        {"cells": s.cells, "window": s.window, "washout": s.washout},
        Trained(unlearnt, np.zeros(s.cells), np.zeros(s.cells), np.zeros(s.window)).network(),
        learn,
        s.washout,
        s.seed,
    )


@dataclass(frozen=True, slots=True)
class Trained:
    """A network that has read a series: its weights, its state, and the points to read next, oldest first."""

    weights: Weights
    hidden: Floats
    cell: Floats
    window: Floats

    def forecast(self, points: int) -> tuple[Floats, Mapping[str, Floats]]:
        """Return forecasts of shape (points,), and the inputs of each layer: (points, ...) by name of the source."""
        cells, hidden, cell, window = len(self.cell), self.hidden, self.cell, self.window
        inputs, before, found = np.zeros((points, len(window))), np.zeros((points, cells)), np.zeros(points)
        read = np.zeros((points, cells))
        with np.errstate(all="ignore"):  # a forecast may diverge, which is also an answer
            for k in range(points):
                inputs[k], before[k] = normalised(window) * self.weights.norm[0] + self.weights.norm[1], hidden
                _, hidden, cell = step(self.weights, inputs[k] @ self.weights.into, hidden, cell)
                read[k] = np.maximum(hidden, 0.0)
                found[k] = read[k] @ self.weights.out[:-1] + self.weights.out[-1]
                window = np.append(window[1:], found[k])
        return found, {"input": inputs, "state before": before, "lstm": read}

    def synapses(self) -> tuple[Synapses, ...]:
        """Return the connections. Products of gates do not count as connections."""
        return recurrent("lstm", self.weights.into, self.weights.back, "lstm", self.weights.out[:-1, None])

    def network(self) -> NetworkInfo:
        """Return the description, with the memory that the published network takes."""
        w, cells = self.weights, len(self.cell)
        arrays = {"input": w.into, "recurrent": w.back, "readout": w.out[:-1, None]}
        others = {"biases": w.bias.ravel(), "readout bias": w.out[-1:], "normalisation": w.norm.ravel()}
        memory = (*memory_of(arrays), *memory_of(others), Memory("state", "states", 2 * cells, 64))
        memory += memory_of({"past points": self.window}, "buffers")
        connections = tuple(s.connection for s in self.synapses())
        layers = (Layer("lstm", cells),)  # the outputs of the ReLU
        return NetworkInfo(layers, connections, memory, None, "doubles, two biases for each gate, as torch keeps them")
