"""The picture of a sweep: one quantity against one key, a line for each combination of the others."""

import html
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies as st

from reports.sweeps import axes as sweep_axes
from reports.sweeps.picture import sweep_figure
from rig.analysis.result.figure_catalogue import CATALOGUE
from rig.analysis.result.quantity import FigureKey
from rig.errors import UsageError
from tests.support.raised import raised

LETTERS = st.characters(max_codepoint=0x24F)
FIGURES = {name: FigureKey(name) for name in ("execution_time_s", "energy_per_inference_j", "accuracy")}
COST, GAP = {"cost_mean": FigureKey("cost_mean")}, FigureKey("gap_{target}_mean", target="best_known")


def table(rates: list[Any], loads: list[Any] | None = None, **figures: float) -> list[dict[str, Any]]:
    figures = figures or {"energy_per_inference_j": 1e-4, "execution_time_s": 0.1}
    rows = []
    for number, rate in enumerate(rates):
        for load in loads or ["only"]:
            row: dict[str, Any] = {"device": "mock", "rate": rate, "load": load, "repetition": 0, "simulated": True}
            for name, value in figures.items():
                at = value * (number + 1)
                row |= {name: at, f"{name}.interval_95": (at - 0.02 * abs(value), at + 0.02 * abs(value))}
            rows.append(row)
    return rows


def drawn(rows: list[dict[str, Any]], plot: str | None = None, against: str | None = None) -> str:
    picture = sweep_figure(rows, ("rate", "load"), FIGURES, plot, against)
    assert picture is not None
    ElementTree.fromstring(picture)
    return picture.decode()


def ticks(svg: str) -> set[str]:
    return set(re.findall(r">([^<>\s]+)</text>", svg))


def test_the_default_axes_are_energy_and_the_longest_key() -> None:
    svg = drawn(table([1, 2, 3], ["a", "b", "c", "d"]))
    assert "Energy per inference against rate, 12 cells, 95 % intervals" in svg
    assert [f"load = {name}" in svg for name in "abcde"] == [True, True, True, True, False]


def test_the_title_counts_invalid_cells() -> None:
    rows = table([1, 2, 3])
    rows[1]["verdict"] = "INVALID by quick"
    assert "3 cells, 1 of them INVALID, 95 % intervals" in drawn(rows)


def test_chosen_axes_are_drawn() -> None:
    svg = drawn(table([1, 2, 3], ["a", "b"]), "execution_time_s", "load")
    assert "against load" in svg
    assert {"a", "b"} <= ticks(svg)
    assert "rate = 3" in svg


def test_intervals_are_bars_and_what_was_simulated_says_so() -> None:
    rows = table([1, 2, 3])
    assert drawn(rows) != drawn([{k: v for k, v in row.items() if not k.endswith("_95")} for row in rows])
    assert "SIMULATED" in drawn(rows)
    assert "SIMULATED" not in drawn([row | {"simulated": False} for row in rows])


def test_cells_without_the_figure_are_left_out() -> None:
    rows = table([1, 2, 3])
    rows[1]["energy_per_inference_j"] = None
    assert "2 cells" in drawn(rows, "energy_per_inference_j")
    assert "Execution time, mean against rate, 3 cells" in drawn(rows)
    assert sweep_figure([], ("rate",), {}, None, None) is None
    assert sweep_figure([{"rate": 1, "simulated": None}], ("rate",), {}, None, None) is None


def test_two_quantities_may_be_drawn_against_each_other() -> None:
    svg = drawn(table([1, 2, 3], ["a", "b"]), "energy_per_inference_j", "execution_time_s")
    assert "against Execution time, mean (s)" in svg
    assert {"load = a", "load = b"} <= set(re.findall(r">([^<>]+)</text>", svg))
    assert "rate = " not in svg
    fewer = drawn(table([1, 2], ["a", "b", "c"]), "energy_per_inference_j", "execution_time_s")
    assert {"load = a", "load = c"} <= set(re.findall(r">([^<>]+)</text>", fewer))


def test_simulated_lines_are_marked() -> None:
    rows = [row | {"simulated": row["load"] == "b"} for row in table([1, 2, 3], ["a", "b"])]
    texts = re.findall(r">([^<>]+)</text>", drawn(rows, None, "rate"))
    assert {"load = a", "load = b (SIMULATED)", "SIMULATED in part"} <= set(texts)
    assert "SIMULATED" not in texts


def test_repetitions_are_drawn_in_sequence() -> None:
    assert "against repetition" in drawn([row | {"repetition": k} for k, row in enumerate(table([5, 5, 5]))])


@pytest.mark.parametrize(("plot", "against"), [("joy", None), (None, "moon"), (None, "latency_p99_s")])
def test_an_unknown_column_is_named(plot: str | None, against: str | None) -> None:
    error = raised(UsageError, drawn, table([1, 2]), plot, against, says=r"is not in the table\. Known: ")
    assert error.value in (plot, against)


@given(
    st.lists(st.one_of(st.integers(-(10**9), 10**9), st.text(LETTERS, max_size=20), st.none()), min_size=1, max_size=6),
    st.floats(-1e9, 1e9),
)
def test_any_table_is_drawn_or_not_at_all(rates: list[Any], value: float) -> None:
    picture = sweep_figure(table(rates, None, execution_time_s=value), ("rate",), FIGURES, None, "rate")
    if picture is not None:
        ElementTree.fromstring(picture)


# ---- solvers --------------------------------------------------------------------------------

DEVICES = ("cpu-mis", "cpu-sa", "cpu-tabu")


def solved(devices: tuple[str, ...] = DEVICES, **figures: Any) -> list[dict[str, Any]]:
    return [
        {"device": device, "timeout_s": timeout_s, "repetition": 0, "simulated": device == "loihi2", **figures}
        for device in devices
        for timeout_s in (0.001, 0.01, 0.1)
    ]


def texts(
    rows: list[dict[str, Any]], figures: dict[str, FigureKey], varied: tuple[str, ...], plot: str | None = None
) -> Any:
    picture = sweep_figure(rows, varied, figures, plot, None)
    assert picture is not None
    return [html.unescape(text) for text in re.findall(r">([^<>]+)</text>", picture.decode())]


def test_the_gap_of_solvers_comes_before_the_cost() -> None:
    latency = FigureKey("latency_p{percentile}_s", percentile=99)
    figures = {str(key): key for key in (latency, FigureKey("execution_time_s"), FigureKey("cost_mean"), GAP)}
    rows = [row | dict.fromkeys(figures, 0.5) for row in solved()]
    said = "\n".join(texts(rows, figures, ("device", "timeout_s")))
    assert re.search("^Gap to the best known target", said, re.M)
    del figures["gap_best_known_mean"]
    assert re.search("^Cost, mean against", "\n".join(texts(rows, figures, ("device", "timeout_s"))), re.M)


def test_each_device_has_a_colour_and_each_other_value_a_mark() -> None:
    rows = [row | {"density": d} for row in solved(cost_mean=-5.0) for d in range(7)]
    found = texts(rows, COST, ("device", "density", "timeout_s"), "cost_mean")
    assert {*DEVICES, *(f"timeout = {t:g} s" for t in (0.001, 0.01, 0.1))} <= set(found)
    assert not any("not named" in text for text in found)


def test_a_line_simulated_in_part_says_so() -> None:
    rows = solved(("cpu-sa", "loihi2"), cost_mean=-5.0)
    assert "loihi2 (SIMULATED)" in texts(rows, COST, ("device", "timeout_s"))
    picture = sweep_figure(rows, ("device", "timeout_s"), COST, "cost_mean", "device")
    assert picture is not None and "(SIMULATED in part)" in picture.decode()


def test_long_names_keep_their_distinct_ends() -> None:
    folder = "/a/long/way/to/some/folder/far/away/from/here"
    rows = [row | {"file": f"{folder}/{row['device']}"} for row in solved(accuracy=0.5)]
    found = texts(rows, FIGURES, ("file", "timeout_s"))
    assert len({text for text in found if text.endswith(DEVICES)}) == 3


def test_common_targets_are_lines_beside_costs() -> None:
    rows = solved(cost_mean=-90.0, target_official_mean=-105.0, target_best_known_mean=-115.0)
    targets = [FigureKey("target_{target}_mean", target=target) for target in ("official", "best_known")]
    figures = COST | {str(key): key for key in targets}
    assert {"official target", "best known target"} <= set(texts(rows, figures, ("device", "timeout_s"), "cost_mean"))
    rows[0]["target_official_mean"] = -104.0
    assert "official target" not in texts(rows, figures, ("device", "timeout_s"), "cost_mean")


@pytest.mark.parametrize(("values", "logarithmic"), [
    ([10, 25, 50, 100], True), ([0.01, 0.05, 0.1, 0.25], True), ([1, 10], False), (list(range(10, 101, 10)), False),
    ([200, 400, 1000], False), ([0, 1, 10, 100], False), ([1, 100], True),
])  # fmt: skip
def test_an_axis_is_logarithmic_for_even_factors(values: list[float], logarithmic: bool) -> None:
    assert sweep_axes.logarithmic(values) == logarithmic


@given(st.floats(0, 10), st.floats(0, 100), st.sampled_from(["active_power_w", "latency_mean_s", "feasible_share"]))
def test_intervals_stay_within_the_quantity_bounds(value: float, half: float, name: str) -> None:
    unit = CATALOGUE[name].unit
    value = min(value, 1.0) if unit == "1" else value
    drawn = sweep_axes.Drawn(name, "k", 1.0, {}, sweep_axes.bounds(CATALOGUE[name]))
    y, low, high = drawn.interval({name: value, f"{name}.interval_95": (value - half, value + half)})
    assert 0.0 <= low <= y <= high
    assert unit != "1" or high <= 1.0


@pytest.mark.parametrize("name", ["gap_{target}_mean", "cost_mean", "dynamic_power_w"])
def test_a_signed_quantity_keeps_its_interval(name: str) -> None:
    drawn = sweep_axes.Drawn(name, "k", 1.0, {}, sweep_axes.bounds(CATALOGUE[name]))
    assert drawn.interval({name: 0.1, f"{name}.interval_95": (-0.4, 0.6)})[1:] == (-0.4, 0.6)
