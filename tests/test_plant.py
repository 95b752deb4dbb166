"""The plant is the truth: exact to itself, and seen through a meter only as far as its faults allow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import welch

from fixtures.faults import Flicker, WrongClock
from fixtures.mock_meter import MockMeter, open_meter
from fixtures.plant import ORIGIN_NS, SimPlant, open_plant, steps_of
from rig.types import Chunk, Floats

CALM = settings(deadline=None, derandomize=True, database=None)

MS = 1_000_000
IDLE_W = {"core": 1e-3, "io": 4e-4}
PHASE_W = {"load": {"core": 2e-3}, "inference": {"core": 3.5e-3, "io": 3e-4}}
SPANS = st.lists(
    st.tuples(st.sampled_from(["load", "inference"]), st.integers(0, 900), st.integers(1, 400)), max_size=8
)
WAYS = st.fixed_dictionaries(
    {
        "idle_drift_per_s": st.floats(-0.1, 0.1),
        "idle_settle": st.floats(-0.3, 0.3),
        "idle_settle_s": st.floats(0.1, 5.0),
        "burst": st.floats(-0.5, 2.0),
        "burst_share": st.floats(0.05, 0.9),
        "burst_at": st.floats(0.0, 1.0),
    }
)
FLAWLESS: dict[str, Any] = {
    "noise": 0.0, "gain_limit": 0.0, "offset_limit": 0.0, "meter_jitter_s": 0.0, "meter_drift_ppm": 0.0,
    "meter_tick_hz": 1e9,
}  # fmt: skip


def busy_plant(spans: Sequence[tuple[str, int, int]], **ways: Any) -> SimPlant:
    """A plant of two rails with spans at (phase, on, length) in milliseconds; they may overlap."""
    plant = open_plant(**ways)
    plant.install(IDLE_W, PHASE_W)
    for phase, on, length in spans:
        plant.occupy(phase, ns(on), ns(on + length))
    return plant


def ns(ms: float) -> int:
    return ORIGIN_NS + round(ms * MS)


def power_w(rail: str, t: Floats, spans: Sequence[tuple[str, int, int]], w: dict[str, float]) -> Floats:
    """The same plant written a second time: power of a rail at each moment."""
    level = IDLE_W[rail]
    total = level * (1.0 + w["idle_drift_per_s"] * t + w["idle_settle"] * np.exp(-t / w["idle_settle_s"]))
    for phase, on_ms, length_ms in spans:
        added = PHASE_W[phase].get(rail, level) - level
        on, length = on_ms * 1e-3, length_ms * 1e-3
        burst_on = on + w["burst_at"] * (1.0 - w["burst_share"]) * length
        total = total + added * ((t >= on) & (t < on + length))
        total = total + added * w["burst"] * ((t >= burst_on) & (t < burst_on + w["burst_share"] * length))
    return total


def read_all(plant: SimPlant, meter: MockMeter, seconds: float) -> dict[str, list[Chunk]]:
    """Trigger, let time pass in uneven slices, and collect the chunks by rail."""
    meter.start()
    chunks: dict[str, list[Chunk]] = {rail: [] for rail in plant.idle_w}
    for share in (0.1, 0.11, 0.6, 1.0):
        plant.clock.sleep_until(ORIGIN_NS + round(share * seconds * 1e9))
        for chunk in meter.stop() if share == 1.0 else meter.read():
            chunks[chunk.rail].append(chunk)
    return chunks


def values(chunks: list[Chunk]) -> Floats:
    return np.concatenate([c.value for c in chunks])


@CALM
@given(SPANS, WAYS, st.lists(st.integers(0, 2000), min_size=3, max_size=3).map(sorted))
def test_energy_adds_up_over_adjacent_windows(
    spans: list[tuple[str, int, int]], ways: dict[str, float], cuts: list[int]
) -> None:
    plant = busy_plant(spans, **ways)
    a, b, c = (ns(ms) + k for k, ms in enumerate(cuts))
    for rail in (None, *IDLE_W):
        whole = plant.energy_j(a, c, rail)
        assert plant.energy_j(a, b, rail) + plant.energy_j(b, c, rail) == pytest.approx(whole, rel=1e-9, abs=1e-14)
    assert sum(plant.energy_j(a, c, rail) for rail in IDLE_W) == pytest.approx(plant.energy_j(a, c), rel=1e-12)


@settings(CALM, max_examples=40)
@given(SPANS, WAYS, st.integers(0, 1000), st.integers(10, 1000))
def test_energy_is_the_integral_of_power(
    spans: list[tuple[str, int, int]], ways: dict[str, float], on: int, length: int
) -> None:
    plant = busy_plant(spans, **ways)
    n = 100_000
    step = length * 1e-3 / n
    t = on * 1e-3 + step * (np.arange(n) + 0.5)
    for rail, idle_w in IDLE_W.items():
        summed = float(np.sum(power_w(rail, t, spans, ways))) * step
        jumps = sum(abs(PHASE_W[p].get(rail, idle_w) - idle_w) for p, _, _ in spans)
        allowed = 2.0 * jumps * (1.0 + abs(ways["burst"])) * step + 1e-9 * abs(summed)
        assert plant.energy_j(ns(on), ns(on + length), rail) == pytest.approx(summed, abs=allowed)


@CALM
@given(SPANS, WAYS, st.integers(0, 1000), st.integers(1, 1000))
def test_energy_is_what_idle_takes_and_what_activity_adds(
    spans: list[tuple[str, int, int]], ways: dict[str, float], on: int, length: int
) -> None:
    plant = busy_plant(spans, **ways)
    lo, hi = np.array([on * 1e-3]), np.array([(on + length) * 1e-3])
    idle = sum(float(plant.idle_mean_w(rail, lo, hi)[0]) * length * 1e-3 for rail in IDLE_W)
    added = plant.dynamic_j(ns(on), ns(on + length))
    assert idle + added == pytest.approx(plant.energy_j(ns(on), ns(on + length)), rel=1e-12)
    assert busy_plant([], **ways).energy_j(ns(on), ns(on + length)) == pytest.approx(idle, rel=1e-12)


@CALM
@given(SPANS, WAYS, st.floats(1e-4, 0.3), st.integers(1, 40))
def test_a_filter_delays_energy_and_loses_none(
    spans: list[tuple[str, int, int]], ways: dict[str, float], tau_s: float, parts: int
) -> None:
    plant = busy_plant(spans, **ways)
    edges = np.linspace(0.0, 2.0 + 40.0 * tau_s, parts + 1)
    through = plant.dynamic("core", tau_s).mean_over(edges[:-1], edges[1:]) * np.diff(edges)
    assert np.sum(through) == pytest.approx(plant.dynamic_j(ns(0), ns(3000), "core"), rel=1e-9, abs=1e-14)


@CALM
@given(st.floats(1e-4, 10.0), st.floats(0.0, 5.0), st.floats(1e-3, 5.0), st.floats(-3.0, 3.0))
def test_a_filtered_step_is_the_exponential(tau_s: float, after_s: float, width_s: float, height: float) -> None:
    step = steps_of(np.array([1.0]), np.array([1e3]), np.array([height]), tau_s)
    on, off = np.array([1.0 + after_s]), np.array([1.0 + after_s + width_s])
    a, b = after_s / tau_s, (after_s + width_s) / tau_s
    mean = height * (1.0 - (math.exp(-a) - math.exp(-b)) * tau_s / width_s)
    assert step.mean_over(on, off)[0] == pytest.approx(mean, rel=1e-6, abs=1e-9)
    assert step.lagged_at(off)[0] == pytest.approx(height * (1.0 - math.exp(-b)), rel=1e-6, abs=1e-9)
    assert step.lagged_at(np.array([0.5]))[0] == 0.0


@settings(CALM, max_examples=20)
@given(SPANS, WAYS, st.sampled_from([200, 1000, 4000]), st.sampled_from([1.0, 0.5]))
def test_a_meter_without_faults_reads_the_true_mean_of_each_aperture(
    spans: list[tuple[str, int, int]], ways: dict[str, float], rate_hz: int, aperture: float
) -> None:
    plant = busy_plant(spans, **ways)
    chunks = read_all(plant, open_meter(plant, rate_hz=rate_hz, aperture=aperture, **FLAWLESS), 1.0)
    period_ns = 1_000_000_000 // rate_hz
    first_ns = ns(0.5)  # half a millisecond forward, then it is latched
    for rail in IDLE_W:
        read = values(chunks[rail])
        assert len(read) == int((1e9 - 0.5 * MS) / period_ns - aperture) + 1
        for k in range(0, len(read), 29):
            on = first_ns + k * period_ns
            off = on + round(aperture * period_ns)
            assert read[k] == pytest.approx(plant.energy_j(on, off, rail) / ((off - on) * 1e-9), rel=1e-9)


@settings(CALM, max_examples=30)
@given(st.integers(0, 10_000), st.floats(0.0, 0.05), st.floats(0.0, 0.05))
def test_gain_and_offset_stay_within_the_declared_limits(seed: int, gain: float, offset: float) -> None:
    plant = busy_plant([("inference", 300, 400)])
    meter = open_meter(plant, meter_seed=seed, **(FLAWLESS | {"gain_limit": gain, "offset_limit": offset}))
    chunks = read_all(plant, meter, 1.0)
    for rail in meter.info().rails:
        assert rail.accuracy is not None
        read = values(chunks[rail.name])
        for k in (10, 500):
            real = plant.energy_j(ns(0.5 + k), ns(1.5 + k), rail.name) / 1e-3
            assert abs(read[k] - real) <= rail.accuracy.of_reading * real + rail.accuracy.offset + 1e-12


def test_flicker_falls_as_one_over_f_at_its_declared_density() -> None:
    rate_hz, density = 1000.0, 4e-3
    x = Flicker(density, rate_hz, 1000.0, np.random.default_rng(3)).take(400_000)
    f, power = welch(x, rate_hz, nperseg=1 << 14, detrend="constant")
    use = (f > 0.5) & (f < 100.0)
    slope, level = np.polyfit(np.log(f[use]), np.log(power[use]), 1, w=1.0 / np.sqrt(f[use]))
    assert slope == pytest.approx(-1.0, abs=0.1)
    assert math.exp(level) == pytest.approx(density, rel=0.25)


def test_flicker_goes_on_where_it_stopped() -> None:
    jumps = []
    for seed in range(300):
        source = Flicker(1.0, 1000.0, 10.0, np.random.default_rng(seed))
        a, b = source.take(50), source.take(50)
        jumps.append((float(b[0] - a[-1]), float(a[-1] - a[-2])))
    between, within = np.std(np.array(jumps), axis=0)
    assert between == pytest.approx(within, rel=0.2)


def test_white_noise_has_the_declared_sigma_and_no_memory() -> None:
    plant = busy_plant([])
    read = values(read_all(plant, open_meter(plant, rate_hz=20e3, **(FLAWLESS | {"noise": 0.02})), 2.0)["core"])
    sigma = 0.02 * max(PHASE_W["inference"]["core"], IDLE_W["core"])
    assert float(np.std(read)) == pytest.approx(sigma, rel=0.02)
    assert float(np.mean(read)) == pytest.approx(IDLE_W["core"], abs=4.0 * sigma / math.sqrt(len(read)))
    assert abs(float(np.corrcoef(read[1:], read[:-1])[0, 1])) < 0.02


def test_readings_at_the_end_of_the_range_are_clipped_and_flagged() -> None:
    plant = busy_plant([("inference", 300, 400)])
    meter = open_meter(plant, clip=0.8, **(FLAWLESS | {"noise": 0.05}))
    chunks = read_all(plant, meter, 1.0)["core"]
    read, flags = values(chunks), np.concatenate([c.flags for c in chunks if c.flags is not None])
    top = meter.info().rails[0].range_max
    assert top == pytest.approx(0.8 * PHASE_W["inference"]["core"])
    assert read.max() == top
    assert np.array_equal(flags == 1, read == top)
    assert 0.9 * 400 < flags.sum() < 1.02 * 400


def test_what_is_left_of_a_trace_with_losses_keeps_its_ticks_and_values() -> None:
    whole_plant, leaky_plant = (busy_plant([("inference", 100, 300), ("load", 350, 200)]) for _ in range(2))
    whole = values(read_all(whole_plant, open_meter(whole_plant, **FLAWLESS), 1.0)["core"])
    chunks = read_all(leaky_plant, open_meter(leaky_plant, drop=0.3, **FLAWLESS), 1.0)["core"]
    start = np.concatenate([c.start_tick for c in chunks if c.start_tick is not None])
    end = np.concatenate([c.end_tick for c in chunks if c.end_tick is not None])
    slot, off_grid = np.divmod(start - start[0], MS)
    slot += round((int(start[0]) - 3_000_500_000) / MS)
    assert not off_grid.any() and np.all(end - start == MS) and np.all(np.diff(slot) > 0)
    assert values(chunks) == pytest.approx(whole[slot])
    assert len(slot) / len(whole) == pytest.approx(0.7, abs=0.06)


def test_the_same_seed_gives_the_same_readings_and_another_others() -> None:
    def readings(seed: int) -> Floats:
        plant = busy_plant([("inference", 100, 300)])
        faults = {"noise": 0.01, "flicker": 1e-3, "hum": 1e-3, "drop": 0.01, "gain_limit": 1e-3}
        return values(read_all(plant, open_meter(plant, meter_seed=seed, **faults), 1.0)["core"])

    assert np.array_equal(readings(4), readings(4))
    assert not np.array_equal(readings(4)[:100], readings(5)[:100])


@CALM
@given(
    st.floats(1e3, 1e9), st.floats(0.0, 1e4), st.floats(-1e-3, 1e-3), st.sampled_from([0.0, 1e-8, 1e-6]),
    st.lists(st.floats(0.0, 600.0), min_size=1, max_size=20),
)  # fmt: skip
def test_a_wrong_clock_can_be_undone(hz: float, offset_s: float, rate: float, wander: float, at: list[float]) -> None:
    clock = WrongClock(hz, offset_s, rate, wander, seed=9)
    t = np.array(at)
    assert clock.time_of(clock.ticks_at(t)) == pytest.approx(t, abs=1e-9)
    assert clock.ticks_at(np.sort(t)).tolist() == sorted(clock.ticks_at(np.sort(t)).tolist())
    assert clock.tick_at(float(t[0])) == math.floor(clock.ticks_at(t[:1])[0])
