"""A page is read in three screens: unfolded parts are short, in order, and readable without colour or mouse."""

import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from msgspec import structs
from msgspec.structs import replace

from reports.headlines_and_tables import key_figures
from reports.render import render, write
from reports.session import members
from reports.system_timing_instruments import algorithm, timing
from reports.workflow import box_of, workflow
from rig.analysis.power.notes_and_refusals import BELOW_IDLE, NO_STEP, ON_FIGURE
from rig.analysis.result.finding import note
from rig.analysis.result.quantity import FigureKey, Figures
from rig.analysis.result.result import Result
from rig.analysis.result.series import Solve
from rig.analysis.solving.solves import RUNTIME
from rig.recording.records import Algorithm, ImportRecord
from rig.recording.session_json import bind
from scenarios.workloads.qubo_mis.workload import open_workload
from tests.support.made_up import made_up, made_up_stream, q, with_checks, without_pictures
from tests.support.sessions import bound
from tests.support.start_lines import start

pytestmark = pytest.mark.pictures

TIME = FigureKey("execution_time_s")


def unfolded(page: str) -> str:
    """Return the words outside of folded parts, with the summaries of these."""
    summaries = re.sub(r"<details[^>]*>\s*<summary[^>]*>(.*?)</summary>", r"\1<details>", page, flags=re.S)
    while summaries != (summaries := re.sub(r"<details>((?!<details>).)*?</details>", "", summaries, flags=re.S)):
        pass
    shown = re.sub(r"<(svg|script|style)\b.*?</\1>", "", summaries, flags=re.S)
    return " ".join(re.sub(r"<[^>]*>", " ", shown).split())


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(with_checks(made_up()))


def page_of(result: Result) -> str:
    return render(None, result)["report.html"].decode()


def test_unfolded_text_is_short_and_unique(page: str) -> None:
    text = unfolded(page)
    assert len(text.split()) < 500
    for section in ("1. System architecture", "2. Algorithm", "3. Workflow", "4. Timing", "5. Power", "6. Results"):
        assert text.count(section) == 1


def test_headings_come_in_order(page: str) -> None:
    levels = [int(level) for level in re.findall(r"<h([1-6])\b", page)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_verdict_figures_and_trace_come_before_the_sections(page: str) -> None:
    places = [page.index(text) for text in ("✓ VALID", 'class="card', "trace-model", "1. System architecture")]
    assert places == sorted(places)
    assert page.count('class="card') - page.count('class="cards') == 6


def test_the_six_key_figures_omit_details_and_missing_figures() -> None:
    served = made_up()
    assert "dynamic_energy_per_inference_j" not in [key.quantity for key in key_figures(served)]
    more = Figures({**served.quantities, FigureKey("idle_power_w"): q(3e-4, "W")})
    keys = [key.quantity for key in key_figures(replace(served, quantities=more))]
    assert keys[1:4] == ["execution_time_s", "idle_power_w", "active_power_w"]


def test_the_first_gap_is_to_the_preferred_target() -> None:
    gaps = {FigureKey("gap_{target}_mean", target=of): q(0.1, "1") for of in ("best_known", "mine", "specified")}
    assert key_figures(replace(made_up(), quantities=Figures(gaps)))[0].target == "specified"


def test_every_picture_has_words_and_can_be_reached_by_keyboard(page: str) -> None:
    pictures = re.findall(r"<svg [^>]*>", page)
    assert len(pictures) == page.count('<div class="picture" tabindex="0">') > 2
    assert all(re.search(r'role="img" aria-label="[A-Z][^"]{20,}"', svg) for svg in pictures)


def test_pictures_take_their_colours_from_the_page() -> None:
    result = made_up()
    drawn = page_of(replace(result, series=replace(result.series, stream=made_up_stream())))
    pictures = "".join(re.findall(r"<svg .*?</svg>", drawn, re.S))
    colours = set(re.findall(r"(?:fill|stroke): (var[^;\"]*)", pictures))
    assert {"var(--ink)", "var(--line)"} <= colours
    assert all(re.fullmatch(r"var\(--[a-z]+\)", colour) for colour in colours)
    assert not re.search(r"(fill|stroke): #(ffffff|1a1f26|5b6570|d9dee3|0b3c5d)", pictures)


def test_an_unstated_accuracy_is_noted_without_unfolding() -> None:
    assert "instrument uncertainty of a rail is not stated" in unfolded(page_of(made_up()))


def test_a_total_covers_only_measured_rails(page: str) -> None:
    assert "<caption>All phases and measured rails;" in page


# ---- pictures of what came of several runs and clocks ---------------------------------------


def picture(result: Result, name: str) -> str:
    found = render(None, result).get(f"figures/{name}.svg", b"").decode()
    return " ".join(re.findall(r"<text[^>]*>([^<]*)<", found))


@pytest.mark.parametrize(("declared", "missing"), [
    ({}, {"Model", "Tuning"}), ({"network": "16, 4"}, {"Tuning"}),
    ({"solver": "tabu", "parameters": {"n": 3}}, set()), ({"model": "cnn", "training": {"epochs": 60}}, set()),
])  # fmt: skip
def test_unstated_algorithm_facts_are_what_the_rules_miss(declared: dict[str, Any], missing: set[str]) -> None:
    said = algorithm(declaring(made_up(), algorithm=Algorithm(**declared)).start)
    assert {title for title, text in said if text == "not stated"} == missing


def test_trials_are_drawn_against_what_the_rules_allow_and_readings_of_a_clock_about_its_fit() -> None:
    result = without_pictures(made_up())
    trials = {TIME: tuple(q(value, "s", 0.001) for value in (0.9, 0.91, 0.95))}
    several = replace(result, series=replace(result.series, trials=trials))
    assert "3 trials, farthest 3.3 %" in picture(several, "trials")
    assert picture(result, "trials") == ""
    reads = {"meter": np.column_stack([np.arange(40.0), np.linspace(-1e-5, 1e-5, 40), np.full(40, 5e-5)])}
    said = picture(replace(result, series=replace(result.series, clock_reads=reads)), "clocks")
    assert "meter: 40 readings" in said and "sigma 80 µs" in said
    assert picture(result, "clocks") == ""


def test_a_clock_rate_is_shown_with_its_half_interval() -> None:
    """Its nominal second lasts 1 ppm longer than the host's, with a standard uncertainty of 0.2 ppm."""
    page = page_of(made_up())
    assert "Runs fast by" in page and "-1.00 ± 0.39 ppm" in page.replace("\xa0", " ")


def test_energy_is_drawn_by_phase_and_rail() -> None:
    parts = {("inference", ""): 3e-6, ("inference", "core"): 2e-6, ("inference", "io"): 1e-6, ("preprocess", ""): 5e-6}
    figures = {FigureKey("energy_per_inference_j", phase, rail): q(x, "J", 1e-8) for (phase, rail), x in parts.items()}
    said = picture(replace(without_pictures(made_up()), quantities=Figures(figures)), "energy")
    assert "inference: 3.000 ± 0.020 µJ" in said and "preprocess: 5.000" in said and "core" in said
    assert picture(without_pictures(made_up()), "energy") == ""


def test_each_key_figure_has_one_bar_of_its_sources() -> None:
    said = picture(made_up(), "budget")
    assert "1 noise" in said and "2 gain" in said
    assert said.count(": ±") == 5


def test_gaps_are_drawn_against_energy_if_measured() -> None:
    result = without_pictures(made_up())
    at, costs = np.array([0.1, 0.2]), np.array([-30.0, -40.0])
    one = Solve("p", 0.5, 0.5, -40.0, -40.0, 0, True, at, costs, {"official": -40.0})
    solved = replace(result, series=replace(result.series, solves=(one,)))
    assert "energy" not in picture(solved, "solver")
    powered = replace(solved, quantities=result.quantities | {RUNTIME: q(2.0, "W")})
    assert "energy of the solve, mJ" in picture(powered, "solver")


@pytest.mark.parametrize("said", [BELOW_IDLE, f"{ON_FIGURE}above idle: 1e-06 W, {NO_STEP}"])
def test_non_positive_dynamic_power_is_explained_with_the_figure(said: str) -> None:
    shown = page_of(replace(made_up(), findings=(note(said),)))
    assert shown.index("Key figures") < shown.index(f'<p class="warn">{said}') < shown.index("1. System")


# ---- the first screen, the print and the telephone ------------------------------------------


def test_the_first_screen_says_when_it_was_recorded_or_imported_with_what_by_whom_and_where() -> None:
    result = made_up()
    page = page_of(replace(result, start=structs.replace(result.start, operator="Ada", lab="Basement")))
    head = unfolded(page[: page.index("Key figures")])
    for said in ("Recorded (UTC)", "Device", "Instrument", "Operator Ada", "Lab Basement"):
        assert said in head
    assert "Operator not stated" in unfolded(page_of(result))
    page = page_of(replace(result, start=structs.replace(result.start, imported=ImportRecord(format="plain-csv"))))
    assert "Imported (UTC)" in page and "Recorded (UTC)" not in page


def test_table_cells_name_their_columns_for_small_screens(page: str) -> None:
    for table in re.findall(r"<table.*?</table>", page, re.S):
        heads = [head for head in re.findall(r'<th scope="col"[^>]*>([^<]*)<', table) if head]
        cells = set(re.findall(r'data-of="([^"]*)"', table))
        assert len(heads) == 0 or len(cells) >= len(heads) - 1


# ---- the workflow, the baselines' versions, and the configuration


def test_an_import_has_no_box_of_data_initialization() -> None:
    found = made_up()
    imported = structs.replace(found.start, imported=ImportRecord(format="plain-csv"))
    assert "Data initialization" not in [box.title for box in workflow(replace(found, start=imported))]


def test_a_box_says_where_it_ran_and_whether_it_was_timed() -> None:
    found = declaring(made_up(), phases=["inference", "preprocess"])
    power = {FigureKey("active_power_w", "inference"): q(1e-3, "W")}
    boxes = workflow(replace(found, quantities=found.quantities | power))
    assert [(box.title, box.where, box.timed, box.powered) for box in boxes] == [
        ("Data initialization", "host", False, False),
        ("On-device preprocessing", "device", True, False),
        ("Inference", "device", True, True),
    ]


@pytest.mark.parametrize(("phase", "box"), [
    ("preprocess", "On-device preprocessing"), ("encode", "On-device preprocessing"),
    ("host_features", "Host pre-processing"), ("inference", "Inference"), ("solve", "Inference"),
    ("postprocess", "Post-processing"), ("classify", "Post-processing"),
])  # fmt: skip
def test_a_phase_is_in_the_box_of_its_name(phase: str, box: str) -> None:
    assert box_of(phase) == box


def declaring(found: Result, **device: object) -> Result:
    return replace(found, start=structs.replace(found.start, device=structs.replace(found.start.device, **device)))


def test_a_declared_box_and_a_phase_that_never_ran_are_reported() -> None:
    found = declaring(
        made_up(), details={"workflow": {"Host pre-processing": "events are encoded"}}, phases=["inference", "decode"]
    )
    lines = {box.title: box.lines for box in workflow(found)}
    assert lines["Host pre-processing"] == ("events are encoded",)
    assert lines["Post-processing"] == ("decode: declared, none recorded",)


def test_versions_are_shown_with_those_of_published_baselines() -> None:
    found = declaring(made_up(), versions={"dwave-samplers": "1.7.0"}).start
    qubo = structs.replace(found, workload=structs.replace(found.workload, benchmark=open_workload(nodes=10).benchmark))
    pairs = dict(algorithm(qubo))
    assert pairs["Version of dwave-samplers"] == "1.7.0; the published baseline used 1.1.0"
    assert pairs["Version of lava-nc"] == "not used; the published baseline used 0.8.0"
    assert pairs["Benchmark"].startswith("NeuroBench 1.0, QUBO")
    assert not [key for key in dict(algorithm(found)) if key.startswith("Version of")]


@pytest.mark.parametrize(("configuration", "told"), [("efficiency", "efficiency"), ("", "not stated")])
def test_the_configuration_is_shown_under_timing(tmp_path: Path, configuration: str, told: str) -> None:
    (run,) = members(bound(tmp_path, [("power", "power")], configuration=configuration), None)
    assert run.gave.endswith("; configuration efficiency") is bool(configuration)
    assert ("Configuration of the system", told) in timing(replace(made_up(), start=start(configuration=configuration)))


def test_the_timed_inferences_count_those_of_the_figure() -> None:
    looped = replace(made_up(), quantities=Figures({TIME: q(0.9, "s", n=30)}))
    assert ("Inferences timed in a trial", "30") in timing(looped)


# ---- a session: its runs, their results, and links to their reports

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


def test_a_session_report_names_its_runs(folder: Path) -> None:
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


def test_links_stay_below_the_chosen_directory(folder: Path, tmp_path: Path) -> None:
    run, result = merged(folder)
    write(result, tmp_path / "elsewhere", run)
    assert links((tmp_path / "elsewhere" / "report.html").read_text())[0] == "./accuracy/report.html"


def test_a_run_of_a_session_has_its_own_report(folder: Path) -> None:
    run, result = merged(folder)
    text = render(run, replace(result, run_id="power-1"))["report.html"].decode()
    assert "Runs of this session" not in text
    assert "rig report power-1" in text
    assert not links(text)


def test_session_times_may_come_from_power_runs(folder: Path) -> None:
    bind(folder, [run for run in RUNS if run[1] in ("accuracy", "power")])
    assert render(*merged(folder))["report.md"].decode().count("power and energy, and times (mean of 2)") == 2
