"""Make ``results.csv``, the table of a submission for programs and spreadsheets."""

import csv
import io
from collections.abc import Sequence

from rig.analysis.result.quantity import FigureKey
from rig.recording.submission import Submission
from rig.terminal import as_cell

FIXED = ("name", "class", "scenario", "workload", "device", "rules", "verdict", "trials", "runs")
"""The columns that are not figures: fields of ``rig.recording.submission.Configuration``."""


def results_csv(document: Submission, keys: Sequence[FigureKey]) -> bytes:
    """Return ``results.csv``: a row for each configuration, each key figure with the ends of its interval."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([*FIXED, *(f"{key}{end}" for key in keys for end in ("", ".low", ".high"))])
    for c in document.configurations:
        said = (c.name, c.class_, c.scenario, c.workload, c.device, c.rules, c.verdict or "")
        runs = max((claim.runs for claim in c.claims.values()), default=0)
        claims = [c.claims.get(str(key)) for key in keys]
        numbers = (getattr(claim, end, None) for claim in claims for end in ("value", "low", "high"))
        rows.writerow([*map(as_cell, said), len(c.sessions), runs, *numbers])
    return text.getvalue().encode()
