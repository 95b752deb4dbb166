"""Make the pages of a submission: the submitter's statements and the rows, then six sections per configuration."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from reports.format import short_text, title
from reports.headlines_and_tables import headline_keys
from reports.render import inline, render
from reports.submission.results_csv import results_csv
from reports.sweeps.axes import ENDS
from reports.sweeps.picture import sweep_figure
from rig.analysis.result.quantity import FigureKey
from rig.analysis.result.result import Result
from rig.recording.reader import Run
from rig.recording.submission import About, Configuration, Submission, missing
from rig.terminal import clean

COLUMNS = 6
"""The number of figures in the table of the page; ``results.csv`` has more."""
TIERS = "reached_gap_{target}_{threshold}_share"
"""The shares of solves within the benchmark's gaps; the benchmark defines no tiers of accuracy."""
TITLES = {
    "title": "Title", "organization": "Organization", "contact": "Contact", "date": "Date of submission",
    "availability": "Availability", "system": "System", "model": "Model", "tuning": "Tuning", "split": "Data split",
    "components": "Components that power covers", "host": "On the host", "software": "Software", "licence": "Licence",
    "notes": "Notes",
}  # fmt: skip
Shown = tuple[Result, Run]
CURVE = "The configurations against the numbers in which they differ."
_ACROSS = ("execution_time_s", "energy_per_inference_j")


def pages(document: Submission, configurations: Sequence[Shown]) -> dict[str, bytes]:
    """Return the pages and the table of a submission by their paths; ``configurations`` are in the document's order.

    ``report.html`` begins with the whole submission, followed by the six sections of the first configuration. Each
    other configuration has its own page.
    """
    keys = _keys([result for result, _ in configurations])
    first = _front(document, keys, [result for result, _ in configurations])
    files = {"results.csv": results_csv(document, keys)}
    for row, (result, run) in zip(document.configurations, configurations, strict=True):
        said = first if row is document.configurations[0] else {"of": clean(document.name), "row": row.name}
        found = render(run, result, submission=said)
        files[row.page] = found["report.html"]
        files[row.page.removesuffix("html") + "md"] = found["report.md"]
    return files


def _keys(results: Sequence[Result]) -> list[FigureKey]:
    """Return each key figure that some configuration has, including solvers' tiers."""
    asked = list[FigureKey]()
    for result in results:
        headlines = headline_keys(result)
        targets = {key.target for key in headlines if key.target}
        asked += [*headlines, *(key for key in result.quantities if key.quantity == TIERS and key.target in targets)]
    return list(dict.fromkeys(key for key in asked if any(key in result.quantities for result in results)))


# ---- the first screen ---------------------------------------------------------------------


def _front(document: Submission, keys: Sequence[FigureKey], results: Sequence[Result]) -> dict[str, Any]:
    keys = sorted(keys, key=lambda key: -sum(key in result.quantities for result in results))[:COLUMNS]
    parts = zip(*(row.name.split(", ")[:-1] for row in document.configurations), strict=False)
    shared = "".join(f"{part[0]}, " for part in takewhile(lambda part: len(set(part)) == 1 < len(results), parts))
    rows = [_row(row, shared, keys, result) for row, result in zip(document.configurations, results, strict=True)]
    return {
        "title": clean(document.about.title).strip() or clean(document.name),
        "about": _about(document.about),
        "missing": [TITLES[name] for name in missing(document.about)],
        "shared": clean(shared.removesuffix(", ")),
        "head": ["Configuration", "Class", "Verdict", "Trials", *(title(key) for key in keys)],
        "rows": rows,
        "curves": [inline(svg, f"curve{k}", CURVE) for k, svg in enumerate(_curves(results))],
    }


def _about(about: About) -> list[tuple[str, str]]:
    told = {name: clean(getattr(about, name)).strip() for name in TITLES}
    return [(text, told[name] or "missing") for name, text in TITLES.items() if name != "notes" or told[name]]


def _row(row: Configuration, shared: str, keys: Sequence[FigureKey], result: Result) -> dict[str, Any]:
    figures = [short_text(key, result.quantities[key]) if key in result.quantities else "—" for key in keys]
    trials = f"{len(row.sessions)} sessions" if len(row.sessions) > 1 else "1 session"
    kind = row.class_.upper() if row.class_ == "simulated" else row.class_
    cells = [kind, row.verdict or "no rules", trials, *figures]
    return {"name": row.name.removeprefix(shared), "page": row.page, "cells": cells}


def _curves(results: Sequence[Result]) -> list[bytes]:
    """Draw the key figure of one system against the numbers in which its configurations differ.

    For a solver, it is drawn against the time and the energy of its solves. Return no picture if the configurations
    differ in no number.
    """
    facts = [_numbers_of(result) for result in results]
    varied: list[str] = []
    for key in (key for key in facts[0] if all(key in fact for fact in facts)):
        if _distinct(facts, [*varied, key]) > _distinct(facts, varied):
            varied.append(key)
    tasks = {(r.start.device.name, r.start.scenario.name, r.start.workload.name) for r in results}
    if len(tasks) > 1 or not varied:
        return []
    rows = [_point(fact, result) for fact, result in zip(facts, results, strict=True)]
    figures = {str(key): key for result in results for key in result.quantities if key.of_whole}
    solver = any(key.quantity == TIERS for key in figures.values())
    across = [name for name in _ACROSS if all(name in row for row in rows)] if solver else [None]
    drawn = (sweep_figure(rows, varied, figures, None, name) for name in across)
    return [svg for svg in drawn if svg is not None]


def _distinct(facts: Sequence[Mapping[str, float]], keys: Sequence[str]) -> int:
    return len({tuple(fact[key] for key in keys) for fact in facts})


def _numbers_of(result: Result) -> dict[str, float]:
    given: Mapping[str, Any] = {**result.start.workload.details, **result.start.scenario.options}
    single = {clean(k): v[0] if isinstance(v, list) and len(v) == 1 else v for k, v in given.items()}
    return {k: v for k, v in single.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}


def _point(fact: Mapping[str, float], result: Result) -> dict[str, Any]:
    found = {str(key): q for key, q in result.quantities.items()}
    ends = {name + ENDS: q.interval() for name, q in found.items() if q.stated}
    return {**fact, **ends, **{name: q.value for name, q in found.items()}}
