"""A network for PyNN as plain data, and the file with this data and the weights. All backends use it."""

import hashlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from rig.errors import DataError, reason, refused
from rig.network.description import Connection, Layer, Memory, NetworkInfo
from rig.recording.disk.files import replacing
from rig.types import Sample, Workload

Size = Annotated[int, Meta(ge=1, le=10**7)]
Positive = Annotated[float, Meta(gt=0.0, le=1e6)]
_DESCRIPTION, _TRAINED_ON = "description", "trained_on"


class Population(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Neurons, all of the description's model, or with ``source`` spike sources, addressed in order."""

    name: str
    size: Size
    source: bool = False


class Projection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The synapses from one population to another.

    ``weight`` is one weight in nA for all of them, or the name of an array (source, target) in the file.
    """

    source: str
    target: str
    connector: Literal["one-to-one", "all-to-all"]
    weight: float | str
    receptor: Literal["excitatory", "inhibitory"] = "excitatory"
    plastic: bool = False


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pair-based STDP with multiplicative weights: time constants in ms, weights in nA."""

    tau_plus: Positive
    tau_minus: Positive
    A_plus: Positive
    A_minus: Positive
    w_min: float
    w_max: Positive


class Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A network of leaky integrate-and-fire neurons with current-based synapses that decay exponentially.

    ``neuron`` holds PyNN's parameters of IF_curr_exp (nF, nA, ms, mV). ``labels`` has one text for each neuron of the
    population ``output``. ``origin`` says how the weights were made.
    """

    name: str
    populations: tuple[Population, ...]
    neuron: dict[str, float]
    projections: tuple[Projection, ...]
    output: str
    labels: tuple[str, ...]
    step_ms: Positive = 1.0
    delay_ms: Positive = 1.0
    plasticity: Rule | None = None
    origin: dict[str, Any] = {}

    @property
    def sizes(self) -> dict[str, int]:
        """Return the number of neurons of each population."""
        return {p.name: p.size for p in self.populations}

    def synapses(self, projection: Projection) -> int:
        """Return how many synapses a projection makes, including synapses of weight zero."""
        source, target = self.sizes[projection.source], self.sizes[projection.target]
        return source if projection.connector == "one-to-one" else source * target


@dataclass(frozen=True, slots=True, eq=False)
class NetworkFile:
    """A description with the arrays that it names, float64, and the ids of the samples that trained it."""

    description: Description
    arrays: dict[str, NDArray[np.float64]]
    trained_on: frozenset[str] = frozenset()

    def options(self) -> dict[str, Any]:
        """Return the network as plain values that can be sent to a worker."""
        arrays = {n: {"dtype": a.dtype.str, "shape": [*a.shape], "data": a.tobytes()} for n, a in self.arrays.items()}
        return {"description": json.loads(msgspec.json.encode(self.description)), "arrays": arrays}

    def about(self) -> dict[str, Any]:
        """Return the fields of ``DeviceInfo`` that describe the network, as the NE15-MNIST chapter asks."""
        d, neurons = self.description, self.description.neuron
        synapses = {f"{p.source} to {p.target}, {p.connector}, {p.receptor}": d.synapses(p) for p in d.projections}
        return {
            "artifacts": {"network": self.digest()},
            "algorithm": {
                "model": f"{d.name}: leaky integrate-and-fire neurons, current-based synapses that decay exponentially",
                "encoder": "none: the samples are spikes; each pixel has a relay neuron",
                "network": {"neurons": {p.name: p.size for p in d.populations}, "synapses": synapses},
                "parameters": {**neurons, "step_ms": d.step_ms, "delay_ms": d.delay_ms},
                "training": d.origin or "not stated",
            },
        }

    def network(self) -> NetworkInfo:
        """Return what the network consists of. A step of the simulation counts as an execution.

        Weights are in 64 bits, as NEST keeps them. Each neuron has its parameters, a membrane and two currents.
        """
        d, bits = self.description, 64
        layers = tuple(Layer(p.name, p.size) for p in d.populations if not p.source)
        names = [f"{p.source}-{p.target}-{p.receptor}" for p in d.projections]
        connections = tuple(map(self._connection, names, d.projections))
        memory = [Memory(f"weights {c.name}", "weights", c.weights, bits) for c in connections]
        for layer in layers:
            memory.append(Memory(f"parameters {layer.name}", "parameters", len(d.neuron) * layer.neurons, bits))
            memory.append(Memory(f"states {layer.name}", "states", 3 * layer.neurons, bits, 0))
        told = "weights and parameters in 64 bits, as NEST keeps them, without the delays of synapses"
        return NetworkInfo(layers, connections, tuple(memory), 1e-3 * d.step_ms, told)

    def _connection(self, name: str, p: Projection) -> Connection:
        d, weights = self.description, self.arrays.get(p.weight) if isinstance(p.weight, str) else None
        synapses, fan_out = d.synapses(p), 1 if p.connector == "one-to-one" else d.sizes[p.target]
        if weights is None:
            zeros, fan_out = (0, fan_out) if p.weight else (synapses, 0)
        else:
            used = weights != 0 if p.connector == "all-to-all" else np.diag(weights != 0)[:, None]
            zeros, fan_out = synapses - int(used.sum()), int(used.sum(axis=1).max())
        return Connection(name, p.source, p.target, synapses, zeros, synapses, fan_out, round(d.delay_ms / d.step_ms))

    def check_sources(self, workload: Workload | None) -> None:
        """Raise ``DataError`` unless the workload's encoding has as many addresses as the network has sources."""
        sources = sum(p.size for p in self.description.populations if p.source)
        addresses = None if workload is None else workload.details.get("addresses", sources)
        if workload is not None and addresses != sources:
            encoding = workload.details.get("encoding")
            what = f"the network has {sources} sources, and the encoding {encoding} has {addresses} addresses"
            remedy = f"Train a network of this encoding: rig ne15 train --encoding {encoding}"
            raise DataError(what, field="network", value=sources, remedy=remedy)

    def check(self, sample: Sample) -> None:
        """Raise ``DataError`` for a sample that the network was trained on, because its answer would prove nothing."""
        image = sample.id.partition("@")[0]  # the id of a frame of a stream begins with the image that it shows last
        if image in self.trained_on:
            what = f"the network was trained on sample {image}"
            remedy = "Measure images that were left out of the training (options fold and folds of the workload)"
            raise DataError(what, field="sample_id", value=sample.id, remedy=remedy)

    def digest(self) -> str:
        """Return the SHA-256 of the description, of every weight and of the ids of the training samples."""
        found = hashlib.sha256(msgspec.json.encode(self.description))
        for name, array in sorted(self.arrays.items()):
            found.update(f"{name} {array.shape}".encode() + array.tobytes())
        found.update(" ".join(sorted(self.trained_on)).encode())
        return found.hexdigest()


def checked(
    description: Description, arrays: dict[str, NDArray[np.float64]], trained_on: frozenset[str] = frozenset()
) -> NetworkFile:
    """Return a network whose parts fit each other. Raises ``DataError`` that names a part that does not fit."""
    sizes = description.sizes
    if len(sizes) != len(description.populations):
        raise _wrong("populations", list(sizes), "two populations have one name")
    if sizes.get(description.output) != len(description.labels):
        raise _wrong("labels", len(description.labels), f"there must be one for each neuron of {description.output}")
    for p in description.projections:
        shape = (sizes.get(p.source), sizes.get(p.target))
        if None in shape or (p.connector == "one-to-one" and shape[0] != shape[1]):
            raise _wrong("projections", f"{p.source} to {p.target}", f"it cannot connect {shape} neurons")
        if p.plastic and (description.plasticity is None or isinstance(p.weight, str)):
            raise _wrong("plasticity", p.weight, "a plastic projection needs a rule and a number as its first weight")
        if isinstance(p.weight, str):
            array = arrays.get(p.weight)
            if array is None or array.shape != shape or not np.isfinite(array).all():
                raise _wrong(p.weight, None if array is None else array.shape, f"it must be finite, of shape {shape}")
    return NetworkFile(description, arrays, trained_on)


def read_network(path: Path) -> NetworkFile:
    """Read a network file. Raises ``DataError`` for one that cannot be used, ``UsageError`` if none is named."""
    if not path.name:
        raise refused("network", "", "Give a network file; `rig ne15 train` makes one", "no network was named")
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            text = str(file[_DESCRIPTION])
            trained_on = frozenset(str(name) for name in file[_TRAINED_ON])
            arrays = {n: np.asarray(file[n], np.float64) for n in file.files if n not in (_DESCRIPTION, _TRAINED_ON)}
        description = msgspec.json.decode(text, type=Description)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, msgspec.MsgspecError) as error:
        raise _wrong("network", str(path), f"it cannot be read: {reason(error)}") from error
    return checked(description, arrays, trained_on)


def write_network(network: NetworkFile, path: Path) -> None:
    """Write a network file, as a whole or not at all. Raises ``UsageError`` where it cannot be written."""
    text = np.array(msgspec.json.encode(network.description).decode())
    texts = {_DESCRIPTION: text, _TRAINED_ON: np.array(sorted(network.trained_on), str)}
    with replacing(path) as file:
        np.savez_compressed(file, **texts, **network.arrays)  # type: ignore[arg-type]


def _wrong(field: str, value: object, why: str) -> DataError:
    remedy = "Make the file with `rig ne15 train`, or see the reference of PyNN devices"
    return DataError(f"the network's {field} is {value!r}: {why}", field=field, value=value, remedy=remedy)
