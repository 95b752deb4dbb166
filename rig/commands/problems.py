"""``rig workload export`` and ``rig targets``: problems as files, and the best that is known of them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rig.analysis.solving.graph import Graph
from rig.analysis.solving.target_file import SPECIFIED, Key, Target, better, read_rows, write_rows
from rig.errors import IntegrityError, UsageError
from rig.recording.atomic_write import regular

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
    add = parser.add_argument
    add("--verify", action="store_true", help="check certificates of the table again: of the problems named, or all")
    add("--seconds", type=float, default=10.0, metavar="S", help="about, of search or proof for each; default: 10")
    add(
        "--method", default="search", metavar="METHOD",
        help="search (and try to prove), exact (only that), or tabu: as the benchmark specifies; default: %(default)s",
    )  # fmt: skip
    add("--out", type=Path, metavar="FILE.json", help="add the rows to this file, for --option targets=FILE.json")
    add("problem", nargs="*", metavar="NODES DENSITY SEED", help="a size, a density, then seeds")


def _problem_arguments(parser: argparse.ArgumentParser, one: bool) -> None:
    parser.add_argument("nodes", type=_whole)
    parser.add_argument("density", type=_number)
    parser.add_argument("seed", type=_whole, nargs=None if one else "+")


def export(args: argparse.Namespace) -> int:
    """Write one problem. Raises a ``RigError`` for arguments that name none, or a file that cannot be."""
    from rig.plugins import load

    written = load("exports", args.name)(args.nodes, args.density, args.seed, args.out)
    said = {"workload": args.name, "nodes": args.nodes, "density": args.density, "seed": args.seed}
    said |= {"edges": written.edges, "digest_sha256": written.digest_sha256, "file": str(written.path)}
    sys.stdout.write(json.dumps(said) + "\n" if args.json else f"{written.path}\n")
    return 0


def targets(args: argparse.Namespace) -> int:
    """Compute and verify targets, or verify the table. Raises ``IntegrityError`` when a certificate is wrong."""
    from rig.plugins import load

    draw: Draw = load("generators", "gnm")
    keys = _keys(args.problem, args.verify)
    if args.verify:
        if args.out is not None:
            raise UsageError(
                "--verify writes no file", field="out", value=str(args.out), remedy="Leave --out or --verify out"
            )
        return _verified(load("targets", "verify")(draw, _rows_of(keys) if keys else None), args.json)
    if not args.seconds > 0:
        raise UsageError(f"{args.seconds} s of search", field="seconds", value=args.seconds, remedy="Give more than 0")
    kept = _kept(args.out)
    said = []
    for key in keys:
        found, others = _found(draw, key, args.method, args.seconds)
        if args.out is not None:  # after each, since one may take minutes
            place = (found.key, found.name)
            kept[place] = found if found.name == SPECIFIED else better(kept.get(place), found)
            write_rows(kept.values(), args.out)
        if args.json:
            said.append({**asdict(found), **others, "verified": True})
        else:
            sys.stdout.write(_line(found, others, args.seconds))
    if args.json:
        sys.stdout.write(json.dumps(said) + "\n")
    elif args.out is not None:
        sys.stdout.write(f"wrote {args.out}: measure with --option targets={args.out}\n")
    return 0


def _keys(problem: Sequence[str], may_be_none: bool) -> list[Key]:
    if not problem and may_be_none:
        return []
    if len(problem) < 3:
        raise UsageError(
            f"{' '.join(problem)} is no problem" if problem else "no problem was named",
            field="problem",
            value=" ".join(problem),
            remedy="Write `rig targets NODES DENSITY SEED...`, or `rig targets --verify`",
        )
    nodes, density, *seeds = problem
    return [(_whole(nodes), _number(density), _whole(seed)) for seed in seeds]


def _kept(out: Path | None) -> dict[tuple[Key, str], Target]:
    """The rows that the file has already. Raises ``UsageError`` for what is no file, ``DataError`` for no table."""
    if out is None or not regular(out).exists():
        return {}
    return {(target.key, target.name): target for target in read_rows(out)}


def _rows_of(keys: Sequence[Key]) -> dict[Key, Target]:
    from rig.plugins import load

    rows = {key: load("targets", "best-known")(*key) for key in keys}
    if missing := [key for key, row in rows.items() if row is None]:
        n, density, seed = missing[0]
        raise UsageError(
            f"the table has no row for n {n}, density {density:g}, seed {seed}",
            field="problem",
            value=f"{n} {density:g} {seed}",
            remedy=f"Compute one: rig targets {n} {density:g} {seed}",
        )
    return rows


def _found(draw: Draw, key: Key, method: str, seconds: float) -> tuple[Target, dict[str, int | None]]:
    """One problem: computed now, verified, and what the tables hold."""
    from rig.plugins import load

    graph = draw(*key)
    found: Target = load("targets", "compute")(*key, draw=lambda *_: graph, method=method, seconds=seconds)
    if method == "search":
        found = load("targets", "prove")(found, graph, seconds)
    load("targets", "certify")(graph.nodes, graph.edges, found.certificate, found.cost)
    kept = load("targets", "best-known")(*key)
    return found, {"official": load("targets", "official")(*key), "best_known": None if kept is None else kept.cost}


def _line(found: Target, others: Mapping[str, int | None], seconds: float) -> str:
    proof = "not proven" if found.proven is None else f"proven by {found.proven}".removesuffix(f" by {found.method}")
    words = [f"{found.name}: {found.cost} by {found.method} ({proof})"]
    for name, text in (("official", "official"), ("best_known", "table")):
        cost = others[name]
        if cost is not None:
            worse = "" if cost == found.cost else ", which is better" if cost < found.cost else ", which this beats"
            words.append(f"{text} {cost}{worse}")
    if others["official"] is None and others["best_known"] is None:
        words.append("no other target is known")
    took_s = found.searched_s if found.found_s is None else found.found_s
    late = f", past the {seconds:g} s asked for" if took_s > seconds and found.name != SPECIFIED else ""
    words.append(f"{'found after' if found.found_s is not None else 'took'} {took_s:.3g} s{late}")
    return f"n {found.nodes} density {found.density:g} seed {found.seed}: {'; '.join(words)}\n"


def _verified(checks: Iterator[tuple[Target, str | None]], as_json: bool) -> int:
    wrong, count, proven = [], 0, 0
    for target, fault in checks:
        count += 1
        proven += target.proven is not None
        if fault is not None:
            wrong.append(f"{target}: {fault}")
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
