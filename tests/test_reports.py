"""Reports say what the result says, to people and to programs, whatever the names are."""

from __future__ import annotations

import io
import itertools
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from reports.console import print_result
from reports.figures import draw
from reports.render import render, write
from rig.quantity import Component, Quantity, from_json
from rig.result import ClockSummary, RailSeries, Refusal, Result, Series

HOSTILE = "</svg><script>alert('x')</script>|`*_$\\frac{\x1b[31m\u202e"


def q(value: float, unit: str, u: float = 0.0, dof: float = math.inf, **more: Any) -> Quantity:
    parts = (Component("noise", 0.8 * u, dof), Component("gain", 0.6 * u, math.inf, "meter.gain")) if u else ()
    return Quantity(value, unit, parts, **{"n": 20, "method": "made up", **more})


def made_up_series(name: str, readings: int, spans: int) -> Series:
    times = np.linspace(0.0, 40.0, readings + 1)
    step = 30.0 / spans
    on = 5.0 + np.arange(spans) * step
    inference = np.column_stack([on, on + 0.6 * step])
    rng = np.random.default_rng(3)
    busy = np.searchsorted(inference.ravel(), times[:-1]) % 2
    watts = 3e-4 + 1e-4 * busy + 2e-6 * rng.standard_normal(readings)
    watts[readings // 2] = np.nan
    return Series(
        rails=(RailSeries(name, times[:-1], times[1:], watts), RailSeries("io", times[:-1], times[1:], watts / 3)),
        phase_windows_s={
            "inference": inference,
            "preprocess": np.column_stack([on + 0.65 * step, on + 0.9 * step]),
        },
        warmup_windows_s=np.empty((0, 2)),
        idle_windows_s=np.array([[0.5, 4.5], [36.0, 39.5]]),
        mark_windows_s=np.array([[4.6, 4.7]]),
        execution_times_s=0.9 + 0.01 * rng.standard_normal(spans),
    )


def made_up_quantities(name: str) -> dict[str, Quantity]:
    return {
        "accuracy": q(0.875, "1", 0.006),
        "execution_time_s": q(0.9, "s", 0.002, 19),
        "execution_time_p90_s": q(0.912, "s", 0.004),
        "active_power_w": q(4.0e-4, "W", 2e-6, 19),
        "dynamic_power_w": q(1.0e-4, "W", 1.5e-6, 19, bias=1e-7),
        "energy_per_inference_j": q(3.6e-4, "J", 3e-6),
        f"phase.{name}.active_power_w": q(4.1e-4, "W", 2e-6),
        f"rail.{name}.idle_power_w": q(3.0e-4, "W", 2e-6),
        f"phase.inference.rail.{name}.idle_power_w": q(3.0e-4, "W", 2e-6),
        "trimmed.dynamic_power_w": q(1.01e-4, "W", 1e-6),
        f"who.knows.{name}": q(12.0, "widgets"),
    }


def made_up_start(name: str, mode: str) -> dict[str, Any]:
    clock = {"name": "meter", "tick_hz": 1e6, "tolerance": 1e-3}
    rail = {"name": name, "kind": "mean", "rate_hz": 100.0, "aperture_s": 0.01, "accuracy": None}
    profile = {"idle_w": 3e-4, "source": name}
    return {
        "clocks": [{"name": "host", "tick_hz": 1e9, "tolerance": 1e-3}, clock],
        "created_utc": "2026-08-21T10:22:07Z",
        "argv": ["rig", "measure", "--note", name],
        "device": {
            "name": f"board {name}",
            "mode": mode,
            "phases": ["inference", "preprocess", "postprocess"],
            "details": {"power_profile": profile, "encoder": "delta"},
        },
        "meters": [
            {"name": f"smu {name}", "mode": "hardware", "clock": clock, "rails": [rail], "omitted": ["fan", name]}
        ],
        "scenario": {"name": "single-stream"},
        "workload": {"name": "asc", "task": "scenes", "version": "1", "digest_sha256": "ab" * 32},
        "rules": {"idle_s": 5.0},
        "environment": {"python": "3.11", "note": name},
    }


def made_up(
    *, simulated: bool = True, complete: bool = True, name: str = "core", readings: int = 4000, spans: int = 20
) -> Result:
    """A small run: idle, spans of two phases, idle; one rail called ``name`` and one called ``io``."""
    considered = {"brackets": 8e-5, "marks": math.inf}
    return Result(
        run_id=f"run-{name}",
        run_digest="c0ffee" * 11,
        complete=complete,
        simulated=simulated,
        start=made_up_start(name, "simulator" if simulated else "hardware"),
        quantities=made_up_quantities(name),
        refusals=(Refusal("execution_time_p99_s", f"too few inferences {name}", "Measure at least 662"),),
        notes=(f"a note {name}",),
        clocks={"meter": ClockSummary("meter", f"brackets {name}", 8e-5, 1e-6, 2e-7, 40, considered)},
        series=made_up_series(name, readings, spans),
    )


@pytest.fixture(scope="module")
def simulated() -> dict[str, bytes]:
    return render(None, made_up())


@pytest.fixture(scope="module")
def hostile() -> dict[str, bytes]:
    return render(None, made_up(name=HOSTILE))


def on_console(result: Result) -> str:
    out = io.StringIO()
    print_result(result, out)
    return out.getvalue()


class Tags(HTMLParser):
    """Collects the tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value for key, value in attrs if key == "id" and value]
        assert not any(key.startswith("on") for key, _ in attrs)


# ---- simulated, incomplete, refused -------------------------------------------------------


def test_simulated_is_said_everywhere(simulated: dict[str, bytes]) -> None:
    page = simulated["report.html"].decode()
    assert "<title>SIMULATED" in page
    captions = re.findall(r"<(?:fig)?caption>(.*?)</(?:fig)?caption>", page, flags=re.S)
    assert len(captions) > 10
    assert all("SIMULATED" in caption for caption in captions)
    assert 'class="watermark"' in page
    for name in ("power", "latency", "budget"):
        assert simulated[f"figures/{name}.svg"].count(b"SIMULATED") >= 2
    text = simulated["report.md"].decode()
    assert text.startswith("# SIMULATED")
    for line, following in zip(text.split("\n"), text.split("\n")[2:], strict=False):
        assert not following.startswith("| | |") or line.startswith("**SIMULATED**")
    assert on_console(made_up()).startswith("SIMULATED")


def test_hardware_does_not_claim_simulation() -> None:
    result = made_up(simulated=False)
    assert all(b"SIMULATED" not in content for content in render(None, result).values())
    assert "SIMULATED" not in on_console(result)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (None, "did not end as planned"),
        (SimpleNamespace(stop=None, error=None, truncated=(), path=None), "no stop line"),
        (
            {"error": "MeterSilentError", "message": "no reading for 5 s", "remedy": "Check the cable"},
            "no reading",
        ),
        ("power <lost>", "power &lt;lost&gt;"),
    ],
)
def test_incomplete_recording_says_why(run: Any, said: str, tmp_path: Any) -> None:
    if isinstance(run, (dict, str)):
        run = SimpleNamespace(stop={"error": run}, error=run, truncated=())
    if run is not None:
        run.path = tmp_path
    files = render(cast(Any, run), made_up(complete=False))
    for name in ("report.html", "report.md"):
        assert "INCOMPLETE RECORDING" in files[name].decode()
        assert said in files[name].decode()
    assert "INCOMPLETE RECORDING" in on_console(made_up(complete=False))


def test_refusals_come_with_their_remedy(simulated: dict[str, bytes]) -> None:
    for text in (simulated["report.html"].decode(), simulated["report.md"].decode(), on_console(made_up())):
        assert "too few inferences" in text
        assert "Measure at least 662" in text
    assert 'class="card refused"' in simulated["report.html"].decode()


def test_what_nobody_stated_is_said_to_be_unstated(simulated: dict[str, bytes]) -> None:
    for name in ("report.html", "report.md"):
        assert "instrument uncertainty not stated" in simulated[name].decode()
        assert "fan, core" in simulated[name].decode()


def test_every_section_of_a_submission_is_there(simulated: dict[str, bytes]) -> None:
    for name in ("report.html", "report.md"):
        text = simulated[name].decode()
        for heading in (
            "System architecture",
            "Algorithm",
            "Workflow",
            "Timing",
            "Power",
            "Results",
            "Conventions",
        ):
            assert heading in text
        assert "rig report" in text


# ---- safety -------------------------------------------------------------------------------


def test_hostile_names_inject_nothing(hostile: dict[str, bytes]) -> None:
    page = hostile["report.html"].decode()
    seen = Tags()
    seen.feed(page)
    assert "script" not in seen.tags
    assert seen.tags.count("svg") == 3
    assert "&lt;script&gt;" in page
    for name, content in hostile.items():
        if name != "results.json":
            shown = re.sub(rb"`[^`\n]*`|^    .*$", b"", content, flags=re.M)  # Markdown shows code as it is
            assert b"<script" not in (shown if name.endswith(".md") else content), name
            assert b"\x1b" not in content, name
            assert "\u202e" not in content.decode(), name
    for name in ("power", "latency", "budget"):
        ET.fromstring(hostile[f"figures/{name}.svg"])
    shown = on_console(made_up(name=HOSTILE))
    assert "\x1b" not in shown
    assert "alert" in shown


def test_markdown_tables_keep_their_columns(hostile: dict[str, bytes]) -> None:
    bars = [
        len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        for line in hostile["report.md"].decode().split("\n")
    ]
    assert sum(map(bool, bars)) > 50
    assert all(0 in pair or pair[0] == pair[1] for pair in itertools.pairwise(bars))


def test_page_needs_nothing_from_elsewhere(simulated: dict[str, bytes]) -> None:
    page = re.sub(r'xmlns(:\w+)?="[^"]*"', "", simulated["report.html"].decode())
    assert not re.search(r"https?://", page)
    assert not re.search(r"(src|href)=\"(?!#)", page)
    seen = Tags()
    seen.feed(page)
    assert len(seen.ids) == len(set(seen.ids))
    targets = re.findall(r'xlink:href="#([^"]+)"|url\(#([^)]+)\)', page)
    assert targets
    assert {a or b for a, b in targets} <= set(seen.ids)


# ---- figures ------------------------------------------------------------------------------


def test_figures_are_the_same_bytes_twice() -> None:
    assert draw(made_up()) == draw(made_up())


def test_drawing_leaves_matplotlib_as_it_was() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    draw(made_up())
    assert dict(mpl.rcParams) == before


def test_long_traces_stay_small() -> None:
    files = render(None, made_up(readings=2_000_000, spans=16_000))
    assert all(len(content) < 300_000 for name, content in files.items() if name.startswith("figures/"))
    assert len(files["report.html"]) < 700_000


def test_empty_result_still_renders(tmp_path: Any) -> None:
    none = np.empty((0, 2))
    series = Series((), {}, none, none, none, np.empty(0))
    whole = made_up()
    files = render(None, whole)
    write(whole, tmp_path)
    bare = replace(whole, quantities={}, clocks={}, notes=(), refusals=(), series=series)
    bare = replace(bare, start={**bare.start, "meters": [], "device": {}, "workload": {}, "rules": None})
    written = write(bare, tmp_path)
    assert {p.name for p in written} == {"results.json", "report.md", "report.html"}
    assert {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()} < set(files)
    assert "No figure could be computed" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("rails", [1, 4, 6])
def test_any_number_of_rails(rails: int) -> None:
    result = made_up()
    one = result.series.rails[0]
    slow = RailSeries("slow", one.start_s[::50], one.end_s[49::50], one.watts[::50])
    many = (slow, *(replace(one, rail=f"r{k}") for k in range(rails - 1)))
    svg = draw(replace(result, series=replace(result.series, rails=many)))["power"]
    assert (b">r0<" in svg) == (1 < rails <= 4)
    assert len(svg) < 300_000


@pytest.mark.parametrize("times", [[0.5], [0.5] * 9, [1e-6, 2e-6, 3.0], [np.nan, np.nan], [0.0, 0.0], [1e-3, np.inf]])
def test_odd_execution_times_draw(times: list[float]) -> None:
    result = made_up()
    draw(replace(result, series=replace(result.series, execution_times_s=np.array(times))))


# ---- files --------------------------------------------------------------------------------


def test_json_gives_every_quantity_back(tmp_path: Any) -> None:
    result = made_up(name=HOSTILE)
    paths = write(result, tmp_path / "derived")
    assert all(p.is_file() for p in paths)
    data = json.loads((tmp_path / "derived" / "results.json").read_text())
    assert {name: from_json(d) for name, d in data["quantities"].items()} == dict(result.quantities)
    assert data["refusals"][0]["remedy"] == "Measure at least 662"
    assert not list((tmp_path / "derived").rglob(".*"))


def test_not_a_number_stays_out_of_sight_and_json_strict() -> None:
    result = made_up()
    bad = {
        "active_power_w": q(math.nan, "W", 1e-6),
        "dynamic_power_w": q(1e-4, "W", math.nan),
        "accuracy": q(cast(float, np.float64(0.5)), "1", n=np.int64(7)),
    }
    files = render(None, replace(result, quantities={**result.quantities, **bad}))
    data = json.loads(files["results.json"], parse_constant=pytest.fail)
    assert data["quantities"]["active_power_w"]["value"] is None
    assert "n/a" in files["report.html"].decode()
    for name in ("report.html", "report.md"):
        assert not re.search(r"\bnan\b", files[name].decode())
    assert "n/a" in on_console(replace(result, quantities=bad))


def test_writing_again_gives_the_same_bytes(tmp_path: Any) -> None:
    first = {p.name: p.read_bytes() for p in write(made_up(), tmp_path)}
    assert {p.name: p.read_bytes() for p in write(made_up(), tmp_path)} == first
