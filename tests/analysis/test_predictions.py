"""The error of a forecast is NeuroBench's sMAPE, between 0 and 200 whatever was forecast."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.analysis.evaluate import evaluate
from rig.analysis.predictions import smape
from rig.analysis.result import Result
from rig.recording.layout import payload_path
from rig.recording.reader import open_run
from tests.support.run_by_hand import REPLIES, SAMPLES, read_plainly, start_line, table, write, write_lines

LAW = settings(max_examples=100, deadline=None, derandomize=True, database=None)
FLOATS = st.floats(allow_nan=True, allow_infinity=True, width=64)
SERIES = np.array([9.0, 9.0, 1.0, 2.0, 4.0])
"""Of which the last three are forecast."""


@LAW
@given(st.lists(st.tuples(st.floats(-1e300, 1e300), FLOATS), min_size=1))
def test_the_error_is_bounded(points: list[tuple[float, float]]) -> None:
    wanted, forecast = (np.array(column) for column in zip(*points, strict=True))
    assert 0.0 <= smape(wanted, forecast) <= 200.0


@pytest.mark.parametrize(
    ("wanted", "forecast", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 1.0], [3.0, 1.0], 200 * 0.5 / 2),
        ([1.0], [-1.0], 200.0),
        ([1.0], [np.nan], 200.0),
        ([1.0, 1.0], [np.inf, 1.0], 100.0),
        ([0.0, 1.0], [0.0, 1.0], 0.0),
    ],
)
def test_the_error_by_hand(wanted: list[float], forecast: list[float], error: float) -> None:
    assert smape(np.array(wanted), np.array(forecast)) == pytest.approx(error)


def evaluated(path: Path, answers: Sequence[tuple[str, Any]], kept: Any = SERIES) -> Result:
    t0_ns = start_line()["t0_ns"]
    rows = [
        {"issue": k, "sample_id": name, "issued_ns": t0_ns + k, "completed_ns": t0_ns + k + 1, "warmup": False,
         "output": json.dumps({"forecast": points})}
        for k, (name, points) in enumerate(answers)
    ]  # fmt: skip
    line = start_line()
    line["device"]["clock"] = None
    line["workload"]["details"] = {"forecast_from": 2}
    asked = [{"id": name, "inferences": 1} for name in dict(answers)]
    tables = {"samples.arrows": table(SAMPLES, asked), "replies.arrows": table(REPLIES, rows)}
    run = write(path / "run", [line], tables)
    events, _ = read_plainly(run)
    (run / payload_path("a")).parent.mkdir(parents=True)
    for name in dict(answers):
        np.save(run / payload_path(name), kept)
        stored = (run / payload_path(name)).read_bytes()
        events[-1]["files"][payload_path(name)] = hashlib.sha256(stored).hexdigest()
    write_lines(run, events)
    return evaluate(open_run(run))


def test_mean_and_quartiles_are_over_samples(tmp_path: Path) -> None:
    worst, right = [None, None, None], [1.0, 2.0, 4.0]
    found = evaluated(tmp_path, [("a", right), ("b", right), ("c", worst), ("c", worst), ("d", right)]).quantities
    assert found["smape_mean"].value == pytest.approx(50.0)
    assert [found[f"smape_p{p}"].value for p in (25, 50, 75)] == pytest.approx([0.0, 0.0, 50.0])
    assert found["smape_mean"].n == 4


@pytest.mark.parametrize(
    ("points", "kept"), [([1.0, 2.0], SERIES), ([1.0, 2.0, 4.0], np.array([0.0, 0.0, np.nan, 1.0, 1.0]))]
)
def test_a_forecast_that_cannot_be_judged_is_told(points: list[float], kept: Any, tmp_path: Path) -> None:
    result = evaluated(tmp_path, [("a", points)], kept)
    assert "smape_mean" not in {str(key) for key in result.quantities}
    assert [note for note in result.notes if note.startswith("forecasts of the whole series")]
