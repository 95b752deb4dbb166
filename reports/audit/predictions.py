"""The scores of recorded predictions, as NeuroBench defines them: sMAPE of forecasts, and R2."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from reports.audit.figures import EXACT, Figures, Plain, issues, mean_of, parsed
from reports.audit.files import refuse
from reports.audit.reading import Run, payload
from rig.types import Floats

Score = Callable[[Floats, Floats], float | None]


def predictions(run: Run) -> Figures:
    """The scores of each sample, which counts once, and what they come to; none where nothing is to be predicted."""
    details = run.start["workload"].get("details") or {}
    if "forecast_from" in details:
        each = _scores(run, "forecast", lambda _: (None, details["forecast_from"]), smape)
        found = {f"smape_p{p}": float(np.percentile([*each.values()], p)) for p in (25, 50, 75)} if each else {}
        mean = "smape_mean"
    elif "regress" in details:
        begin = details.get("regress_from") or {}
        each = _scores(run, "prediction", lambda name: (details["regress"], begin.get(name)), r2)
        found = {f"sample.{name}.r2": value for name, value in each.items()}
        mean = "r2"
    else:
        return {}
    if each:
        found[mean] = mean_of(each.values())
    return {key: Plain(value, EXACT * max(1.0, abs(value)), "outputs beside payloads") for key, value in found.items()}


def smape(wanted: Floats, found: Floats) -> float:
    """200 times the mean share of the error, 1 where a forecast is no finite number."""
    both = np.abs(wanted) + np.abs(found)
    share = np.abs(wanted - found) / np.where(both > 0, both, 1.0)
    return 200.0 * float(np.mean(np.where(np.isfinite(both), share, 1.0)))


def r2(wanted: Floats, found: Floats) -> float | None:
    """One less the squared error over the squared deviation, the mean over columns; None where it has no value."""
    around = np.sum((wanted - wanted.mean(axis=0)) ** 2, axis=0)
    if np.any(around == 0) or not np.isfinite(found).all():
        return None
    return float(np.mean(1.0 - np.sum((wanted - found) ** 2, axis=0) / around))


def _scores(run: Run, key: str, part: Callable[[str], tuple[str | None, Any]], score: Score) -> dict[str, float]:
    truths: dict[str, Any] = {}
    each: dict[str, list[float]] = defaultdict(list)
    for issue in issues(run):
        output = parsed(issue.output) if not issue.warmup else None
        answer = output.get(key) if isinstance(output, dict) else None
        if not isinstance(answer, list):
            continue
        if issue.sample not in truths:
            truths[issue.sample] = _truth(run, issue.sample, *part(issue.sample))
        wanted = truths[issue.sample]
        try:
            guess = np.array(answer, dtype=np.float64)  # null is no number
            value = score(wanted, guess) if len(wanted) and wanted.shape == guess.shape else None
        except (TypeError, ValueError, OverflowError):  # texts, or lists of different lengths
            value = None
        if value is not None:
            each[issue.sample].append(value)
    return {name: mean_of(values) for name, values in each.items()}


def _truth(run: Run, sample: str, field: str | None, begin: Any) -> Any:
    """What was to be predicted, float64, of the stored payload; nothing where it is not stored."""
    stored = payload(run, sample) if type(begin) is int and begin >= 0 else None
    try:
        return np.zeros(0) if stored is None else np.asarray(stored[field] if field else stored, np.float64)[begin:]
    except (ValueError, IndexError, TypeError):
        refuse(f"the payload of {sample!r}", "is no array of what was to be predicted")
