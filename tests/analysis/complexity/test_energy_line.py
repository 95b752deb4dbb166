"""Energy per operation and per execution equal their true values, and are not stated if no line fits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rig.analysis.complexity.energy_line import Point, line_of, point_of
from rig.analysis.result.figure_key import FigureKey, Figures
from rig.analysis.result.quantity import Component, Quantity

SLOPE_J, BASE_J, GAIN_U = 2e-9, 5e-6, 2e-3
OPERATIONS = (500.0, 1200.0, 2500.0, 4000.0, 6000.0, 9000.0)


def straight(operations: float) -> float:
    return SLOPE_J * operations + BASE_J


def measured(rng: np.random.Generator, energy_j: Callable[[float], float] = straight, u: float = 0.004) -> list[Point]:
    """One energy for each number of operations, with a common gain, errors of stamps, and noise."""
    gain = 1.0 + GAIN_U * rng.normal()
    points = []
    for operations in OPERATIONS:
        true_j = energy_j(operations)
        parts = (
            Component("gain", GAIN_U * true_j, shared="gain:core"),
            Component("noise", u * true_j, dof=20.0),
            Component("stamp jitter", 0.5 * u * true_j, shared="stamps:inference"),
        )
        value = gain * true_j + u * true_j * rng.normal() + 0.5 * u * true_j * rng.normal()
        points.append(Point(operations, Quantity(value, "J", parts), 0.2 * true_j))
    return points


def test_both_energies_are_found_with_the_error_of_calibration_that_all_share() -> None:
    found = line_of(measured(np.random.default_rng(1)))
    assert found.refusal == "" and found.per_operation is not None and found.per_execution is not None
    for q, true_j in ((found.per_operation, SLOPE_J), (found.per_execution, BASE_J)):
        low, high = q.interval()
        assert low <= true_j <= high and high - low < 0.1 * true_j
        (gain,) = (c for c in q.components if c.shared == "gain:core")
        assert gain.u == pytest.approx(GAIN_U * q.value, rel=0.05)
        # each run has stamps of its own
        assert len({c.shared for c in q.components if c.shared}) == 1 + len(OPERATIONS)


def test_intervals_hold_as_often_as_they_say() -> None:
    found = [line_of(measured(np.random.default_rng(seed))) for seed in range(200)]
    each = [[q.interval() for q in (one.per_operation, one.per_execution) if q is not None] for one in found]
    assert sum(not one.refusal for one in found) >= 0.98 * len(found)
    for k, true_j in enumerate((SLOPE_J, BASE_J)):
        inside = [low <= true_j <= high for low, high in (both[k] for both in each if both)]
        assert sum(inside) >= 0.93 * len(inside)


@pytest.mark.parametrize(
    ("energy_j", "text"),
    [
        (lambda operations: BASE_J + 2e-13 * operations**2, "no line"),
        (lambda operations: BASE_J * (1.0 + 0.3 * np.sin(operations)), "no line"),
        (lambda operations: BASE_J, "does not grow with its operations"),
        (lambda operations: 5.0 * BASE_J - SLOPE_J * operations, "does not grow with its operations"),
    ],
)
def test_what_does_not_follow_operations_is_refused(energy_j: Callable[[float], float], text: str) -> None:
    found = [line_of(measured(np.random.default_rng(seed), energy_j)) for seed in range(100)]
    assert sum(text in one.refusal and one.per_operation is None for one in found) >= 95


def test_too_few_networks_and_too_alike_ones_are_refused() -> None:
    points = measured(np.random.default_rng(0))
    assert "with energy: 4" in line_of(points[:4]).refusal
    assert "5 or more" in line_of([points[0]] * 6).refusal
    alike = [Point(1000.0 + k, point.dynamic, 0.0) for k, point in enumerate(points)]
    assert "hardly differ" in line_of(alike).refusal
    bare = [Point(point.operations, Quantity(point.dynamic.value, "J"), 0.0) for point in points]
    assert "no interval" in line_of(bare).refusal


def test_a_point_is_what_one_execution_asks_for_and_takes() -> None:
    q = Quantity(3e-9, "J", (Component("noise", 1e-11),))
    figures = Figures({
        FigureKey("effective_macs_per_execution"): Quantity(100.0, "1"),
        FigureKey("effective_acs_per_execution"): Quantity(300.0, "1"),
        FigureKey("dynamic_energy_per_effective_operation_j"): q,
        FigureKey("energy_per_effective_operation_j"): Quantity(5e-9, "J"),
    })  # fmt: skip
    point = point_of(figures)
    assert point is not None and point.operations == 400.0
    assert (point.dynamic.value, point.dynamic.u, point.idle_j) == pytest.approx((1.2e-6, 4e-9, 8e-7))
    assert point_of(Figures({FigureKey("effective_acs_per_execution"): Quantity(1.0, "1")})) is None
