"""``rig network train``: from the training split of a workload to a network file for Xylo Audio 2."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

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
from rig.factories import build, options_of, split_options
from rig.plugins import load
from rig.terminal import say, say_json
from rig.types import Workload

_HIDDEN, _EPOCHS = "63,63,63", 60
_SAME_DATA = ("data", "fold", "audio_hz")
"""Options of the training with which the network is measured, too."""
_CHOSEN = "every setting as shipped, chosen on synthetic scenes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``rig network train WORKLOAD --out FILE.json``."""
    parser.add_argument("workload", metavar="WORKLOAD", help="a workload of labelled audio with a train split: asc")
    parser.add_argument("--data", metavar="DIR", help="its folder; short for --option data=DIR")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the workload")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--hidden", default=_HIDDEN, metavar="N,N,...", help=f"hidden layers (default: {_HIDDEN})")
    parser.add_argument("--epochs", type=int, default=_EPOCHS, metavar="N", help=f"default: {_EPOCHS}")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of weights and order (default: 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON document on standard output")


def run(args: argparse.Namespace) -> int:
    """Train, fit to the chip and write. Raises ``UsageError``, ``DataError`` and ``StoreError`` for what cannot be."""
    if args.out.suffix.lower() != ".json":
        raise UsageError(f"{args.out} does not end in .json", field="out", value=str(args.out), remedy="Name it so")
    if not args.out.parent.is_dir():
        raise _unwritable(args.out, "its folder does not exist")
    given = [*([f"data={args.data}"] if args.data else []), *args.option]
    network = train(
        args.workload, given, hidden=args.hidden, epochs=args.epochs, seed=args.seed, tell=partial(say, error=True)
    )
    try:
        write_network(args.out, network)
    except OSError as error:
        raise _unwritable(args.out, str(error)) from error
    digest = load_network(args.out).digest_sha256
    if args.json:
        say_json(json.dumps({"file": str(args.out), "sha256": digest, "training": network.training}))
        return 0
    data = network.training["data"]
    kept = [text for text in given if text.partition("=")[0] in _SAME_DATA]
    if "listing_sha256" in data and "fold" not in data:
        kept = ["data=ANOTHER_FOLDER"]  # the network has heard all of its own
    options = " ".join(f"--option {text}" for text in (*kept, f"network={args.out}"))
    say(f"wrote {args.out} ({digest[:12]}). Measure it, and the network before it was rounded, on other samples:")
    for device in ("xylo --simulate", "xylo-float --meter none"):
        say(f"  rig measure --workload {args.workload} --device {device} {options}")
    return 0


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
    data = _opened(workload, options)
    params = EncoderParams()
    events, names = _encoded(data, params)
    classes = tuple(dict.fromkeys([*data.details.get("classes", ()), *names]))
    labels = np.array([classes.index(name) for name in names])
    if lacking := sorted(set(classes) - set(names)):
        what = f"no training sample is labelled {lacking[0]}"
        raise DataError(what, field="label", value=lacking[0], remedy="Every class needs samples")
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
        "data": {"workload": data.name, "digest_sha256": data.digest_sha256, **data.details},
        **asdict(settings),
        "batch": training.batch_of(len(labels)),
        "tuning": _CHOSEN if (hidden, epochs, seed) == (_HIDDEN, _EPOCHS, 0) else "hidden, epochs or seed were given",
        "accuracy_on_training_data": round(training.accuracy(floats, events, labels), 4),
        "versions": {name: importlib.metadata.version(name) for name in ("numpy", "rockpool")},
    }
    sizes = floats.sizes
    return Network(classes, params, sizes, spec, json.loads(json.dumps(record)), "", chain(sizes), floats=floats)


def _opened(name: str, options: list[str]) -> Workload:
    factory = load("workloads", name)
    if "split" not in options_of(factory):
        raise refused("workload", name, "Use one that has an option split, such as asc", f"{name} has no train split")
    given: Mapping[str, str] = split_options(options, {"workload": factory})["workload"]
    if given.get("split", "train") != "train":
        raise refused("split", given["split"], "Leave it out: a network is trained on the train split")
    opened: Workload = build(factory, {}, {**given, "split": "train"})
    return opened


def _encoded(data: Workload, params: EncoderParams) -> tuple[Any, list[str]]:
    """Events (steps, samples, channels) and labels. Raises ``DataError`` for samples without a label, or not alike."""
    rasters, names = [], []
    for sample in data.samples:
        if sample.label is None:
            raise DataError(f"sample {sample.id} has no label", field="label", value=sample.id)
        rasters.append(encode(sample.payload, sample.rate_hz or 0.0, params).astype(np.float32))
        names.append(sample.label)
    if odd := [k for k, raster in enumerate(rasters) if len(raster) != len(rasters[0])]:
        what = f"sample {data.samples[odd[0]].id} has {len(rasters[odd[0]])} time steps, others have {len(rasters[0])}"
        raise DataError(what, field="payload", value=len(rasters[odd[0]]), remedy="Use samples of one length")
    return np.stack(rasters, axis=1), names


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
