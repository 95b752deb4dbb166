"""A meter's clock is shifted until the activity that the device stamped fits what the meter saw."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.bench.true_power import steps_of
from rig.analysis.timing.edge_fit import Alignment, Excess, Fit, refined
from rig.analysis.timing.trace_alignment import align
from rig.types import Floats

CALM = settings(deadline=None, derandomize=True, database=None)

PERIOD_S = 1e-3


@dataclass(frozen=True)
class Scene:
    """Spans, and a meter that stamps its readings wrongly: too early by ``shift_s``, too slowly by ``rate``.

    ``tau`` and ``aperture`` are in readings, ``burst`` relative to the height of 1 W.
    """

    spans: Floats
    shift_s: float = 0.0
    rate: float = 0.0
    aperture: float = 1.0
    tau: float = 0.0
    noise_w: float = 0.01
    burst: float = 0.0
    bow_w: float = 0.0
    seed: int = 0

    @property
    def middle_s(self) -> float:
        return float(self.spans.mean())

    def true_s(self, stamped_s: Floats) -> Floats:
        return stamped_s + self.shift_s + self.rate * (stamped_s - self.middle_s)

    def excess(self) -> Excess:
        """What the meter saw, on its own wrong stamps."""
        n = int((self.spans[-1, 1] + self.spans[0, 0]) / PERIOD_S)
        start = np.arange(n) * PERIOD_S
        end = start + self.aperture * PERIOD_S
        on, off = self.spans.T
        head = steps_of(on, on + 0.3 * (off - on), np.full(len(on), self.burst), self.tau * PERIOD_S)
        body = steps_of(on, off, np.ones(len(on)), self.tau * PERIOD_S)
        watts = sum(s.mean_over(self.true_s(start), self.true_s(end)) for s in (body, head))
        u = np.linspace(0.0, 1.0, n)
        watts = watts + 4.0 * self.bow_w * u * (1.0 - u)
        watts = watts + np.random.default_rng(self.seed).normal(0.0, self.noise_w, n)
        return Excess(start, end, watts, self.noise_w, PERIOD_S, self.tau * PERIOD_S)

    def wrong_by(self, found: Alignment) -> float:
        """Seconds by which an alignment errs in the middle of the activity."""
        return found.shift_s + found.rate * (self.middle_s - found.ref_s) - self.shift_s


def spans_of(seed: int, count: int = 40, width: float = 17.3, gap: tuple[float, float] = (4.0, 12.0)) -> Floats:
    """Spans of one width with uneven gaps, in readings."""
    gaps = np.random.default_rng(seed).uniform(*gap, count)
    on = 300.0 + np.cumsum(gaps + width)
    return np.column_stack([on, on + width]) * PERIOD_S


def aligned(scene: Scene, reach: float = 10.0, rate_reach: float = 0.0) -> Alignment | None:
    return align(scene.excess(), {"inference": scene.spans}, reach * PERIOD_S, rate_reach)


@settings(CALM, max_examples=60)
@given(
    shift=st.floats(-9.0, 9.0), aperture=st.floats(0.3, 1.0), tau=st.sampled_from([0.0, 0.3, 1.0, 3.0]),
    noise_w=st.floats(1e-3, 0.1), width=st.floats(4.0, 60.0), seed=st.integers(0, 999),
)  # fmt: skip
def test_a_shift_is_found_to_a_small_part_of_a_reading(
    shift: float, aperture: float, tau: float, noise_w: float, width: float, seed: int
) -> None:
    scene = Scene(spans_of(seed, width=width), shift * PERIOD_S, aperture=aperture, tau=tau, noise_w=noise_w, seed=seed)
    found = aligned(scene)
    assert found is not None
    assert abs(scene.wrong_by(found)) < 0.15 * PERIOD_S
    assert found.sigma_s < 0.15 * PERIOD_S


@pytest.mark.parametrize("tau", [0.0, 1.0])
@pytest.mark.parametrize("shift", [-8.3, 0.4, 5.0])
def test_bursts_at_the_start_of_spans_pull_it_by_less_than_half_a_reading(shift: float, tau: float) -> None:
    scene = Scene(spans_of(1), shift * PERIOD_S, burst=0.5, tau=tau)
    found = aligned(scene)
    assert found is not None
    assert abs(scene.wrong_by(found)) < 0.5 * PERIOD_S


@settings(CALM, max_examples=40)
@given(rate=st.floats(-1e-4, 1e-4), shift=st.floats(-3.0, 3.0), seed=st.integers(0, 999))
def test_a_wrong_rate_is_found_with_the_shift(rate: float, shift: float, seed: int) -> None:
    scene = Scene(spans_of(seed, count=150), shift * PERIOD_S, rate=rate, seed=seed)
    found = aligned(scene, rate_reach=2e-4)
    assert found is not None
    assert abs(scene.wrong_by(found)) < 0.1 * PERIOD_S
    assert abs(found.rate - rate) < 4.0 * found.rate_sigma < 2e-5


@pytest.mark.parametrize("rate", [-4e-4, -1.15e-4, 6e-5, 1.15e-4, 3e-4, 5e-4])
@pytest.mark.parametrize("shift", [-23.0, 0.2])
def test_trains_far_apart_are_not_joined_by_a_wrong_rate(rate: float, shift: float) -> None:
    """Pulses at both ends of a run, off by more than a pulse there: a fit that begins at one rate settles anywhere."""
    ends = np.concatenate([spans_of(3, 12, 3.0, (2.0, 7.0)), spans_of(4, 12, 3.0, (2.0, 7.0)) + 27.0])
    scene = Scene(ends + 0.1, shift * PERIOD_S, rate, noise_w=0.003)
    found = aligned(scene, reach=40.0, rate_reach=6e-4)
    assert found is not None
    assert abs(scene.wrong_by(found)) < 0.05 * PERIOD_S
    assert found.rate == pytest.approx(rate, abs=5e-6)


def test_idle_that_bends_a_little_does_not_pull_it() -> None:
    scene = Scene(spans_of(2), 3.3 * PERIOD_S, bow_w=0.02)
    found = aligned(scene)
    assert found is not None
    assert abs(scene.wrong_by(found)) < 0.1 * PERIOD_S


def test_missing_readings_do_not_matter() -> None:
    scene = Scene(spans_of(3), -4.7 * PERIOD_S)
    e = scene.excess()
    keep = np.random.default_rng(0).random(len(e.watts)) > 0.2
    thinned = replace(e, start_s=e.start_s[keep], end_s=e.end_s[keep], watts=e.watts[keep])
    found = align(thinned, {"inference": scene.spans}, 10 * PERIOD_S)
    assert found is not None
    assert abs(scene.wrong_by(found)) < 0.1 * PERIOD_S


def test_phases_at_levels_of_their_own_are_fitted_side_by_side() -> None:
    first = spans_of(4, width=9.4, gap=(20.0, 30.0))
    second = np.column_stack([first[:, 1], first[:, 1] + 11.2 * PERIOD_S])
    low, high = (Scene(s, 2.6 * PERIOD_S, seed=k) for k, s in enumerate((first, second)))
    a, b = low.excess(), replace(high, shift_s=2.6 * PERIOD_S).excess()
    n = min(len(a.watts), len(b.watts))
    both = replace(a, start_s=a.start_s[:n], end_s=a.end_s[:n], watts=a.watts[:n] * 0.4 + b.watts[:n], noise_w=0.011)
    found = align(both, {"preprocess": first, "inference": second}, 10 * PERIOD_S)
    assert found is not None
    assert found.shift_s == pytest.approx(2.6 * PERIOD_S, abs=0.1 * PERIOD_S)


def periodic(count: int, seed: int, shift: float, rate: float = 0.0) -> Scene:
    """Five readings busy, three idle, evenly: one period off it fits but for its first and last span."""
    on = 200.0 + 8.0 * np.arange(count)
    return Scene(np.column_stack([on, on + 5.0]) * PERIOD_S, shift * PERIOD_S, rate, seed=seed)


@pytest.mark.parametrize("shift", [-17.2, -8.0, -0.3, 4.0, 8.4, 21.0])
@pytest.mark.parametrize("rate", [0.0, 3e-5])
def test_a_periodic_train_is_not_placed_one_period_off(shift: float, rate: float) -> None:
    for seed in range(3):
        scene = periodic(100, seed, shift, rate)
        found = aligned(scene, reach=26.0, rate_reach=1e-4)
        assert found is not None
        assert abs(scene.wrong_by(found)) < 0.2 * PERIOD_S


def test_fits_of_loosely_bracketed_readings_look_at_groups_of_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, fitted = Scene(spans_of(5, 400), 3.3 * PERIOD_S), list[int]()

    def counted(e: Excess, *rest: Any) -> Fit:
        fitted.append(len(e.watts))
        return refined(e, *rest)

    monkeypatch.setattr("rig.analysis.timing.trace_alignment.refined", counted)
    whole = aligned(scene)
    monkeypatch.setattr("rig.analysis.timing.trace_alignment.FITTED", 2000)
    part = aligned(scene)
    assert max(fitted) > 9000
    assert min(fitted) < 2500
    assert whole is not None
    assert part is not None
    assert abs(scene.wrong_by(part)) < 0.05 * PERIOD_S
    assert part.sigma_s > whole.sigma_s


def test_a_periodic_train_whose_ends_are_hidden_is_left_undecided() -> None:
    scene = replace(periodic(100, 0, 8.0), noise_w=3.0)
    found = aligned(scene, reach=26.0)
    assert found is None or abs(scene.wrong_by(found)) < 2.0 * max(found.sigma_s, PERIOD_S)


@pytest.mark.parametrize("seed", range(5))
def test_without_contrast_there_is_no_alignment_that_claims_anything(seed: int) -> None:
    scene = Scene(spans_of(seed), seed=seed)
    e = scene.excess()
    blank = replace(e, watts=np.random.default_rng(seed).normal(0.0, 0.01, len(e.watts)))
    assert align(blank, {"inference": scene.spans}, 10 * PERIOD_S) is None


def test_clocks_that_bound_nothing_look_no_farther_than_the_readings() -> None:
    scene = Scene(spans_of(3), shift_s=4.2 * PERIOD_S)
    assert aligned(scene, reach=1e15) == aligned(scene, reach=scene.spans[-1, 1] / PERIOD_S + 1e3)


def test_too_few_spans_or_readings_are_left_alone() -> None:
    scene = Scene(spans_of(0))
    e = scene.excess()
    assert align(e, {"inference": scene.spans[:2]}, PERIOD_S) is None
    assert align(e, {}, PERIOD_S) is None
    elsewhere = replace(e, start_s=e.start_s + 100.0, end_s=e.end_s + 100.0)
    assert align(elsewhere, {"inference": scene.spans}, PERIOD_S) is None


@pytest.mark.parametrize("begin_s", [0.0, 100.0])
@pytest.mark.parametrize("aperture", [0.7, 1.0])
def test_rounding_does_not_move_the_stated_sigma(begin_s: float, aperture: float) -> None:
    scene, rng = Scene(spans_of(1), 2.3 * PERIOD_S, aperture=aperture, burst=0.3, seed=1), np.random.default_rng(0)
    e = scene.excess()
    e = replace(e, start_s=e.start_s + begin_s, end_s=e.end_s + begin_s)

    def sigma_s(ulps: int) -> float:
        off = 1.0 + ulps * np.finfo(float).eps * rng.integers(-1, 2, e.watts.shape)
        found = align(replace(e, watts=e.watts * off), {"inference": scene.spans + begin_s}, 5.0 * PERIOD_S)
        assert found is not None
        return found.sigma_s

    assert sigma_s(1) == pytest.approx(sigma_s(0), rel=1e-9)


def test_the_stated_sigma_covers_the_error() -> None:
    held, sharp = [], []
    for seed in range(75):
        rng = np.random.default_rng(seed)
        scene = Scene(
            spans_of(seed, int(rng.integers(10, 80)), 10.0 ** rng.uniform(0.6, 2.0)),
            rng.uniform(-4.0, 4.0) * PERIOD_S,
            rng.uniform(-2e-5, 2e-5),
            aperture=rng.choice([0.5, 1.0]),
            tau=rng.choice([0.0, 0.5, 2.0]),
            noise_w=10.0 ** rng.uniform(-3.0, -1.0),
            seed=seed,
        )
        found = aligned(scene, reach=5.0, rate_reach=4e-5)
        assert found is not None
        held.append(abs(scene.wrong_by(found)) <= 2.0 * found.sigma_s)
        sharp.append(found.sigma_s / PERIOD_S)
    assert np.mean(held) >= 0.9
    assert np.median(sharp) < 0.02


def test_more_noise_is_more_doubt() -> None:
    sigmas = []
    for noise_w in (1e-3, 1e-2, 1e-1):
        found = aligned(Scene(spans_of(5), 2.2 * PERIOD_S, noise_w=noise_w))
        assert found is not None
        sigmas.append(found.sigma_s)
    assert sigmas == sorted(sigmas)
    assert sigmas[2] > 5.0 * sigmas[0]


@pytest.mark.parametrize(("gaps_known", "busy_w"), [(True, 0.0), (False, 0.0), (False, 2.0)])
def test_levels_that_have_nothing_to_do_with_the_spans_place_nothing(gaps_known: bool, busy_w: float) -> None:
    """``busy_w`` is drawn from the first span to the last, and in the gaps as well."""
    placed = [_placed_on_levels(seed, gaps_known, busy_w) for seed in range(40)]
    assert sum(placed) <= 2


def _placed_on_levels(seed: int, gaps_known: bool, busy_w: float) -> bool:
    rng = np.random.default_rng(seed)
    on = 500.0 + np.cumsum(100.0 * rng.uniform(0.9, 1.1, 20))
    spans = np.column_stack([on, on + 50.0]) * PERIOD_S
    begins_s = np.arange(int(on[-1]) + 550) * PERIOD_S
    lasting = rng.exponential(0.5, 100)
    levels_w = rng.uniform(0.0, 1.0, 100)[np.searchsorted(np.cumsum(lasting), begins_s)]
    watts = levels_w - levels_w.mean() + rng.normal(0.0, 1e-3, len(levels_w))
    watts += busy_w * ((begins_s >= spans[0, 0]) & (begins_s < spans[-1, 1]))
    trace = Excess(begins_s, begins_s + PERIOD_S, watts, 1e-3, PERIOD_S, 0.0, gaps_known=gaps_known)
    return align(trace, {"inference": spans}, 15.0 * PERIOD_S) is not None


@pytest.mark.parametrize("count", [4, 6, 12])
@pytest.mark.parametrize("times", [5.0, 20.0])
def test_spans_that_begin_with_a_burst_are_placed(times: float, count: int) -> None:
    rng = np.random.default_rng(count)
    on = 100.0 + np.cumsum(100.0 * rng.uniform(0.8, 1.2, count))
    spans, begins_s = np.column_stack([on, on + 50.0]) * PERIOD_S, np.arange(int(on[-1]) + 150) * PERIOD_S
    moved_s = 3.3 * PERIOD_S
    watts = rng.normal(0.0, 1e-3, len(begins_s))
    for begin_s, end_s in spans + moved_s:
        for from_s, level_w in ((begin_s, times), (begin_s + 2.5 * PERIOD_S, 1.0 - times)):
            watts += level_w * np.clip((begins_s + PERIOD_S - from_s) / PERIOD_S, 0.0, 1.0)
        watts -= np.clip((begins_s + PERIOD_S - end_s) / PERIOD_S, 0.0, 1.0)
    trace = Excess(begins_s, begins_s + PERIOD_S, watts, 1e-3, PERIOD_S, 0.0)
    found = align(trace, {"inference": spans}, 15.0 * PERIOD_S)
    assert found is not None
    assert abs(found.shift_s + moved_s) <= 2.0 * found.sigma_s <= 2.0 * PERIOD_S
