"""The Xylo's part of ``rig network train``: from labelled audio to a network of the chip's integers.

A feed-forward spiking network is trained with surrogate gradients in numpy. It works like the chip: decays by powers of
two, up to 31 spikes of a neuron in a step (one of an output), reset by subtraction, one step of delay from layer to
layer. Only its weights are not rounded yet. Every random number comes from one seed. With ``OPENBLAS_NUM_THREADS=1``
the same data give the same file on the same kind of processor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from drivers.devices.training_data import Say, adam, batch_of, labelled, record_of, train_split
from drivers.devices.xylo.networks.encoder import EncoderParams, encode
from drivers.devices.xylo.networks.float_network import FloatNetwork, Neurons, chip_neurons
from drivers.devices.xylo.networks.network import LIMITS, MOST_FAN_OUT, MOST_HIDDEN_WEIGHTS, Network, chain
from drivers.devices.xylo.networks.nir_deploy import fitted, wanted_of
from drivers.devices.xylo.rockpool_import import load_xylo_audio2
from rig.bench.settings import within
from rig.errors import DataError, refused

HIDDEN, EPOCHS = "63,63,63", 60
_CHOSEN = "every setting as shipped, chosen on synthetic scenes"
Floats = NDArray[np.float32]
Labels = NDArray[np.int64]
LARGEST_BATCH = 100
"""The largest number of samples in a step; chosen on tuning seeds."""
LOGIT_PER_SPIKE = 0.2
SURROGATE_SLOPE = 2.5
"""Slope of the exponential that replaces the derivative of a spike below the threshold."""
_AT_ONCE = 200


def train(workload: str, options: list[str], *, hidden: str, epochs: int, seed: int, tell: Say) -> Network:
    """Train on the train split of a workload, and return the network with the record of its training."""
    within(0, 2**32 - 1, seed=seed)
    within(1, 10**6, epochs=epochs)
    layers = _layers(hidden)
    load_xylo_audio2()  # reports missing packages before the training, not after it
    params = EncoderParams()
    found = labelled(train_split(workload, options), lambda s: encode(s.payload, s.rate_hz or 0.0, params))
    classes, labels, events = found.classes, found.labels, np.stack(found.inputs, axis=1).astype(np.float32)
    if not 2 <= len(classes) <= LIMITS["output"]:
        what = f"the data have {len(classes)} classes, but a network for Xylo Audio 2 has 2 to {LIMITS['output']}"
        raise DataError(what, field="classes", value=len(classes), remedy="Choose other data")
    settings = Settings(layers, seed, epochs)
    tell(f"training on {len(labels)} samples of {len(classes)} classes, {settings.epochs} epochs")
    floats = trained(events, labels, len(classes), settings, tell)
    spec = fitted(wanted_of(floats), "channel", params.bin_s)
    tuning = _CHOSEN if (hidden, epochs, seed) == (HIDDEN, EPOCHS, 0) else "hidden, epochs or seed were given"
    reached = {"accuracy_on_training_data": round(accuracy(floats, events, labels), 4)}
    record = record_of(found, settings, LARGEST_BATCH, tuning, ["numpy", "rockpool"], **reached)
    sizes = floats.sizes
    return Network(classes, params, sizes, spec, record, "", chain(sizes), floats=floats)


def _layers(hidden: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(text) for text in hidden.split(","))
    except ValueError:
        sizes = ()
    between = sum(a * b for a, b in pairwise(sizes))
    fits = sum(sizes) <= LIMITS["hidden"] and max(sizes[1:], default=0) <= MOST_FAN_OUT
    if not sizes or min(sizes) < 1 or not fits or between > MOST_HIDDEN_WEIGHTS:
        has = f"{LIMITS['hidden']} hidden neurons, each with up to {MOST_FAN_OUT} targets"
        remedy = f"Give sizes of layers, such as {HIDDEN}: the chip has {has}, {MOST_HIDDEN_WEIGHTS} weights in all"
        raise refused("hidden", hidden, remedy)
    return sizes


@dataclass(frozen=True, slots=True)
class Settings:
    """Choices made before training: the sizes of the hidden layers, the seed, and the epochs."""

    hidden: tuple[int, ...]
    seed: int
    epochs: int


def trained(events: Floats, labels: Labels, classes: int, settings: Settings, say: Say) -> FloatNetwork:
    """Train by Adam on the cross-entropy of the output spike counts, and return the network after the last epoch.

    ``events`` has shape (steps, samples, channels) and ``labels`` (samples,). ``say`` prints the accuracy.
    """
    layers, weights = _untrained((events.shape[2], *settings.hidden, classes), settings.seed)
    rng, size = np.random.default_rng([settings.seed, 1]), batch_of(len(labels), LARGEST_BATCH)

    def gradients(batch: Labels) -> dict[int, Floats]:
        return dict(enumerate(_gradients(_network(layers, weights), events[:, batch], labels[batch])))

    for epoch in adam(weights, len(labels), size, settings.epochs, rng, gradients):
        right = accuracy(_network(layers, weights), events, labels)
        say(f"epoch {epoch} of {settings.epochs}: accuracy on the training data {right:.3f}")
    return _network(layers, weights)


def accuracy(network: FloatNetwork, events: Floats, labels: Labels) -> float:
    """Return the share of samples whose label has the most output spikes."""
    hits = 0
    for first in range(0, len(labels), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        counts = network.run(events[:, part])[-1].spikes.sum(axis=0)
        hits += int((counts.argmax(axis=1) == labels[part]).sum())
    return hits / len(labels)


def _untrained(sizes: Sequence[int], seed: int) -> tuple[list[Neurons], dict[int, Floats]]:
    """Return neurons and random weights. Time constants of synapses are 4, 8 and 16 steps in turn, of outputs 8."""
    rng = np.random.default_rng(seed)
    layers, weights = [], {}
    for place, (inputs, neurons) in enumerate(pairwise(sizes), 1):
        last = place == len(sizes) - 1
        scale = 0.8 / ((2.0 if place == 1 else 0.5) * np.sqrt(inputs))
        weights[place - 1] = (scale * rng.standard_normal((inputs, neurons))).astype(np.float32)
        shift_syn = np.full(neurons, 3) if last else np.resize([2, 3, 4], neurons)
        layers.append(chip_neurons(shift_syn, np.full(neurons, 3 if last else 2), last))
    return layers, weights


def _gain(neurons: Neurons) -> NDArray[np.float64]:
    """Return what an input adds to a neuron's current, summed over time, relative to its weight.

    Weights are divided by this gain, so that all neurons learn alike.
    """
    keep = neurons.keep_syn.astype(np.float64)
    return np.asarray(keep / (1 - keep))


def _network(layers: Sequence[Neurons], weights: Mapping[int, Floats]) -> FloatNetwork:
    divided = {(k, k + 1): (w / _gain(layers[k])).astype(np.float32) for k, w in weights.items()}
    return FloatNetwork(tuple(layers), divided, 1)


def _gradients(network: FloatNetwork, events: Floats, labels: Labels) -> list[Floats]:
    """Return the gradient of the mean cross-entropy of the output spike counts, for the weights of each layer."""
    traces = network.run(events)
    logits = LOGIT_PER_SPIKE * traces[-1].spikes.sum(axis=0)
    error = softmax(logits, axis=1) - np.eye(logits.shape[1])[labels]
    error = (LOGIT_PER_SPIKE / len(labels) * error).astype(np.float32)
    grad = np.broadcast_to(error, traces[-1].spikes.shape)
    found = []
    for k in reversed(range(len(traces))):
        neurons, arriving = network.layers[k], traces[k].arriving[k]
        drive = _grad_of_drive(neurons, traces[k].before_reset, grad)
        flat = drive.reshape(-1, drive.shape[2])
        found.append((arriving.reshape(len(flat), -1).T @ flat / _gain(neurons)).astype(np.float32))
        by_input = drive @ network.weights[k, k + 1].T
        grad = np.concatenate((by_input[1:], np.zeros_like(by_input[:1])))
    return found[::-1]


def _grad_of_drive(neurons: Neurons, before_reset: Floats, grad: Floats) -> Floats:
    """Return the gradient of a layer's input from the gradient of its spikes, without regard to the reset."""
    grad = grad * np.exp(np.minimum(0, (before_reset - 1) * SURROGATE_SLOPE))
    drive = np.empty_like(grad)
    membrane, current = np.zeros_like(grad[0]), np.zeros_like(grad[0])
    for step in range(len(grad) - 1, -1, -1):
        membrane = membrane + grad[step]
        current = (current + membrane) * neurons.keep_syn
        drive[step] = current
        membrane = membrane * neurons.keep_mem
    return drive
