"""A meter's clock is shifted until the activity that the device stamped fits the meter's readings. A slow and simple
computation checks the share of activity in each reading."""

import math
import tracemalloc
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec import structs

from fixtures.bench.true_power import steps_of
from fixtures.worlds.lab_recording import Lab, plain_lab, write
from rig.analysis.timing import activity_signal as signals
from rig.analysis.timing.activity_signal import edges_of, mean_signal
from rig.analysis.timing.alignment.aligned_rails import aligned_rails
from rig.analysis.timing.alignment.contrast import Shown, edges_of_spans, modelled, shown
from rig.analysis.timing.alignment.lag_path import NEAR, Line, along, line
from rig.analysis.timing.alignment.placement import undeclared_tau_s
from rig.analysis.timing.counted_spans import activity_of
from rig.analysis.timing.gpio_spans import on_device_clock
from rig.analysis.timing.readings import Readings
from rig.recording.reader import open_run
from rig.types import Floats, Rail

PERIOD_S = 1e-3


def readings(start_s: Floats, end_s: Floats, watts: Floats, tau_s: float = 0.0) -> Readings:
    ok = np.ones(len(watts), bool)
    return Readings(Rail("core"), start_s, end_s, watts, watts, ok, ~ok, PERIOD_S, tau_s)


@dataclass(frozen=True)
class Scene:
    """Spans, and a meter that stamps its readings wrongly: too early by ``shift_s``, too slowly by ``rate``.

    ``tau`` and ``aperture`` are in readings; spans are 1 W high.
    """

    spans: Floats
    shift_s: float = 0.0
    rate: float = 0.0
    aperture: float = 1.0
    tau: float = 0.0
    noise_w: float = 0.01
    seed: int = 0

    @property
    def middle_s(self) -> float:
        return float(self.spans.mean())

    def true_s(self, stamped_s: Floats) -> Floats:
        return stamped_s + self.shift_s + self.rate * (stamped_s - self.middle_s)

    def readings(self) -> Readings:
        """Return the meter's readings, on its own wrong stamps."""
        n = int((self.spans[-1, 1] + self.spans[0, 0]) / PERIOD_S)
        start = np.arange(n) * PERIOD_S
        end = start + self.aperture * PERIOD_S
        on, off = self.spans.T
        body = steps_of(on, off, np.ones(len(on)), self.tau * PERIOD_S)
        watts = body.mean_over(self.true_s(start), self.true_s(end))
        watts = watts + np.random.default_rng(self.seed).normal(0.0, self.noise_w, n)
        return readings(start, end, watts, self.tau * PERIOD_S)

    def wrong_by(self, found: Line) -> float:
        """Return the error of a place in the middle of the activity, in readings."""
        return abs(float(found.at(np.array(self.middle_s))) + self.shift_s) / PERIOD_S


def spans_of(seed: int, count: int = 40, width: float = 17.3, gap: tuple[float, float] = (4.0, 12.0)) -> Floats:
    """Return spans of one width with uneven gaps; width and gaps are given in readings."""
    gaps = np.random.default_rng(seed).uniform(*gap, count)
    on = 300.0 + np.cumsum(gaps + width)
    return np.column_stack([on, on + width]) * PERIOD_S


def place(r: Readings, spans_s: Floats, reach_s: float, rate_reach: float = 0.0) -> Line | None:
    s = shown(r, spans_s)
    at = None if s is None else line(s, reach_s, rate_reach)
    found = None if s is None or at is None else along(s, at.at(s.cells.on_s), 0.5 * rate_reach)
    return None if found is None else found.line


def aligned(scene: Scene, reach: float = 10.0, rate_reach: float = 0.0) -> Line:
    found = place(scene.readings(), scene.spans, reach * PERIOD_S, rate_reach)
    assert found is not None
    return found


@given(
    shift=st.floats(-9.0, 9.0), aperture=st.floats(0.3, 1.0), tau=st.sampled_from([0.0, 0.3, 1.0]),
    noise_w=st.floats(1e-3, 0.1), width=st.floats(6.0, 60.0), seed=st.integers(0, 999),
)  # fmt: skip
def test_a_shift_is_found_within_a_fifth_of_a_reading(shift: float, width: float, seed: int, **more: float) -> None:
    scene = Scene(spans_of(seed, width=width), shift * PERIOD_S, seed=seed, **more)
    found = aligned(scene)
    assert scene.wrong_by(found) < 0.2
    assert found.sigma_s < 0.25 * PERIOD_S


def test_a_far_stamped_reading_takes_little_memory() -> None:
    r, far_s = Scene(spans_of(1)).readings(), 1e7
    far = structs.replace(
        r, start_s=np.append(r.start_s, far_s), end_s=np.append(r.end_s, far_s + PERIOD_S),
        watts=np.append(r.watts, r.watts[-1]), ok=np.append(r.ok, True),
    )  # fmt: skip
    s = shown(far, spans_of(1))
    assert s is not None
    tracemalloc.start()
    line(s, 1e15, 0.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 28


@given(rate=st.floats(-1e-4, 1e-4), shift=st.floats(-3.0, 3.0), seed=st.integers(0, 999))
def test_a_wrong_rate_is_found_with_the_shift(rate: float, shift: float, seed: int) -> None:
    scene = Scene(spans_of(seed, count=150), shift * PERIOD_S, rate=rate, seed=seed)
    found = aligned(scene, rate_reach=2e-4)
    assert scene.wrong_by(found) < 0.1
    assert abs(found.slope + rate) < 4.0 * found.slope_sigma < 2e-5


@pytest.mark.parametrize(("rate", "shift"), [(-4e-4, 0.2), (-1.15e-4, -23.0), (6e-5, -23.0), (5e-4, 0.2)])
def test_trains_far_apart_are_not_joined_by_a_wrong_rate(rate: float, shift: float) -> None:
    """A wrong rate shifts the pulses at both ends by more than a pulse: a fit that starts there may stay wrong."""
    ends = np.concatenate([spans_of(3, 12, 3.0, (2.0, 7.0)), spans_of(4, 12, 3.0, (2.0, 7.0)) + 27.0])
    scene = Scene(ends + 0.1, shift * PERIOD_S, rate, noise_w=0.003)
    found = aligned(scene, reach=40.0, rate_reach=6e-4)
    assert scene.wrong_by(found) < 0.05
    assert found.slope == pytest.approx(-rate, abs=5e-6)


def periodic(count: int, seed: int, shift: float, rate: float = 0.0) -> Scene:
    """Return a scene with five readings of work in eight: moved by one period, all spans fit except one at an end."""
    on = 200.0 + 8.0 * np.arange(count)
    return Scene(np.column_stack([on, on + 5.0]) * PERIOD_S, shift * PERIOD_S, rate, seed=seed)


@pytest.mark.parametrize(("seed", "shift"), [*enumerate([-17.2, -8.0, -0.3, 4.0, 8.4, 21.0])])
def test_a_periodic_train_is_not_placed_one_period_off(seed: int, shift: float) -> None:
    scene = periodic(100, seed, shift, 3e-5 * (seed % 2))
    assert scene.wrong_by(aligned(scene, reach=26.0, rate_reach=1e-4)) < 0.2


@pytest.mark.parametrize("seed", [2, 6, 25, 32])
def test_a_train_in_step_with_readings_is_placed_correctly(seed: int) -> None:
    """All spans lie alike among the readings, so a small step of the place changes the misfit of all of them."""
    on = (400.0 + 50.0 * np.arange(101) + np.random.default_rng(seed).uniform(0.0, 10.0)) * PERIOD_S
    scene = Scene(np.column_stack([on, on + 30.0 * PERIOD_S]), noise_w=0.0125, seed=seed)
    at = line(some(scene), 180.0 * PERIOD_S, 0.0)
    assert at is not None and scene.wrong_by(at) < 1.0


def test_work_around_a_periodic_train_does_not_misplace_spans() -> None:
    """No span covers a warm-up and a last flush: moved by one period, all spans still lie on work."""
    on = (400.0 + 49.3 * np.arange(103)) * PERIOD_S
    work = np.column_stack([on, on + 30.0 * PERIOD_S])
    for seed in range(10):
        shift_s = np.random.default_rng(seed).uniform(-60.0, 60.0) * PERIOD_S
        every = Scene(work, shift_s, seed=seed)
        at = line(some(every, work[1:-1]), 180.0 * PERIOD_S, 0.0)
        assert at is None or every.wrong_by(at) < 1.0


def some(scene: Scene, spans_s: Floats | None = None) -> Shown:
    found = shown(scene.readings(), scene.spans if spans_s is None else spans_s)
    assert found is not None
    return found


@given(
    width=st.floats(6.0, 300.0), aperture=st.floats(0.3, 1.0), tau=st.sampled_from([0.0, 0.3, 1.0, 3.0]),
    late=st.floats(-3.0, 3.0), longer=st.floats(-3.0, 3.0), seed=st.integers(0, 99),
)  # fmt: skip
def test_far_readings_move_no_edge(width: float, late: float, longer: float, seed: int, **more: float) -> None:
    s = some(Scene(spans_of(seed, width=width, gap=(4.0, 300.0)), seed=seed, **more))
    middle_s = np.full(len(s.cells), late * PERIOD_S)
    begin_s, end_s = middle_s - 0.5 * longer * PERIOD_S, middle_s + 0.5 * longer * PERIOD_S
    near, every = (edges_of_spans(modelled(s, begin_s, end_s, levels), middle_s, NEAR) for levels in (NEAR, np.inf))
    for one, other in ((near.begin_s, every.begin_s), (near.end_s, every.end_s)):
        np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-6 * PERIOD_S)
    assert near.blur_s == pytest.approx(every.blur_s, abs=1e-6 * PERIOD_S)


def test_a_periodic_train_with_hidden_ends_is_undecided() -> None:
    scene = replace(periodic(100, 0, 8.0), noise_w=3.0)
    found = place(scene.readings(), scene.spans, 26.0 * PERIOD_S)
    assert found is None or scene.wrong_by(found) * PERIOD_S < 2.0 * max(found.sigma_s, PERIOD_S)


def test_a_trace_without_contrast_or_spans_is_not_placed() -> None:
    spans, r = spans_of(0), Scene(spans_of(0)).readings()
    blank = structs.replace(r, watts=np.random.default_rng(0).normal(0.0, 0.01, len(r.watts)))
    elsewhere = structs.replace(r, start_s=r.start_s + 100.0, end_s=r.end_s + 100.0)
    assert place(blank, spans, 10 * PERIOD_S) is None
    assert place(r, spans[:0], PERIOD_S) is None
    assert place(elsewhere, spans, PERIOD_S) is None


def test_the_stated_sigma_covers_the_error() -> None:
    covered, sharp = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        spans = spans_of(seed, int(rng.integers(10, 80)), 10.0 ** rng.uniform(0.6, 2.0))
        shift_s, rate = rng.uniform(-4.0, 4.0) * PERIOD_S, rng.uniform(-2e-5, 2e-5)
        aperture, tau = rng.choice([0.5, 1.0]), rng.choice([0.0, 0.5, 2.0])
        scene = Scene(spans, shift_s, rate, aperture, tau, 10.0 ** rng.uniform(-3.0, -1.0), seed=seed)
        found = aligned(scene, reach=5.0, rate_reach=4e-5)
        covered.append(scene.wrong_by(found) * PERIOD_S <= 2.0 * found.sigma_s)
        sharp.append(found.sigma_s / PERIOD_S)
    assert np.mean(covered) >= 0.9
    assert np.median(sharp) < 0.04


@pytest.mark.parametrize("busy_w", [0.0, 2.0])
def test_levels_unrelated_to_the_spans_place_nothing(busy_w: float) -> None:
    """``busy_w`` is used from the first span to the last, including the gaps."""
    placed = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        on = 500.0 + np.cumsum(100.0 * rng.uniform(0.9, 1.1, 20))
        spans = np.column_stack([on, on + 50.0]) * PERIOD_S
        begins_s = np.arange(int(on[-1]) + 550) * PERIOD_S
        lasting = rng.exponential(0.5, 100)
        levels_w = rng.uniform(0.0, 1.0, 100)[np.searchsorted(np.cumsum(lasting), begins_s)]
        watts = levels_w - levels_w.mean() + rng.normal(0.0, 1e-3, len(levels_w))
        watts += busy_w * ((begins_s >= spans[0, 0]) & (begins_s < spans[-1, 1]))
        placed += place(readings(begins_s, begins_s + PERIOD_S, watts), spans, 15.0 * PERIOD_S) is not None
    assert placed <= 1


# ---- a filter -----------------------------------------------------------------------------------

SPANS_S = 1.0 + np.arange(80.0)[:, None] + np.array([0.0, 0.4])
"""Each span lasts 0.4 s, about twenty readings of 0.0193 s."""


def drawn(drawn_s: Floats, length_s: Floats, seed: int = 1, aperture: float = 1.0) -> Readings:
    """Return successive readings, one for each of ``length_s``, of a device that works during ``drawn_s``.

    A reading covers the first ``aperture`` of its length.
    """
    start_s = np.cumsum(length_s) - length_s
    end_s = start_s + aperture * length_s
    noise = np.random.default_rng(seed).normal(0.0, 0.003, len(end_s))
    watts = 1.0 + mean_signal(edges_of(drawn_s), start_s, end_s) + noise
    return structs.replace(readings(start_s, end_s, watts), period_s=float(np.median(length_s)))


def filtered(r: Readings, drawn_s: Floats, tau_s: float) -> float | None:
    """Return the time constant of the filter that is found in smoothed readings (s)."""
    sharp, smooth = (mean_signal(edges_of(drawn_s), r.start_s, r.end_s, tau) for tau in (0.0, tau_s))
    s = shown(structs.replace(r, watts=r.watts - sharp + smooth), drawn_s)
    found = None if s is None else along(s, np.zeros(len(s.cells)), np.inf)
    return None if s is None or found is None or found.whole is None else undeclared_tau_s(s, found.whole)


@pytest.mark.parametrize(("aperture", "tau_s"), [
    (1.0, 0.015), (1.0, 0.03), *((aperture, tau_s) for aperture in (0.1, 0.23, 0.6) for tau_s in (0.0, 0.02)),
])  # fmt: skip
def test_a_filter_is_found_only_if_begins_and_ends_agree(aperture: float, tau_s: float) -> None:
    found = filtered(drawn(SPANS_S, np.full(4300, 0.0193), aperture=aperture), SPANS_S, tau_s)
    assert found == (pytest.approx(tau_s, rel=0.2) if tau_s else None)


# ---- long spans --------------------------------------------------------------------------------


def lab_with_long_spans(seed: int) -> Lab:
    """Return a lab whose spans last 2000 readings.

    The noise of a reading is a tenth of what a span adds; reading a clock takes 0.4 ms.
    """
    lab, n, each = plain_lab(seed, "long spans"), 40, 2000
    lab.rate_hz, lab.device_rate, lab.meter_rate, lab.bracket_s = 1e5, 0.0, 1e-4, 4e-4
    on = (20_000 + 2 * each * np.arange(n)) / lab.rate_hz
    lab.spans_s, lab.span_w = np.column_stack([on, on + each / lab.rate_hz]), np.full(n, 1.3 * lab.idle_w)
    lab.label, lab.noise_w, lab.end_s = np.zeros(n, int), 0.03 * lab.idle_w, float(on[-1]) + 0.24
    lab.idle_s = [(0.02, 0.18), (lab.end_s - 0.18, lab.end_s - 0.02)]
    return lab


@pytest.mark.parametrize("part", [1, 8])
@pytest.mark.parametrize("seed", [4, 6])
def test_long_noisy_spans_are_placed_within_a_reading(seed: int, part: int, tmp_path: Path) -> None:
    """All readings of a long span show its edge only roughly.

    A few readings near the edge show it well, once its rough place is known.
    """
    lab = lab_with_long_spans(seed)
    write(lab, tmp_path / "run")
    run, device = on_device_clock(open_run(tmp_path / "run"))
    trace, activity = run.traces["core"], activity_of(run, device)
    number = (lab.spans_s - 0.005) * lab.rate_hz * (1.0 + lab.meter_rate) - lab.offset_s
    (rail,) = aligned_rails(run, activity, device, np.inf, len(trace.value) // part)
    begins_s = rail.timebase.seconds(np.asarray(trace.start_tick))
    late_s = np.interp(number, np.arange(len(begins_s)), begins_s) - activity.every_s()
    assert abs(float(late_s.mean())) < 2.0 * rail.timebase.sigma_s < 1.0 / lab.rate_hz


# ---- the share of each reading that an activity fills ------------------------------------------

GRID = st.integers(0, 60)
ANY_WINDOWS = st.lists(st.tuples(GRID, st.integers(1, 12)), max_size=8).map(
    lambda rows: np.array([(a, a + n) for a, n in rows], dtype=float).reshape(-1, 2)
)
READINGS = st.lists(st.tuples(GRID, st.integers(0, 10)), min_size=1, max_size=20).map(
    lambda rows: np.array([(a, a + n) for a, n in rows], dtype=float)
)


def plain_union(windows: Floats) -> list[tuple[float, float]]:
    """Return the union of windows, found by counting cells of one unit; windows that touch become one."""
    cells = {k for a, b in windows for k in range(int(a), int(b))}
    starts = sorted(k for k in cells if k - 1 not in cells)
    return [(float(k), float(next(e for e in range(k, 100) if e not in cells))) for k in starts]


@given(ANY_WINDOWS)
def test_merged_windows_equal_the_plain_union(windows: Floats) -> None:
    found = signals.merged(windows)
    assert [tuple(row) for row in found] == plain_union(windows)
    assert signals.merged(found).tolist() == found.tolist()


@given(ANY_WINDOWS, READINGS)
def test_readings_touch_and_lie_inside_the_expected_windows(windows: Floats, readings: Floats) -> None:
    apart = signals.merged(windows)
    start, end = readings.T
    assert signals.touches(apart, start, end).tolist() == [any(a < e and b > s for a, b in apart) for s, e in readings]
    for s, e, k in zip(start, end, signals.inside(apart, start, end), strict=True):
        assert [j for j, (a, b) in enumerate(apart) if a <= s and e <= b] == ([] if k < 0 else [k])


@given(ANY_WINDOWS, READINGS)
def test_sorted_and_shuffled_readings_give_the_same_result(windows: Floats, readings: Floats) -> None:
    apart, order = signals.merged(windows), np.lexsort(readings.T[::-1])
    start, end = readings[order, 0], np.maximum.accumulate(readings[order, 1])
    shuffled = np.random.default_rng(0).permutation(len(start))
    for found in (signals.touches, signals.inside):
        assert found(apart, start, end)[shuffled].tolist() == found(apart, start[shuffled], end[shuffled]).tolist()
    for side in ("left", "right"):
        plain = np.searchsorted(apart[:, 0], start, side)
        assert signals.count_before(apart[:, 0], start, side).tolist() == plain.tolist()


def ramp(since_s: float, tau_s: float) -> float:
    """Return the integral of a single pole's response to an edge, until ``since_s`` after it."""
    since_s = max(since_s, 0.0)
    return since_s + tau_s * math.expm1(-since_s / tau_s) if tau_s else since_s


@given(ANY_WINDOWS, READINGS, st.just(0.0) | st.floats(0.05, 20.0))
def test_a_reading_is_the_mean_of_the_filtered_signal(windows: Floats, readings: Floats, tau_s: float) -> None:
    """Readings may come in any order, and are not changed."""
    start, end = np.random.default_rng(0).permutation(readings).T + np.array([[0.25], [0.5]])
    start.setflags(write=False)
    end.setflags(write=False)
    plain = [
        sum(ramp(e - a, tau_s) - ramp(s - a, tau_s) - ramp(e - b, tau_s) + ramp(s - b, tau_s) for a, b in windows)
        for s, e in zip(start, end, strict=True)
    ]
    found = signals.mean_signal(signals.edges_of(windows), start, end, tau_s)
    assert found == pytest.approx(np.array(plain) / (end - start), abs=1e-9)


def at_instant(windows: Floats, tau_s: float, t: float) -> float:
    """Return a single pole's response to every window, from the closed form of each edge."""
    rise = sum((1.0 - math.exp(-(t - a) / tau_s)) for a, _ in windows if t > a)
    return rise - sum((1.0 - math.exp(-(t - b) / tau_s)) for _, b in windows if t > b)


@given(ANY_WINDOWS, st.lists(st.floats(0.0, 80.0), min_size=1, max_size=10), st.floats(0.05, 20.0))
def test_a_point_reading_is_the_instant_filter_output(windows: Floats, at: list[float], tau_s: float) -> None:
    t = np.array(at)
    plain = [at_instant(windows, tau_s, x) for x in at]
    assert signals.mean_signal(signals.edges_of(windows), t, t, tau_s) == pytest.approx(np.array(plain), abs=1e-9)


@given(st.lists(st.floats(-9.0, 9.0), min_size=1, max_size=30), st.data())
def test_a_correlation_is_the_sum_of_products_at_each_place(longer: list[float], data: st.DataObject) -> None:
    shorter = data.draw(st.lists(st.floats(-9.0, 9.0), min_size=1, max_size=len(longer)))
    plain = np.correlate(longer, shorter, mode="valid")
    assert signals.correlated(np.array(longer), np.array(shorter)) == pytest.approx(plain, abs=1e-9)
