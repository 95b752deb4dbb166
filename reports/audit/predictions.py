"""The scores of recorded predictions, as NeuroBench defines them: sMAPE of forecasts, and R2."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from reports.audit.figures import EXACT, Figures, Plain, issues, mean_of, parsed
from reports.audit.files import refuse
from reports.audit.reading import Run, payload

Score = Callable[[Any, Sequence[Any]], float | None]


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


def smape(wanted: Any, found: Sequence[Any]) -> float:
    """200 times the mean share of the error, 1 where a forecast is no finite number."""
    shares = []
    for a, b in zip(wanted.tolist(), found, strict=True):
        number = b is not None and math.isfinite(b)
        both = abs(a) + abs(b) if number else math.inf
        shares.append((abs(a - b) / both if both else 0.0) if math.isfinite(both) else 1.0)
    return 200.0 * mean_of(shares)


def r2(wanted: Any, found: Sequence[Any]) -> float | None:
    """One less the squared error over the squared deviation, the mean over columns; None where it has no value."""
    scores = []
    for truth, guess in zip(zip(*wanted.tolist(), strict=True), zip(*found, strict=True), strict=True):
        mean = mean_of(truth)
        around = math.fsum((a - mean) ** 2 for a in truth)
        if around == 0 or not all(b is not None and math.isfinite(b) for b in guess):
            return None
        scores.append(1.0 - math.fsum((a - b) ** 2 for a, b in zip(truth, guess, strict=True)) / around)
    return mean_of(scores)


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
            fits = len(wanted) > 0 and wanted.shape == np.shape(answer)
            value = score(wanted, answer) if fits else None
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
