"""Read a network in NIR, an exchange format of several frameworks, and check that a Xylo Audio 2 can hold it.

The chip runs layers of current-based leaky integrate-and-fire neurons (``CubaLIF``) between weights (``Linear``), with
recurrence from a layer to itself. A nested graph, a common form of recurrent layers, is replaced by its nodes. Any
other node is refused by name. So is a value that would be lost, such as the bias of an ``Affine``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np

from drivers.devices.nir_file import check_edges, digest_of, ends_of, finite, flat, read_nodes, refused
from drivers.devices.xylo.networks.network import LIMITS
from rig.types import Floats

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
        """Return the position of a layer; the input is 0."""
        return 0 if name == self.source else 1 + [layer.name for layer in self.layers].index(name)


def read_graph(path: Path) -> Graph:
    """Read and check a NIR file.

    Raises ``DataError`` that names the node and the limit, and ``MissingExtraError`` without the package nir.
    """
    return checked(*read_nodes(path, MOST_BYTES))


def checked(nodes: Mapping[str, Any], edges: Sequence[tuple[str, str]]) -> Graph:
    """Check the nodes and edges of a graph, including nested ones. Raises ``DataError``."""
    nodes, links = flat(nodes, edges)
    kinds = {name: type(node).__name__ for name, node in nodes.items()}
    for name, kind in kinds.items():
        if kind not in ("Input", "Output", "CubaLIF", "Linear", "Affine"):
            raise refused(name, f"is a {kind}", "Xylo runs CubaLIF neurons between Linear weights")
    source, sink = ends_of(nodes)
    check_edges(nodes, links)
    weights = [_weights(name, nodes[name], links, kinds) for name, k in kinds.items() if k in ("Linear", "Affine")]
    neurons = {name: _neurons(name, nodes[name], weights) for name, k in kinds.items() if k == "CubaLIF"}
    last = _output(sink, source, links, kinds, weights)
    layers = [neurons[name] for name in _in_order(neurons, weights, source, last)]
    inputs = next(w.values.shape[1] for w in weights if w.source == source)
    for w in weights:
        wanted = inputs if w.source == source else neurons[w.source].size
        if w.values.shape[1] != wanted:
            raise refused(w.name, f"takes {w.values.shape[1]} inputs", f"{w.source} has {wanted} outputs")
    _check_limits(source, inputs, layers)
    return Graph(source, inputs, tuple(layers), tuple(weights), digest_of(nodes, links))


def _weights(name: str, node: Any, links: list[tuple[str, str]], kinds: Mapping[str, str]) -> Weights:
    values = finite(name, "weight", node.weight)
    if values.ndim != 2 or not values.size:
        raise refused(name, f"has a weight of shape {values.shape}", "Weights have the shape (targets, sources)")
    if np.any(finite(name, "bias", getattr(node, "bias", 0.0))):
        remedy = "Xylo has no bias of weights: train without it, or move it to v_leak of the neurons"
        raise refused(name, "has a bias", remedy)
    sources, targets = [a for a, b in links if b == name], [b for a, b in links if a == name]
    for side, found, allowed in (("from", sources, ("Input", "CubaLIF")), ("to", targets, ("CubaLIF",))):
        if len(found) != 1 or kinds[found[0]] not in allowed:
            said = ", ".join(f"{n} ({kinds[n]})" for n in found) or "nowhere"
            remedy = f"It must lead {side} one {' or '.join(allowed)}"
            if any(kinds[n] in ("Linear", "Affine") for n in found):
                remedy += ", not weights. In a nested graph, let the edge from its input lead to the neurons"
            raise refused(name, f"leads {side} {said}", remedy)
    return Weights(name, sources[0], targets[0], values)


def _neurons(name: str, node: Any, weights: list[Weights]) -> Neurons:
    sizes = {w.values.shape[0] for w in weights if w.target == name}
    if len(sizes) != 1:
        found = f"gets weights for {' and '.join(map(str, sorted(sizes)))} neurons" if sizes else "gets no weights"
        raise refused(name, found, "Every layer needs a Linear with one row for each neuron")
    (size,) = sizes
    values = {}
    for what in _NEURON_VALUES:
        array = finite(name, what, getattr(node, what))
        if array.size not in (1, size):
            raise refused(name, f"has {what} of shape {array.shape}", f"Give one value, or {size}")
        if what in _ABOVE_ZERO and np.any(array <= 0):
            raise refused(name, f"has {what} of {array.min():g}", "Give values above 0")
        values[what] = np.broadcast_to(array.ravel(), (size,)).copy()
    if np.any(values["v_reset"] != 0):
        raise refused(name, "resets to a v_reset other than 0", "Xylo resets by subtracting the threshold")
    return Neurons(name, size, values)


def _output(
    sink: str, source: str, links: list[tuple[str, str]], kinds: Mapping[str, str], weights: list[Weights]
) -> str:
    """Return the output layer, and check every edge that does not touch a Linear."""
    for a, b in links:
        if "Linear" not in (kinds[a], kinds[b]) and "Affine" not in (kinds[a], kinds[b]) and b != sink:
            raise refused(b, f"gets the output of {a} without weights", "Put a Linear between them")
    last = [a for a, b in links if b == sink]
    if len(last) != 1 or kinds[last[0]] != "CubaLIF":
        raise refused(sink, f"gets {', '.join(last) or 'nothing'}", "It must get the output of one CubaLIF")
    for w in weights:
        if w.source == last[0]:
            remedy = "Output neurons of Xylo reach no other neurons"
            raise refused(w.name, f"leads on from the output layer {last[0]}", remedy)
        if (w.source, w.target) == (source, last[0]):
            raise refused(w.name, "leads from the input to the output layer", "Xylo needs a hidden layer between them")
    if (twice := [w for w in weights if sum((o.source, o.target) == (w.source, w.target) for o in weights) > 1]) != []:
        raise refused(twice[0].name, f"is one of two from {twice[0].source} to {twice[0].target}", "Add them up")
    return last[0]


def _in_order(neurons: Mapping[str, Neurons], weights: list[Weights], source: str, last: str) -> list[str]:
    """Return layers from input to output. Raises ``DataError`` for a longer loop, or a layer without input."""
    order = TopologicalSorter({name: set[str]() for name in neurons})
    for w in weights:
        if w.source not in (w.target, source):
            order.add(w.target, w.source)
    try:
        names = list(order.static_order())
    except CycleError as error:
        around = " -> ".join(error.args[1])
        remedy = "A layer may lead back to itself alone"
        raise refused(error.args[1][0], f"is in a loop through several layers ({around})", remedy) from error
    reached = {source}
    for name in names:
        if not any(w.target == name and w.source in reached for w in weights):
            raise refused(name, "is not reached from the input", "Remove it, or connect it")
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
            raise refused(name, f"needs {size} {kind} channels", f"Xylo Audio 2 has {LIMITS[kind]}")
