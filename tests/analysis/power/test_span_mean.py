"""Active power by the text: the mean over the spans themselves, whatever the device does beside them."""

from __future__ import annotations

import pytest

from rig.analysis.figure_key import LITERAL, FigureKey, Figures
from rig.analysis.power import figures as fig
from rig.analysis.power.span_mean import difference_notes
from rig.analysis.quantity import Component, Quantity
from rig.types import Floats
from tests.analysis.power.test_power import BUSY_W, IDLE_W, figures_of, mean_added_w, plant_of, rail_of, spans_of

ACTIVE, DYNAMIC = FigureKey("active_power_w"), FigureKey("dynamic_power_w")
BY_TEXT = FigureKey("active_power_w", method=LITERAL)


def test_the_mean_over_the_spans_stands_beside_the_integrated_headline() -> None:
    spans = spans_of()
    found, _ = figures_of(plant_of(spans), spans, [rail_of("core")], noise=0.005)
    assert found[ACTIVE].method == fig.INTEGRATED_METHOD
    low, high = found[BY_TEXT].interval(0.999)
    assert low <= BUSY_W["core"] <= high
    assert list(difference_notes(found)) == []


@pytest.mark.parametrize("leak_w", [0.0, 5e-4], ids=["idle between spans", "leak between spans"])
@pytest.mark.parametrize("aperture", [1.0, 0.5])
def test_a_burst_at_the_ends_of_the_spans_counts(leak_w: float, aperture: float) -> None:
    spans = spans_of()
    plant = plant_of(spans, leak_w, burst=1.0, burst_share=0.05, burst_at=0.0)
    truth = IDLE_W["core"] + mean_added_w(plant, spans)
    found, _ = figures_of(plant, spans, [rail_of("core")], aperture=aperture)
    assert found[BY_TEXT].value == pytest.approx(truth, rel=0.01)


def test_trimmed_windows_that_leave_out_a_burst_state_at_least_the_difference() -> None:
    spans, stated = spans_of(width_s=0.006), rail_of("core", accuracy=None)
    plant = plant_of(spans, 5e-4, burst=2.0, burst_share=0.1, burst_at=0.0)
    found, notes = figures_of(plant, spans, [stated])
    assert found[ACTIVE].method == fig.TRIMMED_METHOD
    assert 0.0 < found[BY_TEXT].value - found[ACTIVE].value < found[ACTIVE].half_width()
    assert any("leave out the ends of spans" in note for note in notes)


@pytest.mark.parametrize(
    ("method", "headline", "why"),
    [
        (fig.INTEGRATED_METHOD, 3.2, "more than its idle power just before or after its spans"),
        (fig.INTEGRATED_METHOD, 2.8, "less than its idle power just before or after its spans"),
        (fig.TRIMMED_METHOD, 2.8, "At the ends of its spans, the device draws more"),
        (fig.TRIMMED_METHOD, 3.2, "At the ends of its spans, the device draws less"),
    ],
)
def test_a_difference_beyond_both_uncertainties_is_explained(method: str, headline: float, why: str) -> None:
    noise = (Component("white noise", 0.01),)
    by_text = Quantity(3.0, "W", noise, method="mean over the spans")
    (note,) = difference_notes(Figures({ACTIVE: Quantity(headline, "W", noise, method=method), BY_TEXT: by_text}))
    assert why in note
    wide = Quantity(headline, "W", noise, bias=0.3, method=method)
    assert list(difference_notes(Figures({ACTIVE: wide, BY_TEXT: by_text}))) == []


def leaking(spans: Floats, late_s: float) -> float:
    found, _ = figures_of(plant_of(spans, 5e-4), spans, [rail_of("core")], late_s=late_s, noise=0.002)
    return abs(found[BY_TEXT].value - BUSY_W["core"]) / found[BY_TEXT].half_width()


def test_spans_that_are_placed_wrongly_by_the_stated_error_are_held() -> None:
    spans = spans_of(count=200)
    assert leaking(spans, 0.0) < 1.0
    assert leaking(spans, 1e-5) < 1.0


def test_energy_by_the_text_is_its_power_times_the_time() -> None:
    spans = spans_of()
    found, _ = figures_of(plant_of(spans), spans, [rail_of("core")])
    energy = found[FigureKey("energy_per_inference_j", method=LITERAL)].value
    assert energy == pytest.approx(found[BY_TEXT].value * found[FigureKey("execution_time_s")].value, rel=1e-12)
    by_text = found[FigureKey("dynamic_power_w", method=LITERAL)].value
    idle = found[FigureKey("idle_power_w")].value
    assert by_text == pytest.approx(found[BY_TEXT].value - idle, rel=1e-3)


def test_a_slow_meter_shows_by_the_text_what_it_shows_by_integration() -> None:
    spans = spans_of(width_s=0.05, gap_s=0.05)
    found, _ = figures_of(plant_of(spans), spans, [rail_of("core")], period_s=0.02)
    assert found[BY_TEXT].value == pytest.approx(found[ACTIVE].value, rel=2e-3)
    assert found[BY_TEXT].value == pytest.approx(BUSY_W["core"], rel=2e-3)
