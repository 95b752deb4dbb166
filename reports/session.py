"""Describe the runs of a session for its report: the figures from each run, and a link to the run's report."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from rig.analysis.result.result import Result
from rig.recording.layout import DERIVED, EVENTS
from rig.recording.reader import Run
from rig.recording.session_json import is_session, runs_in
from rig.terminal import clean

_GAVE: Mapping[str, str] = {
    "performance": "times, throughput and latency",
    "accuracy": "accuracy",
    "power": "power and energy",
    "compliance": "a check against caches; no figure",
    "probe": "one step of a search; no figure",
}
REPORT = "report.html"


class Member(NamedTuple):
    """One run of a session; ``link`` leads from the session's report to the run's report."""

    name: str
    purpose: str
    gave: str
    link: str


def session_of(run: Run | None, result: Result) -> Path | None:
    """Return the directory of the session that ``result`` sums up, or None; ``run`` is one of its runs."""
    if run is None or result.run_id == result.start.run_id or not is_session(run.path.parent):
        return None
    return run.path.parent


def members(folder: Path, out: Path | None) -> list[Member]:
    """Return the runs of a session in order; ``out`` is the directory of the session's own report."""
    runs = runs_in(folder)
    purposes = [purpose for _, purpose in runs]
    found = []
    for path, purpose in runs:
        gave = _GAVE.get(purpose, "nothing")
        if purpose == "power" and "performance" not in purposes:
            gave += ", and times"
        if purpose in ("performance", "power") and purposes.count(purpose) > 1:
            gave += f" (mean of {purposes.count(purpose)})"
        with (path / EVENTS).open("rb") as lines:
            configuration = clean(json.loads(lines.readline()).get("configuration") or "")
        if configuration:
            gave += f"; configuration {configuration}"
        found.append(Member(clean(path.name), clean(purpose), gave, _link(path, folder, out)))
    return found


def _link(run: Path, folder: Path, out: Path | None) -> str:
    """Return the link to a run's report: in its directory's ``derived``, or below a chosen directory."""
    beside = out is None or out.resolve() == (folder / DERIVED).resolve()
    target = os.path.relpath(run / DERIVED, folder / DERIVED) if beside else run.name
    return f"./{quote(Path(target).as_posix())}/{REPORT}"
