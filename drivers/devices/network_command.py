"""Train a network for a Xylo or the Arduino, or write the network deployed on a Xylo as a NIR graph."""

import argparse
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from drivers.devices.arduino import quantised, training as arduino
from drivers.devices.training_data import train_split
from drivers.devices.xylo.device import read_network
from drivers.devices.xylo.networks import train_command as xylo
from drivers.devices.xylo.networks.network import load_network, write_network
from drivers.devices.xylo.networks.nir_deploy import write_nir
from drivers.failures import raising
from rig.bench.settings import within
from rig.errors import StoreError, UsageError, reason, refused
from rig.terminal import command, say, say_json

N = TypeVar("N")

_SAME_DATA = ("data", "fold", "audio_hz")
"""Options of the workload that must be the same in training and in the measurement."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``rig network export [FILE] --out FILE.nir`` and ``rig network train WORKLOAD --out FILE``."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_training(actions.add_parser("train", help="from labelled audio to a network file"))
    export = actions.add_parser("export", help="write the deployed network, with its integers, as a NIR graph")
    export.add_argument("file", nargs="?", help="a network of this device (.json or .nir); default: the shipped one")
    export.add_argument("--out", type=Path, required=True, metavar="FILE.nir")
    export.add_argument("--dt-s", type=float, metavar="S", help="time step of a .nir file")
    export.add_argument("--reset", metavar="RULE", help="reset of the neurons of a .nir file: subtract")
    export.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Train, or write one network and print the options to measure the file.

    Raises ``UsageError`` if the output's name has another suffix than .nir, .json (Xylo) or .h (Arduino),
    ``StoreError`` if it cannot be written, and the errors of reading the network or the data.
    """
    if args.action == "train":
        return _train(args)
    if args.out.suffix.lower() != ".nir":
        raise UsageError(f"{args.out} does not end in .nir", field="out", value=str(args.out), remedy="Name it so")
    network = read_network(args.file, args.dt_s, args.reset, "channel", "")
    _saved(args.out, lambda path, n: write_nir(n, path), network)
    options = {"network": str(args.out), "dt_s": network.specification["dt"], "reset": "subtract", "quantize": "none"}
    options |= {"classes": ",".join(network.classes)}
    if args.json:
        say_json(json.dumps({"file": str(args.out), "options": options}))
    else:
        said = " ".join(f"--option {name}={value}" for name, value in options.items())
        say(f"wrote {args.out}: measure with {said}")
    return 0


def _add_training(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workload", metavar="WORKLOAD", help="labelled audio with a train split, such as asc")
    parser.add_argument("--device", choices=tuple(_TARGETS), default="xylo", help="target device (default: xylo)")
    parser.add_argument("--data", metavar="DIR", help="folder of the workload; short for --option data=DIR")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the workload")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help=".json for a xylo, .h for the arduino")
    parser.add_argument("--hidden", metavar="N,N,...", help=f"hidden layers of a xylo (default: {xylo.HIDDEN})")
    epochs = f"default: {xylo.EPOCHS}, for the arduino {arduino.EPOCHS}"
    parser.add_argument("--epochs", type=int, metavar="N", help=epochs)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of weights and order; default: 0")
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document")


def _train(args: argparse.Namespace) -> int:
    """Train, fit to the chip and write. Raises ``UsageError``, ``DataError`` and ``StoreError``."""
    suffix, trained, measured_as = _TARGETS[args.device]
    if args.out.suffix.lower() != suffix:
        raise UsageError(f"{args.out} does not end in {suffix}", field="out", value=str(args.out), remedy="Name it so")
    if not args.out.parent.is_dir():
        raise _unwritable(args.out, "its folder does not exist")
    given = [*([f"data={args.data}"] if args.data else []), *args.option]
    digest, record = trained(args, given)
    if args.json:
        say_json(json.dumps({"file": str(args.out), "sha256": digest, "training": record}))
        return 0
    kept = [text for text in given if text.partition("=")[0] in _SAME_DATA]
    if "listing_sha256" in record["data"] and "fold" not in record["data"]:
        kept = ["data=ANOTHER_FOLDER"]  # the network was trained on all data of its own folder
    options = [word for text in (*kept, f"network={args.out}") for word in ("--option", text)]
    say(f"wrote {args.out} ({digest[:12]}). Measure it on other samples:")
    for device in measured_as:
        say(f"  {command('measure', '--workload', args.workload, '--device', *device.split(), *options)}")
    return 0


def _xylo(args: argparse.Namespace, given: list[str]) -> tuple[str, Mapping[str, Any]]:
    epochs = xylo.EPOCHS if args.epochs is None else args.epochs
    hidden = args.hidden or xylo.HIDDEN
    network = xylo.train(
        args.workload, given, hidden=hidden, epochs=epochs, seed=args.seed, tell=partial(say, error=True)
    )
    _saved(args.out, write_network, network)
    return load_network(args.out).digest_sha256, network.training


def _arduino(args: argparse.Namespace, given: list[str]) -> tuple[str, Mapping[str, Any]]:
    if args.hidden is not None:
        raise refused("hidden", args.hidden, "Leave it out: the network of the Arduino has its published layers")
    settings = arduino.Settings(args.seed, arduino.EPOCHS if args.epochs is None else args.epochs)
    within(0, 2**32 - 1, seed=settings.seed)
    within(1, 10**6, epochs=settings.epochs)
    _, network = arduino.train(train_split(args.workload, given), settings, partial(say, error=True))
    _saved(args.out, quantised.write_network, network)
    return quantised.read_network(args.out).sha256, network.training


def _saved(path: Path, write: Callable[[Path, N], None], network: N) -> None:
    with raising(lambda error: _unwritable(path, reason(error)), OSError):
        write(path, network)


def _unwritable(path: Path, why: str) -> StoreError:
    remedy = "Check the folder, its permissions and the free space"
    return StoreError(f"cannot write {path}: {why}", field="out", value=str(path), remedy=remedy)


_TARGETS = {
    "xylo": (".json", _xylo, ("xylo --simulate", "xylo-float --meter none")),
    "arduino": (".h", _arduino, ("arduino --simulate",)),
}
"""By device: the suffix of the file, the function that trains and writes the network, and the devices that run it."""
