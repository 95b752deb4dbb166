"""Clock readings become a map from ticks to seconds; the map and the rates of clocks are as certain as stated."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rig.analysis.timing.timebase import Timebase, fit_brackets, host_timebase
from rig.types import Bracket, ClockInfo, Floats
from tests.support.plants import BARE, on_plant

HZ = 12.5e6
CLOCK = ClockInfo("device", HZ)


def marks(length_s: float, each: int = 16, every_s: float = 5.0) -> Floats:
    """Return when the clock is read: ``each`` times at both ends, and twice after each ``every_s`` in between."""
    burst = np.arange(each) * 0.02
    between = [t + k for t in np.arange(every_s, length_s, every_s) for k in (0.0, 0.02)]
    return np.concatenate([burst, between, length_s + burst])


class Wire:
    """A clock with an offset and a rate error, read over a link with a delay each way and jitter on top."""

    def __init__(
        self, offset_s: float = 7.0, rate: float = 0.0, there_s: float = 1e-4, back_s: float = 1e-4,
        jitter_s: float = 0.0, seed: int = 0,
    ) -> None:  # fmt: skip
        self.offset_s, self.rate, self.there_s, self.back_s = offset_s, rate, there_s, back_s
        self.jitter_s, self.rng = jitter_s, np.random.default_rng(seed)

    def tick(self, t_s: float) -> float:
        return (t_s + self.offset_s) * (1.0 + self.rate) * HZ

    def read(self, at_s: Iterable[float]) -> list[Bracket]:
        found = []
        for t in at_s:
            there, back = np.array([self.there_s, self.back_s]) + self.jitter_s * self.rng.exponential(size=2)
            before_ns = round(t * 1e9)
            latched = before_ns * 1e-9 + there
            found.append(Bracket(before_ns, int(np.floor(self.tick(latched))), round((latched + back) * 1e9)))
        return found

    def errors(self, timebase: Timebase, at_s: Sequence[float] | Floats) -> Floats:
        """Return the map's errors at some moments, in its own standard uncertainties there."""
        wrong = [float(timebase.seconds(np.array([self.tick(t)]))[0]) - t for t in at_s]
        return np.array([abs(e) / timebase.sigma_at(t) for e, t in zip(wrong, at_s, strict=True)])


@given(st.integers(-(10**12), 10**12), st.floats(-3e-4, 3e-4), st.integers(3, 60))
def test_readings_without_delay_give_the_exact_map(offset: int, rate: float, n: int) -> None:
    ticks = [offset + k * 12_500_000 for k in range(n)]
    seconds = [k * (1.0 + rate) for k in range(n)]
    exact = [Bracket(round(t * 1e9), tick, round(t * 1e9)) for t, tick in zip(seconds, ticks, strict=True)]
    found = fit_brackets(CLOCK, exact, 0)
    assert found.rate - 1.0 == pytest.approx(rate, abs=2e-9)
    assert found.seconds(np.array(ticks)) == pytest.approx(np.array(seconds), abs=3e-9)
    assert found.sigma_s < 1e-7


@given(
    st.integers(-(2**61), 2**61), st.integers(0, 2**62), st.floats(1.0, 60.0), st.floats(1e-6, 1e-2),
    st.floats(0.0, 1e-3), st.integers(0, 99),
)  # fmt: skip
def test_clock_offsets_change_no_second(
    offset: int, t0_ns: int, length_s: float, there_s: float, jitter_s: float, seed: int
) -> None:
    plain = Wire(there_s=there_s, jitter_s=jitter_s, rate=1e-4, seed=seed).read(marks(length_s))
    shifted = [Bracket(b.before_ns + t0_ns, b.tick + offset, b.after_ns + t0_ns) for b in plain]
    a, b = fit_brackets(CLOCK, plain, 0), fit_brackets(CLOCK, shifted, t0_ns)
    ticks = np.array([r.tick for r in plain], dtype=np.int64)
    assert np.array_equal(a.seconds(ticks), b.seconds(ticks + offset))
    assert (a.sigma_s, a.rate, a.rate_sigma) == (b.sigma_s, b.rate, b.rate_sigma)


def test_readings_scatter_within_half_of_their_round_trip() -> None:
    """With no delay back, a reading is latched at the end of its round trip, half a round trip after the middle."""
    brackets = Wire(rate=1e-4, jitter_s=1e-3, there_s=1e-4, back_s=0.0).read(np.linspace(0.0, 40.0, 200))
    ideal = Timebase(CLOCK, 0, -7.0, 1.0 / 1.0001, 0.0, 0.0, "ideal")
    second, residual, half = ideal.residuals([b for b in brackets if b.after_ns > b.before_ns], 0).T
    assert np.all(np.diff(second) > 0)
    assert np.all(np.abs(residual) <= half + 1.0 / HZ)
    found = ideal.residuals(Wire(there_s=2e-3, back_s=0.0, rate=1e-4).read([1.0, 2.0]), 0)
    assert found[:, 1] == pytest.approx(-found[:, 2], abs=1.0 / HZ)


def test_a_jittering_link_errs_within_two_sigma() -> None:
    rng = np.random.default_rng(8)
    worst = []
    for seed in range(150):
        there_s, back_s, jitter_s = 10.0 ** rng.uniform((-6, -6, -6), (-2, -2, -3))
        length_s = rng.uniform(2.0, 120.0)
        wire = Wire(1.0, rng.uniform(-2e-4, 2e-4), there_s, back_s, jitter_s, seed)
        found = fit_brackets(CLOCK, wire.read(marks(length_s)), 0)
        worst.append(float(wire.errors(found, np.linspace(0.0, length_s, 5)).max()))
    assert np.mean(np.array(worst) <= 2.0) >= 0.98
    assert max(worst) < 3.0


def test_two_round_trips_of_one_length_leave_the_rate_uncertain_by_it() -> None:
    """The clock is latched early in the first round trip and late in the second."""
    read = [*Wire(there_s=1e-3, back_s=3e-3).read([0.0]), *Wire(there_s=3e-3, back_s=1e-3).read([10.0])]
    found = fit_brackets(CLOCK, read, 0)
    assert 0.0 < abs(found.rate - 1.0) <= 2.0 * found.rate_sigma < 1e-3


def test_half_of_the_shortest_round_trip_is_in_the_sigma() -> None:
    few, many = (fit_brackets(CLOCK, Wire(there_s=4e-3, back_s=0.0).read(marks(10.0, n)), 0) for n in (2, 500))
    assert few.sigma_s == pytest.approx(2e-3 / np.sqrt(3.0), rel=0.01)
    assert many.sigma_s == pytest.approx(few.sigma_s, rel=0.01)


def test_slow_round_trips_do_not_count() -> None:
    wire = Wire(there_s=1e-5, back_s=1e-5)
    quick = wire.read(marks(20.0))
    late = Wire(there_s=0.3, back_s=0.0).read(np.linspace(0.5, 19.0, 200))
    mixed = fit_brackets(CLOCK, sorted([*quick, *late], key=lambda b: b.before_ns), 0)
    assert np.all(wire.errors(mixed, np.linspace(0.0, 20.0, 5)) <= 2.0)
    assert mixed.sigma_s < 2e-5


@pytest.mark.parametrize("rate", [0.0, 1.5e-4, -8e-4])
def test_a_rate_from_one_moment_is_the_nominal_rate(rate: float) -> None:
    wire = Wire(rate=rate)
    found = fit_brackets(CLOCK, wire.read([0.0]), 0)
    assert found.rate == 1.0
    assert np.all(wire.errors(found, np.linspace(0.0, 100.0, 11)) <= 2.0)


@pytest.mark.parametrize("rate", [0.0, 1.5e-4, -2e-4])
@pytest.mark.parametrize("jitter_s", [1e-4, 5e-3])
def test_one_trigger_and_the_arrival_of_readings_bound_the_rate(rate: float, jitter_s: float) -> None:
    wire = Wire(rate=rate, seed=4)
    trigger = wire.read([0.0])
    ended = trigger[0].tick + np.arange(1, 401) * int(0.25 * HZ)
    true_s = ended / HZ / (1.0 + rate) - wire.offset_s
    arrived_s = true_s + 2e-3 + wire.rng.exponential(jitter_s, len(true_s))
    found = fit_brackets(CLOCK, trigger, 0, np.column_stack([ended, arrived_s]))
    assert abs(found.rate * (1.0 + rate) - 1.0) < 2.0 * found.rate_sigma < 1e-4
    assert np.all(wire.errors(found, np.linspace(0.0, 100.0, 11)) <= 2.5)
    assert fit_brackets(CLOCK, trigger, 0, np.column_stack([ended, arrived_s])[:2]).rate == 1.0


def test_arrivals_are_unused_if_the_clock_is_read_twice() -> None:
    wire = Wire(rate=1e-4)
    nonsense = np.column_stack([np.arange(10.0), 3.0 * np.arange(10.0)])
    rows = wire.read(marks(10.0))
    assert fit_brackets(CLOCK, rows, 0, nonsense) == fit_brackets(CLOCK, rows, 0)


def test_a_clock_that_was_never_read_is_an_error() -> None:
    with pytest.raises(ValueError, match="device was never read"):
        fit_brackets(CLOCK, [], 0)


def test_the_host_clock_counts_nanoseconds_from_the_run_start() -> None:
    host = host_timebase(10**18)
    assert host.seconds(np.array([10**18, 10**18 + 1, 10**18 + 10**9], dtype=np.int64)).tolist() == [0.0, 1e-9, 1.0]
    assert host.sigma_at(1e4) == 0.0


@given(st.floats(-1e-2, 1e-2), st.floats(-1e-4, 1e-4), st.floats(-50.0, 50.0))
def test_an_adjusted_map_shifts_and_stretches_at_its_reference(by_s: float, rate_by: float, t: float) -> None:
    plain = fit_brackets(CLOCK, Wire().read(marks(10.0)), 0)
    moved = plain.adjusted(by_s, rate_by, 1e-6, 1e-9, "marks")
    tick = np.array([plain.ref_tick + round(t * HZ)])
    since = float(plain.seconds(tick)[0]) - plain.ref_s
    assert float(moved.seconds(tick)[0]) == pytest.approx(plain.ref_s + by_s + since * (1.0 + rate_by), abs=1e-9)
    assert moved.sigma_at(moved.ref_s + 3.0) == pytest.approx(np.hypot(1e-6, 3e-9))


# ---- rates of clocks ---------------------------------------------------------------------------

FAST = {"device": -30e-6, "meter": 40e-6}


def test_intervals_of_clock_rates_hold_the_truth(tmp_path: Path) -> None:
    z = []
    for seed in range(6):
        device = {"device_seed": seed, "device_drift_ppm": 1e6 * FAST["device"], "timeout_s": 100.0}
        meter = {"meter_seed": seed + 20, "meter_drift_ppm": 1e6 * FAST["meter"]}
        clocks = on_plant(tmp_path / f"{seed}", BARE, device=device, meter=meter, samples=8).result.clocks
        assert clocks["meter"].method != "brackets"
        z += [(1.0 / (1.0 + c.rate_error) - 1.0 - FAST[name]) / c.rate_sigma for name, c in clocks.items()]
    assert np.max(np.abs(z)) <= 2.9  # for twelve, that is 95 %


@pytest.mark.parametrize("length_s", [5.0, 13.0])
def test_readings_of_one_moment_share_their_tick_error(length_s: float) -> None:
    """Readings at both ends within one tick of 32 kHz: they agree to a microsecond, and are off together."""
    rng, hz = np.random.default_rng(1), 32768.0
    z = []
    for _ in range(200):
        at = np.concatenate([t + rng.uniform(0.0, 1.0) + np.arange(8) * 2e-6 for t in (0.0, length_s)])
        read = [Bracket(round(t * 1e9) - 500, int(np.floor(t * hz)), round(t * 1e9) + 500) for t in at.tolist()]
        found = fit_brackets(ClockInfo("chip", hz), read, 0)
        z.append((found.rate - 1.0) / found.rate_sigma)
    assert np.mean(np.abs(z) <= 1.96) >= 0.93
