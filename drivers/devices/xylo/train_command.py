"""``rig network train``: from the training split of a workload to a network file for a Xylo, or for the Arduino."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from drivers.devices.arduino import quantised
from drivers.devices.arduino import train_command as arduino
from drivers.devices.arduino.training import Settings
from drivers.devices.training_data import labelled, train_split
from drivers.devices.xylo import training
from drivers.devices.xylo.encoder import EncoderParams, encode
from drivers.devices.xylo.fitting import fitted, wanted_of
from drivers.devices.xylo.network import (
    LIMITS,
    MOST_FAN_OUT,
    MOST_HIDDEN_WEIGHTS,
    Network,
    chain,
    load_network,
    write_network,
)
from drivers.devices.xylo.rockpool_import import load_xylo_audio2
from rig.bench.options import within
from rig.errors import DataError, StoreError, UsageError, refused
from rig.terminal import say, say_json
from rig.types import Sample

_HIDDEN, _EPOCHS = "63,63,63", 60
_SAME_DATA = ("data", "fold", "audio_hz")
"""Options of the training with which the network is measured, too."""
_CHOSEN = "every setting as shipped, chosen on synthetic scenes"


N = TypeVar("N")


@dataclass(frozen=True)
class _Target:
    """What a network is trained for: the suffix of its file, how it is trained and written, and what then runs it.

    ``trained`` gives the digest of the file and the record of the training.
    """

    suffix: str
    trained: Callable[[argparse.Namespace, list[str]], tuple[str, Mapping[str, Any]]]
    measured_as: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``rig network train WORKLOAD --out FILE``."""
    parser.add_argument("workload", metavar="WORKLOAD", help="a workload of labelled audio with a train split: asc")
    parser.add_argument("--device", choices=tuple(_targets()), default="xylo", help="what it is for (default: xylo)")
    parser.add_argument("--data", metavar="DIR", help="its folder; short for --option data=DIR")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the workload")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help=".json for a xylo, .h for the arduino")
    parser.add_argument("--hidden", metavar="N,N,...", help=f"hidden layers of a xylo (default: {_HIDDEN})")
    epochs = f"default: {_EPOCHS}, for the arduino {arduino.EPOCHS}"
    parser.add_argument("--epochs", type=int, metavar="N", help=epochs)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of weights and order (default: 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON document on standard output")


def run(args: argparse.Namespace) -> int:
    """Train, fit to the chip and write. Raises ``UsageError``, ``DataError`` and ``StoreError`` for what cannot be."""
    target = _targets()[args.device]
    if args.out.suffix.lower() != target.suffix:
        what = f"{args.out} does not end in {target.suffix}"
        raise UsageError(what, field="out", value=str(args.out), remedy="Name it so")
    if not args.out.parent.is_dir():
        raise _unwritable(args.out, "its folder does not exist")
    given = [*([f"data={args.data}"] if args.data else []), *args.option]
    digest, record = target.trained(args, given)
    if args.json:
        say_json(json.dumps({"file": str(args.out), "sha256": digest, "training": record}))
        return 0
    kept = [text for text in given if text.partition("=")[0] in _SAME_DATA]
    if "listing_sha256" in record["data"] and "fold" not in record["data"]:
        kept = ["data=ANOTHER_FOLDER"]  # the network has heard all of its own
    options = " ".join(f"--option {text}" for text in (*kept, f"network={args.out}"))
    say(f"wrote {args.out} ({digest[:12]}). Measure it on other samples:")
    for device in target.measured_as:
        say(f"  rig measure --workload {args.workload} --device {device} {options}")
    return 0


def _xylo(args: argparse.Namespace, given: list[str]) -> tuple[str, Mapping[str, Any]]:
    epochs = _EPOCHS if args.epochs is None else args.epochs
    hidden = args.hidden or _HIDDEN
    network = train(args.workload, given, hidden=hidden, epochs=epochs, seed=args.seed, tell=partial(say, error=True))
    _saved(args.out, write_network, network)
    return load_network(args.out).digest_sha256, network.training


def _arduino(args: argparse.Namespace, given: list[str]) -> tuple[str, Mapping[str, Any]]:
    if args.hidden is not None:
        raise refused("hidden", args.hidden, "Leave it out: the network of the Arduino has its published layers")
    settings = Settings(args.seed, arduino.EPOCHS if args.epochs is None else args.epochs)
    within(0, 2**32 - 1, seed=settings.seed)
    within(1, 10**6, epochs=settings.epochs)
    _, network = arduino.train(train_split(args.workload, given), settings, partial(say, error=True))
    _saved(args.out, arduino.write, network)
    return quantised.read_network(args.out).sha256, network.training


def _targets() -> dict[str, _Target]:
    return {
        "xylo": _Target(".json", _xylo, ("xylo --simulate", "xylo-float --meter none")),
        "arduino": _Target(".h", _arduino, ("arduino --simulate",)),
    }


def _saved(path: Path, write: Callable[[Path, N], None], network: N) -> None:
    try:
        write(path, network)
    except OSError as error:
        raise _unwritable(path, str(error)) from error


def _unwritable(path: Path, why: str) -> StoreError:
    remedy = "Check the folder, its permissions and the free space"
    return StoreError(f"cannot write {path}: {why}", field="out", value=str(path), remedy=remedy)


def train(
    workload: str, options: list[str], *, hidden: str, epochs: int, seed: int, tell: Callable[[str], None]
) -> Network:
    """Train on the train split of a workload, and return the network with the record of its training."""
    within(0, 2**32 - 1, seed=seed)
    within(1, 10**6, epochs=epochs)
    layers = _layers(hidden)
    load_xylo_audio2()  # what is missing is said before the training, not after it
    params = EncoderParams()
    found = labelled(train_split(workload, options), lambda sample: _events(sample, params))
    classes, labels, events = found.classes, found.labels, np.stack(found.inputs, axis=1)
    if not 2 <= len(classes) <= LIMITS["output"]:
        what = (
            f"the data have {len(classes)} classes, and a network for Xylo Audio 2 tells 2 to {LIMITS['output']} apart"
        )
        raise DataError(what, field="classes", value=len(classes), remedy="Use data with so many classes")
    settings = training.Settings(layers, seed, epochs)
    tell(f"training on {len(labels)} samples of {len(classes)} classes, {settings.epochs} epochs")
    floats = training.trained(events, labels, len(classes), settings, tell)
    spec = fitted(wanted_of(floats), "channel", params.bin_s)
    record = {
        "program": "rig network train",
        "data": found.record,
        **asdict(settings),
        "batch": training.batch_of(len(labels)),
        "tuning": _CHOSEN if (hidden, epochs, seed) == (_HIDDEN, _EPOCHS, 0) else "hidden, epochs or seed were given",
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
        has = f"{LIMITS['hidden']} hidden neurons, of which each reaches {MOST_FAN_OUT} others"
        remedy = f"Give sizes of layers, such as {_HIDDEN}: the chip has {has}, and {MOST_HIDDEN_WEIGHTS} such weights"
        raise refused("hidden", hidden, remedy)
    return sizes
