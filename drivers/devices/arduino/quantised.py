"""The int8 network of the firmware: the same arithmetic as ``firmware/core/network.c``, bit for bit, and its file.

The file is the C header that is compiled into the firmware. Its first line states the SHA-256 of everything after it,
the second holds the classes and the record of the training in JSON, and the rest is C.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivers.devices.arduino import mfe
from drivers.devices.arduino.mfe import FILTERS, FRAMES, array
from drivers.failures import raising
from rig.errors import DataError, reason
from rig.network.counting import memory_of
from rig.network.description import Connection, Layer, NetworkInfo
from rig.recording.disk.size_limits import read_bounded

KERNEL, MOST = 3, 127
MOST_SHIFT = 62
"""The largest shift: a product has up to 62 bits, and half of 2^shift is added to it in 64 bits."""
AT_ONCE = 64
"""This many samples are computed together; more would need too much memory."""
ZERO_CODE = -128
"""The code of a feature at the noise floor, which the network takes as zero."""

_DIGEST = re.compile(r"// sha256 of all that follows this line: ([0-9a-f]{64})\n")
_ABOUT = re.compile(r"// (\{.*\})\n")
_ARRAY = re.compile(r"static const (u?int(?:8|16|32)_t) NETWORK_(\w+)\[\d+\] = \{([-\d,\s]*)\};")
_PART_KINDS = {"weights": "int8_t", "bias": "int32_t", "multiplier": "int32_t", "shift": "uint8_t"}
"""The parts of a convolution, with their types in C."""
_KINDS = {"int8_t": "int8", "uint8_t": "uint8", "int32_t": "int32"}
CONVENTION = "weights and constants as the firmware holds them, without those of pre-processing, without activations"


@dataclass(frozen=True, slots=True, eq=False)
class Convolution:
    """A convolution: int8 ``weights`` (outputs, 3, 3, inputs), int32 ``bias`` and ``multiplier``, uint8 ``shift``.

    ``bias``, ``multiplier`` and ``shift`` have the shape (outputs,). An activation is (sum of products + bias) *
    multiplier / 2^shift, rounded half up and clipped to 0 to 127.
    """

    weights: NDArray[np.int8]
    bias: NDArray[np.int32]
    multiplier: NDArray[np.int32]
    shift: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Quantised:
    """Two convolutions, a dense layer (weights int8 (classes, inputs), bias int32), and the record of the training."""

    classes: tuple[str, ...]
    first: Convolution
    second: Convolution
    dense_weights: NDArray[np.int8]
    dense_bias: NDArray[np.int32]
    training: Mapping[str, Any]

    def scores(self, features: NDArray[np.int8]) -> NDArray[np.int64]:
        """Return scores (samples, classes) of features (samples, frames, filters); the first largest is the label."""
        found = []
        for part in parts(features):
            image = convolved(self.second, convolved(self.first, part[..., None].astype(np.int64)))
            found.append(image.reshape(len(image), -1) @ self.dense_weights.T.astype(np.int64) + self.dense_bias)
        return np.concatenate(found)


def parts(features: NDArray[np.int8]) -> Iterator[NDArray[np.int8]]:
    """Yield the samples in parts that need little memory."""
    return (features[at : at + AT_ONCE] for at in range(0, len(features), AT_ONCE))


def convolved(layer: Convolution, image: NDArray[np.int64]) -> NDArray[np.int64]:
    """Convolve images (samples, height, width, channels) without padding, take the maximum of 2 x 2 places, rescale."""
    weights = layer.weights.reshape(len(layer.weights), -1).astype(np.float64)
    sums = (patches(image).astype(np.float64) @ weights.T).astype(np.int64)  # exact: below 2^53
    scaled = (pooled(sums) + layer.bias) * layer.multiplier.astype(np.int64)
    shift = layer.shift.astype(np.int64)
    return np.clip((scaled + (1 << (shift - 1))) >> shift, 0, MOST)


def patches(image: NDArray[Any]) -> NDArray[Any]:
    """Return the kernel's input at each place: (samples, height - 2, width - 2, 9 * inputs), rows before columns."""
    height, width = image.shape[1] - KERNEL + 1, image.shape[2] - KERNEL + 1
    places = [(y, x) for y in range(KERNEL) for x in range(KERNEL)]
    return np.concatenate([image[:, y : y + height, x : x + width] for y, x in places], axis=-1)


def pooled(image: NDArray[Any]) -> NDArray[Any]:
    """Return the maximum of each 2 x 2 places; an odd last row or column is left out."""
    samples, height, width, channels = image.shape
    kept = image[:, : height // 2 * 2, : width // 2 * 2]
    return np.asarray(kept.reshape(samples, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4)))


def header(network: Quantised) -> str:
    """Return the network as a C header with its digest."""
    about = {"classes": list(network.classes), "mfe_sha256": mfe.digest(), "training": dict(network.training)}
    sizes = {"CLASSES": len(network.classes)}
    sizes |= {"CHANNELS_1": len(network.first.weights), "CHANNELS_2": len(network.second.weights)}
    lines = [f"// {json.dumps(about, sort_keys=True)}", "#include <stdint.h>"]
    lines += [f"#define NETWORK_{name} {value}" for name, value in sizes.items()]
    for name, layer in (("FIRST", network.first), ("SECOND", network.second)):
        for part, kind in _PART_KINDS.items():
            lines.append(array(kind, f"NETWORK_{name}_{part.upper()}", getattr(layer, part)))
    lines.append(array("int8_t", "NETWORK_DENSE_WEIGHTS", network.dense_weights))
    lines.append(array("int32_t", "NETWORK_DENSE_BIAS", network.dense_bias))
    body = "\n".join(lines) + "\n"
    return f"// sha256 of all that follows this line: {hashlib.sha256(body.encode()).hexdigest()}\n{body}"


@dataclass(frozen=True, slots=True, eq=False)
class NetworkFile:
    """A network as it was read, with the header's text and digest."""

    network: Quantised
    sha256: str
    text: str


def write_network(path: Path, network: Quantised) -> None:
    """Write the header. Raises ``OSError`` if that fails."""
    path.write_text(header(network), encoding="utf-8")


def read_network(path: Path) -> NetworkFile:
    """Read and verify an exported header.

    Raises ``DataError`` if it is missing, is no such header, was altered, or is for another pre-processing.
    """

    def bad(what: str) -> DataError:
        remedy = "Restore the file, or train it again with `rig network train asc --device arduino`"
        return DataError(what, field="network", value=path.name, remedy=remedy)

    with raising(lambda error: bad(f"cannot read the network header: {reason(error)}"), OSError, ValueError):
        text = read_bounded(path).decode()
    stated = _DIGEST.match(text)
    if stated is None:
        raise bad("this is no exported network header: its first line states no digest")
    body = text[stated.end() :]
    if (actual := hashlib.sha256(body.encode()).hexdigest()) != stated[1]:
        raise bad(f"the network header was altered: its content has digest {actual}, it states {stated[1]}")
    try:
        return NetworkFile(_parsed(body), actual, text)
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise bad(f"malformed network header: {error}") from error


def _parsed(body: str) -> Quantised:
    found = _ABOUT.match(body)
    if found is None:
        raise ValueError("its second line holds no record of the training")
    about = json.loads(found[1])
    if about["mfe_sha256"] != mfe.digest():
        raise ValueError("it was trained on features of another pre-processing than this version's")
    arrays = {n: np.array([int(v) for v in text.split(",")], _KINDS[k]) for k, n, text in _ARRAY.findall(body)}
    first = _convolution(arrays, "FIRST", 1)
    second = _convolution(arrays, "SECOND", len(first.weights))
    classes = tuple(str(name) for name in about["classes"])
    dense = arrays["DENSE_WEIGHTS"].reshape(len(classes), -1)
    if arrays["DENSE_BIAS"].shape != (len(classes),):
        raise ValueError("NETWORK_DENSE_BIAS does not hold one value for each class")
    network = Quantised(classes, first, second, dense, arrays["DENSE_BIAS"], about["training"])
    network.scores(np.zeros((1, FRAMES, FILTERS), np.int8))  # raises where the layers do not fit each other
    if header(network).partition("\n")[2] != body:
        raise ValueError("its lines differ from those of the network in it")
    return network


def _convolution(arrays: Mapping[str, NDArray[Any]], name: str, inputs: int) -> Convolution:
    parts = [arrays[f"{name}_{part}"] for part in ("BIAS", "MULTIPLIER", "SHIFT")]
    weights = arrays[f"{name}_WEIGHTS"].reshape(-1, KERNEL, KERNEL, inputs)
    if any(part.shape != (len(weights),) for part in parts):
        raise ValueError(f"bias, multiplier and shift of NETWORK_{name} do not hold one value for each channel")
    if not all(1 <= shift <= MOST_SHIFT for shift in parts[2]):
        raise ValueError(f"NETWORK_{name}_SHIFT holds shifts that are not from 1 to {MOST_SHIFT}")
    return Convolution(weights, *parts)


def network_info(network: Quantised, takes: str = "") -> NetworkInfo:
    """Describe an exported network. ``takes`` is a text about the memory that the build takes."""
    source, size, layers, connections = "input", (FRAMES, FILTERS), list[Layer](), list[Connection]()
    arrays: dict[str, NDArray[Any]] = {}
    for name, convolution in (("first", network.first), ("second", network.second)):
        # pooling drops an odd last row or column, which the firmware does not compute
        size = (size[0] - KERNEL + 1) // 2, (size[1] - KERNEL + 1) // 2
        weights, channels, places = convolution.weights, len(convolution.weights), size[0] * size[1]
        layers.append(Layer(f"{name}.pooled", places * channels))
        zeros, dense = int((weights == 0).sum()), weights.size * 4 * places
        ends = source, layers[-1].name
        connections.append(Connection(name, *ends, weights.size, zeros, dense, KERNEL**2 * channels))
        arrays |= {f"{name}.{part}": getattr(convolution, part) for part in _PART_KINDS}
        source = layers[-1].name
    weights, classes = network.dense_weights, len(network.classes)
    zeros = int((weights == 0).sum())
    connections.append(Connection("dense", source, "dense", weights.size, zeros, weights.size, classes))
    memory = memory_of(arrays | {"dense.weights": weights, "dense.bias": network.dense_bias}, "weights")
    return NetworkInfo(tuple(layers), tuple(connections), memory, 1.0, CONVENTION + takes)
