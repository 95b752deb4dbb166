"""A session's report lists its runs and their results, and links to each run's report."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from reports.render import render, write
from rig.analysis.result.result import Result
from rig.recording.session import bind
from tests.support.made_up import made_up, without_pictures
from tests.support.sessions import bound

RUNS = [
    ("accuracy", "accuracy"), ("performance-1", "performance"), ("power-1", "power"), ("performance-2", "performance"),
    ("power-2", "power"), ("repeated", "compliance"), ("a <b>", "probe"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return bound(tmp_path / "session", RUNS)


def merged(folder: Path) -> tuple[Any, Result]:
    """Return the session's result, rendered with its first power run."""
    run = SimpleNamespace(path=folder / "power-1", stop={}, error=None, truncated=())
    result = without_pictures(made_up())
    return cast(Any, run), replace(result, run_id="session", start=structs.replace(result.start, run_id="power-1"))


def links(page: str) -> list[str]:
    return re.findall(r'href="(?!#)([^"]+)"', page)


def test_it_names_its_runs_and_what_came_from_which(folder: Path) -> None:
    run, result = merged(folder)
    for name in ("report.html", "report.md"):
        text = render(run, result)[name].decode()
        assert "session report" in text
        assert "Runs of this session" in text
        assert text.count("times, throughput and latency (mean of 2)") == 2
        assert text.count("power and energy (mean of 2)") == 2
        assert "rig report session" in text
        assert "a <b>" not in text


def test_links_lead_to_the_report_of_each_run(folder: Path) -> None:
    run, result = merged(folder)
    out = folder / "derived"
    write(result, out, run)
    for name, _ in RUNS:
        write(merged(folder)[1], folder / name / "derived")
    for page in ((out / "report.html").read_text(), (out / "report.md").read_text()):
        found = links(page) or re.findall(r"\]\((\./[^)]+)\)", page)
        assert len(found) == len(RUNS)
        assert "./../performance-1/derived/report.html" in found
        for link in found:
            assert (out / link.replace("%20", " ").replace("%3C", "<").replace("%3E", ">")).is_file()


def test_links_stay_below_a_directory_that_was_chosen(folder: Path, tmp_path: Path) -> None:
    run, result = merged(folder)
    write(result, tmp_path / "elsewhere", run)
    assert links((tmp_path / "elsewhere" / "report.html").read_text())[0] == "./accuracy/report.html"


def test_a_run_of_a_session_is_reported_as_itself(folder: Path) -> None:
    run, result = merged(folder)
    text = render(run, replace(result, run_id="power-1"))["report.html"].decode()
    assert "Runs of this session" not in text
    assert "rig report power-1" in text
    assert not links(text)


def test_a_session_without_a_performance_run_has_its_times_from_power(folder: Path) -> None:
    bind(folder, [run for run in RUNS if run[1] in ("accuracy", "power")])
    assert render(*merged(folder))["report.md"].decode().count("power and energy, and times (mean of 2)") == 2
