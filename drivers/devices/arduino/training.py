"""The microcontroller's part of ``rig network train``: a float network is trained in numpy, and rounded to int8.

The network has the published layers: two convolutions of 3 x 3 with batch normalisation, rectification and maximum
pooling, then dropout and a dense layer. No sizes are published; 8 and 16 channels are the first choice of Edge Impulse.
All random numbers come from one seed. With ``OPENBLAS_NUM_THREADS=1`` the same data give the same file on the same
kind of processor.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from drivers.devices.arduino import mfe
from drivers.devices.arduino.quantised import KERNEL, MOST, ZERO_CODE, Convolution, Quantised, parts, patches, pooled
from drivers.devices.training_data import Say, adam, batch_of, labelled, record_of
from rig.errors import DataError
from rig.types import Workload

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]
CHANNELS = (8, 16)
LARGEST_BATCH = 32
"""The largest number of samples in a step."""
DROPPED = 0.5
VARIANCE_LEAST = 1e-5
KEPT_OF_MOMENTS = 0.9
"""The weight of the previous value in the running mean and variance."""
_GREATEST_BIAS = 2.0**30
EPOCHS = 30
_CHOSEN = "every setting as shipped, and none was tuned"


@dataclass(frozen=True, slots=True)
class Settings:
    """Choices made before training."""

    seed: int
    epochs: int


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """A convolution, ``weights`` (outputs, 9 * inputs), and its batch normalisation, each (outputs,)."""

    weights: Floats
    gain: Floats
    offset: Floats
    mean: Floats
    variance: Floats

    def folded(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return weights and bias that include the normalisation."""
        scale = self.gain.astype(np.float64) / np.sqrt(self.variance.astype(np.float64) + VARIANCE_LEAST)
        return self.weights * scale[:, None], self.offset - self.mean * scale

    def activations(self, image: NDArray[Any]) -> NDArray[np.float64]:
        """Return the layer's output after rectification and pooling, normalised by the running moments."""
        weights, bias = self.folded()
        return np.maximum(0, pooled(patches(image) @ weights.T) + bias)


@dataclass(frozen=True, slots=True, eq=False)
class FloatNetwork:
    """The network before it is rounded; the dense layer has ``weights`` (classes, inputs) and ``bias`` (classes,)."""

    first: Layer
    second: Layer
    dense_weights: Floats
    dense_bias: Floats

    def scores(self, features: NDArray[np.int8]) -> NDArray[np.float64]:
        """Return the scores of features (samples, frames, filters), shape (samples, classes)."""
        found = []
        for part in parts(features):
            flat = self.pooled_twice(part)[1].reshape(-1, self.dense_weights.shape[1])
            found.append(flat @ self.dense_weights.T + self.dense_bias)
        return np.concatenate(found)

    def pooled_twice(self, features: NDArray[np.int8]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the activations of both convolutions."""
        first = self.first.activations(_image(features))
        return first, self.second.activations(first)


def accuracy(scores: NDArray[Any], labels: Labels) -> float:
    """Return the share of samples whose label has the largest score."""
    return float((scores.argmax(axis=1) == labels).mean())


def trained(features: NDArray[np.int8], labels: Labels, classes: int, settings: Settings, say: Say) -> FloatNetwork:
    """Train by Adam on the cross-entropy, and return the network after the last epoch.

    ``features`` has shape (samples, frames, filters) and ``labels`` (samples,). ``say`` prints the loss.
    """
    weights, moments = _untrained(features.shape[1:], classes, settings.seed)
    rng, losses = np.random.default_rng([settings.seed, 1]), list[float]()
    size = batch_of(len(labels), LARGEST_BATCH)

    def gradients(batch: Labels) -> dict[str, Floats]:
        loss, found = _gradients(weights, moments, _image(features[batch]), labels[batch], rng)
        losses.append(loss)
        return found

    for epoch in adam(weights, len(labels), size, settings.epochs, rng, gradients):
        loss = np.mean(losses[-(len(labels) // size) :])
        say(f"epoch {epoch} of {settings.epochs}: mean loss {loss:.3f}")
    first, second = (
        Layer(weights[f"w{k}"], weights[f"gain{k}"], weights[f"offset{k}"], *moments[k]) for k in range(len(CHANNELS))
    )
    return FloatNetwork(first, second, weights["dense"], weights["bias"])


def quantised(
    network: FloatNetwork, features: NDArray[np.int8], classes: tuple[str, ...], record: Mapping[str, Any]
) -> Quantised:
    """Round to int8. The largest weight of each channel and the largest activation of each layer set the scales.

    All classes of the dense layer share one scale, so that their scores can be compared.
    """
    tops = np.zeros(2)
    for some in parts(features):
        tops = np.maximum(tops, [image.max() for image in network.pooled_twice(some)])
    scales = np.maximum(tops, 1e-6) / MOST
    first = _rounded(network.first, 1 / 256, ZERO_CODE, scales[0])
    second = _rounded(network.second, scales[0], 0, scales[1])
    step = np.abs(network.dense_weights).max() / MOST
    dense = np.rint(network.dense_weights / step).astype(np.int8)
    bias = np.rint(network.dense_bias / (step * scales[1])).astype(np.int32)
    return Quantised(classes, first, second, dense, bias, record)


def _rounded(layer: Layer, unit_in: float, zero: int, unit_out: float) -> Convolution:
    """Round a layer. ``zero`` is the input code for 0; ``unit_in`` and ``unit_out`` are the values of one code."""
    weights, bias = layer.folded()
    step = np.maximum(np.abs(weights).max(axis=1), 1e-9) / MOST
    whole = np.rint(weights / step[:, None]).astype(np.int64)
    offset = np.rint(bias / (step * unit_in)) - zero * whole.sum(axis=1)
    fraction, exponent = np.frexp(step * unit_in / unit_out)
    multiplier = np.minimum(np.rint(fraction * 2.0**31), 2**31 - 1)
    return Convolution(
        whole.astype(np.int8).reshape(-1, KERNEL, KERNEL, weights.shape[1] // KERNEL**2),
        np.clip(offset, -_GREATEST_BIAS, _GREATEST_BIAS).astype(np.int32),
        multiplier.astype(np.int32),
        np.clip(31 - exponent, 1, 62).astype(np.uint8),
    )


def _image(features: NDArray[np.int8]) -> Floats:
    """Return features scaled to [0, 1), shape (samples, frames, filters, 1)."""
    return ((features[..., None].astype(np.float32) - ZERO_CODE) / 256).astype(np.float32)


def _untrained(shape: tuple[int, ...], classes: int, seed: int) -> tuple[dict[str, Floats], list[tuple[Floats, ...]]]:
    """Return random weights (He's for convolutions), and the first running moments (mean, variance) of each layer."""
    rng = np.random.default_rng(seed)
    weights: dict[str, Floats] = {}
    inputs, height, width = 1, *shape
    for k, outputs in enumerate(CHANNELS):
        seen = KERNEL**2 * inputs
        weights[f"w{k}"] = (np.sqrt(2 / seen) * rng.standard_normal((outputs, seen))).astype(np.float32)
        weights[f"gain{k}"], weights[f"offset{k}"] = np.ones(outputs, np.float32), np.zeros(outputs, np.float32)
        inputs, height, width = outputs, (height - KERNEL + 1) // 2, (width - KERNEL + 1) // 2
    flat = height * width * inputs
    weights["dense"] = (np.sqrt(1 / flat) * rng.standard_normal((classes, flat))).astype(np.float32)
    weights["bias"] = np.zeros(classes, np.float32)
    return weights, [(np.zeros(n, np.float32), np.ones(n, np.float32)) for n in CHANNELS]


@dataclass(frozen=True, slots=True, eq=False)
class _Pass:
    """The values of a batch that a layer keeps for its gradients."""

    columns: Floats
    normal: Floats
    deviation: Floats
    active: Floats
    out: Floats


def _forward(weights: Mapping[str, Floats], moments: list[tuple[Floats, ...]], k: int, image: Floats) -> _Pass:
    columns = patches(image)
    sums = columns @ weights[f"w{k}"].T
    mean, variance = sums.mean(axis=(0, 1, 2)), sums.var(axis=(0, 1, 2))
    now = zip(moments[k], (mean, variance), strict=True)
    moments[k] = tuple(KEPT_OF_MOMENTS * old + (1 - KEPT_OF_MOMENTS) * new for old, new in now)
    deviation = np.sqrt(variance + np.float32(VARIANCE_LEAST))
    normal = (sums - mean) / deviation
    active = np.maximum(0, weights[f"gain{k}"] * normal + weights[f"offset{k}"])
    return _Pass(columns, normal, deviation, active, pooled(active))


def _backward(weights: Mapping[str, Floats], k: int, done: _Pass, grad: Floats) -> tuple[dict[str, Floats], Floats]:
    """Return the gradients of a layer's parameters and of its sums, from the gradients of its pooled output."""
    height, width = 2 * grad.shape[1], 2 * grad.shape[2]
    wide = [np.repeat(np.repeat(part, 2, axis=1), 2, axis=2) for part in (grad, done.out)]
    kept = done.active[:, :height, :width]
    full = np.zeros_like(done.active)
    full[:, :height, :width] = wide[0] * ((kept == wide[1]) & (kept > 0))
    axes = (0, 1, 2)
    offset, gain = full.sum(axis=axes), (full * done.normal).sum(axis=axes)
    places = full[..., 0].size
    sums = weights[f"gain{k}"] / done.deviation * (full - offset / places - done.normal * (gain / places))
    flat = sums.reshape(-1, sums.shape[-1])
    return {f"w{k}": flat.T @ done.columns.reshape(len(flat), -1), f"gain{k}": gain, f"offset{k}": offset}, sums


def _gradients(
    weights: Mapping[str, Floats],
    moments: list[tuple[Floats, ...]],
    image: Floats,
    labels: Labels,
    rng: np.random.Generator,
) -> tuple[float, dict[str, Floats]]:
    """Return the mean cross-entropy of a batch and its gradients by parameter; update the running moments."""
    first = _forward(weights, moments, 0, image)
    second = _forward(weights, moments, 1, first.out)
    flat = second.out.reshape(len(labels), -1)
    mask = (rng.random(flat.shape, np.float32) >= DROPPED).astype(np.float32) / (1 - DROPPED)
    odds = softmax((flat * mask) @ weights["dense"].T + weights["bias"], axis=1)
    loss = float(-np.log(np.maximum(odds[np.arange(len(labels)), labels], 1e-12)).mean())
    error = ((odds - np.eye(odds.shape[1])[labels]) / len(labels)).astype(np.float32)
    found = {"dense": error.T @ (flat * mask), "bias": error.sum(axis=0)}
    own, sums = _backward(weights, 1, second, ((error @ weights["dense"]) * mask).reshape(second.out.shape))
    found |= own
    seen = (sums @ weights["w1"]).reshape(*sums.shape[:3], KERNEL, KERNEL, -1)
    back = np.zeros_like(first.out)
    for row in range(KERNEL):
        for column in range(KERNEL):
            back[:, row : row + sums.shape[1], column : column + sums.shape[2]] += seen[:, :, :, row, column]
    return loss, found | _backward(weights, 0, first, back)[0]


def train(data: Workload, settings: Settings, tell: Say) -> tuple[FloatNetwork, Quantised]:
    """Train on a workload's samples; return the network before rounding, and after it with the record of its training.

    Raises ``DataError`` for samples that are not one second of audio (16,000 values) or lack labels, and for data of
    one class.
    """
    found = labelled(data, lambda sample: mfe.features(mfe.pcm16(np.asarray(sample.payload))))
    if len(found.classes) < 2:
        what = "the data have one class, and a network needs two or more"
        raise DataError(what, field="classes", value=1, remedy="Use data with more classes")
    features = np.stack(found.inputs)
    tell(f"training on {len(features)} samples of {len(found.classes)} classes, {settings.epochs} epochs")
    floats = trained(features, found.labels, len(found.classes), settings, tell)
    whole = quantised(floats, features, found.classes, {})
    tuning = _CHOSEN if (settings.epochs, settings.seed) == (EPOCHS, 0) else "epochs or seed were given"
    networks: dict[str, Any] = {"float": floats, "int8": whole}
    reached = {name: round(accuracy(n.scores(features), found.labels), 4) for name, n in networks.items()}
    about = {"channels": CHANNELS, "accuracy_on_training_data": reached}
    return floats, replace(whole, training=record_of(found, settings, LARGEST_BATCH, tuning, ["numpy"], **about))
