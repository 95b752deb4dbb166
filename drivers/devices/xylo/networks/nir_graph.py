"""Reads a network in NIR, the exchange format of several frameworks, and checks that a Xylo Audio 2 can hold it.

The chip runs layers of current-based leaky integrate-and-fire neurons (``CubaLIF``) between weights (``Linear``), with
recurrence from a layer to itself. A nested graph, as recurrent layers are often written, stands for its nodes. All else
is refused by the name of its node, and so is a value that would be lost on the way, such as the bias of an ``Affine``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivers.devices.xylo.networks.network import LIMITS
from rig.errors import DataError
from rig.plugins import imported

Floats = NDArray[np.float64]
MOST_BYTES = 1 << 26
_NEURON_VALUES = ("tau_syn", "tau_mem", "r", "w_in", "v_threshold", "v_leak", "v_reset")
_ABOVE_ZERO = ("tau_syn", "tau_mem", "v_threshold")


@dataclass(frozen=True, slots=True)
class Neurons:
    """One ``CubaLIF`` node; ``values`` are its parameters by name, each of shape (size,)."""

    name: str
    size: int
    values: Mapping[str, Floats]


@dataclass(frozen=True, slots=True)
class Weights:
    """One ``Linear`` node between two others; ``values`` has shape (target neurons, source neurons)."""

    name: str
    source: str
    target: str
    values: Floats


@dataclass(frozen=True, slots=True)
class Graph:
    """A checked graph. ``layers`` run from the first to the output; ``source`` is the name of its input node."""

    source: str
    inputs: int
    layers: tuple[Neurons, ...]
    weights: tuple[Weights, ...]
    digest_sha256: str

    def place(self, name: str) -> int:
        """Return the place of a layer, where the input is 0."""
        return 0 if name == self.source else 1 + [layer.name for layer in self.layers].index(name)


def read_graph(path: Path) -> Graph:
    """Read and check a NIR file.

    Raises ``DataError`` that names the node and the limit, and ``MissingExtraError`` without the package nir.
    """
    nir = imported("nir", "a network in NIR", "nir", field="network", value=path.name)
    if not path.is_file():
        what, remedy = f"there is no file {path}", "Give the path of a graph that was written by nir"
        raise DataError(what, field="network", value=path.name, remedy=remedy)
    if path.stat().st_size > MOST_BYTES:
        remedy = "A network of this chip is far smaller"
        raise DataError(
            f"{path.name} is larger than {MOST_BYTES >> 20} MiB", field="network", value=path.name, remedy=remedy
        )
    try:
        read = _unchecked(nir, path)
    except Exception as error:  # a damaged file gives an error of HDF5, numpy or nir itself
        what = f"cannot read {path.name} as a NIR graph: {type(error).__name__}: {error}"
        raise DataError(what, field="network", value=path.name, remedy="Export it again with nir 1.0.8") from error
    return checked(read.nodes, read.edges)


def checked(nodes: Mapping[str, Any], edges: Sequence[tuple[str, str]]) -> Graph:
    """Check the nodes and edges of a graph, nested ones included. Raises ``DataError``."""
    nodes, edges = _flat(nodes, edges)
    kinds = {name: type(node).__name__ for name, node in nodes.items()}
    for name, kind in kinds.items():
        if kind not in ("Input", "Output", "CubaLIF", "Linear", "Affine"):
            raise _refused(name, f"is a {kind}", "Xylo runs CubaLIF neurons between Linear weights")
    ends = {kind: [name for name, found in kinds.items() if found == kind] for kind in ("Input", "Output")}
    for kind, names in ends.items():
        if len(names) != 1:
            raise _refused(names[1] if names else kind, f"is one of {len(names)}", f"Give the graph one {kind}")
    links = sorted({(str(a), str(b)) for a, b in edges})
    for name in (n for link in links for n in link if n not in kinds):
        raise _refused(name, "has edges and does not exist", "Export the graph again")
    (source,), (sink,) = ends["Input"], ends["Output"]
    weights = [_weights(name, nodes[name], links, kinds) for name, k in kinds.items() if k in ("Linear", "Affine")]
    neurons = {name: _neurons(name, nodes[name], weights) for name, k in kinds.items() if k == "CubaLIF"}
    last = _output(sink, source, links, kinds, weights)
    layers = [neurons[name] for name in _in_order(neurons, weights, source, last)]
    inputs = next(w.values.shape[1] for w in weights if w.source == source)
    for w in weights:
        wanted = inputs if w.source == source else neurons[w.source].size
        if w.values.shape[1] != wanted:
            raise _refused(w.name, f"takes {w.values.shape[1]} inputs", f"{w.source} has {wanted} outputs")
    _check_limits(source, inputs, layers)
    return Graph(source, inputs, tuple(layers), tuple(weights), _digest(nodes, links))


def _unchecked(nir: Any, path: Path) -> Any:
    """Read a graph whose types nobody checks: ``nir.read`` can leave this out for the outer graph alone."""
    h5py = imported("h5py", "a network in NIR", "nir", field="network", value=path.name)

    def unchecked(tree: dict[str, Any]) -> dict[str, Any]:
        if tree.get("type") == "NIRGraph":
            return tree | {"type_check": False, "nodes": {name: unchecked(n) for name, n in tree["nodes"].items()}}
        return tree

    with h5py.File(path, "r") as file:
        return nir.dict2NIRNode(unchecked(nir.serialization.hdf2dict(file["node"])))


def _flat(nodes: Mapping[str, Any], edges: Sequence[tuple[str, str]]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return nodes and edges without nested graphs: a node of the graph ``rnn`` is called ``rnn.lif``.

    An edge that leads to a nested graph goes on at its input, and one that leads from it begins at its output.
    """
    found = {name: node for name, node in nodes.items() if type(node).__name__ != "NIRGraph"}
    links = [(str(a), str(b)) for a, b in edges]
    for graph in [name for name in nodes if name not in found]:
        inner, inside = _flat(nodes[graph].nodes, nodes[graph].edges)
        own = {name: name if name.startswith(f"{graph}.") else f"{graph}.{name}" for name in inner}
        for name in sorted((found.keys() | nodes.keys()) & set(own.values())):
            raise _refused(name, f"is in the graph and in its nested graph {graph!r}", "Give one another name")
        found |= {own[name]: node for name, node in inner.items()}
        links += [(own.get(a, f"{graph}.{a}"), own.get(b, f"{graph}.{b}")) for a, b in inside]
        for kind in ("Input", "Output"):
            names = [own[name] for name, node in inner.items() if type(node).__name__ == kind]
            if len(names) != 1:
                remedy = f"Its edges do not say which one they mean: give it one {kind}, or move its nodes out of it"
                raise _refused(graph, f"is a nested graph with {len(names)} nodes of the kind {kind}", remedy)
            (through,) = names
            into = [a for a, b in links if b == through or (kind, b) == ("Input", graph)]
            out = [b for a, b in links if a == through or (kind, a) == ("Output", graph)]
            links = [(a, b) for a, b in links if (kind, b) != ("Input", graph) and (kind, a) != ("Output", graph)]
            links = [ln for ln in links if through not in ln] + [(a, b) for a in into for b in out]
            del found[through]
    return found, links


def _refused(name: str, what: str, remedy: str) -> DataError:
    return DataError(f"node {name!r} {what}", field="network", value=name, remedy=remedy)


def _finite(name: str, what: str, values: Any) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if not np.all(np.isfinite(array)):
        raise _refused(name, f"holds NaN or infinity in {what}", "Export the trained network again")
    return array


def _weights(name: str, node: Any, links: list[tuple[str, str]], kinds: Mapping[str, str]) -> Weights:
    values = _finite(name, "weight", node.weight)
    if values.ndim != 2 or not values.size:
        raise _refused(name, f"has a weight of shape {values.shape}", "Weights have the shape (targets, sources)")
    if np.any(_finite(name, "bias", getattr(node, "bias", 0.0))):
        remedy = "Xylo has no bias of weights: train without it, or move it to v_leak of the neurons"
        raise _refused(name, "has a bias", remedy)
    sources, targets = [a for a, b in links if b == name], [b for a, b in links if a == name]
    for side, found, allowed in (("from", sources, ("Input", "CubaLIF")), ("to", targets, ("CubaLIF",))):
        if len(found) != 1 or kinds[found[0]] not in allowed:
            said = ", ".join(f"{n} ({kinds[n]})" for n in found) or "nowhere"
            remedy = f"It must lead {side} one {' or '.join(allowed)}"
            if any(kinds[n] in ("Linear", "Affine") for n in found):
                remedy += ", not weights. In a nested graph, let the edge from its input end at the neurons"
            raise _refused(name, f"leads {side} {said}", remedy)
    return Weights(name, sources[0], targets[0], values)


def _neurons(name: str, node: Any, weights: list[Weights]) -> Neurons:
    sizes = {w.values.shape[0] for w in weights if w.target == name}
    if len(sizes) != 1:
        found = f"gets weights for {' and '.join(map(str, sorted(sizes)))} neurons" if sizes else "gets no weights"
        raise _refused(name, found, "Every layer needs a Linear with one row for each neuron")
    (size,) = sizes
    values = {}
    for what in _NEURON_VALUES:
        array = _finite(name, what, getattr(node, what))
        if array.size not in (1, size):
            raise _refused(name, f"has {what} of shape {array.shape}", f"Give one value, or {size}")
        if what in _ABOVE_ZERO and np.any(array <= 0):
            raise _refused(name, f"has {what} of {array.min():g}", "Give values above 0")
        values[what] = np.broadcast_to(array.ravel(), (size,)).copy()
    if np.any(values["v_reset"] != 0):
        raise _refused(name, "resets to a v_reset other than 0", "Xylo resets by subtracting the threshold")
    return Neurons(name, size, values)


def _output(
    sink: str, source: str, links: list[tuple[str, str]], kinds: Mapping[str, str], weights: list[Weights]
) -> str:
    """The layer that is the output; every edge that is not one of a Linear is looked at here."""
    for a, b in links:
        if "Linear" not in (kinds[a], kinds[b]) and "Affine" not in (kinds[a], kinds[b]) and b != sink:
            raise _refused(b, f"gets the output of {a} without weights", "Put a Linear between them")
    last = [a for a, b in links if b == sink]
    if len(last) != 1 or kinds[last[0]] != "CubaLIF":
        raise _refused(sink, f"gets {', '.join(last) or 'nothing'}", "It must get the output of one CubaLIF")
    for w in weights:
        if w.source == last[0]:
            remedy = "Output neurons of Xylo reach no other neurons"
            raise _refused(w.name, f"leads on from the output layer {last[0]}", remedy)
        if (w.source, w.target) == (source, last[0]):
            raise _refused(w.name, "leads from the input to the output layer", "Xylo needs a hidden layer between them")
    if (twice := [w for w in weights if sum((o.source, o.target) == (w.source, w.target) for o in weights) > 1]) != []:
        raise _refused(twice[0].name, f"is one of two from {twice[0].source} to {twice[0].target}", "Add them up")
    return last[0]


def _in_order(neurons: Mapping[str, Neurons], weights: list[Weights], source: str, last: str) -> list[str]:
    """Layers from input to output. Raises ``DataError`` for a loop through several layers, or one without input."""
    order = TopologicalSorter({name: set[str]() for name in neurons})
    for w in weights:
        if w.source not in (w.target, source):
            order.add(w.target, w.source)
    try:
        names = list(order.static_order())
    except CycleError as error:
        around = " -> ".join(error.args[1])
        raise _refused(error.args[1][0], f"is in a loop through several layers ({around})", "A layer may lead back to "
                       "itself alone") from error  # fmt: skip
    reached = {source}
    for name in names:
        if not any(w.target == name and w.source in reached for w in weights):
            raise _refused(name, "is not reached from the input", "Remove it, or connect it")
        reached.add(name)
    return [*(name for name in names if name != last), last]


def _check_limits(source: str, inputs: int, layers: list[Neurons]) -> None:
    found = (
        (source, "input", inputs),
        (layers[0].name, "hidden", sum(layer.size for layer in layers[:-1])),
        (layers[-1].name, "output", layers[-1].size),
    )
    for name, kind, size in found:
        if size > LIMITS[kind]:
            raise _refused(name, f"needs {size} {kind} channels", f"Xylo Audio 2 has {LIMITS[kind]}")


def _digest(nodes: Mapping[str, Any], links: list[tuple[str, str]]) -> str:
    """SHA-256 over the sorted nodes with their arrays, and the edges; the bytes of the file may differ."""
    digest = hashlib.sha256()
    for name, node in sorted(nodes.items()):
        digest.update(f"{name}\0{type(node).__name__}\0".encode())
        for what, values in sorted(vars(node).items()):
            if isinstance(values, np.ndarray | np.generic | float | int):
                array = np.ascontiguousarray(values)
                digest.update(f"{what}\0{array.dtype.str}\0{array.shape}\0".encode() + array.tobytes())
    digest.update(repr(links).encode())
    return digest.hexdigest()
