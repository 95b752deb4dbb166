"""Fit energy per synaptic operation and per execution to the energies of several networks on one device.

The dynamic energy of an execution is taken to be the energy per execution plus the energy of its effective operations.
The line is fitted by least squares of relative residuals. Weighting by uncertainty would favour a network whose
uncertainty is too small by chance. Both fitted energies are linear in the measured energies, so errors of calibration,
which all networks share, propagate with their signs (GUM 5.2.2, H.3). Whether networks share an error of busy or idle
power is unknown, so the larger uncertainty of the two cases is stated.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from rig.analysis.result.distributions import beta_quantile
from rig.analysis.result.quantity import CALIBRATION, FigureKey, Figures, Quantity, linear, owned
from rig.types import Floats

FEWEST = 5
"""At least this many networks must differ in their operations."""
SURE = 0.99
"""The probability with which energies that lie on a line are accepted."""
LEAST_SPREAD = 0.05
"""The operations of an execution must differ by at least this part of the largest number."""
LEVELS = ("busy level:", "idle level:")
"""Prefixes of origins of errors. It is unknown whether all runs share these errors or each run has its own."""
_MANY = 1e6


class Point(Struct, frozen=True):
    """One network: effective operations in an execution, its dynamic energy, and its idle energy (J)."""

    operations: float
    dynamic: Quantity
    idle_j: float


class EnergyLine(Struct, frozen=True):
    """Energies in J, or why there are none. ``misfit`` is chi-squared of the residuals, and ``allowed`` its limit."""

    per_operation: Quantity | None = None
    per_execution: Quantity | None = None
    refusal: str = ""
    misfit: float = 0.0
    allowed: float = 0.0


def point_of(quantities: Figures) -> Point | None:
    """Return the point of one run or session, or None if its operations or its energy are not stated."""
    macs, acs = (quantities.get(FigureKey(f"effective_{what}_per_execution")) for what in ("macs", "acs"))
    dynamic, whole = (quantities.get(FigureKey(f"{what}energy_per_effective_operation_j")) for what in ("dynamic_", ""))
    if macs is None or acs is None or dynamic is None or whole is None:
        return None
    operations = macs.value + acs.value
    return Point(operations, dynamic.scaled(operations, "J"), operations * (whole.value - dynamic.value))


def line_of(points: Sequence[Point]) -> EnergyLine:
    """Return both energies, or why there are none."""
    x = np.array([point.operations for point in points])
    different = len(np.unique(x))
    if different < FEWEST:
        what = f"a line needs {FEWEST} or more VALID networks with different numbers of operations"
        return EnergyLine(refusal=f"{what}; measured with energy: {different}")
    if np.ptp(x) < LEAST_SPREAD * np.max(x):
        return EnergyLine(refusal=f"the operations of an execution hardly differ: {np.min(x):g} to {np.max(x):g}")
    energies, alike = _owned(points, CALIBRATION), _owned(points, CALIBRATION + LEVELS)
    if not all(q.u > 0.0 for q in energies):
        return EnergyLine(refusal="some energies have no interval")
    own_w = 1.0 / np.array([q.value**2 + _own_variance(q) for q in energies])
    design = np.column_stack([x, np.ones_like(x)])
    weighted = design.T * own_w
    solution = np.linalg.solve(weighted @ design, weighted)
    hat, values = design @ solution, np.array([q.value for q in energies])
    misfit, allowed = _misfit(hat, energies), _allowed(energies)
    if misfit > allowed:
        off = float(np.max(np.abs((values - hat @ values) / values)))
        what = f"the energies lie on no line: one is {100.0 * off:.2g} % off the line that fits best, and chi-squared "
        what += f"of the residuals is {misfit:.3g}, where {allowed:.3g} is allowed"
        return EnergyLine(refusal=what, misfit=misfit, allowed=allowed)
    n = len(points)
    method = f"line through the dynamic energy of an execution of {n} networks against its effective operations"
    sums = ([linear(zip(row, each, strict=True), "J", method, n) for each in (energies, alike)] for row in solution)
    per_operation, per_execution = (max(pair, key=lambda q: q.u) for pair in sums)
    low, high = per_operation.interval()
    if low <= 0.0:
        what = f"the energy of an execution does not grow with its operations: {low:.3g} to {high:.3g} J for each"
        return EnergyLine(refusal=what, misfit=misfit, allowed=allowed)
    return EnergyLine(per_operation, per_execution, "", misfit, allowed)


def _owned(points: Sequence[Point], of: tuple[str, ...]) -> list[Quantity]:
    """Return the energies. All runs share an error whose origin begins with ``of``; any other belongs to one run."""
    return [owned(p.dynamic, str(k), lambda origin: origin.startswith(of)) for k, p in enumerate(points)]


def _common(q: Quantity) -> dict[str, float]:
    """Return the standard uncertainties of a quantity by the calibration from which they come."""
    found: dict[str, float] = {}
    for c in q.components:
        if c.shared is not None and c.shared.startswith(CALIBRATION):
            found[c.shared] = found.get(c.shared, 0.0) + c.u
    return found


def _own_variance(q: Quantity) -> float:
    """Return the part of the variance that other runs do not share; the bias counts as uniform within its bound."""
    shared = sum(u * u for u in _common(q).values())
    return max(q.u**2 - shared, 1e-12 * q.u**2) + q.bias**2 / 3.0


def _misfit(hat: Floats, energies: Sequence[Quantity]) -> float:
    """Return chi-squared of the residuals; their covariance is singular, so its pseudo-inverse is used."""
    common = [_common(q) for q in energies]
    rows = [[one.get(origin, 0.0) for one in common] for origin in dict.fromkeys(k for one in common for k in one)]
    covariance = np.diag([_own_variance(q) for q in energies]) + sum(np.outer(row, row) for row in rows)
    scale = 1.0 / np.sqrt(np.diag(covariance))
    left = (np.eye(len(energies)) - hat) * scale[:, None]
    residual = left @ np.array([q.value for q in energies])
    return float(residual @ np.linalg.pinv(left @ covariance @ left.T, rcond=1e-9, hermitian=True) @ residual)


def _allowed(energies: Sequence[Quantity]) -> float:
    """Return the limit of chi-squared: a quantile of Fisher's F, because the uncertainties are estimates too."""
    free, known = len(energies) - 2, min(*(q.dof for q in energies), _MANY)
    share = beta_quantile(SURE, 0.5 * free, 0.5 * known)
    return known * share / (1.0 - share)
