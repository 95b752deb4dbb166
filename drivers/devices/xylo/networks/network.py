"""The network file: an integer specification for Xylo Audio 2, its encoder, its classes, and a digest of all of it."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivers.devices.xylo.networks.encoder import EncoderParams
from drivers.devices.xylo.networks.float_network import FloatNetwork, Link, chip_neurons
from rig.errors import DataError, reason
from rig.recording.disk.size_limits import read_bounded

FORMAT = "xylo-audio2-network-1"
SHIPPED = Path(__file__).with_name("xylo_asc.json")
LIMITS = {"input": 16, "hidden": 1000, "output": 8}
"""Limits of Xylo Audio 2: channels in, hidden neurons, channels out."""
MOST_FAN_OUT, MOST_HIDDEN_WEIGHTS = 64, 32_000
"""The most hidden neurons that one hidden neuron reaches, and the most nonzero weights between them (Rockpool,
"Overview of the Xylo family": 64 at most and 32 on average)."""

_WEIGHTS = ("weights_in", "weights_rec", "weights_out")
_PAIRED = ("dash_mem", "dash_syn", "threshold", "bias")
_VECTORS = (*_PAIRED, *(f"{name}_out" for name in _PAIRED), "dash_syn_2")
_SHIFTS = ("weight_shift_in", "weight_shift_rec", "weight_shift_out")


@dataclass(frozen=True, slots=True)
class Network:
    """One loaded network. ``specification`` holds the arguments of ``XyloSim.from_specification``.

    ``layers`` are the sizes from input to output; the hidden layers follow one another among the hidden neurons.
    ``digest_sha256`` covers everything in the file; for a NIR graph it covers nodes and edges. ``links`` are its
    connections. ``deployment`` states how a NIR graph was fitted to the chip. ``floats`` is the network before it was
    fitted, if known.
    """

    classes: tuple[str, ...]
    encoder: EncoderParams
    layers: tuple[int, ...]
    specification: Mapping[str, Any]
    training: Mapping[str, Any]
    digest_sha256: str
    links: tuple[Link, ...]
    deployment: Mapping[str, Any] = field(default_factory=dict)
    floats: FloatNetwork | None = None

    def blocks(self) -> dict[Link, NDArray[np.int64]]:
        """Return the weights of each connection, shape (source neurons, target neurons)."""
        found = {}
        for link in self.links:
            name, (row, column) = place_of(link, self.layers)
            values = np.asarray(self.specification[name])[slice(*row), slice(*column)]
            found[link] = values.reshape(values.shape[:2])
        return found


def chain(layers: Sequence[int]) -> tuple[Link, ...]:
    """Return the connections of a feed-forward network."""
    return tuple(pairwise(range(len(layers))))


def place_of(link: Link, layers: Sequence[int]) -> tuple[str, tuple[Link, Link]]:
    """Return the matrix of a specification that holds a connection, and its rows and columns (begin, end)."""
    last = len(layers) - 1
    ends = [(0, layers[0]), *pairwise(np.cumsum((0, *layers[1:-1])).tolist()), (0, layers[-1])]
    name = "weights_in" if link[0] == 0 else "weights_out" if link[1] == last else "weights_rec"
    return name, (ends[link[0]], ends[link[1]])


def load_network(path: str | Path | None = None) -> Network:
    """Read and verify a network file (None: the shipped one).

    Raises DataError if it is missing, is not a network file, does not match its digest, or does not fit the chip.
    """
    where = Path(path) if path is not None else SHIPPED
    try:
        document = json.loads(read_bounded(where))
    except (OSError, ValueError, RecursionError) as error:
        what = f"cannot read the network file {where}: {reason(error)}"
        remedy = "Give the path of a network file, such as `rig network train` writes"
        raise DataError(what, field="network", value=where.name, remedy=remedy) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise DataError(f"not a file of format {FORMAT}", field="network", value=where.name)
    stated = document.pop("sha256", None)
    try:
        actual = content_digest(document)
    except ValueError as error:  # NaN, infinity
        raise _malformed(where, "it holds NaN or infinity") from error
    if stated != actual:
        what = f"the network file was altered: its content has digest {actual}, it states {stated}"
        remedy = "Restore the file, or train it again with `rig network train`"
        raise DataError(what, field="network", value=where.name, remedy=remedy)
    try:
        return _parse(document, actual)
    except KeyError as error:
        raise _malformed(where, f"{error} is missing") from error
    except (TypeError, ValueError) as error:
        raise _malformed(where, str(error)) from error


def _malformed(path: Path, what: str) -> DataError:
    remedy = "Correct it, or train it again with `rig network train`"
    return DataError(f"malformed network file: {what}", field="network", value=path.name, remedy=remedy)


def write_network(path: str | Path, network: Network) -> None:
    """Write ``network`` with the digest of its content (its own ``digest_sha256`` is ignored)."""
    document = to_document(network)
    document["sha256"] = content_digest(document)
    Path(path).write_text(_canonical(document) + "\n", encoding="utf-8")


def to_document(network: Network) -> dict[str, Any]:
    """Return the file's content as JSON values, without the digest. Only the blocks of connected layers are kept."""
    spec = network.specification
    blocks: dict[str, list[tuple[Link, Link]]] = {name: [] for name in _WEIGHTS}
    for link in network.links:
        name, place = place_of(link, network.layers)
        blocks[name].append(place)
    content: dict[str, Any] = {name: _pack(spec[name], blocks[name]) for name in _WEIGHTS}
    content |= {name: np.asarray(spec[name]).astype(int).tolist() for name in _VECTORS}
    content |= {name: int(spec[name]) for name in _SHIFTS}
    content |= {"aliases": [list(map(int, row)) for row in spec["aliases"]], "dt": float(spec["dt"])}
    return {
        "format": FORMAT,
        "classes": list(network.classes),
        "encoder": asdict(network.encoder),
        "layers": list(network.layers),
        **({} if network.links == chain(network.layers) else {"links": [list(link) for link in network.links]}),
        "specification": content,
        **({} if network.floats is None else {"float_weights": _shortest(network)}),
        "training": dict(network.training),
    }


def content_digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the content in canonical JSON, in hex."""
    return hashlib.sha256(_canonical(document).encode()).hexdigest()


def _canonical(document: Mapping[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _parse(document: Mapping[str, Any], digest: str) -> Network:
    content = document["specification"]
    spec: dict[str, Any] = {name: _unpack(content[name]) for name in _WEIGHTS}
    spec |= {name: np.asarray(content[name], dtype=np.int64) for name in _VECTORS}
    spec |= {name: int(content[name]) for name in _SHIFTS}
    spec |= {"aliases": content["aliases"], "dt": float(content["dt"])}
    network = Network(
        classes=tuple(document["classes"]),
        encoder=EncoderParams.from_json(document["encoder"]),
        layers=tuple(document["layers"]),
        specification=spec,
        training=document["training"],
        digest_sha256=digest,
        links=tuple((int(a), int(b)) for a, b in document.get("links", chain(document["layers"]))),
    )
    check_shapes(network)
    again = to_document(network)["specification"]
    if odd := [name for name in _WEIGHTS if again[name] != content[name]]:
        raise ValueError(f"the blocks of {odd[0]} do not hold each weight between the layers {list(network.layers)}")
    if "float_weights" in document:
        return replace(network, floats=_floats(network, document["float_weights"]))
    return network


def _floats(network: Network, weights: Sequence[Any]) -> FloatNetwork:
    """Return the network before rounding; its decays are the chip's, and every threshold is 1."""
    found: dict[Link, NDArray[np.float32]] = {}
    for link, block, values in zip(network.links, network.blocks().values(), weights, strict=True):
        found[link] = np.asarray(values, np.float32)
        if found[link].shape != block.shape or link[0] > link[1] or not np.all(np.isfinite(found[link])):
            raise ValueError(f"float_weights of the connection {link} do not fit its layers")
    spec, bounds = network.specification, np.cumsum(network.layers[1:-1])[:-1]
    shifts = [[*np.split(spec[n], bounds), spec[f"{n}_out"]] for n in ("dash_syn", "dash_mem")]
    last = len(network.layers) - 2
    return FloatNetwork(
        tuple(chip_neurons(a, b, k == last) for k, (a, b) in enumerate(zip(*shifts, strict=True))), found, 1
    )


def _shortest(network: Network) -> list[list[list[float]]]:
    """Return the float weights by connection, with just enough digits to distinguish float32 values."""
    assert network.floats is not None
    return [[[float(str(v)) for v in row] for row in network.floats.weights[link]] for link in network.links]


def check_shapes(network: Network) -> None:
    """Raise ``ValueError`` for a network whose parts do not fit each other or the chip."""
    spec, layers = network.specification, network.layers
    inputs, hidden, outputs = layers[0], sum(layers[1:-1]), layers[-1]
    expected: dict[str, tuple[int, ...]] = {n: (outputs if n.endswith("_out") else hidden,) for n in _VECTORS}
    expected |= dict(zip(_WEIGHTS, ((inputs, hidden, 1), (hidden, hidden, 1), (hidden, outputs)), strict=True))
    for name, shape in expected.items():
        if spec[name].shape != shape:
            raise ValueError(f"{name} has shape {spec[name].shape}, expected {shape}")
    for name, size in (("input", inputs), ("hidden", hidden), ("output", outputs)):
        if size > LIMITS[name]:
            raise ValueError(f"{size} {name} channels; Xylo Audio 2 has {LIMITS[name]}")
    if len(network.classes) != outputs or network.encoder.channels != inputs:
        raise ValueError("classes or encoder channels do not match the layers")
    if spec["dt"] != network.encoder.bin_s:
        raise ValueError(f"the time step {spec['dt']} s is not the encoder's bin")
    if any(spec[name].min(initial=0) < -128 or spec[name].max(initial=0) > 127 for name in _WEIGHTS):
        raise ValueError("a weight does not fit in 8 bits")
    last = len(layers) - 1
    if odd := [link for link in network.links if not (0 <= link[0] < last and 0 < link[1] <= last)]:
        raise ValueError(f"the connection {odd[0]} is not between two of {len(layers)} layers")
    if odd := [link for link in network.links if link == (0, last)]:
        raise ValueError("the chip has no connection from its input to its output neurons")
    aliases = spec["aliases"]
    if len(aliases) != hidden or any(len(row) > 1 or not all(0 <= k < hidden for k in row) for row in aliases):
        raise ValueError("a hidden neuron of Xylo Audio 2 has at most one alias, and this alias is a hidden neuron too")
    for layer, fault in fan_out_faults(network):
        raise ValueError(f"layer {layer} {fault}")


def fan_out_faults(network: Network) -> Iterator[tuple[int, str]]:
    """Yield the position of each hidden layer that needs more connections than the chip has, and what is too many."""
    last, total = len(network.layers) - 1, 0
    fan_out = {layer: np.zeros(network.layers[layer], np.int64) for layer in range(1, last)}
    for (a, b), weights in network.blocks().items():
        if a and b < last:
            fan_out[a] += np.count_nonzero(weights, axis=1)
    for layer, reached in fan_out.items():
        total += int(reached.sum())
        if reached.max() > MOST_FAN_OUT:
            yield layer, f"has a neuron that reaches {reached.max()} hidden neurons; Xylo Audio 2 allows {MOST_FAN_OUT}"
        if total > MOST_HIDDEN_WEIGHTS:
            what = f"needs {total} weights between hidden neurons, with the layers before it"
            yield layer, f"{what}; Xylo Audio 2 has {MOST_HIDDEN_WEIGHTS}"


def _pack(matrix: NDArray[Any], blocks: Sequence[tuple[tuple[int, int], tuple[int, int]]]) -> dict[str, Any]:
    """Return a matrix as its shape and its blocks. Raises ``ValueError`` for nonzero values outside the blocks."""
    packed, rest = [], np.array(matrix, dtype=np.int64)
    for (row, row_end), (column, column_end) in blocks:
        part = rest[row:row_end, column:column_end]
        values = part.reshape(part.shape[:2])
        packed.append({"at": [row, column], "values": values.tolist()})
        part[...] = 0
    if rest.any():
        raise ValueError("the network has connections outside its layers")
    return {"shape": list(rest.shape), "blocks": packed}


def _unpack(packed: Mapping[str, Any]) -> NDArray[np.int64]:
    matrix = np.zeros(packed["shape"], dtype=np.int64)
    for block in packed["blocks"]:
        values = np.asarray(block["values"], dtype=np.int64)
        row, column = block["at"]
        target = matrix[row : row + values.shape[0], column : column + values.shape[1]]
        target[...] = values.reshape(target.shape)
    return matrix
