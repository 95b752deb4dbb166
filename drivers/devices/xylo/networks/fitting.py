"""Fit a floating-point network to the integers of Xylo Audio 2."""

from __future__ import annotations

from typing import Any

import numpy as np

from drivers.devices.xylo import rockpool_import
from drivers.devices.xylo.networks.float_network import FloatNetwork
from drivers.devices.xylo.networks.network import place_of
from rig.errors import DataError

QUANTIZERS = ("channel", "none")
"""``channel`` scales the weights of each neuron to 8 bits, as Rockpool does; ``none`` leaves integers unchanged."""
NEAR = 1e-6
_MOST_WEIGHT = 127


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
    """Quantise by channel, as Rockpool does, but scale biases with a threshold that it reduces."""
    spec: dict[str, Any] = dict(rockpool_import.load_xylo_audio2().quantize(**wanted))
    for suffix in ("", "_out"):
        scale = spec[f"threshold{suffix}"] / wanted[f"threshold{suffix}"]
        spec[f"bias{suffix}"] = np.rint(wanted[f"bias{suffix}"] * scale).astype(np.int64)
    return spec | dict.fromkeys(("weight_shift_in", "weight_shift_rec", "weight_shift_out"), 0)


def _as_they_are(wanted: dict[str, Any]) -> dict[str, Any]:
    """Return integers of the chip; weights beyond 8 bits are shifted if all of them allow it."""
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
