"""A QUBO as the payload of a sample, and the cost of a solution; dimod's models become such payloads.

A payload is a table of rows (u, v, weight). The first row is (n, n, constant), for n bits. Each other row adds its
weight to the cost if bits u and v are both 1; in a row of one bit, u and v are equal.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rig.engine.own_workload import workload
from rig.errors import DataError, closest, unfit
from rig.plugins import imported, load, names
from rig.types import Sample, SampleSet

TASK = "qubo"
"""The task of any workload whose payloads are tables of ``ROWS``."""
GIVEN = "given"
"""The name of a target cost that a user gives."""
ROWS = np.dtype([("u", "<i4"), ("v", "<i4"), ("weight", "<f8")])
_NAMED = 5
"""A note names at most this many problems."""


@dataclass(frozen=True, slots=True, eq=False)
class Qubo:
    """A problem; its ``payload`` has the type ``ROWS`` and the shape (1 + terms,)."""

    payload: NDArray[Any]

    @property
    def nodes(self) -> int:
        """Return how many bits a solution has."""
        return int(self.payload["u"][0])

    def cost(self, x: NDArray[Any]) -> float:
        """Return the cost of bits of shape (nodes,)."""
        terms, chosen = self.payload[1:], np.asarray(x, bool)
        both = chosen[terms["u"]] & chosen[terms["v"]]
        return float(self.payload["weight"][0] + terms["weight"][both].sum())

    def judge(self, solution: str) -> tuple[float, None]:
        """Return the cost of a solution, given in hexadecimal digits, and None: there are no constraints to check.

        Raises ``DataError`` for a text that is no solution.
        """
        return self.cost(from_hex(solution, self.nodes)), None

    def to_bqm(self) -> Any:
        """Return a ``dimod.BinaryQuadraticModel`` of bits 0 to n - 1. Raises ``MissingExtraError`` without dimod."""
        dimod = imported("dimod", "a binary quadratic model", "qubo", field="extra")
        terms = self.payload[1:]
        alone = terms["u"] == terms["v"]
        linear = np.bincount(terms["u"][alone], terms["weight"][alone], self.nodes)
        u, v, weight = (np.ascontiguousarray(terms[name][~alone]) for name in ROWS.names or ())
        offset = float(self.payload["weight"][0])
        return dimod.BinaryQuadraticModel.from_numpy_vectors(linear, (u, v, weight), offset, dimod.BINARY)


def from_payload(payload: NDArray[Any]) -> Qubo:
    """Return the problem of a payload. Raises ``DataError`` for a payload that is not a table of ``ROWS``."""
    rows = np.asarray(payload)
    good = rows.dtype == ROWS and rows.ndim == 1 and len(rows) > 0
    if good:
        n, terms = int(rows["u"][0]), rows[1:]
        inside = all(bool(np.all((terms[end] >= 0) & (terms[end] < n))) for end in ("u", "v"))
        good = n > 0 and int(rows["v"][0]) == n and inside and bool(np.isfinite(rows["weight"]).all())
    if not good:
        what = f"a payload of shape {rows.shape} and type {rows.dtype} is no QUBO"
        remedy = "Make it with rig.qubo, or use --workload qubo"
        raise DataError(what, field="payload", value=str(rows.shape), remedy=remedy)
    return Qubo(rows)


def from_bqm(model: Any, name: str = "problem") -> tuple[Qubo, list[Any]]:
    """Return the problem of a ``dimod.BinaryQuadraticModel``, and the variable of each of its bits.

    A model of spins becomes one of bits: a spin of +1 is a bit of 1, and the cost stays the same. Raises ``DataError``
    for any other object, for a model without variables, and for a coefficient that is not finite.
    """
    dimod = imported("dimod", "a binary quadratic model", "qubo", field="extra")
    if not isinstance(model, dimod.BinaryQuadraticModel) or not model.num_variables:
        found = "empty" if isinstance(model, dimod.BinaryQuadraticModel) else f"a {type(model).__name__}"
        what = f"{name} is {found}, not a dimod.BinaryQuadraticModel with variables"
        raise DataError(what, field="data", value=name, remedy="Give the model that the solver is to minimise")
    bits = model.change_vartype(dimod.BINARY, inplace=False)
    linear, (u, v, weight), constant, labels = bits.to_numpy_vectors(sort_indices=True, return_labels=True)
    n = len(linear)
    ends = np.concatenate([[n], np.arange(n), np.minimum(u, v)]), np.concatenate([[n], np.arange(n), np.maximum(u, v)])
    rows = np.zeros(1 + n + len(weight), ROWS)
    rows["u"], rows["v"] = ends
    rows["weight"] = np.concatenate([[constant], linear, weight])
    if not np.isfinite(rows["weight"]).all():
        bad = rows[int(np.argmin(np.isfinite(rows["weight"])))]
        of = "the constant" if bad["u"] == n else ", ".join(str(labels[k]) for k in sorted({bad["u"], bad["v"]}))
        what = f"{name}: the coefficient of {of} is {bad['weight']}"
        raise DataError(what, field="data", value=str(bad["weight"]), remedy="Give finite coefficients")
    kept = rows["weight"] != 0
    kept[0] = True
    return Qubo(rows[kept]), list(labels)


def qubo(
    problems: Mapping[str, Any],
    *,
    name: str = "own-qubo",
    targets: Mapping[str, float] | None = None,
    details: Mapping[str, Any] | None = None,
) -> SampleSet:
    """Return a workload of binary quadratic models of dimod, by their names.

    ``targets`` are the costs from which gaps are computed, by the same names; a problem without a target has only cost
    and time. Raises ``DataError`` as ``from_bqm`` does, ``UsageError`` for a target that is not a finite number or has
    the name of no problem.

    Example::

        import dimod
        import rig

        model = dimod.BinaryQuadraticModel({0: -1.0, 1: -1.0}, {(0, 1): 2.0}, 0.0, "BINARY")
        pair = rig.qubo({"pair": model}, targets={"pair": -1.0})
    """
    samples, variables = [], {}
    for key, model in problems.items():
        problem, labels = from_bqm(model, key)
        samples.append(Sample(key, problem.payload, keep=True))
        if labels != list(range(len(labels))):
            variables[key] = [str(label) for label in labels]
    goals = {key: checked_target(key, cost, problems) for key, cost in (targets or {}).items()}
    about = {"targets": {GIVEN: goals} if goals else {}, "variables": variables, **(details or {})}
    reached = {key for costs in about["targets"].values() for key in costs}
    if lacking := [key for key in problems if key not in reached]:
        which = ", ".join(lacking[:_NAMED]) + (" ..." if len(lacking) > _NAMED else "")
        about["notes"] = [
            f"No target is known for {which}, so no gap is stated: give the best cost known, with --option target=COST "
            "or as targets of rig.qubo"
        ]
    return workload(samples, name=name, task=TASK, details={key: value for key, value in about.items() if value})


def checked_target(key: str, cost: Any, problems: Mapping[str, Any]) -> float:
    """Return the target cost of a problem. Raises ``UsageError`` for a bad number and for an unknown problem."""
    if key not in problems:
        raise unfit("targets", key, "is the name of no problem", closest(key, problems))
    if not isinstance(cost, (int, float)) or not math.isfinite(cost):
        raise unfit("target", cost, f"of {key} is not a finite number", "Give the best cost known, or leave it out")
    return float(cost)


def problem_in(payload: NDArray[Any]) -> Any:
    """Return the problem in a payload, by the first registered kind that can read it and has a method ``to_bqm``.

    Raises ``DataError`` if no kind can read it.
    """
    first: DataError | None = None
    for name in (TASK, *(key for key in names("problems") if key != TASK)):
        try:
            problem = from_payload(payload) if name == TASK else load("problems", name)(payload)
        except DataError as error:
            first = first or error
        else:
            if hasattr(problem, "to_bqm"):
                return problem
    assert first is not None
    raise first


def from_hex(text: str, nodes: int) -> NDArray[np.uint8]:
    """Return the bits, uint8 of shape (nodes,), of ``numpy.packbits(x)`` in hexadecimal digits.

    Bit 0 is the first byte's highest. Raises ``DataError`` for any other text.
    """
    try:
        packed = bytes.fromhex(text)
    except (TypeError, ValueError) as error:
        raise _bad_hex(text, nodes) from error
    bits = np.unpackbits(np.frombuffer(packed, np.uint8))
    if len(packed) != (nodes + 7) // 8 or bits[nodes:].any():
        raise _bad_hex(text, nodes)
    return bits[:nodes]


def _bad_hex(text: object, nodes: int) -> DataError:
    what = f"a solution of {nodes} nodes cannot be {str(text)[:40]!r}"
    remedy = f"Give numpy.packbits of the {nodes} values as {2 * ((nodes + 7) // 8)} hexadecimal digits"
    return DataError(what, field="solution", value=str(text)[:40], remedy=remedy)
