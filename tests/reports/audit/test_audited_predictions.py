"""The auditor's scores of predictions equal the estimators', and exist even where those refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reports.audit.folder.reading import read_run
from reports.audit.scores import predictions
from rig.analysis.evaluate import evaluate
from rig.errors import StoreError
from rig.recording.layout import payload_path
from rig.recording.reader import open_run
from tests.support.predicted import recorded
from tests.support.submission_folder import altered

RNG = np.random.default_rng(0)
SERIES = RNG.normal(size=9)
VELOCITY = np.zeros(9, [("spikes", "u1", 2), ("velocity", "<f4", 2)])
VELOCITY["velocity"] = RNG.normal(size=(9, 2))
FORECAST: tuple[Any, Any, str] = (SERIES, {"forecast_from": 4}, "forecast")
REGRESSION: tuple[Any, Any, str] = (
    VELOCITY, {"regress": "velocity", "regress_from": dict.fromkeys("abc", 4)}, "prediction",
)  # fmt: skip


def rows(key: str, scale: float) -> Any:
    return (scale * RNG.normal(size=5 if key == "forecast" else (5, 2))).tolist()


@pytest.mark.parametrize("kind", [FORECAST, REGRESSION], ids=["forecast", "regression"])
def test_both_give_the_same_scores(kind: tuple[Any, Any, str], tmp_path: Path) -> None:
    kept, details, key = kind
    answers = [(name, rows(key, scale)) for name, scale in zip("abcc", (0.1, 1.0, 1e3, 0.5), strict=True)]
    odd = [None, *answers[0][1][1:]]
    run = recorded(tmp_path, [*answers, ("b", odd), ("a", answers[0][1][:2]), ("a", "none")], kept, details, key)
    derived = predictions(read_run(run))
    claimed = {str(k): q.value for k, q in evaluate(open_run(run)).quantities.items()}
    claimed = {k: v for k, v in claimed.items() if "smape" in k or k.endswith("r2")}
    assert {k: plain.value for k, plain in derived.items()} == pytest.approx(claimed, rel=1e-9)
    assert len(derived) == 4


def test_a_payload_of_another_kind_is_refused(tmp_path: Path) -> None:
    kept, details, key = REGRESSION
    run = recorded(tmp_path, [("a", rows(key, 1.0))], kept, details, key)
    np.save(run / payload_path("a"), SERIES)
    altered(run, lambda lines: None)
    with pytest.raises(StoreError, match="payload of 'a'"):
        predictions(read_run(run))


def test_a_run_without_predictions_has_no_scores(tmp_path: Path) -> None:
    assert predictions(read_run(recorded(tmp_path, [("a", [1.0])], SERIES, {}, "forecast"))) == {}
