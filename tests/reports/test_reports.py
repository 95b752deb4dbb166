"""Reports agree with the result, for people and for programs, for any names."""

import itertools
import json
import math
import re
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from msgspec.structs import replace

from reports.pictures.draw import draw
from reports.render import render, write
from reports.verdict_by_rule import verdict_of
from rig.analysis.power.uncertainty_budget import METHOD
from rig.analysis.result.finding import Finding, note
from rig.analysis.result.quantity import FigureKey, Figures
from rig.analysis.result.result import Result
from rig.analysis.result.series import RailSeries
from rig.recording.events import Stop
from rig.recording.records import ErrorRecord
from tests.support.made_up import HOSTILE, made_up, made_up_stream, printed, q, with_checks, without_pictures
from tests.support.start_lines import start

pytestmark = pytest.mark.pictures


@pytest.fixture(scope="module")
def simulated() -> dict[str, bytes]:
    return render(None, made_up())


@pytest.fixture(scope="module")
def hostile() -> dict[str, bytes]:
    rules = (Finding(HOSTILE, HOSTILE, HOSTILE, False), Finding(HOSTILE, HOSTILE, HOSTILE, True))
    return render(None, with_checks(made_up(name=HOSTILE), *rules))


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value for key, value in attrs if key == "id" and value]
        assert not any(key.startswith("on") for key, _ in attrs)


# ---- simulated, incomplete, refused -------------------------------------------------------


def test_simulated_is_marked_on_page_and_pictures(simulated: dict[str, bytes]) -> None:
    page = simulated["report.html"].decode()
    assert "<title>SIMULATED" in page
    assert page.count("<b>SIMULATED</b>") == page.count('class="watermark"') == 1
    assert page.index("<b>SIMULATED</b>") < page.index("<h1>")
    for name in ("power", "latency", "service", "budget"):
        assert simulated[f"figures/{name}.svg"].count(b"SIMULATED") >= 2
    text = simulated["report.md"].decode()
    assert text.startswith("# SIMULATED")
    assert text.count("**SIMULATED**") == 1
    assert printed(made_up()).startswith("SIMULATED")


def test_hardware_does_not_claim_simulation() -> None:
    result = made_up(simulated=False)
    assert all(b"SIMULATED" not in content for content in render(None, result).values())
    assert "SIMULATED" not in printed(result)


ENDED = (
    (None, None, "no stop line"),
    (Stop(files={}), ErrorRecord(message="no reading for 5 s", remedy="Check the cable"), "no reading for 5 s"),
    (Stop(files={}), ErrorRecord(message="power <lost>"), "power &lt;lost&gt;"),
)


@pytest.mark.parametrize(("stop", "error", "said"), ENDED)
def test_an_incomplete_run_states_why(stop: Any, error: Any, said: str, tmp_path: Any) -> None:
    run = SimpleNamespace(stop=stop, error=error, truncated=(), path=tmp_path)
    files = render(cast(Any, run), without_pictures(made_up(complete=False)))
    for name in ("report.html", "report.md"):
        assert "INCOMPLETE RECORDING" in files[name].decode()
        assert said in files[name].decode()


def test_an_incomplete_result_is_marked_without_a_run() -> None:
    result = without_pictures(made_up(complete=False))
    assert b"did not end as planned" in render(None, result)["report.html"]
    assert "INCOMPLETE RECORDING" in printed(result)


def test_refusals_come_with_their_remedy(simulated: dict[str, bytes]) -> None:
    for text in (simulated["report.html"].decode(), simulated["report.md"].decode(), printed(made_up())):
        assert "too few inferences" in text
        assert "Measure at least 662" in text
    assert 'class="card refused"' in simulated["report.html"].decode()


def test_the_conventions_name_the_method_of_active_power(simulated: dict[str, bytes]) -> None:
    for name in ("report.html", "report.md"):
        said = simulated[name].decode().split("Energy per inference = ")[1]
        assert METHOD in " ".join(said[:600].split())


def test_unstated_uncertainty_is_reported(simulated: dict[str, bytes]) -> None:
    for name in ("report.html", "report.md"):
        assert "instrument uncertainty not stated" in simulated[name].decode()
        assert "fan, core" in simulated[name].decode()


# ---- safety -------------------------------------------------------------------------------


def test_hostile_names_inject_nothing(hostile: dict[str, bytes]) -> None:
    page = hostile["report.html"].decode()
    seen = Tags()
    seen.feed(page)
    assert seen.tags.count("script") == 2  # the picture's own; see test_trace_in_report.py
    assert seen.tags.count("svg") == 4
    assert "&lt;script&gt;" in page
    assert "rig report 'run-" in hostile["report.md"].decode()  # one word, for whoever copies the command
    for name, content in hostile.items():
        if name != "results.json":
            shown = re.sub(rb"`[^`\n]*`|^    .*$", b"", content, flags=re.M)  # Markdown shows code unchanged
            own = rb'<script type="application/json" class="trace-model">|<script>"use strict";'
            assert b"<script" not in re.sub(own, b"", shown if name.endswith(".md") else content), name
            assert b"\x1b" not in content, name
            assert "\u202e" not in content.decode(), name
    for name in ("power", "latency", "service", "budget"):
        ET.fromstring(hostile[f"figures/{name}.svg"])
    console = printed(made_up(name=HOSTILE))
    assert "\x1b" not in console
    assert "alert" in console


def test_markdown_tables_keep_their_columns(hostile: dict[str, bytes]) -> None:
    lines = hostile["report.md"].decode().split("\n")
    bars = [len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0 for line in lines]
    assert sum(map(bool, bars)) > 50
    assert all(0 in pair or pair[0] == pair[1] for pair in itertools.pairwise(bars))


def test_the_page_loads_nothing_external() -> None:
    result = made_up()
    result = replace(result, series=replace(result.series, stream=made_up_stream()))
    page = re.sub(r'xmlns(:\w+)?="[^"]*"', "", render(None, result)["report.html"].decode())
    assert not re.search(r"https?://", page)
    assert not re.search(r"(src|href)=\"(?!#)", page)
    seen = Tags()
    seen.feed(page)
    assert len(seen.ids) == len(set(seen.ids))


# ---- figures ------------------------------------------------------------------------------


def test_long_traces_stay_small() -> None:
    files = render(None, made_up(readings=2_000_000, spans=16_000))
    assert all(len(content) < 300_000 for name, content in files.items() if name.startswith("figures/"))
    assert len(files["report.html"]) < 1_000_000


def test_empty_result_still_renders(tmp_path: Any) -> None:
    whole = made_up()
    files = {str(p.relative_to(tmp_path)) for p in write(whole, tmp_path)}
    bare = replace(without_pictures(whole), quantities=Figures(), clocks={}, findings=())
    bare = replace(bare, start=start())
    assert {p.name for p in write(bare, tmp_path)} == {"results.json", "report.md", "report.html"}
    assert {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()} < files
    assert "No figure could be computed" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("rails", [1, 4, 6])
def test_any_number_of_rails_is_drawn(rails: int) -> None:
    one = made_up().series.rails[0]
    result = without_pictures(made_up())
    slow = RailSeries("slow", one.start_s[::50], one.end_s[49::50], one.watts[::50])
    many = (slow, *(replace(one, rail=f"r{k}") for k in range(rails - 1)))
    svg = draw(replace(result, series=replace(result.series, rails=many)))["power"]
    assert b">r0<" not in svg  # the zooming trace shows each rail
    assert len(svg) < 300_000


@pytest.mark.parametrize("times", [[0.5], [0.5] * 9, [1e-6, 2e-6, 3.0], [np.nan, np.nan], [0.0, 0.0], [1e-3, np.inf]])
def test_odd_execution_times_are_drawn(times: list[float]) -> None:
    result = without_pictures(made_up())
    draw(replace(result, series=replace(result.series, execution_times_s=np.array(times))))


# ---- files --------------------------------------------------------------------------------


def test_nan_is_hidden_and_json_stays_strict() -> None:
    result = made_up()
    bad = {
        FigureKey("active_power_w"): q(math.nan, "W", 1e-6),
        FigureKey("dynamic_power_w"): q(1e-4, "W", math.nan),
        FigureKey("accuracy"): q(cast(float, np.float64(0.5)), "1", n=np.int64(7)),
    }
    files = render(None, replace(result, quantities=result.quantities | bad))
    data = json.loads(files["results.json"], parse_constant=pytest.fail)
    assert data["quantities"]["active_power_w"]["value"] is None
    assert "n/a" in files["report.html"].decode()
    for name in ("report.html", "report.md"):
        assert not re.search(r"\bnan\b", files[name].decode())
    assert "n/a" in printed(replace(result, quantities=Figures(bad)))


def test_rewritten_files_have_the_same_bytes(simulated: dict[str, bytes], tmp_path: Any) -> None:
    (tmp_path / "report.html").write_text("an older page")
    assert {str(p.relative_to(tmp_path)): p.read_bytes() for p in write(made_up(), tmp_path)} == simulated


# ---- the verdict: readable without colour, with the failed rules and their owner

LATE = Finding("performance: p99 of latency", "0.2 s", "at most 0.1 s", False)
IDLE = Finding("power: shortest idle window", "1 s", "at least 2 s", False)
KEPT = Finding("performance: duration", "10.6 s", "at least 10 s", True)
WHOLE = Finding("runs for power", "1", "at least 1", True)


def judged(*checks: Finding, submittable: bool = False, **more: Any) -> Result:
    return with_checks(without_pictures(made_up(**more)), *checks, submittable=submittable)


@pytest.fixture(scope="module")
def failing() -> dict[str, str]:
    files = render(None, judged(LATE, KEPT, IDLE, WHOLE))
    return {name: files[name].decode() for name in ("report.html", "report.md")}


@pytest.mark.parametrize("name", ["report.html", "report.md"])
def test_failed_rules_are_listed_first(failing: dict[str, str], name: str) -> None:
    at = [failing[name].index(rule) for rule in ("p99 of latency", "shortest idle", "the run", "duration", "runs for")]
    assert at[:2] == sorted(at)[:2]
    assert failing[name].count("✗ fail") == 2
    assert failing[name].count("✓ pass") == 3
    for found in ("0.2 s", "at most 0.1 s", "1 s", "at least 2 s", "10.6 s", "at least 10 s"):
        assert found in failing[name].replace("\u00a0", " ")


def test_rules_of_a_session_are_listed_with_their_run() -> None:
    one = Finding("time of sample a: b repeated", "1", "0.9", True)
    verdict = verdict_of(judged(LATE, KEPT, IDLE, WHOLE, one))
    assert verdict is not None and [rule.rule for rule in verdict.failed] == [LATE.rule, IDLE.rule]
    assert [rule.rule for rule in verdict.passed] == ["the run", KEPT.rule, WHOLE.rule, one.rule]


def test_equal_rules_of_several_runs_are_shown_once() -> None:
    runs = ("accuracy", "power-1", "power-2", "power-3")
    everywhere = [Finding(f"{run}: device and meters", "simulator", "hardware", False) for run in runs]
    in_some = [Finding(f"{run}: idle", "1 s", "at least 2 s", False) for run in runs[1:]]
    in_two = [Finding(f"{run}: gap", found, "0", False) for run, found in zip(runs, "1221", strict=True)]
    verdict = verdict_of(judged(*everywhere, *in_some, *in_two))
    assert verdict is not None and verdict.counted.startswith("11 of ")
    assert [(rule.rule, rule.found) for rule in verdict.failed] == [
        ("all 4 runs: device and meters", "simulator"),
        ("power-1 to power-3, 3 runs: idle", "1 s"),
        ("accuracy, power-3: gap", "1"),
        ("power-1, power-2: gap", "2"),
    ]


def test_a_terminal_shows_only_the_failed_rules() -> None:
    lines = printed(judged(LATE, KEPT, IDLE, WHOLE)).split("\n")
    assert lines[1:4] == [
        "✗ INVALID by quick, never submittable: 2 of 5 rules failed",
        "  ✗ performance: p99 of latency: 0.2 s, allowed: at most 0.1 s",
        "  ✗ power: shortest idle window: 1 s, allowed: at least 2 s",
    ]
    assert "duration" not in "".join(lines[:6])


def test_a_passed_submittable_set_is_plainly_valid() -> None:
    result = judged(KEPT, submittable=True, simulated=False)
    assert printed(result).startswith("run-core\n✓ VALID by quick: 2 rules passed\n")
    for name in ("report.html", "report.md"):
        text = render(None, result)[name].decode()
        assert "✓ VALID" in text
        assert "ubmittable" not in text.replace("Rule: Submittable", "")
        assert "submission report" in text


def test_simulated_or_unsubmittable_reports_are_no_submissions() -> None:
    for result in (judged(submittable=True), judged(simulated=False), without_pictures(made_up(simulated=False))):
        assert b"submission report" not in render(None, result)["report.html"]


def test_a_run_without_rules_is_unjudged() -> None:
    files = render(None, without_pictures(made_up()))
    assert b"VALID" not in files["report.md"]
    assert not re.search(rb"VALID", files["report.html"])
    assert "VALID" not in printed(made_up())


# ---- the first screen: at most fifteen lines, each figure once

NOTED = replace(made_up(), findings=tuple(note(f"something to know, number {k}") for k in range(20)))


def test_the_first_screen_is_short_with_intervals() -> None:
    lines = printed(NOTED).splitlines()

    assert len(lines) <= 15
    assert "17 more notes are in the report (or --verbose)" in lines
    assert any(line.startswith("Execution time, mean") and "±" in line for line in lines)
    assert sum(line.startswith("Active power") for line in lines) == 1
    assert lines == [line.rstrip() for line in lines]


def test_verbose_prints_every_note() -> None:
    lines = printed(NOTED, verbose=True).splitlines()

    assert sum(line.startswith("note: something to know") for line in lines) == 20
    assert lines == [line.rstrip() for line in lines]
