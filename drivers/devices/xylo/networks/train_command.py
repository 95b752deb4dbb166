"""The Xylo's part of ``rig network train``: from labelled audio to a network of the chip's integers."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from drivers.devices.training_data import labelled, train_split
from drivers.devices.xylo.networks import training
from drivers.devices.xylo.networks.encoder import EncoderParams, encode
from drivers.devices.xylo.networks.network import LIMITS, MOST_FAN_OUT, MOST_HIDDEN_WEIGHTS, Network, chain
from drivers.devices.xylo.networks.nir_deploy import fitted, wanted_of
from drivers.devices.xylo.rockpool_import import load_xylo_audio2
from rig.bench.option_checks import within
from rig.errors import DataError, refused
from rig.types import Sample

HIDDEN, EPOCHS = "63,63,63", 60
_CHOSEN = "every setting as shipped, chosen on synthetic scenes"


def train(
    workload: str, options: list[str], *, hidden: str, epochs: int, seed: int, tell: Callable[[str], None]
) -> Network:
    """Train on the train split of a workload, and return the network with the record of its training."""
    within(0, 2**32 - 1, seed=seed)
    within(1, 10**6, epochs=epochs)
    layers = _layers(hidden)
    load_xylo_audio2()  # reports missing packages before the training, not after it
    params = EncoderParams()
    found = labelled(train_split(workload, options), lambda sample: _events(sample, params))
    classes, labels, events = found.classes, found.labels, np.stack(found.inputs, axis=1)
    if not 2 <= len(classes) <= LIMITS["output"]:
        what = f"the data have {len(classes)} classes, but a network for Xylo Audio 2 has 2 to {LIMITS['output']}"
        raise DataError(what, field="classes", value=len(classes), remedy="Choose other data")
    settings = training.Settings(layers, seed, epochs)
    tell(f"training on {len(labels)} samples of {len(classes)} classes, {settings.epochs} epochs")
    floats = training.trained(events, labels, len(classes), settings, tell)
    spec = fitted(wanted_of(floats), "channel", params.bin_s)
    record = {
        "program": "rig network train",
        "data": found.record,
        **asdict(settings),
        "batch": training.batch_of(len(labels)),
        "tuning": _CHOSEN if (hidden, epochs, seed) == (HIDDEN, EPOCHS, 0) else "hidden, epochs or seed were given",
        "accuracy_on_training_data": round(training.accuracy(floats, events, labels), 4),
        "versions": {name: importlib.metadata.version(name) for name in ("numpy", "rockpool")},
    }
    sizes = floats.sizes
    return Network(classes, params, sizes, spec, json.loads(json.dumps(record)), "", chain(sizes), floats=floats)


def _events(sample: Sample, params: EncoderParams) -> NDArray[np.float32]:
    return encode(sample.payload, sample.rate_hz or 0.0, params).astype(np.float32)


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
