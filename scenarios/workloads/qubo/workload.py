"""Your own binary quadratic problems: each file is a sample, named as the file without its ending.

A device replies with ``{"cost": c, "solution": digits}``; the digits are the result of ``numpy.packbits`` in
hexadecimal.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rig.errors import DataError, reason, refused
from rig.solving.model import GIVEN, checked_target, qubo
from rig.types import SampleSet
from scenarios.workloads.qubo.files import files_in, read
from scenarios.workloads.qubo_mis.graph import Graph
from scenarios.workloads.qubo_mis.targets import digest, fault_of, read_rows

NAME = "qubo"


def open_workload(*, data: str = "", target: float | None = None, targets: str = "") -> SampleSet:
    """Open the workload.

    data: a file with a binary quadratic problem, or a folder of such files. Forms: dimod's own, COO text, .npz of `rig
    workload export`, a list of edges (as maximum independent set), .qubo of D-Wave, .qplib, a square matrix.
    target: the best known cost of a single problem; gaps are computed to it.
    targets: a file with a line NAME COST for each problem (NAME is the name of its file without the ending), or a file
    of `rig targets --out`, for independent-set problems. Without a target, a result has only costs and times.

    Raises UsageError for options that are not valid, DataError with the line for a file that cannot be used.
    """
    path = Path(data)
    files = list(files_in(path)) if data and path.exists() else []
    if not files:
        found = f"{data} holds no file" if path.is_dir() else f"{data} is not there"
        what = found if data else "the workload qubo has no data"
        raise refused("data", data, "Give --data a file with a problem, or a folder of them", what)
    models: dict[str, Any] = {}
    graphs: dict[str, Graph] = {}
    for file in files:
        name = file.stem if file.stem not in models else file.name
        models[name], graph = read(file)
        if graph is not None:
            graphs[name] = graph
    named = _from_file(Path(targets), models, graphs) if targets else {}
    if target is not None:
        if len(models) > 1:
            raise refused("target", target, "Give one for each: --option targets=FILE", f"{data} has several problems")
        named.setdefault(GIVEN, {})[next(iter(models))] = target
    sources = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    return qubo(models, name=NAME, details={"files_sha256": sources, "targets": named})


def _from_file(path: Path, models: Mapping[str, Any], graphs: Mapping[str, Graph]) -> dict[str, dict[str, float]]:
    """Return the costs in a file of targets by target name and problem. Raises ``UsageError``, or ``DataError``."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = f"cannot read {path}: {reason(error)}"
        raise refused("targets", str(path), "Give a file of lines NAME COST", what) from error
    if text.lstrip().startswith("{"):
        return _computed(path, graphs)
    costs: dict[str, float] = {}
    for line, row in enumerate(text.splitlines(), 1):
        fields = row.split()
        if not fields or fields[0].startswith("#"):
            continue
        try:
            name, cost = fields[0], checked_target(fields[0], float(fields[1]), models)
        except (ValueError, IndexError) as error:
            what = f"{path.name}:{line}: {row.strip()!r} is no line NAME COST"
            raise DataError(what, field="targets", value=row, remedy="Correct the line") from error
        if costs.setdefault(name, cost) != cost:
            what = f"{path.name}:{line}: {name} has a cost of {costs[name]:g} in an earlier line, and {cost:g} here"
            raise DataError(what, field="targets", value=row, remedy="Keep the least one")
    return {GIVEN: costs}


def _computed(path: Path, graphs: Mapping[str, Graph]) -> dict[str, dict[str, float]]:
    """Return the costs in a file of `rig targets --out` for these graphs, after each row is verified."""
    found: dict[str, dict[str, float]] = {}
    known = {digest(graph): name for name, graph in graphs.items()}
    for row in read_rows(path):
        if (name := known.get(row.graph_sha256)) is None:
            continue
        if (fault := fault_of(row, graphs[name])) is not None:
            what = f"the row {row} of {path.name} is wrong: {fault}"
            raise DataError(what, field="targets", value=str(row), remedy="Compute it again with `rig targets`")
        found.setdefault(row.name, {})[name] = row.cost
    return found
