"""Readings are moved to where the edges of the spans are, however far that is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fixtures.worlds.lab_recording import plain_lab, write
from fixtures.worlds.more_lab_kinds import KINDS
from fixtures.worlds.random_draw import draw, measured
from rig.analysis.evaluate import evaluate
from rig.analysis.figure_key import FigureKey
from rig.analysis.timing.activity_signal import edges_of, mean_signal
from rig.analysis.timing.following import followed
from rig.analysis.timing.readings import Readings
from rig.recording.reader import open_run
from rig.types import Floats, Rail

SPANS_S = 1.0 + np.arange(80.0)[:, None] + np.array([0.0, 0.4])
"""Each lasts twenty readings of 0.02 s."""


def seen(drawn_s: Floats, length_s: Floats, seed: int = 1, aperture: float = 1.0) -> Readings:
    """Readings of one length after the other, of a device that works while ``drawn_s`` last.

    They look at the first ``aperture`` of each length.
    """
    start_s = np.cumsum(length_s) - length_s
    end_s = start_s + aperture * length_s
    noise = np.random.default_rng(seed).normal(0.0, 0.003, len(end_s))
    watts = 1.0 + mean_signal(edges_of(drawn_s), start_s, end_s) + noise
    ok = np.ones(len(watts), bool)
    return Readings(Rail("core"), start_s, end_s, watts, watts, ok, ~ok, float(np.median(length_s)), 0.0)


EVEN = np.full(4150, 0.02)


@pytest.mark.parametrize("seed", range(10))
def test_ends_that_are_stamped_late_leave_the_readings_where_they_are(seed: int) -> None:
    """Begins stand still, so no clock wanders; how late each end was stamped tells nothing about the next span."""
    drawn_s = SPANS_S.copy()
    drawn_s[:, 1] -= np.random.default_rng(seed).exponential(0.04, len(drawn_s))
    assert followed(seen(drawn_s, np.full(10500, 0.008)), SPANS_S) is None


@pytest.mark.parametrize("seed", range(5))
def test_edges_within_long_readings_leave_the_readings_where_they_are(seed: int) -> None:
    """Where in a long reading an edge is cannot be seen closely, which says nothing against the clocks."""
    rng = np.random.default_rng(seed)
    length_s = 0.02 * (rng.uniform(0.6, 1.2, 3800) + (rng.random(3800) < 0.05) * rng.uniform(1.0, 8.0, 3800))
    assert followed(seen(SPANS_S, length_s), SPANS_S) is None


@pytest.mark.parametrize("by_s", [0.05, 0.2])
def test_spans_that_wander_together_are_followed(by_s: float) -> None:
    wandered_s = by_s * np.sin(SPANS_S / 20.0)
    found = followed(seen(SPANS_S + wandered_s, EVEN), SPANS_S)
    assert found is not None
    assert np.allclose(found.moved(SPANS_S + wandered_s), SPANS_S, atol=0.02)


@pytest.mark.parametrize("seed", [1000000, 1000025, 1000027])
def test_readings_lost_one_by_one_are_followed_to_the_last_span(seed: int, tmp_path: Path) -> None:
    """The last spans are farther away than the first search reaches, which most spans do not need."""
    lab = plain_lab(seed, "drops_now_and_then")
    KINDS["drops_now_and_then"](lab)
    write(lab, tmp_path / "run")
    power = evaluate(open_run(tmp_path / "run")).quantities[FigureKey("dynamic_power_w")]

    assert abs(power.value - lab.truth()["dynamic_power_w"]) <= power.half_width()


def smoothed(drawn_s: Floats, tau_s: float) -> Readings:
    """Readings behind a filter that nobody declared."""
    r = seen(drawn_s, EVEN)
    sharp, smooth = (mean_signal(edges_of(drawn_s), r.start_s, r.end_s, tau) for tau in (0.0, tau_s))
    return replace(r, watts=r.watts - sharp + smooth)


@pytest.mark.parametrize("tau_s", [0.015, 0.03])
def test_a_filter_that_begins_and_ends_show_alike_is_found(tau_s: float) -> None:
    found = followed(smoothed(SPANS_S, tau_s), SPANS_S)
    assert found is not None
    assert found.tau_s == pytest.approx(tau_s, rel=0.15)


@pytest.mark.parametrize("aperture", [0.1, 0.23, 0.6])
@pytest.mark.parametrize("tau_s", [0.0, 0.02])
def test_what_a_meter_leaves_out_beside_edges_is_no_filter(aperture: float, tau_s: float) -> None:
    length_s = np.full(4300, 0.0193)
    r, sharp = seen(SPANS_S, length_s, aperture=aperture), seen(SPANS_S, length_s, seed=2, aperture=aperture)
    smooth = mean_signal(edges_of(SPANS_S), r.start_s, r.end_s, tau_s) - mean_signal(
        edges_of(SPANS_S), r.start_s, r.end_s
    )
    found = followed(replace(r, watts=sharp.watts + smooth), SPANS_S)
    if tau_s:
        assert found is not None and found.tau_s == pytest.approx(tau_s, rel=0.2)
    else:
        assert found is None or found.tau_s is None


@pytest.mark.parametrize(("lower", "delay_s", "held", "hold_s"), [(0.4, 0.044, 0.38, 0.084), (0.6, 0.08, 0.3, 0.12)])
def test_plateaus_of_a_governor_are_no_filter(lower: float, delay_s: float, held: float, hold_s: float) -> None:
    """The clock rises some time after each begin, and falls some time after each end."""
    on, off = SPANS_S.T
    r = seen(SPANS_S, EVEN)
    for at_s, length_s, height in ((on, delay_s, -lower), (off, hold_s, held)):
        plateau = edges_of(np.column_stack([at_s, at_s + length_s]), height)
        r = replace(r, watts=r.watts + mean_signal(plateau, r.start_s, r.end_s))
    found = followed(r, SPANS_S)
    assert found is None or found.tau_s is None


def test_spans_that_are_all_late_alike_stay_and_are_less_certain() -> None:
    """A device that works less at its begins and more after its ends looks the same as a clock that is off."""
    found = followed(seen(SPANS_S + 0.03, EVEN), SPANS_S)
    assert found is not None
    assert found.knots_s is None
    assert found.sigma_s == pytest.approx(0.03, abs=0.005)


def test_spans_that_nearly_touch_have_no_edges_to_follow(tmp_path: Path) -> None:
    """Two of its spans are closer than the readings beside an edge that take no part in the levels."""
    measured(draw(115), tmp_path / "run")
    result = evaluate(open_run(tmp_path / "run"))

    assert not any("later in the trace" in note for note in result.notes)
