"""Networks that decode a movement from spikes: the four published ones of primate reaching, and a linear one.

Shapes: spikes (steps, channels), uint8, and predictions (steps, 2), both one row for each step of 4 ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from drivers.devices.cpu.numpy_device import Seen
from rig.errors import DataError, reason
from rig.network.counting import Synapses, linear, memory_of
from rig.network.description import Layer, Memory, NetworkInfo
from rig.types import Floats

WINDOW = 50
"""Steps that a buffer holds (NeuroBench: "the cortical activity from the 50 most recent data samples is buffered")."""
EXECUTION_S = 0.004
BINS, BIN = 7, 7
"""Number of bins into which flattened networks divide the buffer, and steps per bin; step 50 belongs to no bin."""
RIDGE = 1.0
_BLOCK = 1 << 14
"""This many steps are fitted together."""
_EPSILON = np.float32(1e-5)
"""Added to variances, as torch does."""
Arrays = Mapping[str, Any]
Spikes = NDArray[np.uint8]


class Decoder(Protocol):
    """A network that runs through a session from rest."""

    def decode(self, spikes: Spikes) -> tuple[Floats, Seen]:
        """Return the predictions, and the outputs or inputs of each layer by the name of their source."""
        ...

    def synapses(self) -> tuple[Synapses, ...]: ...
    def network(self) -> NetworkInfo: ...


@dataclass(frozen=True, slots=True, eq=False)
class Spiking:
    """Leaky neurons behind ``fc1``, and leaky outputs without a threshold behind ``fc_out`` (equations 16 and 17).

    As in the published code, and unlike equation 16, the input of the step after a spike is not lost.
    """

    arrays: Arrays

    def decode(self, spikes: Spikes) -> tuple[Floats, Seen]:
        a = self.arrays
        drive = spikes.astype(np.float32) @ a["fc1.weight"].T
        beta, threshold = a["lif1.beta"], a["lif1.threshold"]
        potential, hidden = np.zeros_like(drive[:1])[0], np.zeros_like(drive)
        for k, given in enumerate(drive):
            potential = beta * (potential * (potential <= threshold)) + given
            hidden[k] = potential > threshold
        output = lfilter([1.0], [1.0, -float(a["lif_out.beta"])], hidden @ a["fc_out.weight"].T, axis=0)
        return output, {"input": spikes, "hidden": hidden, "output": output}

    def synapses(self) -> tuple[Synapses, ...]:
        first = linear("fc1", "input", "hidden", self.arrays["fc1.weight"].T)
        return first, linear("fc_out", "hidden", "output", self.arrays["fc_out.weight"].T)

    def network(self) -> NetworkInfo:
        neurons = len(self.arrays["fc1.weight"])
        held = (*memory_of(self.arrays), Memory("membranes", "states", neurons + 2, 32, 0))
        return _described(self.synapses(), held, {"hidden": neurons, "output": 2})


@dataclass(frozen=True, slots=True, eq=False)
class Buffered:
    """Linear layers ``fc1`` to ``fcN`` on the counts of the last ``WINDOW`` steps; ReLU and normalisation between.

    Before the buffer is full, predictions are 0 and there is no execution. With ``flat`` (ANN_Flat), the inputs are
    counts in bins of the buffer, all bins of a channel together, and the network runs from the first step.
    """

    arrays: Arrays
    flat: bool = False

    def decode(self, spikes: Spikes) -> tuple[Floats, Seen]:
        a, depth = self.arrays, self._depth()
        given = windowed(spikes)
        if self.flat:
            given = binned(spikes).transpose(0, 2, 1).reshape(len(spikes), -1).astype(np.float32)
        seen: dict[str, Floats] = {"input": given}
        for k in range(1, depth + 1):
            found = given @ a[f"fc{k}.weight"].T + a[f"fc{k}.bias"]
            if k == depth:
                break
            seen[f"hidden{k}"] = np.maximum(found, 0)
            given = seen[f"normalised{k}"] = _normalised(seen[f"hidden{k}"], a, f"batchnorm{k}")
        seen["output"] = found
        return np.concatenate((np.zeros((len(spikes) - len(found), 2), found.dtype), found)), seen

    def synapses(self) -> tuple[Synapses, ...]:
        depth = self._depth()
        sources = ["input", *(f"normalised{k}" for k in range(1, depth))]
        return tuple(
            linear(f"fc{k}", source, f"hidden{k}" if k < depth else "output", self.arrays[f"fc{k}.weight"].T)
            for k, source in enumerate(sources, 1)
        )

    def network(self) -> NetworkInfo:
        depth, channels = self._depth(), self.arrays["fc1.weight"].shape[1] // (BINS if self.flat else 1)
        neurons = {f"hidden{k}": len(self.arrays[f"fc{k}.weight"]) for k in range(1, depth)} | {"output": 2}
        past = Memory("past inputs", "buffers", WINDOW * channels, 32, channels)
        return _described(self.synapses(), (*memory_of(self.arrays), past), neurons)

    def _depth(self) -> int:
        return sum(name.startswith("fc") and name.endswith(".weight") for name in self.arrays)


@dataclass(frozen=True, slots=True, eq=False)
class SpikingFlat:
    """SNN_Flat: three layers of leaky neurons, which get the bins of the last 50 steps in sequence.

    The bins of a prediction are normalised together. It begins at rest, and its outputs, which are never reset, are
    scaled. An execution is one bin.
    """

    arrays: Arrays

    def decode(self, spikes: Spikes) -> tuple[Floats, Seen]:
        a = self.arrays
        bins = binned(spikes).astype(np.float32)
        centred = bins - bins.mean(axis=(1, 2), keepdims=True)
        given = centred / np.sqrt(bins.var(axis=(1, 2), keepdims=True) + _EPSILON) * a["norm_layer.weight"]
        given += a["norm_layer.bias"]
        seen = {"input": given.reshape(-1, spikes.shape[1])}
        for k, name in enumerate(("hidden1", "hidden2", "output"), 1):
            drive = given @ a[f"fc{k}.weight"].T + a[f"fc{k}.bias"]
            beta, threshold = np.clip(a[f"lif{k}.beta"], 0, 1), a[f"lif{k}.threshold"]
            potential, given = np.zeros_like(drive[:, 0]), np.empty_like(drive)
            for t in range(BINS):
                reset = threshold * (potential > threshold) if k < 3 else 0.0
                potential = beta * potential + drive[:, t] - reset
                given[:, t] = potential > threshold if k < 3 else potential
            seen[name] = given.reshape(-1, given.shape[2])
        return potential * np.array([float(a[name][0]) for name in ("v_x", "v_y")]), seen

    def synapses(self) -> tuple[Synapses, ...]:
        names = ("input", "hidden1", "hidden2", "output")
        return tuple(linear(f"fc{k}", names[k - 1], names[k], self.arrays[f"fc{k}.weight"].T) for k in (1, 2, 3))

    def network(self) -> NetworkInfo:
        neurons = {f"hidden{k}": len(self.arrays[f"fc{k}.bias"]) for k in (1, 2)} | {"output": 2}
        channels = self.arrays["fc1.weight"].shape[1]
        held = (Memory("membranes", "states", sum(neurons.values()), 32, 0),
                Memory("past inputs", "buffers", WINDOW * channels, 32, channels))  # fmt: skip
        described = _described(self.synapses(), (*memory_of(self.arrays), *held), neurons)
        return replace(described, execution_s=EXECUTION_S / BINS)


def binned(spikes: Spikes) -> NDArray[np.int32]:
    """Return the counts of ``BINS`` bins of ``BIN`` steps, shape (steps, bins, channels), of the buffer of each step.

    Bins begin with the oldest step. The buffer begins with one empty step, and its bins are filled
    from the first one on, as in the published code.
    """
    rows = np.vstack((np.zeros_like(spikes[:1]), np.zeros_like(spikes[:1]), spikes))
    total, step = np.cumsum(rows, axis=0, dtype=np.int32), np.arange(len(spikes))[:, None]
    held = step + 2  # the empty step, and the steps until now
    begin = np.maximum(held - WINDOW, 0) + BIN * np.arange(BINS)
    return np.asarray(total[np.minimum(begin + BIN, held)] - total[np.minimum(begin, held)])


def windowed(spikes: Spikes) -> Floats:
    """Return the counts of the last ``WINDOW`` steps, float32, from step ``WINDOW`` on."""
    total = np.cumsum(np.vstack((np.zeros_like(spikes[:1]), spikes)), axis=0, dtype=np.int32)
    return (total[WINDOW:] - total[:-WINDOW]).astype(np.float32)


def fitted(spikes: Spikes, velocity: Floats) -> Buffered:
    """Return a single linear layer, fitted by regularised least squares, for comparison."""
    size = spikes.shape[1] + 1
    square, product = RIDGE * np.eye(size), np.zeros((size, 2))
    for begin in range(0, len(spikes) - WINDOW + 1, _BLOCK):
        counts = windowed(spikes[begin : begin + _BLOCK + WINDOW - 1])
        rows = np.hstack((counts, np.ones((len(counts), 1))))
        wanted = velocity[begin + WINDOW - 1 :][: len(rows)]
        square, product = square + rows.T @ rows, product + rows.T @ wanted
    found = np.linalg.solve(square, product).astype(np.float32)
    return Buffered({"fc1.weight": found[:-1].T, "fc1.bias": found[-1]})


def read_decoder(path: Path, channels: int) -> Decoder:
    """Read a published network: an ``.npz`` file of the arrays of its state dictionary.

    Raises ``DataError`` for a file without them, for shapes that do not fit one another or the channels, and for
    numbers that are not finite.
    """
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            held = {name.removeprefix("model_state_dict."): file[name] for name in file.files}
    except (OSError, ValueError, TypeError, EOFError, BadZipFile) as error:
        raise _unfit(path, f"cannot be read as arrays: {reason(error)}") from error
    kind = "SNN" if "fc_out.weight" in held else "SNN_Flat" if "norm_layer.weight" in held else "ANN"
    flat = kind == "ANN" and np.shape(held.get("fc1.weight", ()))[1:] == (BINS * channels,)
    wanted = {
        "SNN": lambda: _spiking_shapes(held, channels),
        "SNN_Flat": lambda: _flat_shapes(held, channels),
        "ANN": lambda: _buffered_shapes(held, channels * (BINS if flat else 1)),
    }[kind]()
    for name, shape in wanted.items():
        found = held.get(name)
        if found is None:
            raise _unfit(path, f"has no array {name}")
        if found.shape != shape or found.dtype.kind not in "fiu":
            raise _unfit(path, f"has {name} of {found.dtype} and shape {found.shape}; {channels} channels need {shape}")
        if not np.all(np.isfinite(found)):
            raise _unfit(path, f"has a number in {name} that is not finite")
    chosen = {name: held[name] for name in wanted}  # the others are only for the framework that trained it
    if kind == "ANN":
        return Buffered(chosen, flat)
    return Spiking(chosen) if kind == "SNN" else SpikingFlat(chosen)


def _spiking_shapes(held: Arrays, channels: int) -> dict[str, tuple[int, ...]]:
    neurons = _neurons(held, "fc1.weight")
    weights: dict[str, tuple[int, ...]] = {"fc1.weight": (neurons, channels), "fc_out.weight": (2, neurons)}
    return weights | {f"{layer}.{name}": () for layer in ("lif1", "lif_out") for name in ("beta", "threshold")}


def _flat_shapes(held: Arrays, channels: int) -> dict[str, tuple[int, ...]]:
    sizes = (channels, _neurons(held, "fc1.weight"), _neurons(held, "fc2.weight"), 2)
    shapes: dict[str, tuple[int, ...]] = {f"norm_layer.{name}": (BINS, channels) for name in ("weight", "bias")}
    for k in (1, 2, 3):
        shapes |= {f"fc{k}.weight": (sizes[k], sizes[k - 1]), f"fc{k}.bias": (sizes[k],)}
        shapes |= {f"lif{k}.beta": (), f"lif{k}.threshold": ()}
    return shapes | {"v_x": (1,), "v_y": (1,)}


def _buffered_shapes(held: Arrays, channels: int) -> dict[str, tuple[int, ...]]:
    depth = sum(name.startswith("fc") and name.endswith(".weight") for name in held)
    shapes: dict[str, tuple[int, ...]] = {}
    given = channels
    for k in range(1, depth + 1):
        neurons = _neurons(held, f"fc{k}.weight") if k < depth else 2
        shapes |= {f"fc{k}.weight": (neurons, given), f"fc{k}.bias": (neurons,)}
        if k < depth:
            shapes |= {f"batchnorm{k}.{name}": (neurons,) for name in ("weight", "bias", "running_mean", "running_var")}
        given = neurons
    return shapes or {"fc1.weight": (2, channels)}


def _neurons(held: Arrays, name: str) -> int:
    return held[name].shape[0] if name in held and held[name].ndim else 0


def _normalised(values: Floats, arrays: Arrays, name: str) -> Floats:
    """Batch normalisation as it runs after training."""
    mean, variance, scale, shift = (arrays[f"{name}.{k}"] for k in ("running_mean", "running_var", "weight", "bias"))
    return np.asarray((values - mean) / np.sqrt(variance + _EPSILON) * scale + shift)


def _described(synapses: tuple[Synapses, ...], held: tuple[Memory, ...], neurons: Mapping[str, int]) -> NetworkInfo:
    layers = tuple(Layer(name, n) for name, n in neurons.items())
    return NetworkInfo(
        layers, tuple(s.connection for s in synapses), held, EXECUTION_S, "arrays of the trained network"
    )


def _unfit(path: Path, what: str) -> DataError:
    remedy = "Give an .npz file of the state dictionary of a published network, SNN or ANN"
    return DataError(f"{path} {what}", field="networks", value=str(path), remedy=remedy)
