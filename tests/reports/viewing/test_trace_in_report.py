"""A report's power trace zooms to the readings, on a small page that runs nothing else."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from fixtures.bench.true_power import ORIGIN_NS
from reports.page_templates import as_json
from reports.render import render
from reports.viewing.jumps import jumps_of
from reports.viewing.trace_in_report import embedded, series_look
from rig.analysis.result.series import RailSeries, Series
from rig.recording.reader import Run, open_run
from rig.types import Floats
from tests.support.made_up import HOSTILE, made_up, made_up_series, without_pictures
from tests.support.paths import ROOT
from tests.support.run_by_hand import start_line, trace, write

pytestmark = pytest.mark.pictures

SCRIPT = ROOT / "reports" / "viewing" / "viewer.js"
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node runs the script without a browser")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((path for name in BROWSERS if (path := shutil.which(name))), "")


def column(layer: dict[str, Any], name: str, kind: str = "<f4") -> Floats:
    return np.frombuffer(base64.b64decode(layer[name]), kind)


def edges(layer: dict[str, Any]) -> Floats:
    if "edges" in layer:
        return column(layer, "edges", "<f8")
    return np.linspace(layer["low"], layer["high"], len(column(layer, "mean")) + 1)


def model_of(page: bytes) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" class="trace-model">(.*?)</script>', page.decode(), re.S)
    found: dict[str, Any] = json.loads(text)
    return found


def one_rail(watts: Floats, rate_hz: float, windows: Floats | None = None) -> Series:
    at = np.arange(len(watts) + 1) / rate_hz
    phases = {} if windows is None else {"inference": windows}
    series = without_pictures(made_up()).series
    return replace(series, rails=(RailSeries("core", at[:-1], at[1:], watts),), phase_windows_s=phases)


def model_in(series: Series, run: Run | None = None) -> dict[str, Any]:
    model = embedded(series, simulated=True, run=run)
    assert model is not None
    return model


@pytest.fixture(scope="module")
def page() -> bytes:
    return render(None, made_up())["report.html"]


# ---- what is in the page ------------------------------------------------------------------


def test_a_short_trace_is_stored_by_readings(page: bytes) -> None:
    result = made_up()
    model = model_of(page)
    total, core, io = model["rails"]

    for rail, watts in ((core, result.series.rails[0].watts), (io, result.series.rails[1].watts)):
        (layer,) = rail["layers"]
        np.testing.assert_array_equal(column(layer, "mean"), watts.astype(np.float32))
        np.testing.assert_allclose(edges(layer)[:-1], result.series.rails[0].start_s, atol=1e-4)
    assert total["name"] == "total of 2 rails"
    assert model["extent"] == [0.0, 40.0]


def test_columns_of_a_long_trace_keep_the_extremes() -> None:
    watts = np.full(1_000_000, 1e-3)
    watts[[123_456, 654_321]] = 5e-3, 1e-5
    whole = model_in(one_rail(watts, 1e4))["rails"][0]["layers"][-1]

    assert (column(whole, "most").max(), column(whole, "least").min()) == pytest.approx((5e-3, 1e-5), rel=1e-6)
    assert edges(whole)[int(np.argmax(column(whole, "most")))] == pytest.approx(12.3456, abs=0.01)


def test_single_readings_surround_chosen_spans() -> None:
    """The slowest of many spans; if it is long, also at its begin and its end."""
    rate_hz, watts = 1e4, np.random.default_rng(2).normal(1e-3, 1e-4, 1_000_000)
    begin = np.arange(1.0, 90.0, 0.5)
    windows = np.column_stack([begin, begin + 0.002])
    windows[100] = begin[100], begin[100] + 0.4
    model = model_in(one_rail(watts, rate_hz, windows))
    layers = model["rails"][0]["layers"]

    slowest = next(jump for jump in model["jumps"] if jump["title"] == "slowest")
    assert (slowest["low"], slowest["high"]) == tuple(windows[100])
    for at in windows[100]:
        fine = next(x for x in layers if x["single"] and x["low"] < at < x["high"])
        first, values = round(fine["low"] * rate_hz), column(fine, "mean")
        np.testing.assert_array_equal(values, watts[first : first + len(values)].astype(np.float32))


def test_a_long_trace_is_read_from_its_file(tmp_path: Path) -> None:
    """A single reading that no mean shows is in the columns, and single readings are around the spans."""
    count, rate_hz = 200_000, 1e4
    watts = np.random.default_rng(3).normal(1e-3, 1e-5, count).astype(np.float32)
    watts[77_777] = 9e-3
    grid = {"t0_tick": ORIGIN_NS, "period_tick": 1e5, "aperture_tick": 1e5}
    table = trace({"name": "core", "rate_hz": rate_hz}, {"value": watts}, "host", grid=grid)
    run = open_run(write(tmp_path / "run", [start_line()], {"traces/core.arrows": table}, 5000))
    means = watts.astype(np.float64).reshape(-1, 100).mean(axis=1)
    series = one_rail(means, rate_hz / 100, np.array([[7.7, 7.9], [8.0, 8.001]]))

    layers = model_in(series, run)["rails"][0]["layers"]

    assert column(layers[-1], "most").max() == pytest.approx(9e-3, rel=1e-6)
    assert np.nanmax(means) < 2e-3
    short = next(x for x in layers if x["single"] and x["low"] < 8.0 and x["high"] > 8.001)
    first = round(short["low"] * rate_hz)
    np.testing.assert_array_equal(column(short, "mean"), watts[first : first + len(column(short, "mean"))])


def test_the_page_stays_small_for_any_trace() -> None:
    """The trace has four rails with separate stamps, and eight phases."""
    series = made_up_series("core", 300_000, 40_000)
    jitter = np.random.default_rng(1).uniform(0.0, 5e-5, 300_000)
    rails = tuple(replace(series.rails[0], rail=f"r{k}", start_s=series.rails[0].start_s + jitter) for k in range(4))
    phases = {f"phase {k}": series.phase_windows_s["inference"] for k in range(8)}

    model = model_in(replace(series, rails=rails, phase_windows_s=phases))

    assert len(model["rails"]) == 5
    assert len(as_json(model)) < 4_000_000
    assert model["hidden"] == "of 320003 spans, those near the listed ones are shaded"


def test_missing_readings_are_columns_without_a_number() -> None:
    watts = np.full(100_000, 1e-3)
    watts[:50_000] = np.nan
    series = one_rail(watts, 1e4, np.array([[1.0, 2.0], [6.0, 7.0]]))

    look = series_look(series.rails[0], 0.0, 10.0, 10)
    jumps = model_in(series)["jumps"]

    assert np.isnan(look.mean[:5]).all()
    assert look.mean[5:] == pytest.approx(np.full(5, 1e-3))
    assert look.missing == 50_000
    assert [j["text"] for j in jumps if j["title"] == "most energetic"] == ["inference 2: 1 mJ"]


def test_missing_readings_are_not_drawn() -> None:
    whole = one_rail(np.full(1000, 1e-3), 100.0, np.array([[1.0, 2.0], [4.5, 5.5]]))
    (rail,) = whole.rails
    there = (rail.start_s < 4.0) | (rail.start_s >= 6.0)
    series = replace(whole, rails=(RailSeries("core", rail.start_s[there], rail.end_s[there], rail.watts[there]),))

    model = model_in(series)

    (layer,) = model["rails"][0]["layers"]
    at = edges(layer)
    assert at[:-1][np.isnan(column(layer, "mean"))] == pytest.approx([4.0])
    assert at[1:][np.isnan(column(layer, "mean"))] == pytest.approx([6.0])
    assert [j["text"] for j in model["jumps"] if j["title"] == "most energetic"] == ["inference 1: 1 mJ"]


# ---- spans worth a look -------------------------------------------------------------------


def test_spans_are_listed_by_each_order() -> None:
    length, watts = np.array([3.0, 1.0, 2.0, 5.0, 4.0]), np.array([1.0, 1.0, 9.0, 1.0, 1.0])
    windows = np.column_stack([10.0 * np.arange(5), 10.0 * np.arange(5) + length])
    energy = length * watts
    energy[0] = np.nan

    found = jumps_of({"a": windows}, {"a": energy}, {"a": np.array([0, 0, 7, 0, 1])})

    listed = {title: [j.text for j in found if j.title == title] for title in dict.fromkeys(j.title for j in found)}
    assert listed == {
        "first": ["a 1: 3 s"],
        "slowest": ["a 4: 5 s", "a 5: 4 s", "a 1: 3 s"],
        "fastest": ["a 2: 1 s", "a 3: 2 s", "a 1: 3 s"],
        "most energetic": ["a 3: 18 J", "a 4: 5 J", "a 5: 4 J"],
        "farthest from the mean power of their phase": ["a 3: +6.67 W", "a 2: −1.33 W", "a 4: −1.33 W"],
        "clipped": ["a 3: 7 readings", "a 5: 1 readings"],
    }
    assert (found[1].low, found[1].high) == (30.0, 35.0)


# ---- nothing else runs --------------------------------------------------------------------


@pytest.mark.parametrize("name", [HOSTILE, "<!--<script>"])
def test_no_name_becomes_script(name: str) -> None:
    page = render(None, made_up(name=name))["report.html"].decode()

    policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)[0].replace("&#39;", "'")
    bodies = re.findall(r"<script([^>]*)>(.*?)</script>", page, re.S)
    assert [kind for kind, _ in bodies] == [' type="application/json" class="trace-model"', ""]
    digest = base64.b64encode(hashlib.sha256(bodies[1][1].encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert bodies[1][1] == SCRIPT.read_text(encoding="utf-8")
    assert "<" not in bodies[0][1]


def test_a_traceless_page_has_no_script() -> None:
    page = render(None, without_pictures(made_up()))["report.html"].decode()

    assert "<script" not in page
    assert "script-src" not in page


def test_the_script_has_no_unsafe_calls() -> None:
    text = SCRIPT.read_text(encoding="utf-8")

    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|Function\(|import|https?:", text)
    assert text.count("fetch(") == 1
    assert "</" not in text


# ---- the script itself --------------------------------------------------------------------


def in_node(program: str) -> Any:
    source = f"const v = require({json.dumps(str(SCRIPT))}); console.log(JSON.stringify({program}))"
    return json.loads(subprocess.run(["node", "-"], input=source, capture_output=True, text=True, check=True).stdout)


@needs_node
def test_numbers_are_rounded_with_a_unit() -> None:
    said = in_node(
        "[v.si(0.00123456, 'W'), v.si(0, 'W'), v.si(-2e-7, 'J'), v.si(999.9999999, 'W'), v.si(NaN, 'W'),"
        " v.ticks(0.9, 3.1, 6), v.ticks(414.01234, 414.01235, 5)]"
    )

    assert said[:5] == ["1.235 mW", "0 W", "-200 nJ", "1 kW", "no reading"]
    assert said[5] == {"at": [1, 1.5, 2, 2.5, 3], "decimals": 1}
    assert said[6]["decimals"] == 6
    assert len(said[6]["at"]) >= 3


@needs_node
def test_view_statistics_cut_columns_at_the_ends() -> None:
    view = "{edges: [0, 1, 2, 3], mean: [1, null, 3], least: [0, null, 2], most: [2, null, 4]}"

    assert in_node(f"v.statistics({view}, 0.5, 2.25)") == {
        "length": 0.75, "area": 1.25, "mean": pytest.approx(1.25 / 0.75), "least": 0, "most": 4,
    }  # fmt: skip


@needs_node
def test_the_finest_layer_of_a_view_is_drawn() -> None:
    watts = np.random.default_rng(2).normal(1e-3, 1e-4, 400_000)
    model = model_in(one_rail(watts, 1e4, np.array([[10.0, 10.01], [20.0, 20.02]])))
    layers = json.dumps(model["rails"][0]["layers"])

    whole, near, beside = in_node(
        f"[[0, 40], [9.999, 10.011], [30, 30.01]].map(([a, b]) => v.chosen({layers}.map(v.opened), a, b, 500))"
        ".map(x => ({single: !!x.single, n: Object.keys(x.mean).length, low: x.edges[0], mean: x.mean[5]}))"
    )

    assert (whole["single"], near["single"], beside["single"]) == (False, True, False)
    assert whole["n"] == 32_768
    assert near["mean"] == pytest.approx(watts[round(near["low"] * 1e4) + 5], rel=1e-6)
    assert beside["low"] == pytest.approx(30.0, abs=0.01)


@pytest.mark.skipif(not CHROMIUM, reason="a browser obeys the policy and runs the script")
def test_a_browser_runs_the_trace_script(tmp_path: Path) -> None:
    """Only a browser compares the script's hash; it takes two seconds to start."""
    (tmp_path / "report.html").write_bytes(render(None, made_up(name=HOSTILE))["report.html"])
    quiet = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom"]
    place = f"{(tmp_path / 'report.html').as_uri()}#at=10,12,1"

    call = [CHROMIUM, f"--user-data-dir={tmp_path / 'profile'}", *quiet, place]
    shown = subprocess.run(call, capture_output=True, text=True, timeout=60, check=False).stdout

    assert "2 s in view: mean" in shown
    assert "single readings" in shown
    assert "<b>SIMULATED" in shown
