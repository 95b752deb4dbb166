"""Forecasts of a series: the symmetric mean absolute percentage error over what was to be forecast."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rig.analysis.figure_key import FigureKey, Figures
from rig.analysis.quantity import Quantity
from rig.analysis.verdict import Check
from rig.recording.reader import Run
from rig.types import Floats

WORST = 200.0
PERCENTILES = (25.0, 50.0, 75.0)


@dataclass(frozen=True, slots=True)
class Forecasts:
    """The figures of the forecasts of a run, and the checks that it fails."""

    figures: Figures
    checks: tuple[Check, ...]


def forecasts_of(run: Run) -> Forecasts:
    """Return the errors of every forecast, if the workload declares from which point on its samples are forecast.

    The series is the payload that is stored with the recording, and the answer is an output with ``forecast``. A sample
    that was asked several times counts once, by the mean of its errors.
    """
    first = run.start.workload.details.get("forecast_from")
    if not isinstance(first, int) or isinstance(first, bool) or first < 0:
        return Forecasts(Figures(), ())
    errors: dict[str, list[float]] = {}
    odd = []
    for sample_id, forecast in _answers(run):
        series = run.payload(sample_id)
        wanted = np.zeros(0) if series is None or series.ndim != 1 else np.asarray(series[first:], np.float64)
        if len(wanted) and len(wanted) == len(forecast) and np.all(np.isfinite(wanted)):
            errors.setdefault(sample_id, []).append(smape(wanted, forecast))
        else:
            odd.append(f"{len(forecast)} points of {sample_id}, of which {len(wanted)} are known")
    checks = (Check("forecasts of the whole series", f"{len(odd)}, such as {odd[0]}", "0", False),) if odd else ()
    if not errors:
        return Forecasts(Figures(), checks)
    each = np.array([np.mean(found) for found in errors.values()])
    method = f"by the definition of NeuroBench, over {len(each)} series; starts that overlap give no interval"
    found = {FigureKey("smape_mean"): Quantity(float(each.mean()), "1", n=len(each), method=method)}
    for p in PERCENTILES:
        key = FigureKey("smape_p{percentile}", percentile=p)
        found[key] = Quantity(float(np.percentile(each, p)), "1", n=len(each), method=method)
    return Forecasts(Figures(found), checks)


def smape(wanted: Floats, forecast: Floats) -> float:
    """Return the error in percent, 0 to 200 (NeuroBench, equation 5), of arrays of shape (n,).

    A point of the forecast that is no finite number counts as the worst one, and a 0 that was forecast as 0 as right.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        both = np.abs(wanted) + np.abs(forecast)
        share = np.where(both > 0, np.abs(wanted - forecast) / np.where(both > 0, both, 1.0), 0.0)
    return WORST * float(np.mean(np.where(np.isfinite(share) & np.isfinite(forecast), share, 1.0)))


def _answers(run: Run) -> Iterator[tuple[str, Floats]]:
    for row in run.replies.select(["sample_id", "output", "warmup"]).to_pylist():
        output: Any = json.loads(row["output"]) if row["output"] is not None and not row["warmup"] else None
        points = output.get("forecast") if isinstance(output, dict) else None
        if isinstance(points, list):
            yield row["sample_id"], np.array([float(p) if type(p) in (int, float) else np.nan for p in points])
