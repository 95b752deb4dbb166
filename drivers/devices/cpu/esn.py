"""An echo state network in numpy on this computer that learns a series and forecasts it.

It is the published baseline of chaotic function prediction (NeuroBench, equations 20 and 21). It has a fixed random
reservoir, and a readout that is fitted by regularised least squares. The measured span does not include learning.
"""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated

import numpy as np

from drivers.devices.cpu.numpy_device import forecasting_device, recurrent
from rig.bench.settings import Positive, of_settings, within
from rig.errors import DataError
from rig.network.counting import Synapses, memory_of
from rig.network.description import Layer, Memory, NetworkInfo
from rig.types import Device, Floats

NAME = "numpy-esn"


@dataclass(frozen=True, slots=True)
class Shape:
    """The options. See ``open_device``."""

    neurons: Annotated[int, partial(within, 1, 10_000)] = 186
    density: Annotated[float, partial(within, 0.0, 1.0)] = 0.11
    spectral_radius: Positive = 1.09
    leak: Annotated[float, partial(within, 0.0, 1.0)] = 0.58
    bias_scale: Positive = 0.34
    input_scale: Positive = 0.425
    ridge: Positive = 1e-8
    washout: Annotated[int, partial(within, 0, 10**6)] = 45
    seed: int = 0


@of_settings
def open_device(settings: Shape) -> Device:
    """Open an echo state network. ``seed`` and the seed of a sample determine the random weights for this sample.

    The defaults are from the authors' log. The authors drew input weights between -1/2 and 1/2, and scaled
    them by 0.68 and 0.85; here they are drawn between -1 and 1, so the scales are halved. ``density`` is the share of
    recurrent weights that are not zero; these are drawn from a normal distribution. The readout does not learn from the
    first ``washout`` points. Raises ``UsageError`` for options out of range.
    """
    shape, seed = settings, settings.seed
    drawn = weights_of(shape, np.random.default_rng([seed, 0]))
    return forecasting_device(
        NAME,
        f"echo state network of {shape.neurons} neurons",
        "regularised least squares on the first half of each sample",
        {name: value for name, value in asdict(shape).items() if name != "seed"},
        Trained(shape, *drawn, np.ones(shape.neurons + 2), np.zeros(0), 0.0).network(),
        lambda series, rng: (trained(shape, series, rng), {}),
        shape.washout,
        seed,
    )


@dataclass(frozen=True, slots=True)
class Trained:
    """A network that has read a series: its weights, its state, and the value to read next.

    ``weights_in`` has shape (2, neurons), for a constant and the value. ``weights`` (neurons, neurons) connects the
    neuron of a row to the neuron of a column. ``weights_out`` (neurons + 2,) weighs the constant, the value and the
    state.
    """

    shape: Shape
    weights_in: Floats
    weights: Floats
    weights_out: Floats
    state: Floats
    value: float

    def forecast(self, points: int) -> tuple[Floats, dict[str, Floats]]:
        """Return forecasts of shape (points,), and the inputs of each layer: (points, ...) by name of the source."""
        inputs, before = np.ones((points, 2)), np.zeros((points, self.shape.neurons))
        read = np.ones((points, self.shape.neurons + 2))
        value, state, found = self.value, self.state, np.zeros(points)
        with np.errstate(all="ignore"):  # a forecast may diverge, which is also an answer
            for k in range(points):
                inputs[k, 1], before[k] = value, state
                state = step(self.shape, self.weights_in, self.weights, state, value)
                read[k, 1], read[k, 2:] = value, state
                found[k] = value = float(read[k] @ self.weights_out)
        seen: dict[str, Floats] = {"input": inputs, "state before": before, "read": read}
        return found, seen | {"reservoir": read[:, 2:]}

    def synapses(self) -> tuple[Synapses, ...]:
        return recurrent("reservoir", self.weights_in, self.weights, "read", self.weights_out[:, None])

    def network(self) -> NetworkInfo:
        """Return the description of the network. Which weights are zero differs by sample; the density does not."""
        arrays = {"input": self.weights_in, "recurrent": self.weights, "readout": self.weights_out[:, None]}
        memory = (*memory_of(arrays), Memory("state", "states", self.shape.neurons, 64, 0))
        layers = (Layer("reservoir", self.shape.neurons),)
        return NetworkInfo(layers, tuple(s.connection for s in self.synapses()), memory, None, "numpy arrays in use")


def step(shape: Shape, weights_in: Floats, weights: Floats, state: Floats, value: float) -> Floats:
    """Return the state that follows ``state``, both of shape (neurons,) (NeuroBench, equation 20)."""
    drive = state @ weights + weights_in[0] + value * weights_in[1]
    return np.asarray((1.0 - shape.leak) * state + shape.leak * np.tanh(drive))


def weights_of(shape: Shape, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw the weights that are not learnt, shapes (2, neurons) and (neurons, neurons)."""
    n, used = shape.neurons, round(shape.density * shape.neurons**2)
    weights_in, flat = rng.uniform(-1.0, 1.0, (2, n)), np.zeros(n * n)
    weights_in *= np.array([[shape.bias_scale], [shape.input_scale]])
    flat[rng.choice(n * n, used, replace=False)] = rng.normal(size=used)
    weights = flat.reshape(n, n)
    radius = float(np.abs(np.linalg.eigvals(weights)).max())
    return weights_in, weights * (shape.spectral_radius / radius if radius > 0 else 1.0)


def trained(shape: Shape, series: Floats, rng: np.random.Generator) -> Trained:
    """Draw a network, let it read a series, and fit its readout to the next value (NeuroBench, equation 21).

    Raises ``DataError`` if the fit has no solution.
    """
    n = shape.neurons
    weights_in, weights = weights_of(shape, rng)
    state: Floats = np.zeros(n)
    states = np.ones((len(series), n + 2))
    for k, value in enumerate(series[:-1]):
        state = step(shape, weights_in, weights, state, float(value))
        states[k, 1], states[k, 2:] = value, state
    rows = states[shape.washout : len(series) - 1]
    square = rows.T @ rows + shape.ridge * np.eye(n + 2)
    try:
        weights_out = np.linalg.solve(square, rows.T @ series[shape.washout + 1 :])
    except np.linalg.LinAlgError as error:
        what = f"no readout fits the series: {error}"
        raise DataError(what, field="ridge", value=shape.ridge, remedy="Use a larger ridge") from error
    return Trained(shape, weights_in, weights, weights_out, state, float(series[-1]))
