"""Pictures of streams, service and solves contain what was recorded, for any size."""

import csv
import io
import math
import re
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec import structs
from msgspec.structs import replace

from reports.pictures.colour_sheet import COLOURS, DIGIT, Sheet, ticks
from reports.pictures.draw import draw
from reports.pictures.stream import MAX_CLASSES, shown_of, stream_csv
from reports.pictures.trace import power_figure
from reports.render import write
from rig.analysis.result.quantity import Component, FigureKey, Figures, Quantity
from rig.analysis.result.result import Result
from rig.analysis.result.series import Solve, Stream
from rig.analysis.service.change_detection import right_share, time_right
from rig.recording.records import ScenarioRecord
from rig.terminal import clean
from tests.support.made_up import HOSTILE, made_up, made_up_stream, q, without_pictures

pytestmark = pytest.mark.pictures


def served(asked: Any, took: Any, **options: float) -> Result:
    result = without_pictures(made_up())
    series = replace(result.series, requested_s=np.asarray(asked, float), latency_s=np.asarray(took, float))
    scenario = ScenarioRecord(name="server", options=options)
    return replace(result, series=series, start=structs.replace(result.start, scenario=scenario))


def streamed(stream: Stream | None, metered: bool = False) -> Result:
    result = without_pictures(made_up())
    power = Figures({FigureKey("idle_power_w"): q(3e-4, "W"), FigureKey("average_power_w"): q(4e-4, "W")})
    rails = made_up().series.rails if metered else ()
    return replace(result, quantities=power, series=replace(result.series, stream=stream, rails=rails))


def solved(*solves: Solve) -> Result:
    result = without_pictures(made_up())
    return replace(result, series=replace(result.series, solves=solves))


def solve(at_s: list[float], cost_at: list[float], cost: float = -40.0, **targets: float) -> Solve:
    return Solve("p", max([*at_s, 0.5]), 0.5, cost, cost, 0, True, np.array(at_s), np.array(cost_at), targets)


def texts(svg: bytes) -> str:
    return " ".join(e.text or "" for e in ET.fromstring(svg).iter() if e.tag.endswith(("text", "tspan")))


# ---- what was said of each class ----------------------------------------------------------


@given(parts=st.integers(1, 40), scenes=st.integers(1, 20), answers=st.integers(1, 300), seed=st.integers(0, 99))
def test_time_shares_of_right_answers_add_up(parts: int, scenes: int, answers: int, seed: int) -> None:
    stream = made_up_stream(scenes=scenes, answers=answers, total_s=10.0 + seed)
    edges_s = np.linspace(stream.begin_s, stream.end_s, parts + 1)
    assert np.average(right_share(stream, edges_s), weights=np.diff(edges_s)) == pytest.approx(time_right(stream))


@pytest.mark.parametrize("answers", [120, 20_000])
def test_the_shown_probability_is_the_time_weighted_mean(answers: int) -> None:
    stream = made_up_stream(answers=answers)
    shown = shown_of(stream)
    assert len(shown.knots) * len(shown.rows) <= 6000
    whole = (stream.probability * np.diff(np.append(stream.at_s, stream.end_s))[:, None]).sum(axis=0)
    assert (shown.mean * np.diff(shown.knots)[:, None]).sum(axis=0) == pytest.approx(whole)
    assert np.all(shown.least <= shown.mean + 1e-9)
    assert np.all(shown.mean <= shown.most + 1e-9)


def test_thinning_keeps_extremes_and_holds_answers() -> None:
    stream = made_up_stream(answers=20_000)
    stream.probability[7000] = [1.0, 0.0, 0.0, 0.0]
    stream.probability[7001:] = 0.25
    quiet = replace(stream, at_s=np.where(np.arange(20_000) > 7500, stream.at_s + 10.0, stream.at_s), end_s=50.0)
    shown = shown_of(quiet)
    assert shown.most[:, 0].max() == 1.0
    pause = (shown.knots[:-1] > quiet.at_s[7500]) & (shown.knots[1:] < quiet.at_s[7501])
    assert pause.sum() > 10
    assert np.all(shown.mean[pause] == pytest.approx(0.25))


def test_a_stream_is_drawn_with_scenes_and_power() -> None:
    said = texts(draw(streamed(made_up_stream(), metered=True))["stream"])
    for name in ("airport", "bus", "park", "right", "wrong", "power, µW", "idle", "average", "until recognised"):
        assert name in said
    assert "power" not in texts(draw(streamed(made_up_stream()))["stream"])


@pytest.mark.parametrize(("classes", "scenes", "answers"), [(1, 1, 1), (10, 60, 600), (35, 30, 300), (4, 2000, 20_000)])
def test_streams_of_any_shape_are_drawn(classes: int, scenes: int, answers: int) -> None:
    svg = draw(streamed(made_up_stream(classes=classes, scenes=scenes, answers=answers)))["stream"]
    assert len(svg) < 500_000
    assert (f"{MAX_CLASSES} of {classes} classes" in texts(svg)) == (classes > MAX_CLASSES)
    assert (f"all {scenes} scenes" in texts(svg)) == (scenes > 1000)


def test_odd_streams_are_drawn_or_left_out() -> None:
    stream = made_up_stream(scenes=2, answers=4)
    silent = replace(stream, at_s=np.empty(0), said=(), probability=np.empty((0, 4)))
    assert "stream" not in draw(streamed(silent))
    assert "stream" not in draw(streamed(None))
    together = replace(stream, at_s=np.full(4, stream.onset_s[1]))
    undecided = replace(stream, said=("None", "x", "", HOSTILE), probability=np.zeros((4, 4)))
    for odd in (together, undecided, replace(stream, scene=(HOSTILE, "b"))):
        ET.fromstring(draw(streamed(odd))["stream"])


def test_the_table_of_a_stream_has_every_answer() -> None:
    stream = replace(made_up_stream(), scene=("a,b", *made_up_stream().scene[1:]))
    rows = list(csv.DictReader(io.StringIO(stream_csv(stream).decode())))
    assert [float(row["time_s"]) for row in rows] == pytest.approx(stream.at_s.tolist(), abs=1e-9)
    assert [row["said"] for row in rows] == list(stream.said)
    heard = [stream.scene[k] for k in np.searchsorted(stream.onset_s, stream.at_s, side="right") - 1]
    assert [row["scene"] for row in rows] == heard
    for k, name in enumerate(stream.classes):
        found = [float(row[f"probability: {name}"]) for row in rows]
        assert found == pytest.approx(stream.probability[:, k].tolist(), abs=1e-9)


def test_the_stream_table_is_written_or_removed(tmp_path: Any) -> None:
    write(streamed(made_up_stream()), tmp_path)
    table = tmp_path / "figures" / "stream.csv"
    assert table.read_bytes() == stream_csv(made_up_stream())
    assert "figures/stream.csv" in (tmp_path / "report.html").read_text()
    write(streamed(None), tmp_path)
    assert not table.exists()
    assert not (tmp_path / "figures" / "stream.svg").exists()


def test_names_in_the_table_are_escaped() -> None:
    stream = replace(made_up_stream(scenes=1, answers=2), scene=(HOSTILE,), said=("=cmd()", "@x"))
    one, two = csv.DictReader(io.StringIO(stream_csv(stream).decode()))
    assert (one["scene"], one["said"], two["said"]) == (clean(HOSTILE), "'=cmd()", "'@x")


# ---- how long answers took ----------------------------------------------------------------


def test_latency_is_drawn_with_its_bound() -> None:
    said = texts(draw(served(range(10), [0.05] * 9 + [0.2], latency_bound_s=0.1))["service"])
    assert "bound 100 ms" in said
    assert "n = 10, 1 over the bound" in said
    assert "a sample too late" in said
    assert "p50" in said
    assert "p99" not in said


def test_latency_shows_the_intervals_of_the_figures() -> None:
    """Latencies of a batch depend on each other, so the picture takes intervals from the figures and computes none."""
    p50, p90 = (FigureKey("latency_p{percentile}_s", percentile=p) for p in (50.0, 90.0))
    result = served(range(64), np.repeat(np.arange(1.0, 9.0), 8))
    assert "±" not in texts(draw(result)["service"])
    stated = Figures({p50: Quantity(4.0, "s", (Component("finite sample", 1.0),)), p90: Quantity(8.0, "s")})
    said = texts(draw(replace(result, quantities=stated))["service"])
    assert "p50: 4.0 ± 2.0 s" in said
    assert said.count("±") == 1
    mean = Figures({p50: replace(stated[p50], value=4.5)})  # of several trials
    assert "±" not in texts(draw(replace(result, quantities=mean))["service"])


@pytest.mark.parametrize(("options", "word"), [({"deadline_s": 0.5}, "500"), ({"stride_s": 0.25}, "250"), ({}, "")])
def test_the_default_deadline_is_the_stride(options: dict[str, float], word: str) -> None:
    said = texts(draw(served([1.0, 2.0], [0.1, 0.2], **options))["service"])
    assert (f"deadline {word} ms" in said) == bool(word)
    assert ("over the" in said) == bool(word)


@pytest.mark.parametrize(("took", "bound_s"), [
    ([0.1], 0.1), ([0.0, 0.0], 0.1), ([1e-6, 1e-3, 30.0], 1e6), ([0.0, 0.0], None), ([np.nan, 0.1], None),
    (np.geomspace(1e-6, 10, 1_000_000), 0.1),
])  # fmt: skip
def test_latencies_of_any_kind_are_drawn(took: Any, bound_s: float | None) -> None:
    svg = draw(served(np.ones(len(took)), took, **({"latency_bound_s": bound_s} if bound_s else {})))["service"]
    ET.fromstring(svg)
    assert len(svg) < 300_000


# ---- solves -------------------------------------------------------------------------------


def test_solves_are_drawn_by_gap() -> None:
    near = solve([0.0, 0.1, 0.2], [0.0, -30.0, -40.0], official=-40.0)
    far = solve([0.0], [-20.0], -20.0, official=-40.0)
    said = texts(draw(solved(near, far))["solver"])
    assert "gap to the official target, n = 2" in said
    assert "gap of 1 %: 1 of 2" in said


@pytest.mark.parametrize("solves", [
    [solve([], [], best=-40.0)],
    [solve([0.0], [0.0], math.nan, best=-40.0)],
    [solve([0.0, 1e-4], [1.0, -44.0], -44.0, best=-40.0)],
    [solve([0.01 * k for k in range(9)], [-float(k) for k in range(9)], best=-40.0)] * 100,
])  # fmt: skip
def test_solves_of_any_kind_are_drawn(solves: list[Solve]) -> None:
    svg = draw(solved(*solves))["solver"]
    ET.fromstring(svg)
    assert len(svg) < 300_000


def test_empty_data_draw_no_picture() -> None:
    assert "service" not in draw(served([], []))
    assert "layers" not in draw(counted(0))
    assert "solver" not in draw(solved())
    assert "solver" not in draw(solved(solve([0.1], [-1.0])))
    assert "solver" not in draw(solved(solve([0.1], [-1.0], best=0.0)))


# ---- what the network did -----------------------------------------------------------------


def counted(connections: int, name: str = "part") -> Result:
    """Return a result with complexity by layer: connection k performs k of 100 (k + 1) operations."""
    found = {FigureKey("activation_sparsity", layer=f"{name} layer {k}"): q(0.5, "1") for k in range(connections)}
    for k in range(connections):
        for quantity, value in (("dense_operations", 100 * (k + 1)), ("effective_acs", k), ("effective_macs", 0)):
            found[FigureKey(f"{quantity}_per_sample", layer=f"{name} {k}")] = q(value, "1")
    return replace(without_pictures(made_up()), quantities=Figures(found))


@pytest.mark.parametrize("connections", [1, 3, 40])
def test_the_largest_connections_show_their_operations(connections: int) -> None:
    told = texts(draw(counted(connections))["layers"])
    for k in range(connections - 8 if connections > 8 else 0, connections):
        assert f"part {k}: {k} of {100 * (k + 1):,}" in told
    assert connections <= 8 or f"part {connections - 9}:" not in told


def test_names_of_layers_are_shown_as_text() -> None:
    assert clean(HOSTILE) in " ".join(texts(draw(counted(2, HOSTILE))["layers"]).split("\n"))


# ---- pictures of a fixed form -------------------------------------------------------------


def test_a_budget_of_one_source_has_no_bar() -> None:
    one = replace(q(0.9, "1"), components=(Component("finite sample", 0.02),))
    figures = Figures({FigureKey("accuracy"): one, FigureKey("execution_time_s"): q(0.9, "s", 0.002)})
    svg = draw(replace(without_pictures(made_up()), quantities=figures))["budget"]
    assert "all of it finite sample" in texts(svg)
    assert svg.count(b"<rect") == 4  # two parts of one bar, and their legend


def test_a_line_breaks_at_nan() -> None:
    sheet = Sheet("two stretches")
    sheet.path(np.arange(6.0), np.array([1.0, 2.0, np.nan, 3.0, np.nan, np.nan]), "#000000")
    assert 'd="M0.0 1.0L1.0 2.0M3.0 3.0"' in sheet.svg({False}).decode()


@pytest.mark.parametrize(("low", "high", "said"), [
    (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]), (3.0, 3.0, [3.0]), (-0.13, 0.1, [-0.1, -0.05, 0.0, 0.05, 0.1]),
])  # fmt: skip
def test_ticks_are_round_numbers(low: float, high: float, said: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(said)


def test_close_ticks_have_distinct_labels() -> None:
    sheet = Sheet("a slight change")
    across, _ = sheet.panel((0.0, 1.0), (1000.0, 1000.001), 100.0, "time")
    assert {"1,000.0005", "1,000.001"} <= set(texts(sheet.svg({False})).split())
    assert across(0.0) > 10 * DIGIT


def test_a_very_short_span_is_a_line() -> None:
    series = replace(made_up().series, phase_windows_s={"inference": np.array([[20.0, 20.00001]])})
    svg = power_figure(series)
    assert svg is not None
    widths = re.findall(
        rf'width="([\d.]+)" height="110.00" style="fill: {COLOURS["inference"]}', svg.svg({False}).decode()
    )
    assert float(widths[0]) == 1.0
