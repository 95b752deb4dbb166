"""Networks that decode a movement from spikes: the four published networks of primate reaching, and a linear one.

Spikes are uint8 of shape (steps, channels), and predictions have the shape (steps, 2). A step is 4 ms.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
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
"""Steps in the buffer (NeuroBench: "the cortical activity from the 50 most recent data samples is buffered")."""
EXECUTION_S = 0.004
BINS, BIN = 7, 7
"""Number of bins of flattened networks, and steps per bin. The newest step of a full buffer is in no bin."""
RIDGE = 1.0
_BLOCK = 1 << 14
"""This many steps are fitted together."""
_EPSILON = np.float32(1e-5)
"""Added to variances, as torch does."""
_NORM = ("weight", "bias", "running_mean", "running_var")
Kind = Literal["SNN", "SNN_Flat", "ANN", "ANN_Flat"]
SPIKING = ("SNN", "SNN_Flat")
Arrays = Mapping[str, Any]
Spikes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Decoder:
    """A network of one of the four kinds: a chain of linear layers. It starts each session with all states at zero."""

    arrays: Arrays
    kind: Kind

    def decode(self, spikes: Spikes) -> tuple[Floats, Seen]:
        """Return the predictions, and the values that each layer receives or sends, by the name of their source."""
        if self.kind == "SNN":
            return _spiking(self.arrays, spikes)
        if self.kind == "SNN_Flat":
            return _spiking_flat(self.arrays, spikes)
        return _buffered(self.arrays, spikes, self.kind == "ANN_Flat")

    def synapses(self) -> tuple[Synapses, ...]:
        chain = _chain(self.arrays, self.kind)
        return tuple(linear(name, source, target, self.arrays[f"{name}.weight"].T) for name, source, target in chain)

    def network(self) -> NetworkInfo:
        """Return the description of the network. One execution of SNN_Flat is one bin."""
        connections, first = tuple(s.connection for s in self.synapses()), self.arrays["fc1.weight"]
        layers = tuple(Layer(c.target, len(self.arrays[f"{c.name}.weight"])) for c in connections if c.target != c.name)
        channels = first.shape[1] // (BINS if self.kind == "ANN_Flat" else 1)
        membranes = Memory("membranes", "states", sum(layer.neurons for layer in layers), 32, 0)
        past = Memory("past inputs", "buffers", WINDOW * channels, 32, channels)
        own = [*([membranes] if self.kind in SPIKING else []), *([past] if self.kind != "SNN" else [])]
        execution_s = EXECUTION_S / (BINS if self.kind == "SNN_Flat" else 1)
        memory = (*memory_of(self.arrays), *own)
        return NetworkInfo(layers, connections, memory, execution_s, "arrays of the trained network")


def _chain(arrays: Arrays, kind: Kind) -> list[tuple[str, str, str]]:
    """Return the name, source and target of each linear layer."""
    depth = sum(name.startswith("fc") and name.endswith(".weight") for name in arrays)
    if kind == "SNN":
        return [("fc1", "input", "hidden"), ("fc_out", "hidden", "output")]
    hidden = range(1, 3 if kind == "SNN_Flat" else max(depth, 1))
    sent = [f"hidden{k}" if kind == "SNN_Flat" else f"normalised{k}" for k in hidden]
    made = [*(f"hidden{k}" for k in hidden), "output" if kind == "SNN_Flat" else f"fc{hidden.stop}"]
    return [(f"fc{k}", *ends) for k, ends in enumerate(zip(["input", *sent], made, strict=True), 1)]


def _spiking(a: Arrays, spikes: Spikes) -> tuple[Floats, Seen]:
    """Run SNN: leaky neurons behind ``fc1``, and leaky outputs behind ``fc_out`` (equations 16 and 17).

    The predictions are the membrane potentials of the outputs, and no spike resets them. In the published code, outputs
    still have a threshold, so their spikes count as activations.

    In the published code, and here, the input of the step after a spike is added. In equation 16 this input is lost.
    """
    drive = spikes.astype(np.float32) @ a["fc1.weight"].T
    beta, threshold = a["lif1.beta"], a["lif1.threshold"]
    potential, hidden = np.zeros_like(drive[:1])[0], np.zeros_like(drive)
    for k, given in enumerate(drive):
        potential = beta * (potential * (potential <= threshold)) + given
        hidden[k] = potential > threshold
    output = lfilter([1.0], [1.0, -float(a["lif_out.beta"])], hidden @ a["fc_out.weight"].T, axis=0)
    return output, {"input": spikes, "hidden": hidden, "output": output > a["lif_out.threshold"]}


def _buffered(a: Arrays, spikes: Spikes, flat: bool) -> tuple[Floats, Seen]:
    """Run linear layers, with ReLU and normalisation between, on the spike counts of the last ``WINDOW`` steps.

    Before the buffer is full, predictions are 0 and the network is not executed. With ``flat`` (ANN_Flat), the inputs
    are the counts in each bin of the buffer, channel after channel, and the network runs from the first step.
    """
    given = windowed(spikes)
    if flat:
        given = binned(spikes).transpose(0, 2, 1).reshape(len(spikes), -1).astype(np.float32)
    seen: dict[str, Floats] = {"input": given}
    for k, (name, _, target) in enumerate(_chain(a, "ANN"), 1):
        found = given @ a[f"{name}.weight"].T + a[f"{name}.bias"]
        if target != name:
            seen[target] = np.maximum(found, 0)
            scale, shift, mean, variance = (a[f"batchnorm{k}.{what}"] for what in _NORM)
            given = (seen[target] - mean) / np.sqrt(variance + _EPSILON) * scale + shift
            seen[f"normalised{k}"] = given
    return np.concatenate((np.zeros((len(spikes) - len(found), 2), found.dtype), found)), seen


def _spiking_flat(a: Arrays, spikes: Spikes) -> tuple[Floats, Seen]:
    """Run SNN_Flat: three layers of leaky neurons, which receive the bins of the last 50 steps in sequence.

    The bins of one prediction are normalised together, and all membranes begin at zero. The predictions are the scaled
    membrane potentials of the outputs, which no spike resets.
    """
    bins = binned(spikes).astype(np.float32)
    centred = bins - bins.mean(axis=(1, 2), keepdims=True)
    given = centred / np.sqrt(bins.var(axis=(1, 2), keepdims=True) + _EPSILON) * a["norm_layer.weight"]
    given += a["norm_layer.bias"]
    seen = {"input": given.reshape(-1, spikes.shape[1])}
    for k, (name, _, target) in enumerate(_chain(a, "SNN_Flat"), 1):
        drive = given @ a[f"{name}.weight"].T + a[f"{name}.bias"]
        beta, threshold = np.clip(a[f"lif{k}.beta"], 0, 1), a[f"lif{k}.threshold"]
        potential, given = np.zeros_like(drive[:, 0]), np.empty_like(drive)
        for t in range(BINS):
            reset = threshold * (potential > threshold) if k < 3 else 0.0
            potential = beta * potential + drive[:, t] - reset
            given[:, t] = potential > threshold
        seen[target] = given.reshape(-1, given.shape[2])
    return potential * np.array([float(a[name][0]) for name in ("v_x", "v_y")]), seen


def binned(spikes: Spikes) -> NDArray[np.int32]:
    """Return spike counts, shape (steps, bins, channels): for each step, ``BINS`` bins of ``BIN`` steps of its buffer.

    The first bin has the oldest steps. As in the published code, the buffer begins with one empty step, and the first
    bin is filled first.
    """
    rows = np.vstack((np.zeros_like(spikes[:1]), np.zeros_like(spikes[:1]), spikes))
    total, step = np.cumsum(rows, axis=0, dtype=np.int32), np.arange(len(spikes))[:, None]
    held = step + 2  # steps in the buffer: the empty step, and the steps until now
    begin = np.maximum(held - WINDOW, 0) + BIN * np.arange(BINS)
    return np.asarray(total[np.minimum(begin + BIN, held)] - total[np.minimum(begin, held)])


def windowed(spikes: Spikes) -> Floats:
    """Return the spike counts of the last ``WINDOW`` steps, float32, from step ``WINDOW`` on."""
    total = np.cumsum(np.vstack((np.zeros_like(spikes[:1]), spikes)), axis=0, dtype=np.int32)
    return (total[WINDOW:] - total[:-WINDOW]).astype(np.float32)


def fitted(spikes: Spikes, velocity: Floats) -> Decoder:
    """Fit a single linear layer by regularised least squares, to compare the published networks with."""
    size = spikes.shape[1] + 1
    square, product = RIDGE * np.eye(size), np.zeros((size, 2))
    for begin in range(0, len(spikes) - WINDOW + 1, _BLOCK):
        counts = windowed(spikes[begin : begin + _BLOCK + WINDOW - 1])
        rows = np.hstack((counts, np.ones((len(counts), 1))))
        wanted = velocity[begin + WINDOW - 1 :][: len(rows)]
        square, product = square + rows.T @ rows, product + rows.T @ wanted
    found = np.linalg.solve(square, product).astype(np.float32)
    return Decoder({"fc1.weight": found[:-1].T, "fc1.bias": found[-1]}, "ANN")


def read_decoder(path: Path, channels: int) -> Decoder:
    """Read a published network: an ``.npz`` file with the arrays of its state dictionary.

    Raises ``DataError`` for a file without these arrays, for shapes that do not fit one another or the channels, and
    for numbers that are not finite.
    """
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            held = {name.removeprefix("model_state_dict."): file[name] for name in file.files}
    except (OSError, ValueError, TypeError, EOFError, BadZipFile) as error:
        raise _unfit(path, f"cannot be read as arrays: {reason(error)}") from error
    kind: Kind = "SNN" if "fc_out.weight" in held else "SNN_Flat" if "norm_layer.weight" in held else "ANN"
    if kind == "ANN" and np.shape(held.get("fc1.weight", ()))[1:] == (BINS * channels,):
        kind = "ANN_Flat"
    wanted = _shapes(held, kind, channels)
    for name, shape in wanted.items():
        found = held.get(name)
        if found is None:
            raise _unfit(path, f"has no array {name}")
        if found.shape != shape or found.dtype.kind not in "fiu":
            raise _unfit(path, f"has {name} of {found.dtype} and shape {found.shape}; {channels} channels need {shape}")
        if not np.all(np.isfinite(found)):
            raise _unfit(path, f"has a number in {name} that is not finite")
    return Decoder({name: held[name] for name in wanted}, kind)  # only the training framework needs the other arrays


def _shapes(held: Arrays, kind: Kind, channels: int) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the arrays that a network of this kind needs. The file sets the layers' sizes."""
    names = [name for name, _, _ in _chain(held, kind)]
    found = [np.shape(held.get(f"{name}.weight", ()))[:1] for name in names[:-1]]
    sizes = [channels * (BINS if kind == "ANN_Flat" else 1), *(sum(size) for size in found), 2]
    shapes: dict[str, tuple[int, ...]] = {}
    if kind == "SNN_Flat":
        shapes |= {"norm_layer.weight": (BINS, channels), "norm_layer.bias": (BINS, channels), "v_x": (1,), "v_y": (1,)}
    for name, given, made in zip(names, sizes, sizes[1:], strict=False):
        number = name.removeprefix("fc")
        shapes |= {f"{name}.weight": (made, given)} | ({} if kind == "SNN" else {f"{name}.bias": (made,)})
        if kind in SPIKING:
            shapes |= {f"lif{number}.{what}": () for what in ("beta", "threshold")}
        elif name != names[-1]:
            shapes |= dict.fromkeys((f"batchnorm{number}.{what}" for what in _NORM), (made,))
    return shapes


def _unfit(path: Path, what: str) -> DataError:
    remedy = "Give an .npz file of the state dictionary of a published network, SNN or ANN"
    return DataError(f"{path} {what}", field="networks", value=str(path), remedy=remedy)
