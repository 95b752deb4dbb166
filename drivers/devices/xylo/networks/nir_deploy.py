"""Fit networks and NIR graphs to the integers of a Xylo Audio 2, and write the deployed network as a NIR graph.

NIR describes neurons by differential equations, without a time step and a reset. Frameworks integrate the equations by
Euler's method, so a neuron with the time constant tau keeps 1 - dt / tau of a value in each step. Xylo keeps
1 - 2**-shift of it, with the shift nearest to log2(tau / dt). Everything that is rounded is listed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from drivers.devices.nir_file import check_said
from drivers.devices.xylo import rockpool_import
from drivers.devices.xylo.networks import float_network
from drivers.devices.xylo.networks.encoder import EncoderParams
from drivers.devices.xylo.networks.float_network import FloatNetwork
from drivers.devices.xylo.networks.network import Network, check_shapes, fan_out_faults, place_of
from drivers.devices.xylo.networks.nir_graph import Graph, Neurons, read_graph
from rig.bench.settings import one_of, positive
from rig.errors import DataError, refused
from rig.plugins import imported
from rig.types import Floats

QUANTIZERS = ("channel", "none")
"""``channel`` scales the weights of each neuron to 8 bits, as Rockpool does; ``none`` leaves integers unchanged."""
NEAR = 1e-6
_MOST_WEIGHT = 127
RESETS = ("subtract",)
_MOST_VALUE, _MOST_SHIFT = 2**15 - 1, 15


def fitted(wanted: dict[str, Any], quantize: str, dt_s: float) -> dict[str, Any]:
    """Return the integer specification for the result of ``wanted_of``.

    Raises ``DataError`` if ``quantize`` is "none" and the network does not hold integers.
    """
    spec = _scaled(wanted) if quantize == "channel" else _as_they_are(wanted)
    return spec | {"aliases": [[] for _ in wanted["threshold"]], "dt": dt_s}


def wanted_of(network: FloatNetwork) -> dict[str, Any]:
    """Return the arguments of the vendor's quantiser, by name: weights of any size, and whole shifts."""
    sizes = network.sizes
    hidden = sum(sizes[1:-1])
    wanted: dict[str, Any] = {
        "weights_in": np.zeros((sizes[0], hidden, 1)),
        "weights_rec": np.zeros((hidden, hidden, 1)),
        "weights_out": np.zeros((hidden, sizes[-1])),
        "dash_syn_2": np.zeros(hidden, np.int64),
    }
    for link, weights in network.weights.items():
        name, (row, column) = place_of(link, sizes)
        part = wanted[name][slice(*row), slice(*column)]
        part[...] = weights.reshape(part.shape)
    for suffix, layers in (("", network.layers[:-1]), ("_out", network.layers[-1:])):
        for name, values in (("dash_syn", [n.keep_syn for n in layers]), ("dash_mem", [n.keep_mem for n in layers])):
            decay = 1.0 - np.concatenate(values, dtype=np.float64)
            wanted[name + suffix] = np.rint(-np.log2(decay)).astype(np.int64)
        wanted[f"threshold{suffix}"] = np.concatenate([n.threshold for n in layers], dtype=np.float64)
        wanted[f"bias{suffix}"] = np.concatenate([n.bias for n in layers], dtype=np.float64)
    return wanted


def _scaled(wanted: dict[str, Any]) -> dict[str, Any]:
    """Quantise by channel, as Rockpool does. The bias of a neuron is scaled by the same factor as its threshold.

    Rockpool is given no biases: it would scale those of outputs in place, and those of hidden neurons not at all.
    """
    without = {name: values for name, values in wanted.items() if not name.startswith("bias")}
    spec: dict[str, Any] = dict(rockpool_import.load_xylo_audio2().quantize(**without))
    for suffix in ("", "_out"):
        scale = spec[f"threshold{suffix}"] / wanted[f"threshold{suffix}"]
        spec[f"bias{suffix}"] = np.rint(wanted[f"bias{suffix}"] * scale).astype(np.int64)
    return spec | dict.fromkeys(("weight_shift_in", "weight_shift_rec", "weight_shift_out"), 0)


def _as_they_are(wanted: dict[str, Any]) -> dict[str, Any]:
    """Return integers for the chip. Weights beyond 8 bits are shifted, if all weights of their matrix are even.

    Raises ``DataError`` for other numbers than integers, and for weights that do not fit.
    """
    spec = {name: np.rint(values).astype(np.int64) for name, values in wanted.items()}
    for name, values in spec.items():
        if np.any(np.abs(values - wanted[name]) > NEAR * np.maximum(1.0, np.abs(values))):
            what = f"{name} of the graph are no integers, such as {wanted[name][values != wanted[name]].flat[0]:g}"
            raise DataError(what, field="quantize", value="none", remedy="Use --option quantize=channel")
    for name in ("in", "rec", "out"):
        weights, shift = spec[f"weights_{name}"], 0
        while np.abs(weights).max(initial=0) > _MOST_WEIGHT and not np.any(weights % 2):
            weights, shift = weights // 2, shift + 1
        if np.abs(weights).max(initial=0) > _MOST_WEIGHT:
            what = f"weights_{name} of the graph reach {np.abs(spec[f'weights_{name}']).max()}, beyond 8 bits"
            raise DataError(what, field="quantize", value="none", remedy="Use --option quantize=channel")
        spec |= {f"weights_{name}": weights, f"weight_shift_{name}": shift}
    return spec


def load_nir(path: Path, dt_s: float | None, reset: str | None, quantize: str, classes: Sequence[str]) -> Network:
    """Read a NIR file and fit it to the chip.

    ``dt_s`` and ``reset`` are not in the file and have no default. Raises ``SetupError`` if one of them is not given,
    ``UsageError`` for an option that is not possible, ``DataError`` for a graph that the chip cannot run.
    """
    check_said(dt_s=(dt_s, "0.001"), reset=(reset, "subtract"))
    assert dt_s is not None
    positive(dt_s=dt_s)
    one_of(RESETS, reset=reset)
    one_of(QUANTIZERS, quantize=quantize)
    graph = read_graph(path)
    spec, rounding = deployed(graph, dt_s, quantize)
    links = tuple((graph.place(w.source), graph.place(w.target)) for w in graph.weights)
    network = Network(
        classes=_classes_of(graph, classes),
        encoder=EncoderParams(channels=graph.inputs, bin_s=dt_s),
        layers=(graph.inputs, *(layer.size for layer in graph.layers)),
        specification=spec,
        training={},
        digest_sha256=graph.digest_sha256,
        links=tuple(sorted(links)),
        floats=floats_of(graph, dt_s),
        deployment={
            "format": "nir",
            "dt_s": dt_s,
            "reset": reset,
            "quantize": quantize,
            "rounding": rounding,
            "input_kept": {layer.name: _input_kept(layer, dt_s) for layer in graph.layers},
        },
    )
    for place, fault in fan_out_faults(network):
        name = graph.layers[place - 1].name
        remedy = "Make the layer after it smaller, or set weights to zero"
        raise DataError(f"node {name!r} {fault}", field="network", value=name, remedy=remedy)
    check_shapes(network)
    return network


def _classes_of(graph: Graph, classes: Sequence[str]) -> tuple[str, ...]:
    outputs = graph.layers[-1].size
    names = tuple(classes) or tuple(str(k) for k in range(outputs))
    if len(names) != outputs or len(set(names)) != outputs:
        raise refused("classes", ",".join(names), f"Name {outputs} classes, one for each output neuron")
    return names


def deployed(graph: Graph, dt_s: float, quantize: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the integer specification of a graph, and what was rounded to make it."""
    for layer in graph.layers:
        _check_times(layer, dt_s)
    wanted = wanted_of(floats_of(graph, dt_s))
    spec = fitted(wanted, quantize, dt_s)
    rounding = _rounded_times(graph, dt_s)
    for suffix, layers in (("", graph.layers[:-1]), ("_out", graph.layers[-1:])):
        _check_range(spec, suffix, layers)
        rounding += _rounded_leaks(wanted, spec, suffix, layers)
    return spec, rounding + _rounded_weights(graph, wanted, spec)


def floats_of(graph: Graph, dt_s: float) -> FloatNetwork:
    """Return a graph as a float network by Euler's method.

    A neuron sends at most one spike in a step, and only recurrent spikes arrive a step later.
    """
    layers = []
    for layer in graph.layers:
        v = layer.values
        leak = v["v_leak"] * dt_s / v["tau_mem"]
        layers.append(
            float_network.Neurons(1 - dt_s / v["tau_syn"], 1 - dt_s / v["tau_mem"], v["v_threshold"], leak, 1, False)
        )
    weights = {}
    for w in graph.weights:
        link = graph.place(w.source), graph.place(w.target)
        weights[link] = (w.values * _gain(graph.layers[link[1] - 1], dt_s)[:, None]).T
    return FloatNetwork(tuple(layers), weights, 0)


def _gain(layer: Neurons, dt_s: float) -> Floats:
    """Return the factors of weights by Euler's method, from the graph's units to those of a neuron's membrane."""
    v = layer.values
    return np.asarray(v["w_in"] * dt_s / v["tau_syn"] * v["r"] * dt_s / v["tau_mem"])


def _check_times(layer: Neurons, dt_s: float) -> None:
    for what in ("tau_syn", "tau_mem"):
        steps = layer.values[what] / dt_s
        shift = np.rint(np.log2(steps))
        if np.any(steps < 1.0 - NEAR) or np.any(shift > _MOST_SHIFT):
            found = steps.min() if steps.min() < 1.0 else steps.max()
            said = f"node {layer.name!r} has {what} of {found:g} time steps of {dt_s:g} s"
            remedy = f"Xylo takes 1 to {2**_MOST_SHIFT} time steps; check --option dt_s"
            raise DataError(said, field="network", value=layer.name, remedy=remedy)
        if what == "tau_syn" and np.any(shift == 0):
            said = f"node {layer.name!r} has {what} of {steps.min():g} time steps, which becomes 1"
            remedy = "On Xylo an input decays in the step in which it arrives, and nothing would be left: use 2 or more"
            raise DataError(said, field="network", value=layer.name, remedy=remedy)


def _input_kept(layer: Neurons, dt_s: float) -> float:
    """Return the smallest share of an input that reaches a membrane in its first step, after one decay."""
    return float(1.0 - 2.0 ** -np.rint(np.log2(layer.values["tau_syn"].min() / dt_s)))


def _check_range(spec: dict[str, Any], suffix: str, layers: Sequence[Neurons]) -> None:
    names = [layer.name for layer in layers for _ in range(layer.size)]
    for kind, least in (("threshold", 1), ("bias", -_MOST_VALUE)):
        values = spec[f"{kind}{suffix}"]
        for k in np.flatnonzero((values < least) | (values > _MOST_VALUE))[:1]:
            what = f"node {names[k]!r} has a neuron whose {kind} becomes {values[k]} on the chip"
            remedy = f"The chip takes {least} to {_MOST_VALUE}: scale its weights, its threshold and v_leak together"
            raise DataError(what, field="network", value=names[k], remedy=remedy)


def _rounded_times(graph: Graph, dt_s: float) -> list[dict[str, Any]]:
    found = []
    for layer in graph.layers:
        for what in ("tau_syn", "tau_mem"):
            asked = layer.values[what] / dt_s
            got = 2.0 ** np.rint(np.log2(asked))
            worst = int(np.argmax(np.abs(np.log(got / asked))))
            row = {"node": layer.name, "what": what, "asked_steps": float(asked[worst]), "steps": float(got[worst])}
            row |= {"asked_decay": float(1 - 1 / asked[worst]), "decay": float(1 - 1 / got[worst])}
            found += [row] if abs(got[worst] - asked[worst]) > NEAR * got[worst] else []
    return found


def _rounded_leaks(
    wanted: dict[str, Any], spec: dict[str, Any], suffix: str, layers: Sequence[Neurons]
) -> list[dict[str, Any]]:
    """Return for each layer the largest error of a bias, relative to the neuron's threshold."""
    asked, got = (values[f"bias{suffix}"] / values[f"threshold{suffix}"] for values in (wanted, spec))
    ends, found = np.cumsum([layer.size for layer in layers])[:-1], []
    for layer, a, b in zip(layers, np.split(asked, ends), np.split(got, ends), strict=True):
        if (error := float(np.abs(b - a).max())) > NEAR * float(np.abs(a).max()):
            about = {"largest_error_of_threshold": error, "largest_bias_of_threshold": float(np.abs(a).max())}
            found.append({"node": layer.name, "what": "v_leak", **about})
    return found


def _rounded_weights(graph: Graph, wanted: dict[str, Any], spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Return for each node of weights its largest error relative to the target's threshold: only this ratio matters."""
    sizes, found = (graph.inputs, *(layer.size for layer in graph.layers)), []
    for weights in graph.weights:
        name, (row, column) = place_of((graph.place(weights.source), graph.place(weights.target)), sizes)
        threshold = "threshold_out" if name == "weights_out" else "threshold"
        ratio = []
        for values in (wanted, spec):
            part = np.asarray(values[name][slice(*row), slice(*column)], np.float64)
            ratio.append(part.reshape(part.shape[:2]) / values[threshold][slice(*column)])
        ratio[1] = ratio[1] * 2.0 ** spec[name.replace("weights", "weight_shift")]
        error = float(np.abs(ratio[1] - ratio[0]).max())
        largest = float(np.abs(ratio[0]).max())
        if error > NEAR * largest:
            about = {"largest_error_of_threshold": error, "largest_weight_of_threshold": largest}
            found.append({"node": weights.name, "what": "weight", **about})
    return found


def write_nir(network: Network, path: Path) -> None:
    """Write the deployed integers as a NIR graph. ``load_nir`` with ``quantize`` none then gives the same spikes.

    Raises ``DataError`` for aliases, which NIR does not have, and ``MissingExtraError`` without the package nir.
    """
    nir = imported("nir", "a network in NIR", "nir", field="network", value=path.name)
    spec, dt_s = network.specification, float(network.specification["dt"])
    if any(len(row) for row in spec["aliases"]):
        remedy = "Only networks without aliases can be written"
        raise DataError("NIR has no aliases between neurons", field="aliases", value=path.name, remedy=remedy)
    last = len(network.layers) - 1
    names = ["input", *(f"hidden{k}" for k in range(1, last)), "readout"]
    nodes: dict[str, Any] = {
        "input": nir.Input(input_type={"input": np.array([network.layers[0]])}),
        "output": nir.Output(output_type={"output": np.array([network.layers[-1]])}),
    }
    edges = [("readout", "output")]
    for layer in range(1, last + 1):
        _, (_, own) = place_of((0 if layer < last else 1, layer), network.layers)
        suffix = "_out" if layer == last else ""
        syn, mem = (2.0 ** np.asarray(spec[f"dash_{k}{suffix}"])[slice(*own)] for k in ("syn", "mem"))
        nodes[names[layer]] = nir.CubaLIF(
            tau_syn=syn * dt_s, tau_mem=mem * dt_s, w_in=syn, r=mem,
            v_leak=np.asarray(spec[f"bias{suffix}"])[slice(*own)] * mem, v_reset=np.zeros(len(mem)),
            v_threshold=np.asarray(spec[f"threshold{suffix}"], np.float64)[slice(*own)],
        )  # fmt: skip
    for link, block in network.blocks().items():
        shift = int(spec[place_of(link, network.layers)[0].replace("weights", "weight_shift")])
        name = f"{names[link[0]]}-{names[link[1]]}"
        nodes[name] = nir.Linear(weight=(block.T * 2**shift).astype(np.float64))
        edges += [(names[link[0]], name), (name, names[link[1]])]
    nir.write(str(path), nir.NIRGraph(nodes=nodes, edges=edges, type_check=False))
