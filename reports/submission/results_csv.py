"""The table ``results.csv`` of a submission, for programs and spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from rig.analysis.result.figure_key import FigureKey
from rig.recording.submission import Configuration, Submission

FIXED = ("name", "class", "scenario", "workload", "device", "rules", "verdict", "trials", "runs")
"""The columns that are not figures."""


def table(document: Submission, keys: Sequence[FigureKey]) -> bytes:
    """Return ``results.csv``: a row for each configuration, each key figure with the ends of its interval."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([*FIXED, *(f"{key}{end}" for key in keys for end in ("", ".low", ".high"))])
    for c in document.configurations:
        said = (c.name, c.class_, c.scenario, c.workload, c.device, c.rules, c.verdict or "")
        runs = max((claim.runs for claim in c.claims.values()), default=0)
        rows.writerow([*map(_cell, said), len(c.sessions), runs, *(n for key in keys for n in _numbers(c, str(key)))])
    return text.getvalue().encode()


def _cell(text: str) -> str:
    """Return text that a spreadsheet never runs as a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _numbers(row: Configuration, name: str) -> tuple[str, str, str]:
    claim = row.claims.get(name)
    values = (None, None, None) if claim is None else (claim.value, claim.low, claim.high)
    value, low, high = ("" if v is None else repr(v) for v in values)
    return value, low, high
