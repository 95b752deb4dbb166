"""The microcontroller's part of ``rig network train``: from labelled audio to a C header."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivers.devices.arduino import mfe, training
from drivers.devices.arduino.quantised import Quantised, header
from drivers.devices.training_data import labelled
from rig.errors import DataError
from rig.types import Sample, Workload

EPOCHS = 30
_CHOSEN = "every setting as shipped, and none was tuned"


def train(
    data: Workload, settings: training.Settings, tell: Callable[[str], None]
) -> tuple[training.FloatNetwork, Quantised]:
    """Train on a workload's samples; return the network before and after rounding, with the record of its training.

    Raises ``DataError`` for samples that are not slices or lack labels, and for a single label.
    """
    found = labelled(data, _features)
    if len(found.classes) < 2:
        what = "the data have one class, and a network needs two or more"
        raise DataError(what, field="classes", value=1, remedy="Use data with more classes")
    features = np.stack(found.inputs)
    tell(f"training on {len(features)} samples of {len(found.classes)} classes, {settings.epochs} epochs")
    floats = training.trained(features, found.labels, len(found.classes), settings, tell)
    whole = training.quantised(floats, features, found.classes, {})
    record: dict[str, Any] = {
        "program": "rig network train",
        "data": found.record,
        **asdict(settings),
        "channels": training.CHANNELS,
        "batch": training.batch_of(len(features)),
        "tuning": _CHOSEN if (settings.epochs, settings.seed) == (EPOCHS, 0) else "epochs or seed were given",
        "versions": {"numpy": importlib.metadata.version("numpy")},
        "accuracy_on_training_data": {
            "float": round(training.accuracy(floats.scores(features), found.labels), 4),
            "int8": round(training.accuracy(whole.scores(features), found.labels), 4),
        },
    }
    return floats, replace(whole, training=json.loads(json.dumps(record)))


def write(path: Path, network: Quantised) -> None:
    """Write the header. Raises ``OSError`` if that fails."""
    path.write_text(header(network), encoding="utf-8")


def _features(sample: Sample) -> NDArray[np.int8]:
    return mfe.features(mfe.pcm16(np.asarray(sample.payload)))
