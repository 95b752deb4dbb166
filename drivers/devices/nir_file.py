"""Read a file in NIR, an exchange format of several frameworks, into unchecked nodes and edges."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from drivers.failures import UNFIT
from rig.errors import DataError, SetupError
from rig.plugins import imported
from rig.types import Floats

Nodes = Mapping[str, Any]
Edges = Sequence[tuple[str, str]]


def read_nodes(path: Path, most_bytes: int) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return the nodes of a NIR file by name, and its edges, sorted and without repeats. Nested graphs are flattened.

    Raises ``DataError`` if the file is missing, larger than ``most_bytes`` or not a graph, and ``MissingExtraError``
    without the package nir.
    """
    nir = imported("nir", "a network in NIR", "nir", field="network", value=path.name)
    if not path.is_file():
        what, remedy = f"there is no file {path}", "Give the path of a graph that was written by nir"
        raise DataError(what, field="network", value=path.name, remedy=remedy)
    if path.stat().st_size > most_bytes:
        what, remedy = f"{path.name} is larger than {most_bytes >> 20} MiB", "A network of this device is far smaller"
        raise DataError(what, field="network", value=path.name, remedy=remedy)
    try:
        read = _unchecked(nir, path)
    except UNFIT as error:
        what = f"cannot read {path.name} as a NIR graph: {type(error).__name__}: {error}"
        raise DataError(what, field="network", value=path.name, remedy="Export it again with nir 1.0.8") from error
    return flat(read.nodes, read.edges)


def flat(nodes: Nodes, edges: Edges) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return nodes and edges without nested graphs: node ``lif`` of the graph ``rnn`` is called ``rnn.lif``.

    Inputs and outputs of nested graphs are removed. An edge to a nested graph then leads to the nodes behind its input,
    and an edge from it begins at the nodes before its output. Raises ``DataError`` for a name that occurs twice, and
    for a nested graph without exactly one input and one output.
    """
    found = {name: node for name, node in nodes.items() if type(node).__name__ != "NIRGraph"}
    links = [(str(a), str(b)) for a, b in edges]
    for graph in [name for name in nodes if name not in found]:
        inner, inside = flat(nodes[graph].nodes, nodes[graph].edges)
        own = {name: name if name.startswith(f"{graph}.") else f"{graph}.{name}" for name in inner}
        for name in sorted((found.keys() | nodes.keys()) & set(own.values())):
            raise refused(name, f"is in the graph and in its nested graph {graph!r}", "Rename one of them")
        found |= {own[name]: node for name, node in inner.items()}
        links += [(own.get(a, f"{graph}.{a}"), own.get(b, f"{graph}.{b}")) for a, b in inside]
        for kind in ("Input", "Output"):
            names = [own[name] for name, node in inner.items() if type(node).__name__ == kind]
            if len(names) != 1:
                remedy = f"Give it one {kind}, so that its edges are clear, or move its nodes out of it"
                raise refused(graph, f"is a nested graph with {len(names)} nodes of the kind {kind}", remedy)
            (through,) = names
            into = [a for a, b in links if b == through or (kind, b) == ("Input", graph)]
            out = [b for a, b in links if a == through or (kind, a) == ("Output", graph)]
            links = [(a, b) for a, b in links if (kind, b) != ("Input", graph) and (kind, a) != ("Output", graph)]
            links = [ln for ln in links if through not in ln] + [(a, b) for a in into for b in out]
            del found[through]
    return found, sorted(set(links))


def ends_of(nodes: Nodes) -> tuple[str, str]:
    """Return the names of a graph's input and output. Raises ``DataError`` unless there is one of each."""
    found = []
    for kind in ("Input", "Output"):
        names = [name for name, node in nodes.items() if type(node).__name__ == kind]
        if len(names) != 1:
            raise refused(names[1] if names else kind, f"is one of {len(names)}", f"Give the graph one {kind}")
        found += names
    return found[0], found[1]


def check_edges(nodes: Nodes, edges: Edges) -> None:
    """Raise ``DataError`` for an edge of a node that does not exist."""
    for name in (n for edge in edges for n in edge if n not in nodes):
        raise refused(name, "has edges and does not exist", "Export the graph again")


def finite(name: str, what: str, values: Any) -> Floats:
    """Return the values of a node as doubles. Raises ``DataError`` if one is not finite."""
    array = np.asarray(values, dtype=np.float64)
    if not np.all(np.isfinite(array)):
        raise refused(name, f"holds NaN or infinity in {what}", "Export the trained network again")
    return array


def digest_of(nodes: Nodes, edges: Edges) -> str:
    """Return the SHA-256 over the sorted nodes with their arrays, and the edges, however the file stores them."""
    found = hashlib.sha256()
    for name, node in sorted(nodes.items()):
        found.update(f"{name}\0{type(node).__name__}\0".encode())
        for what, values in sorted(vars(node).items()):
            if isinstance(values, np.ndarray | np.generic | float | int):
                array = np.ascontiguousarray(values)
                found.update(f"{what}\0{array.dtype.str}\0{array.shape}\0".encode() + array.tobytes())
    found.update(repr(list(edges)).encode())
    return found.hexdigest()


def check_said(**needed: tuple[object, str]) -> None:
    """Check that the user gave the facts that a NIR graph does not contain, each as a value and an example value.

    Raises ``SetupError`` that names all missing options.
    """
    missing = {name: example for name, (value, example) in needed.items() if value is None}
    if missing:
        first = next(iter(missing))
        error = SetupError(f"a NIR graph does not say its {' and '.join(missing)}", field=first, example=missing[first])
        error.remedy = f"Add {' '.join(f'--option {name}={example}' for name, example in missing.items())}"
        raise error


def refused(name: str, what: str, remedy: str) -> DataError:
    """Return the error for a node that cannot be used."""
    return DataError(f"node {name!r} {what}", field="network", value=name, remedy=remedy)


def _unchecked(nir: Any, path: Path) -> Any:
    """Read a graph without nir's check of types. ``nir.read`` can skip this check only for the outer graph."""
    h5py = imported("h5py", "a network in NIR", "nir", field="network", value=path.name)

    def unchecked(tree: dict[str, Any]) -> dict[str, Any]:
        if tree.get("type") == "NIRGraph":
            return tree | {"type_check": False, "nodes": {name: unchecked(n) for name, n in tree["nodes"].items()}}
        return tree

    with h5py.File(path, "r") as file:
        return nir.dict2NIRNode(unchecked(nir.serialization.hdf2dict(file["node"])))
