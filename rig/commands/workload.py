"""``rig workload``: write one problem of a workload to a file."""

import argparse
import sys
from pathlib import Path

from rig.errors import refused
from rig.plugins import load
from rig.terminal import answer
from rig.types import Exports


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    export = actions.add_parser("export", help="write one problem to a file")
    export.add_argument("name", help="the workload, such as qubo-mis")
    for name, text in (("nodes", "how many"), ("density", "share of edges, 0 to 1"), ("seed", "of the problem")):
        export.add_argument(name, help=text)
    export.add_argument("--out", type=Path, required=True, metavar="FILE.npz", help="the file to write")
    export.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Write one problem. Raises ``UsageError`` for bad numbers or without ``export``, and the errors of ``export``."""
    module = sys.modules[load("workloads", args.name).__module__]
    if not isinstance(module, Exports):
        remedy = "Name a workload whose module has a function export, such as qubo-mis"
        raise refused("workload", args.name, remedy, f"workload {args.name} cannot write a problem to a file")
    try:
        nodes, density, seed = int(args.nodes), float(args.density), int(args.seed)
    except ValueError as error:
        given = f"{args.nodes} {args.density} {args.seed}"
        remedy = "Write NODES DENSITY SEED as numbers; nodes and seed are whole numbers"
        what = f"{given!r} is not a problem of the form NODES DENSITY SEED: {error}"
        raise refused("problem", given, remedy, what) from error
    said = {"workload": args.name, "nodes": nodes, "density": density, "seed": seed}
    said |= {**module.export(nodes, density, seed, args.out), "file": str(args.out)}
    return answer(said, args.out, as_json=args.json)
