"""Changes that a meter, its driver or its host made to readings are found; good readings stay unchanged."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from msgspec.structs import replace

from fixtures.worlds.lab_recording import plain_lab, write
from fixtures.worlds.labs.filters_and_idle_loads_kinds import KINDS as MORE
from fixtures.worlds.meters.noise_kinds import moving_mean
from rig.analysis.evaluate import evaluate
from rig.analysis.result.quantity import FigureKey
from rig.analysis.timing import meter_faults
from rig.analysis.timing.meter_faults import Screened
from rig.analysis.timing.profile import ends_of
from rig.analysis.timing.timebase import host_timebase
from rig.recording.reader import open_run
from rig.recording.traces.traces import Trace
from rig.types import ClockInfo, Floats, Indices, Rail

PERIOD = 1_000_000
IDLE_S = np.array([[0.0, 0.4], [1.6, 2.0]])
SPAN = slice(500, 1500)
NONE = np.zeros((0, 2))


def trace(value: Floats) -> Trace:
    end = PERIOD * np.arange(1, len(value) + 1, dtype=np.int64)
    rail = Rail("core", rate_hz=1e9 / PERIOD, aperture_s=1e-3)
    return Trace(rail, "meter", "meter", end - PERIOD, end, value, np.zeros(len(value), bool), True)


def screened(value: Floats) -> Screened:
    return meter_faults.screened(trace(value), host_timebase(0), IDLE_S, NONE)


def missing(value: Floats) -> list[int]:
    return [int(k) for k in np.flatnonzero(np.isnan(np.asarray(screened(value).trace.value)))]


def noise(count: int = 2000, seed: int = 3) -> Floats:
    return np.random.default_rng(seed).normal(1.0, 0.01, count)


def work(seed: int = 3) -> Floats:
    value = noise(seed=seed)
    value[SPAN] += 1.0
    return value


# ---- readings that repeat others ----------------------------------------------------------------


@given(pace=st.floats(1.1, 6.0), seed=st.integers(0, 99))
@example(pace=1.9931600647075705, seed=0)
def test_repeatedly_polled_conversions_are_placed_at_their_true_time(pace: float, seed: int) -> None:
    conversions = noise(300, seed)
    found = screened(conversions[np.floor(np.arange(pace, 300 * pace) / pace).astype(int) - 1]).trace
    number = np.arange(len(found.value))
    first = int(np.flatnonzero(conversions == found.value[0])[0])
    true_end = (first + 1 + number) * pace - pace + 1.0  # the poll at ``pace`` is the first one; its tick ends at 1
    assert found.value == pytest.approx(conversions[first : first + len(number)])
    assert found.end_tick / PERIOD == pytest.approx(true_end, abs=0.6)
    assert found.rail.rate_hz == pytest.approx(1e9 / PERIOD / pace, rel=0.01)


@pytest.mark.parametrize("width", [3, 5])
def test_a_running_median_refuses_power(width: int) -> None:
    (check,) = screened(np.median(np.lib.stride_tricks.sliding_window_view(work(), width), axis=1)).checks
    assert not check.ok and "chose from their neighbours" in check.rule


STAY = {
    "coarse steps": np.round(noise(), 2), "fine steps": np.round(noise(), 3), "clipped": np.minimum(noise(), 1.01),
    "constant": np.ones(1000), "noise": noise(), "mean": moving_mean(noise(), 8),
    "mean in steps": np.round(moving_mean(noise(), 8), 3), "dead band": np.where(noise() > 1.0, noise(), 0.0),
    "periodic": np.tile(noise(100), 20),
}  # fmt: skip


@pytest.mark.parametrize("what", STAY)
def test_values_repeated_by_chance_or_device_are_kept(what: str) -> None:
    found = screened(STAY[what])
    assert found.trace.value.tolist() == STAY[what].tolist()
    assert not found.notes


# ---- damaged readings ---------------------------------------------------------------------------


def test_volts_of_exactly_zero_are_no_readings(tmp_path: Path) -> None:
    lab = plain_lab(2, "volts_read_slowly")
    MORE["volts_read_slowly"](lab)
    write(lab, tmp_path / "run")
    run, real = open_run(tmp_path / "run"), lab.truth()["active_power_w"]
    volts = run.traces["volts"]
    damaged = replace(volts, value=np.where(np.arange(len(volts.value)) % 100 == 50, 0.0, volts.value))
    power = evaluate(replace(run, traces={**run.traces, "volts": damaged})).quantities[FigureKey("active_power_w")]
    assert abs(power.value - real) <= 1.5 * power.half_width() < 0.01 * real


# ---- long traces --------------------------------------------------------------------------------


def test_a_long_trace_is_mended_from_sampled_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter_faults, "AT_ONCE", 1600)
    value, at = work(), np.arange(5, 2000, 60)
    value[at] = value[at - 1]
    assert missing(value) == at.tolist()
    assert "of 792 that were looked at" in screened(value).notes[0]


def test_values_clipped_outside_the_sampled_part_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter_faults, "AT_ONCE", 800)
    clipped, again = noise(4000), np.arange(5, 4000, 60)
    clipped[again] = clipped[again - 1]
    clipped[100:140] = 2.5  # the end of the range
    assert not set(missing(clipped)) & set(range(100, 140))


# ---- ends of a range ----------------------------------------------------------------------------

LEVEL = np.repeat([1.0, 3.0] * 30, 12)
SMALL = np.random.default_rng(5).normal(0.0, 0.01, len(LEVEL))
STEPS = np.round((LEVEL + 2.0 * SMALL) / 0.01) * 0.01
LATE = (LEVEL == 3.0) & (np.arange(len(LEVEL)) % 12 < 2)
PEAKS = np.where(np.arange(len(LEVEL)) % 24 == 17, 2.0, 0.0)


@pytest.mark.parametrize(("value", "ends"), [
    (np.minimum(LEVEL + SMALL, 1.5), (1.5,)),
    (np.minimum(LEVEL + SMALL, 3.0), (3.0,)),
    (np.minimum(STEPS, 2.5), (2.5,)),
    (np.minimum(LEVEL + SMALL + PEAKS, 4.0), (4.0,)),
    (np.where(LATE, 1.7, LEVEL + SMALL), (1.7,)),
    (LEVEL + SMALL, ()),
    (STEPS, ()),
    (LEVEL, ()),
    (np.round(LEVEL + 0.01 * SMALL, 2), ()),
    (np.where(LEVEL > 1.0, LEVEL + SMALL, 1.0), ()),
    (np.zeros(0), ()),
    (np.full(100, np.nan), ()),
], ids=["below spans", "in their noise", "in steps", "peaks", "a range that is left late", "noise", "noisy steps",
        "no noise", "one value", "one level without noise", "no reading", "no number"])  # fmt: skip
def test_noisy_readings_show_the_end_of_a_range(value: Floats, ends: tuple[float, ...]) -> None:
    assert ends_of(value) == ends


def cut_off(level: float, low: float) -> tuple[Floats, Screened]:
    """Return readings whose idle is so many noise widths above the range's low end, and their screening."""
    value = np.maximum(low + 0.01 * level + np.random.default_rng(3).normal(0.0, 0.01, 20_000), low)
    return value, meter_faults.screened(trace(value), host_timebase(0), np.array([[0.0, 20.0]]), NONE)


@pytest.mark.parametrize("level", [-0.4, 0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("low", [0.0, 0.3])
def test_noise_clipped_at_the_low_end_keeps_the_idle_mean(level: float, low: float) -> None:
    value, found = cut_off(level, low)
    assert float(np.mean(found.trace.value)) == pytest.approx(low + 0.01 * level, abs=3e-4)
    assert found.bias == pytest.approx(0.25 * float(np.mean(value - np.asarray(found.trace.value))))
    assert "noise is cut off" in found.notes[0]


@pytest.mark.parametrize("level", [-3.0, 6.0], ids=["hardly more than the end", "never the end"])
def test_idle_unlike_clipped_noise_is_not_corrected(level: float) -> None:
    assert cut_off(level, 0.0)[1].bias == 0.0


# ---- stamps of arrival --------------------------------------------------------------------------

CLOCK = replace(host_timebase(0), clock=ClockInfo("meter", 1e7))
TICKS, N = 10_000, 4000
LONG_AGO = 10**17 + 1
TAKEN = LONG_AGO + TICKS * np.arange(1, N + 1)


def stamped(end: np.ndarray, length: int = TICKS, kind: Literal["mean", "point"] = "mean") -> Trace:
    rail = Rail("core", kind=kind, rate_hz=1e3, aperture_s=length * 1e-7)
    return Trace(rail, "meter", "host", end - length, end, np.ones(len(end)), np.zeros(len(end), bool), False)


def on_grid(own: Trace) -> Screened:
    return meter_faults.screened(own, CLOCK, NONE, NONE)


def late(seed: int = 2) -> Floats:
    """Return delays of arrivals that keep their order, in ticks; some readings are held up by the host."""
    rng = np.random.default_rng(seed)
    delay = TICKS * (rng.exponential(0.3, N) + 12.0 * (rng.random(N) < 2e-3))
    at = TICKS * np.arange(N)
    return np.asarray(np.maximum.accumulate(at + delay) - at)


@pytest.mark.parametrize(("width", "seed"), [(16, 1), (128, 1), (250, 1), (250, 2), (250, 3)])
def test_packets_lie_on_the_grid(width: int, seed: int) -> None:
    """A packet is stamped when it arrives, and its readings are counted backwards, so few overlap."""
    delay = np.random.default_rng(seed).exponential(0.7 * TICKS, 4 * N // width + 1)
    taken = LONG_AGO + TICKS * np.arange(1, 4 * N + 1)
    found = on_grid(stamped(taken + np.repeat(delay, width)[: 4 * N].astype(np.int64))).trace
    assert np.all(found.end_tick - found.start_tick == TICKS)
    assert np.ptp(np.diff(found.end_tick)) <= 1


def test_arrivals_with_gaps_stay_and_are_less_certain() -> None:
    came = np.delete(TAKEN + late().astype(np.int64), slice(1000, 1040))
    found = on_grid(stamped(came))
    assert np.array_equal(found.trace.end_tick, came)
    assert found.late_ticks > 3 * TICKS
    assert "missing" in found.notes[0]


SWAPPED = TAKEN.reshape(-1, 16).copy()
SWAPPED[::20] = SWAPPED[::20, ::-1]


@pytest.mark.parametrize("own", [
    stamped(TAKEN), stamped(TAKEN + late().astype(np.int64), kind="point"), stamped(TAKEN, 4 * TICKS),
    stamped(np.delete(TAKEN, slice(7, None, 9))), stamped(TAKEN + np.random.default_rng(1).integers(0, 2, N)),
    stamped(SWAPPED.ravel()),
], ids=["a grid", "points at any time", "a moving mean", "readings missing", "rounded", "backwards"])  # fmt: skip
def test_faultless_stamps_stay_unchanged(own: Trace) -> None:
    assert on_grid(own) == Screened(own)


# ---- the host -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("change_s", "fails"), [(0.0, False), (0.05, True)])
def test_two_late_deliveries_are_no_change_of_the_delay(change_s: float, fails: bool) -> None:
    """Two late deliveries in a row, of 26, lift the line through the earliest ones above most others."""
    ended_s = np.linspace(0.02, 1.98, 26)
    late_s = 4e-4 + change_s * ended_s / 2.0
    late_s[12:14] += (9e-3, 13e-3)
    arrived = np.column_stack([ended_s * 1e9, ended_s + late_s])
    found = meter_faults.screened(trace(noise(200_000)), host_timebase(0), IDLE_S, arrived)
    assert [c.rule for c in found.checks if "change of the delay" in c.rule] == (
        ["change of the delay of rail core in the run"] if fails else []
    )


# ---- counters -----------------------------------------------------------------------------


def counted(end: Indices, joules: Floats) -> Screened:
    rail, none = Rail("gpu0", "cumulative", rate_hz=10.0), np.zeros(len(end), bool)
    counter = Trace(rail, "meter", "meter", end - 10**6, end, joules, none, False)
    return meter_faults.screened(counter, host_timebase(0), IDLE_S, NONE)


@pytest.mark.parametrize(("jitter_s", "moved"), [(0.0, True), (0.02, False)])
def test_a_steadily_renewed_counter_is_placed_at_its_renewals(jitter_s: float, moved: bool) -> None:
    rng = np.random.default_rng(1)
    renewed_s = 0.1 * np.arange(1, 201) + rng.uniform(-jitter_s, jitter_s, 200)
    looked_s = renewed_s + rng.uniform(0.0, 0.0167, 200)
    end = np.round(1e9 * looked_s).astype(np.int64)
    found = counted(end, 50.0 * renewed_s).trace
    late_s = 1e-9 * found.end_tick - renewed_s

    assert np.array_equal(found.end_tick, end) is not moved
    assert np.ptp(late_s) < (0.002 if moved else 0.02) and 0.0 < late_s.mean() < 0.0167


@pytest.mark.parametrize("lacks", ["value", "moment"])
def test_a_counter_with_missing_values_or_moments_is_not_moved(lacks: str) -> None:
    stamps = np.round(1e8 * (np.arange(1, 121) + np.random.default_rng(1).uniform(0.0, 0.167, 120))).astype(np.int64)
    stamps = stamps if lacks == "value" else np.repeat(stamps[::2], 2)
    joules = np.where((np.arange(120) == 60) & (lacks == "value"), np.nan, 5.0 * np.arange(120.0))
    found = counted(stamps, joules)
    assert np.array_equal(found.trace.end_tick, stamps) and found.bias == 0.0


def test_the_pace_interval_of_a_counter_holds_the_truth() -> None:
    off_w, bound_w = np.zeros(60), np.zeros(60)
    for seed in range(60):
        renewed_s = 0.1 * np.arange(1, 121)
        end = np.round(1e9 * (renewed_s + np.random.default_rng(seed).uniform(0.0, 0.0167, 120))).astype(np.int64)
        found = counted(end, 50.0 * renewed_s)
        off_w[seed] = 50.0 * (119 * 0.1 / (1e-9 * float(found.trace.end_tick[-1] - found.trace.end_tick[0])) - 1.0)
        bound_w[seed] = found.bias
    assert np.mean(np.abs(off_w) <= bound_w) > 0.9
    assert np.median(np.abs(off_w)) > bound_w.mean() / 6.0


# ---- delays -------------------------------------------------------------------------------


@pytest.mark.parametrize(("drift", "found"), [(0.0, False), (0.1, True)])
def test_readings_delivered_when_a_meter_stops_show_no_drift(drift: float, found: bool) -> None:
    rng = np.random.default_rng(2)
    ended_s = 0.26 * np.arange(1, 20)
    at_s = ended_s + 0.28 + drift * ended_s + rng.uniform(-0.025, 0.025, 19)
    at_s[-1] = ended_s[-1] + 0.01  # the rest is delivered at once when the meter stops
    arrived = np.column_stack([1e9 * ended_s, at_s])
    streamed = trace(rng.normal(1.0, 0.1, 4940))
    assert bool(meter_faults.screened(streamed, host_timebase(0), IDLE_S, arrived).checks) is found
