"""Predictions are judged by NeuroBench's sMAPE, from 0 to 200 for any forecast, and by its R2."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.analysis.evaluate import evaluate
from rig.analysis.result.result import Result
from rig.analysis.scores.predictions import r2, smape
from rig.recording.reader import open_run
from tests.support.predicted import recorded

LAW = settings(max_examples=100, deadline=None, derandomize=True, database=None)
FLOATS = st.floats(allow_nan=True, allow_infinity=True, width=64)
SERIES = np.array([9.0, 9.0, 1.0, 2.0, 4.0])
"""A series; its last three points are forecast."""


@LAW
@given(st.lists(st.tuples(st.floats(-1e300, 1e300), FLOATS), min_size=1))
def test_the_error_is_bounded(points: list[tuple[float, float]]) -> None:
    wanted, forecast = (np.array(column) for column in zip(*points, strict=True))
    assert 0.0 <= smape(wanted, forecast) <= 200.0


@pytest.mark.parametrize(
    ("wanted", "forecast", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0), ([1.0, 1.0], [3.0, 1.0], 200 * 0.5 / 2), ([1.0], [-1.0], 200.0),
        ([1.0], [np.nan], 200.0), ([1.0, 1.0], [np.inf, 1.0], 100.0), ([0.0, 1.0], [0.0, 1.0], 0.0),
    ],
)  # fmt: skip
def test_the_error_by_hand(wanted: list[float], forecast: list[float], error: float) -> None:
    assert smape(np.array(wanted), np.array(forecast)) == pytest.approx(error)


def forecast(path: Path, answers: Sequence[tuple[str, Any]], kept: Any = SERIES) -> Result:
    return evaluate(open_run(recorded(path, answers, kept, {"forecast_from": 2}, "forecast")))


def test_mean_and_quartiles_are_over_samples(tmp_path: Path) -> None:
    worst, right = [None, None, None], [1.0, 2.0, 4.0]
    found = forecast(tmp_path, [("a", right), ("b", right), ("c", worst), ("c", worst), ("d", right)]).quantities
    assert found["smape_mean"].value == pytest.approx(50.0)
    assert [found[f"smape_p{p}"].value for p in (25, 50, 75)] == pytest.approx([0.0, 0.0, 50.0])
    assert found["smape_mean"].n == 4


@pytest.mark.parametrize(
    ("points", "kept"), [([1.0, 2.0], SERIES), ([1.0, 2.0, 4.0], np.array([0.0, 0.0, np.nan, 1.0, 1.0]))]
)
def test_a_forecast_that_cannot_be_judged_is_told(points: list[float], kept: Any, tmp_path: Path) -> None:
    result = forecast(tmp_path, [("a", points)], kept)
    assert "smape_mean" not in {str(key) for key in result.quantities}
    assert [note for note in result.notes if note.startswith("forecasts of the whole series")]


TRUTH = np.array([[9.0, 9.0], [0.0, 1.0], [1.0, 3.0], [2.0, 5.0]])
"""A series; its last three points are predicted."""


def regression(path: Path, answers: Sequence[tuple[str, Any]], truth: Any = TRUTH) -> Result:
    payload = np.zeros(len(truth), [("other", "u1"), ("velocity", "<f4", 2)])
    payload["velocity"] = truth
    details = {"regress": "velocity", "regress_from": dict.fromkeys("abc", 1)}
    return evaluate(open_run(recorded(path, answers, payload, details, "prediction")))


def test_the_explained_variance_is_the_mean_over_both_columns() -> None:
    """The reference's unit test: targets 0 to 9, predictions 1.1 times as large, then 1.1 times the next one."""
    y = np.arange(10.0)
    missed = (np.sum((0.1 * y) ** 2), np.sum((0.1 * y + 1.1) ** 2))
    wanted = 1.0 - (missed[0] + missed[1]) / 2 / 82.5
    assert r2(np.stack((y, y), axis=1), np.stack((1.1 * y, 1.1 * (y + 1)), axis=1)) == pytest.approx(wanted)


@LAW
@given(st.integers(0, 2**32 - 1))
def test_the_mean_as_prediction_explains_nothing_and_the_truth_everything(seed: int) -> None:
    wanted = np.random.default_rng(seed).normal(size=(20, 2))
    assert r2(wanted, wanted) == 1.0
    assert r2(wanted, np.tile(wanted.mean(axis=0), (20, 1))) == pytest.approx(0.0, abs=1e-12)


def test_r2_stands_for_each_session_and_as_their_mean(tmp_path: Path) -> None:
    right, middle = TRUTH[1:].tolist(), [[1.0, 3.0]] * 3
    found = regression(tmp_path, [("a", right), ("b", middle), ("c", middle), ("c", right)]).quantities
    assert [found[f"sample.{name}.r2"].value for name in "abc"] == pytest.approx([1.0, 0.0, 0.5])
    assert found["r2"].value == pytest.approx(0.5)
    assert found["r2"].n == 3


@pytest.mark.parametrize(
    ("rows", "truth"),
    [
        ([[0.0, 1.0]] * 2, TRUTH), ([0.0, 1.0, 2.0], TRUTH), ([[0.0, 1.0], [0.0], [0.0, 1.0]], TRUTH),
        ([[None, 1.0]] * 3, TRUTH), ([["x", 1.0]] * 3, TRUTH), ([["0", "1"]] * 3, TRUTH),
        ([[0.0, 1.0]] * 3, np.ones((4, 2))),
    ],
)  # fmt: skip
def test_predictions_that_cannot_be_judged_are_told(rows: Any, truth: Any, tmp_path: Path) -> None:
    result = regression(tmp_path, [("a", rows)], truth)
    assert not [key for key in result.quantities if key.quantity == "r2"]
    assert [note for note in result.notes if note.startswith("predictions of every step")]


def test_a_run_on_synthetic_samples_says_so(tmp_path: Path) -> None:
    run = recorded(tmp_path, [("a", [])], SERIES, {"synthetic": "drawn by hand"}, "forecast")
    result = evaluate(open_run(run))
    assert "The samples are synthetic, not recorded: drawn by hand" in result.notes
