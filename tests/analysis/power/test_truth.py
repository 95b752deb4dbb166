"""On random plants, stated intervals contain the truth as often as they claim; and the test can fail."""

from typing import Any

import numpy as np
import pytest

import benchmarks.truth as bench
from fixtures.worlds.random_draw import FIGURES

PLANTS = 16
LIMIT = 0.8
"""Of 16 intervals at 95 %, at least 13 contain the truth in 99 cases of 100; ``make truth`` tests 1000 plants."""
WIDEST = 10.0
"""If the true ratio of half-width to median error is 6, the ratio from 16 plants is below this in 95 cases of 100."""

Row = dict[str, Any]


@pytest.fixture(scope="module")
def table() -> list[Row]:
    return [bench.one(seed) for seed in range(PLANTS)]


def off_by(table: list[Row], factor: float) -> list[Row]:
    """Return the table of an estimator whose values are all multiplied by ``factor``."""

    def broken(f: Row) -> Row:
        return f | {"error": (f["truth"] + f["error"]) * factor - f["truth"]}

    return [row | {"figures": {n: broken(f) for n, f in row["figures"].items()}} for row in table]


@pytest.mark.parametrize("name", FIGURES)
def test_intervals_hold_the_truth_and_are_not_too_wide(table: list[Row], name: str) -> None:
    found = bench.summary(table, name)
    assert found["n"] >= 0.8 * PLANTS
    assert found["coverage"] >= LIMIT
    assert found["ratio"] <= WIDEST
    worst = max((abs(f["error"]) / f["half"], r["seed"]) for r in table if (f := r["figures"].get(name)))
    assert worst[0] <= 3.0, f"plant {worst[1]}"


def test_a_refusal_has_a_reason(table: list[Row]) -> None:
    refused = [r for r in table if FIGURES[0] not in r["figures"]]
    assert len(refused) <= 0.2 * PLANTS
    assert all(r["refused"] for r in refused)
    assert not [r for r in refused if r["marks"] and r["rate_hz"] >= 1000 and r["window_s"] >= 20e-3]


@pytest.mark.parametrize("factor", [1.02, 0.98])
def test_an_estimator_two_percent_off_is_caught(table: list[Row], factor: float) -> None:
    broken = off_by(table, factor)
    for name in FIGURES:
        assert bench.summary(broken, name)["coverage"] < 0.7
    assert not bench.verdict(broken)["goals"]["coverage"]
    assert not bench.verdict(broken)["pass"]


# ---- the verdict, on made-up rows ----------------------------------------------------------


def row(seed: int, error: float, half: float, noisy: bool = True, **more: Any) -> Row:
    figure = {"error": error, "truth": 2.0, "half": half, "noisy": noisy}
    plain: Row = {"seed": seed, "rate_hz": 5e3, "window_s": 0.05, "marks": True, "refused": []}
    return plain | {"figures": dict.fromkeys(FIGURES, figure)} | more


def gaussian(n: int = 400, wide: float = 1.0, sigma: float = 1e-3, noisy: bool = True) -> list[Row]:
    """Return estimates whose errors scatter exactly as their half-widths, divided by ``wide``, state."""
    errors = np.random.default_rng(1).normal(0.0, sigma, n)
    return [row(k, float(e), 1.96 * sigma * wide, noisy) for k, e in enumerate(errors)]


def missed(table: list[Row]) -> set[str]:
    found = bench.verdict(table)
    assert found["pass"] == all(found["goals"].values())
    return {goal for goal, met in found["goals"].items() if not met}


NONE: Row = {"figures": {}}
HARD = [row(k, 0.0, 1.0, **NONE, marks=False) for k in range(150)]


@pytest.mark.parametrize(("table", "goals"), [
    (gaussian(), set()), ([row(k, 5e-3, 1.96e-3) for k in range(5)] + gaussian()[5:], {"silent"}),
    (gaussian(wide=0.7), {"coverage"}),
    (gaussian(wide=3.0), {"coverage_noisy", "ratio", "ratio_noisy"}), (gaussian(wide=3.0, noisy=False), {"ratio"}),
    (gaussian(sigma=2e-2), {"median_error"}), (gaussian() + HARD, {"refused"}), (gaussian() + HARD[:50], set()),
    # with marks and long windows, nothing may be refused
    ([*gaussian(), row(0, 0.0, 1.0, **NONE)], {"refused_with_marks"}),
    ([*gaussian(), row(0, 0.0, 1.0, **NONE, window_s=5e-3)], set()),
], ids=["exact", "five far off", "narrow", "wide", "wide, not noisy", "inexact", "refused", "hard",
        "refused with marks", "short"])  # fmt: skip
def test_each_bad_table_misses_the_expected_goals(table: list[Row], goals: set[str]) -> None:
    assert missed(table) == goals


def test_both_draws_of_recordings_enter_the_goals() -> None:
    found = bench.verdict(gaussian(), [row(k, 1.0, 1e-3) for k in range(400)])["goals"]
    assert not found["coverage"]
    assert not found["silent"]


def test_one_bad_figure_misses_the_goal() -> None:
    table = gaussian()
    for r in table:
        r["figures"] = r["figures"] | {FIGURES[2]: r["figures"][FIGURES[2]] | {"error": 5e-3}}
    assert "coverage" in missed(table)
    assert bench.verdict(table)["figures"][FIGURES[0]]["coverage"] > 0.92
