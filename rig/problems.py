"""``rig workload export`` and ``rig targets``: problems as files, and the best that is known of them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rig.errors import IntegrityError, UsageError
from rig.graph import Graph

Draw = Callable[[int, float, int], Graph]


def add_workload_arguments(parser: argparse.ArgumentParser) -> None:
    """``rig workload export NAME NODES DENSITY SEED --out FILE``."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    export = actions.add_parser("export", help="write one problem to a file")
    export.add_argument("name", help="the workload, such as qubo-mis")
    _problem_arguments(export, one=True)
    export.add_argument("--out", type=Path, required=True, metavar="FILE.npz")
    export.add_argument("--json", action="store_true", help="one JSON document on standard output")


def add_targets_arguments(parser: argparse.ArgumentParser) -> None:
    """``rig targets NODES DENSITY SEED...`` or ``rig targets --verify``."""
    parser.add_argument("--verify", action="store_true", help="check every certificate of the table again")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="of search for each; default: 10")
    parser.add_argument("problem", nargs="*", metavar="NODES DENSITY SEED", help="a size, a density, then seeds")


def _problem_arguments(parser: argparse.ArgumentParser, one: bool) -> None:
    parser.add_argument("nodes", type=_whole)
    parser.add_argument("density", type=_number)
    parser.add_argument("seed", type=_whole, nargs=None if one else "+")


def export(args: argparse.Namespace) -> int:
    """Write one problem. Raises a ``RigError`` for arguments that name none, or a file that cannot be."""
    from rig.plugins import load

    path = load("exports", args.name)(args.nodes, args.density, args.seed, args.out)
    said = {"workload": args.name, "nodes": args.nodes, "density": args.density, "seed": args.seed, "file": str(path)}
    sys.stdout.write(json.dumps(said) + "\n" if args.json else f"{path}\n")
    return 0


def targets(args: argparse.Namespace) -> int:
    """Compute and verify targets, or verify the table. Raises ``IntegrityError`` when a certificate is wrong."""
    from rig.plugins import load

    draw: Draw = load("generators", "gnm")
    if args.verify:
        return _verified(load("targets", "verify")(draw), args.json)
    if len(args.problem) < 3:
        raise UsageError(
            "no problem was named",
            field="problem",
            value=" ".join(args.problem),
            remedy="Write `rig targets NODES DENSITY SEED...`, or `rig targets --verify`",
        )
    if not args.seconds > 0:
        raise UsageError(f"{args.seconds} s of search", field="seconds", value=args.seconds, remedy="Give more than 0")
    nodes, density, *seeds = args.problem
    rows = [_row(draw, _whole(nodes), _number(density), _whole(seed), args.seconds) for seed in seeds]
    if args.json:
        sys.stdout.write(json.dumps(rows) + "\n")
    else:
        for row in rows:
            sys.stdout.write(_line(row))
    return 0


def _row(draw: Draw, nodes: int, density: float, seed: int, seconds: float) -> dict[str, Any]:
    """One problem: computed now, verified, beside what the tables hold."""
    from rig.plugins import load

    graph = draw(nodes, density, seed)
    found = load("targets", "compute")(nodes, density, seed, draw=lambda *_: graph, seconds=seconds)
    found = load("targets", "prove")(found, graph, seconds)
    load("targets", "certify")(nodes, graph.edges, found.certificate, found.cost)
    kept = load("targets", "best-known")(nodes, density, seed)
    official = load("targets", "official")(nodes, density, seed)
    return {**asdict(found), "official": official, "best_known": None if kept is None else kept.cost, "verified": True}


def _line(row: dict[str, Any]) -> str:
    proof = f"proven by {row['proven']}" if row["proven"] else "not proven"
    others = ", ".join(f"{name} {row[key]}" for name, key in (("official", "official"), ("table", "best_known")))
    return (
        f"n {row['nodes']} density {row['density']:g} seed {row['seed']}: cost {row['cost']} ({proof}); "
        f"{others}; found after {row['found_s'] or 0:.3g} s\n"
    )


def _verified(checks: Iterator[tuple[Any, str | None]], as_json: bool) -> int:
    wrong, count, proven = [], 0, 0
    for target, fault in checks:
        count += 1
        proven += target.proven is not None
        if fault is not None:
            wrong.append(f"n {target.nodes} density {target.density:g} seed {target.seed}: {fault}")
    said = {"certificates": count, "proven": proven, "wrong": wrong}
    text = f"{count} certificates checked, {proven} of them proven optimal, {len(wrong)} wrong\n"
    sys.stdout.write(json.dumps(said) + "\n" if as_json else text)
    if wrong:
        raise IntegrityError(
            f"{len(wrong)} certificates are wrong: {'; '.join(wrong[:3])}",
            field="targets",
            value=len(wrong),
            remedy="Restore the table; no gap is computed from a wrong one",
        )
    return 0


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise _usage(text, "no whole number") from error


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise _usage(text, "no number") from error


def _usage(text: str, what: str) -> UsageError:
    return UsageError(f"{text!r} is {what}", field="problem", value=text, remedy="Write NODES DENSITY SEED as numbers")
