"""If no reading shows a span alone, power is fitted to the shares of spans and gaps in each reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kinds import compared
from benchmarks.pairs import composed
from fixtures.worlds.lab_recording import plain_lab
from tests.support.labs import POWER, evaluated, measured, off


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("pole_as_long_as_a_span", 31000001),
        ("moving_mean_as_long_as_a_span", 31000003),
        ("inferences_faster_than_readings", 31000003),
        ("inferences_faster_than_readings", 31000004),
    ],
)
def test_a_filter_or_an_aperture_as_long_as_spans_makes_a_wide_figure_that_holds(
    kind: str, seed: int, tmp_path: Path
) -> None:
    lab, result = evaluated(kind, seed, tmp_path)
    power = result.quantities[POWER]
    assert off(lab, result) <= 1.5
    assert power.half_width() < abs(power.value)
    assert any("fitted to what spans and gaps fill" in note for note in result.notes)


def test_a_moving_mean_is_told_from_a_pole_of_the_same_delay(tmp_path: Path) -> None:
    """As a pole, it leaves residuals at the same place of all spans, so the figure means little."""
    lab, result = evaluated("moving_mean_as_long_as_a_span", 31000004, tmp_path)
    power = result.quantities[POWER]
    assert off(lab, result) <= 1.5
    assert power.half_width() < 0.1 * abs(power.value)


@pytest.mark.parametrize("kind", ["governor_follows_load", "governor_picks_by_predicted_gap"])
def test_what_gaps_do_at_the_same_place_each_time_is_a_bias_or_refuses(kind: str) -> None:
    """With spans of two readings, these were once stated as if gaps were even, wrong by many half-widths."""
    for seed in (9_000_100, 9_000_101):
        row = compared(composed("spans_short_against_a_reading", kind, seed))
        for name, figure in row["figures"].items():
            assert abs(figure["error"]) <= 1.5 * figure["half"], name


@pytest.mark.parametrize("count", [1, 3])
def test_few_short_spans_tell_too_little(count: int, tmp_path: Path) -> None:
    lab = plain_lab(3, "plain")
    lab.spans_s[:, 1] = lab.spans_s[:, 0] + 1.5 / lab.rate_hz
    lab.spans_s, lab.span_w, lab.label = lab.spans_s[:count], lab.span_w[:count], lab.label[:count]
    assert POWER not in measured(lab, tmp_path).quantities
