"""Fits a NIR graph to a Xylo Audio 2, and writes what is deployed as a NIR graph again.

NIR's neurons are differential equations, and their time step and their reset are no part of the graph. Frameworks
integrate them by Euler's method, so that a time constant tau keeps 1 - dt / tau of a value in each step. Xylo keeps
1 - 2**-shift of it, with the shift nearest to log2(tau / dt). Everything that is rounded is listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from drivers.devices.xylo import rockpool_import
from drivers.devices.xylo.encoder import EncoderParams
from drivers.devices.xylo.network import Network, check_shapes, place_of
from drivers.devices.xylo.nir_graph import Floats, Graph, Neurons, read_graph
from rig.bench.options import one_of, positive
from rig.errors import DataError, SetupError, refused
from rig.plugins import imported

RESETS = ("subtract",)
QUANTIZERS = ("channel", "none")
"""``channel`` scales the weights of each neuron to 8 bits, as Rockpool does; ``none`` takes integers as they are."""
_MOST_WEIGHT, _MOST_VALUE, _MOST_SHIFT = 127, 2**15 - 1, 15
_NEAR = 1e-6


def load_nir(path: Path, dt_s: float | None, reset: str | None, quantize: str, classes: Sequence[str]) -> Network:
    """Read a NIR file and fit it to the chip.

    ``dt_s`` and ``reset`` are not in the file and have no default. Raises ``SetupError`` where one is not given,
    ``UsageError`` for one that the chip cannot do, ``DataError`` as ``read_graph`` does.
    """
    for name, value, example in (("dt_s", dt_s, "0.001"), ("reset", reset, "subtract")):
        if value is None:
            raise SetupError(f"a NIR graph does not say its {name}", field=name, example=example)
    assert dt_s is not None
    positive(dt_s=dt_s)
    one_of(RESETS, reset=reset)
    one_of(QUANTIZERS, quantize=quantize)
    graph = read_graph(path)
    outputs = graph.layers[-1].size
    names = tuple(classes) or tuple(str(k) for k in range(outputs))
    if len(names) != outputs or len(set(names)) != outputs:
        raise refused("classes", ",".join(names), f"Name {outputs} classes, one for each output neuron")
    spec, rounding = deployed(graph, dt_s, quantize)
    links = tuple((graph.place(w.source), graph.place(w.target)) for w in graph.weights)
    network = Network(
        classes=names,
        encoder=EncoderParams(channels=graph.inputs, bin_s=dt_s),
        layers=(graph.inputs, *(layer.size for layer in graph.layers)),
        specification=spec,
        training={},
        digest_sha256=graph.digest_sha256,
        links=tuple(sorted(links)),
        deployment={"format": "nir", "dt_s": dt_s, "reset": reset, "quantize": quantize, "rounding": rounding},
    )
    check_shapes(network)
    return network


def deployed(graph: Graph, dt_s: float, quantize: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the integer specification of a graph, and what was rounded to make it."""
    sizes = (graph.inputs, *(layer.size for layer in graph.layers))
    hidden = sum(sizes[1:-1])
    wanted: dict[str, Any] = {
        "weights_in": np.zeros((sizes[0], hidden, 1)),
        "weights_rec": np.zeros((hidden, hidden, 1)),
        "weights_out": np.zeros((hidden, sizes[-1])),
        "dash_syn_2": np.zeros(hidden, np.int64),
    }
    for weights in graph.weights:
        target = graph.layers[graph.place(weights.target) - 1]
        name, (row, column) = place_of((graph.place(weights.source), graph.place(weights.target)), sizes)
        part = wanted[name][slice(*row), slice(*column)]
        part[...] = (weights.values * _gain(target, dt_s)[:, None]).T.reshape(part.shape)
    for suffix, layers in (("", graph.layers[:-1]), ("_out", graph.layers[-1:])):
        for what, value in (("dash_syn", "tau_syn"), ("dash_mem", "tau_mem")):
            wanted[what + suffix] = np.concatenate([_shift(layer, value, dt_s) for layer in layers])
        wanted[f"threshold{suffix}"] = np.concatenate([layer.values["v_threshold"] for layer in layers])
        leak = [layer.values["v_leak"] * dt_s / layer.values["tau_mem"] for layer in layers]
        wanted[f"bias{suffix}"] = np.concatenate(leak)
    spec = _scaled(wanted) if quantize == "channel" else _as_they_are(wanted)
    for suffix, layers in (("", graph.layers[:-1]), ("_out", graph.layers[-1:])):
        _check_thresholds(spec[f"threshold{suffix}"], layers)
    fixed: dict[str, Any] = {"aliases": [[] for _ in range(hidden)], "dt": dt_s}
    rounding = [*_rounded_times(graph, dt_s), *_rounded_weights(graph, wanted, spec)]
    return spec | fixed, rounding


def _gain(layer: Neurons, dt_s: float) -> Floats:
    """What one weight adds to the membrane in a step, by Euler's method."""
    v = layer.values
    return np.asarray(v["w_in"] * dt_s / v["tau_syn"] * v["r"] * dt_s / v["tau_mem"])


def _shift(layer: Neurons, what: str, dt_s: float) -> Any:
    steps = layer.values[what] / dt_s
    shift = np.rint(np.log2(steps)).astype(np.int64)
    if np.any(steps < 1.0 - _NEAR) or np.any(shift > _MOST_SHIFT):
        found = steps.min() if steps.min() < 1.0 else steps.max()
        what = f"node {layer.name!r} has {what} of {found:g} time steps of {dt_s:g} s"
        remedy = f"Xylo takes 1 to {2**_MOST_SHIFT} time steps; check --option dt_s"
        raise DataError(what, field="network", value=layer.name, remedy=remedy)
    return shift


def _scaled(wanted: dict[str, Any]) -> dict[str, Any]:
    """Rockpool's quantisation by channel. Its biases do not follow a threshold that is too large, and do so here."""
    spec: dict[str, Any] = dict(rockpool_import.load_xylo_audio2().quantize(**wanted))
    for suffix in ("", "_out"):
        scale = spec[f"threshold{suffix}"] / wanted[f"threshold{suffix}"]
        spec[f"bias{suffix}"] = np.rint(wanted[f"bias{suffix}"] * scale).astype(np.int64)
    return spec | dict.fromkeys(("weight_shift_in", "weight_shift_rec", "weight_shift_out"), 0)


def _as_they_are(wanted: dict[str, Any]) -> dict[str, Any]:
    """Integers of the chip; weights beyond 8 bits are shifted where all of them allow it."""
    spec = {name: np.rint(values).astype(np.int64) for name, values in wanted.items()}
    for name, values in spec.items():
        if np.any(np.abs(values - wanted[name]) > _NEAR * np.maximum(1.0, np.abs(values))):
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


def _check_thresholds(thresholds: Any, layers: Sequence[Neurons]) -> None:
    names = [layer.name for layer in layers for _ in range(layer.size)]
    for k in np.flatnonzero((thresholds < 1) | (thresholds > _MOST_VALUE))[:1]:
        what = f"node {names[k]!r} has a neuron whose threshold becomes {thresholds[k]} on the chip"
        remedy = f"The chip takes 1 to {_MOST_VALUE}: scale its weights and its threshold together"
        raise DataError(what, field="network", value=names[k], remedy=remedy)


def _rounded_times(graph: Graph, dt_s: float) -> list[dict[str, Any]]:
    found = []
    for layer in graph.layers:
        for what in ("tau_syn", "tau_mem"):
            asked, got = layer.values[what] / dt_s, 2.0 ** _shift(layer, what, dt_s)
            worst = int(np.argmax(np.abs(np.log(got / asked))))
            row = {"node": layer.name, "what": what, "asked_steps": float(asked[worst]), "steps": float(got[worst])}
            row |= {"asked_decay": float(1 - 1 / asked[worst]), "decay": float(1 - 1 / got[worst])}
            found += [row] if abs(got[worst] - asked[worst]) > _NEAR * got[worst] else []
    return found


def _rounded_weights(graph: Graph, wanted: dict[str, Any], spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The largest error of a weight relative to the threshold that it works on, since only this ratio acts."""
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
        if error > _NEAR * largest:
            about = {"largest_error_of_threshold": error, "largest_weight_of_threshold": largest}
            found.append({"node": weights.name, "what": "weight", **about})
    return found


def write_nir(network: Network, path: Path) -> None:
    """Write the deployed integers as a NIR graph, which ``load_nir`` with ``quantize`` none reads to the same spikes.

    Raises ``DataError`` for aliases, which NIR cannot say, and ``MissingExtraError`` without the package nir.
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
