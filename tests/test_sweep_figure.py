"""The picture of a sweep: one quantity against one key, a line for each combination of the others."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.sweep_figure import sweep_figure
from rig.errors import UsageError

LETTERS = st.characters(max_codepoint=0x24F)
UNITS = {"execution_time_s": "s", "energy_per_inference_j": "J", "accuracy": "1"}


def table(rates: list[Any], loads: list[Any] | None = None, **figures: float) -> list[dict[str, Any]]:
    figures = figures or {"energy_per_inference_j": 1e-4, "execution_time_s": 0.1}
    rows = []
    for number, rate in enumerate(rates):
        for load in loads or ["only"]:
            row: dict[str, Any] = {"device": "mock", "rate": rate, "load": load, "repetition": 0, "simulated": True}
            for name, value in figures.items():
                row |= {name: value * (number + 1), f"{name}.half_width_95": 0.02 * abs(value)}
            rows.append(row)
    return rows


def drawn(rows: list[dict[str, Any]], plot: str | None = None, against: str | None = None) -> str:
    picture = sweep_figure(rows, ("rate", "load"), UNITS, plot, against)
    assert picture is not None
    ElementTree.fromstring(picture)
    return picture.decode()


def ticks(svg: str) -> set[str]:
    return set(re.findall(r">([^<>\s]+)</text>", svg))


def test_the_same_table_gives_the_same_bytes() -> None:
    assert drawn(table([1, 2, 3], ["a", "b"])) == drawn(table([1, 2, 3], ["a", "b"]))


def test_without_a_wish_it_shows_energy_against_the_key_with_most_values() -> None:
    svg = drawn(table([1, 2, 3], ["a", "b", "c", "d"]))
    assert "Energy per inference against rate, 12 cells, 95 % intervals" in svg
    assert [f"load = {name}" in svg for name in "abcde"] == [True, True, True, True, False]


def test_it_shows_what_is_asked_for() -> None:
    svg = drawn(table([1, 2, 3], ["a", "b"]), "execution_time_s", "load")
    assert "against load" in svg
    assert {"a", "b"} <= ticks(svg)
    assert "rate = 3" in svg


def test_a_key_over_decades_has_a_logarithmic_axis() -> None:
    assert {"1", "10", "100", "1000"} <= ticks(drawn(table([1, 10, 100, 1000])))
    assert "500" in drawn(table([200, 400, 1000]))


def test_intervals_are_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table([1, 2, 3])
    bare = [{k: v for k, v in row.items() if not k.endswith("_95")} for row in rows]
    assert drawn(rows) != drawn(bare)


def test_what_was_simulated_says_so() -> None:
    rows = table([1, 2])
    assert "SIMULATED" in drawn(rows)
    assert "SIMULATED" not in drawn([row | {"simulated": False} for row in rows])


def test_cells_without_the_figure_are_left_out() -> None:
    rows = table([1, 2, 3])
    rows[1]["energy_per_inference_j"] = None
    assert "2 cells" in drawn(rows, "energy_per_inference_j")
    assert "Execution time, mean against rate, 3 cells" in drawn(rows)
    assert sweep_figure([], ("rate",), {}, None, None) is None
    assert sweep_figure([{"rate": 1, "simulated": None}], ("rate",), {}, None, None) is None


def test_a_quantity_may_stand_against_another_along_the_key_with_most_values() -> None:
    svg = drawn(table([1, 2, 3], ["a", "b"]), "energy_per_inference_j", "execution_time_s")
    assert "against Execution time, mean (s)" in svg
    assert {"load = a", "load = b"} <= set(re.findall(r">([^<>]+)</text>", svg))
    assert "rate = " not in svg


def test_what_was_simulated_in_part_is_told_line_by_line() -> None:
    rows = [row | {"simulated": row["load"] == "b"} for row in table([1, 2, 3], ["a", "b"])]
    texts = re.findall(r">([^<>]+)</text>", drawn(rows, None, "rate"))
    assert {"load = a", "load = b (SIMULATED)", "SIMULATED in part"} <= set(texts)
    assert "SIMULATED" not in texts


def test_repetitions_alone_are_drawn_one_after_the_other() -> None:
    rows = [row | {"repetition": k} for k, row in enumerate(table([5, 5, 5]))]
    assert "against repetition" in drawn(rows)


@pytest.mark.parametrize(("plot", "against"), [("joy", None), (None, "moon"), (None, "latency_p99_s")])
def test_what_is_not_in_the_table_is_named(plot: str | None, against: str | None) -> None:
    with pytest.raises(UsageError, match=r"is not in the table\. Known: ") as caught:
        drawn(table([1, 2]), plot, against)
    assert caught.value.value in (plot, against)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.one_of(st.integers(-(10**9), 10**9), st.text(LETTERS, max_size=20), st.none()), min_size=1, max_size=6),
    st.floats(-1e9, 1e9),
)
def test_any_table_is_drawn_or_not_at_all(rates: list[Any], value: float) -> None:
    picture = sweep_figure(table(rates, None, execution_time_s=value), ("rate",), UNITS, None, "rate")
    if picture is not None:
        ElementTree.fromstring(picture)
