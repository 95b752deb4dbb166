"""Train a network for a Xylo or the Arduino, or write the one deployed on a Xylo as a NIR graph."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from drivers.devices.xylo import train_command
from drivers.devices.xylo.device import read_network
from drivers.devices.xylo.nir_deploy import write_nir
from rig.errors import StoreError, UsageError
from rig.terminal import say, say_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``rig network export [FILE] --out FILE.nir`` and ``rig network train WORKLOAD --out FILE``."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    train_command.add_arguments(actions.add_parser("train", help="from labelled audio to a network file"))
    export = actions.add_parser("export", help="write the deployed network, with its integers, as a NIR graph")
    export.add_argument("file", nargs="?", help="a network of this device (.json or .nir); default: the shipped one")
    export.add_argument("--out", type=Path, required=True, metavar="FILE.nir")
    export.add_argument("--dt-s", type=float, metavar="S", help="time step of a .nir file")
    export.add_argument("--reset", metavar="RULE", help="reset of the neurons of a .nir file: subtract")
    export.add_argument("--json", action="store_true", help="print one JSON document on standard output")


def run(args: argparse.Namespace) -> int:
    """Train, or write one network and print the options with which the file is measured.

    Raises ``UsageError`` for an output that is not called .nir, ``StoreError`` where it cannot be written, and what
    reading the network raises.
    """
    if args.action == "train":
        return train_command.run(args)
    if args.out.suffix.lower() != ".nir":
        raise UsageError(f"{args.out} does not end in .nir", field="out", value=str(args.out), remedy="Name it so")
    network = read_network(args.file, args.dt_s, args.reset, "channel", "")
    try:
        write_nir(network, args.out)
    except OSError as error:
        remedy = "Check the folder, its permissions and the free space"
        raise StoreError(
            f"cannot write {args.out}: {error}", field="out", value=str(args.out), remedy=remedy
        ) from error
    options = {"network": str(args.out), "dt_s": network.specification["dt"], "reset": "subtract", "quantize": "none"}
    options |= {"classes": ",".join(network.classes)}
    if args.json:
        say_json(json.dumps({"file": str(args.out), "options": options}))
    else:
        said = " ".join(f"--option {name}={value}" for name, value in options.items())
        say(f"wrote {args.out}: measure with {said}")
    return 0
