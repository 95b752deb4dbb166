"""The two estimators on readings directly from a plant: where each is exact, and what changes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.bench.true_power import ORIGIN_NS, SimPlant, ns_of, open_plant
from rig.analysis.power.estimators import Estimate, core, touched, whole
from rig.analysis.power.model.rail_model import RailModel, rail_model
from rig.analysis.timing.alignment.placement import AlignedRail
from rig.analysis.timing.profile import step_of
from rig.analysis.timing.readings import Readings
from rig.analysis.timing.timebase import host_timebase
from rig.analysis.timing.timeline import Activity, Phase
from rig.types import Floats, Rail

CALM = settings(deadline=None, derandomize=True, database=None)

IDLE_W = {"core": 1e-3, "io": 5e-4}
BUSY_W = {"core": 3e-3, "io": 7e-4}
LEAD_S = 1.0
NONE = np.zeros((0, 2))


def plant_of(spans: Floats, **ways: Any) -> SimPlant:
    """Return a plant with inference spans."""
    plant = open_plant(**ways)
    plant.install(IDLE_W, {"inference": BUSY_W})
    for on, off in spans:
        plant.occupy("inference", *(ORIGIN_NS + round(t * 1e9) for t in (on, off)))
    return plant


def spans_of(count: int = 40, width_s: float = 0.02, gap_s: float = 0.01, seed: int = 0) -> Floats:
    """Spans on whole nanoseconds with gaps of uneven length."""
    gaps = gap_s * np.random.default_rng(seed).uniform(0.8, 1.4, count)
    on = np.round(LEAD_S + np.cumsum(gaps + width_s), 9)
    return np.column_stack([on, np.round(on + width_s, 9)])


def activity_of(spans: Floats) -> Activity:
    idle = np.array([[0.0, LEAD_S], [spans[-1, 1] + 0.01, spans[-1, 1] + 0.01 + LEAD_S]])
    one = np.arange(len(spans))
    return Activity({"inference": Phase(spans, np.ones_like(one), np.ones_like(one), one)}, NONE, NONE, idle, False)


def readings_of(
    plant: SimPlant, spans: Floats, rail: Rail | str = "core", period_s: float = 1e-3, aperture: float = 1.0,
    tau: float = 0.0, first_s: float = 3e-5, late_s: float = 0.0, noise: float = 0.0,
) -> Readings:  # fmt: skip
    """Return a faultless meter's readings, stamped ``late_s`` late; ``tau`` is in readings."""
    rail = Rail(rail) if isinstance(rail, str) else rail
    n = int((spans[-1, 1] + LEAD_S) / period_s) - 1
    start = first_s + np.arange(n) * period_s
    end = start + aperture * period_s
    watts = plant.idle_mean_w(rail.name, start, end) + plant.dynamic(rail.name, tau * period_s).mean_over(start, end)
    watts = watts + noise * BUSY_W[rail.name] * np.random.default_rng(len(rail.name)).normal(size=n)
    fine, never = np.ones(n, bool), np.zeros(n, bool)
    return Readings(rail, start + late_s, end + late_s, watts, watts, fine, never, period_s, tau * period_s)


def seen_by(readings: Readings, spans: Floats, sigma_s: float = 1e-5) -> RailModel:
    model = rail_model(AlignedRail(readings, host_timebase(0), sigma_s, sigma_s), activity_of(spans))
    assert model is not None
    return model


def trimmed(model: RailModel, spans: Floats) -> Estimate:
    found = core(model, spans, model.trace.idle_under(spans))
    assert isinstance(found, Estimate)
    return found


def all_of(model: RailModel, spans: Floats, other: Floats = NONE) -> Estimate:
    idle = model.trace.idle_under(spans)
    of = touched(model, spans, other, idle)
    assert of is not None
    return whole(model, of, idle)


def mean_added_w(plant: SimPlant, spans: Floats) -> float:
    added = [plant.dynamic_j(ns_of(on_s), ns_of(off_s), "core") for on_s, off_s in spans]
    return sum(added) / float(np.sum(spans[:, 1] - spans[:, 0]))


@settings(CALM, max_examples=25)
@given(
    aperture=st.floats(0.1, 1.0), tau=st.sampled_from([0.0, 0.1, 0.3]), first=st.floats(0.0, 1.0),
    width_s=st.floats(5e-3, 60e-3), drift=st.sampled_from([0.0, -0.01, 0.004, 0.01]),
)  # fmt: skip
def test_flat_spans_without_noise_are_met_and_exactly_where_idle_is_flat(
    aperture: float, tau: float, first: float, width_s: float, drift: float
) -> None:
    spans = spans_of(width_s=width_s)
    plant = plant_of(spans, idle_drift_per_s=drift)
    model = seen_by(readings_of(plant, spans, aperture=aperture, tau=tau, first_s=first * 1e-3), spans)
    full, cut = all_of(model, spans), trimmed(model, spans)
    least = 1e-9 if drift == 0.0 else 1e-3
    assert full.value_w == pytest.approx(2e-3, rel=max(least, 1e-4 if tau else 0.0))
    assert cut.value_w == pytest.approx(2e-3, rel=max(least, 3e-3 if tau else 0.0))
    middle = np.array([spans.mean()])
    assert full.idle_w == pytest.approx(float(plant.idle_mean_w("core", middle, middle + 1e-9)[0]), rel=2e-3)


@settings(CALM, max_examples=20)
@given(
    burst=st.floats(-0.5, 1.0), share=st.floats(0.05, 0.5), at=st.sampled_from([0.0, 0.5, 1.0, -1.0]),
    first=st.floats(0.0, 1.0), late=st.floats(-0.9, 0.9),
)  # fmt: skip
def test_whole_spans_are_unmoved_by_bursts_and_by_the_clock_s_uncertainty(
    burst: float, share: float, at: float, first: float, late: float
) -> None:
    spans = spans_of()
    plant = plant_of(spans, burst=burst, burst_share=share, burst_at=at)
    sigma_s = 5e-4  # two sigma are one reading
    readings = readings_of(plant, spans, first_s=first * 1e-3, late_s=late * 1e-3)
    full = all_of(seen_by(readings, spans, sigma_s), spans)
    assert full.value_w == pytest.approx(mean_added_w(plant, spans), rel=1e-6)
    assert full.share == 1.0


def test_trimming_is_diluted_by_a_clock_that_is_off_by_more_than_it_says() -> None:
    spans = spans_of()
    model = seen_by(readings_of(plant_of(spans), spans, late_s=2e-3), spans, sigma_s=1e-5)
    assert trimmed(model, spans).value_w < 0.97 * 2e-3
    honest = replace(model, sigma_s=1e-3)
    assert trimmed(honest, spans).value_w == pytest.approx(2e-3, rel=1e-7)


def test_whole_stretches_that_also_hold_something_else_are_left_out() -> None:
    spans = spans_of()
    foreign = spans[10:12]
    counted = np.delete(spans, [10, 11], axis=0)
    model = seen_by(readings_of(plant_of(spans), spans), spans)
    found = all_of(model, counted, foreign)
    assert found.value_w == pytest.approx(2e-3, rel=1e-9)
    touching = np.column_stack([spans[5:6, 1], spans[5:6, 1] + 1e-3])
    less = all_of(model, counted, np.concatenate([foreign, touching]))
    assert less.share < found.share == 1.0


@given(st.floats(1e-6, 1e3), st.integers(-50, 50), st.integers(4, 40), st.integers(0, 2**32 - 1))
def test_a_step_that_nobody_declared_is_found_in_the_readings(step: float, first: int, levels: int, seed: int) -> None:
    steps = np.random.default_rng(seed).integers(first, first + levels, 2000)
    values = np.concatenate([steps, np.arange(first, first + levels)]) * step

    assert step_of(values) == pytest.approx(step, rel=1e-6)
