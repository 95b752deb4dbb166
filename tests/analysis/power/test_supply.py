"""Amperes and volts are two raw rails: power is their product for each reading, with the limits of both.

The limits, the steps and the ends of an instrument's ranges bound the error of a level.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fixtures.worlds.lab_recording import plain_lab
from rig.analysis.evaluate import evaluate
from rig.analysis.result.quantity import Quantity
from rig.analysis.result.result import Result
from rig.analysis.timing.profile import step_in, step_of, undithered
from rig.analysis.timing.readings import Volts, mean_volts, sagging
from rig.errors import DataError, StoreError
from rig.recording.reader import open_run
from rig.recording.traces.conversion import to_watts
from rig.types import Conversion, Floats, Rail
from tests.support.figures import ACTIVE, IDLE, POWER, held, said
from tests.support.labs import lab_of, measured
from tests.support.raised import raised
from tests.support.run_by_hand import asked, reply, start_line, trace, write

T0_NS = 1_000_000_000_000
IDLE_A, BUSY_A, OPEN_V, OHM = 0.1, 0.6, 5.0, 0.5
LIMIT_A = {"of_reading": 1e-3, "offset": 1e-4, "linearity": 0.0}
LIMIT_V = {"of_reading": 2e-3, "offset": 1e-3, "linearity": 0.0}


def current(spans: Floats, t: Floats) -> Floats:
    """Return the integral of the amperes up to each time."""
    on = [np.clip(t - a, 0.0, b - a) for a, b in spans]
    return np.asarray(IDLE_A * t + (BUSY_A - IDLE_A) * np.sum(on, axis=0))


def recorded(
    path: Path, *, volts_hz: float = 1000.0, ohm: float = OHM, noise: float = 1e-4, shift_s: float = 0.0,
    conversion: dict[str, Any] | None = None, volts: dict[str, Any] | None = None, kind: str = "mean",
    look: float = 1.0,
) -> Path:  # fmt: skip
    """Record thirty spans on a sagging supply, measured by an ammeter and a voltmeter on the host's clock.

    The voltmeter measures for the share ``look`` of the time from one reading to the next.
    """
    rng = np.random.default_rng(4)
    spans = np.array([[2.0 + 0.1 * k, 2.04 + 0.1 * k] for k in range(30)])
    end_s = 7.0

    def readings(rate_hz: float, moved_s: float, of: Any, look: float = 1.0) -> dict[str, Any]:
        start = np.round((0.001 + moved_s + np.arange(int((end_s - 0.02) * rate_hz)) / rate_hz) * 1e9).astype(np.int64)
        end = start + round(look * 1e9 / rate_hz)
        amperes = np.round((current(spans, end * 1e-9) - current(spans, start * 1e-9)) * rate_hz / look, 9)
        return {"value": of(amperes) * (1.0 + noise * rng.normal(size=len(start))), "start_tick": start + T0_NS,
                "end_tick": end + T0_NS}  # fmt: skip

    ns = [[T0_NS + round(t * 1e9) for t in span] for span in spans]
    rows = [reply(k, f"s{k}", on, off) for k, (on, off) in enumerate(ns)]
    start = start_line(t0_ns=T0_NS)
    start["device"] = {"name": "plant", "mode": "simulator", "phases": ["inference"]}
    idle = [{"type": "idle", "on_ns": T0_NS + a, "off_ns": T0_NS + b}
            for a, b in ((10_000_000, 1_950_000_000), (5_100_000_000, 6_900_000_000))]  # fmt: skip
    own = {"unit": "A", "supply_rail": "vdd"} if conversion is None else conversion
    amps = {"name": "core", "rate_hz": 1000.0, "conversion": own, "accuracy": LIMIT_A, "gain_id": "i"}
    supply = {"name": "vdd", "kind": kind, "rate_hz": volts_hz, "conversion": {"unit": "V"}, "accuracy": LIMIT_V,
              "gain_id": "v"}  # fmt: skip
    seen = {
        "traces/core.arrows": trace(amps, readings(1000.0, 0.0, lambda i: i), "host"),
        "traces/vdd.arrows": trace(
            supply | (volts or {}), readings(volts_hz, shift_s, lambda i: OPEN_V - ohm * i, look), "host"
        ),
    }
    return write(path, [start, *idle], asked(rows, inferences=1) | seen)


def result_of(path: Path, **how: Any) -> Result:
    return evaluate(open_run(recorded(path, **how)))


def truth_w(burden_ohm: float = 0.0) -> tuple[float, float]:
    """Return idle and active power at the device."""
    idle, busy = (i * (OPEN_V - OHM * i) - i * i * burden_ohm for i in (IDLE_A, BUSY_A))
    return idle, busy


def test_power_is_the_product_of_both_reading_by_reading_and_volts_enter_no_total(tmp_path: Path) -> None:
    result = result_of(tmp_path / "run")
    idle_w, busy_w = truth_w()
    assert result.refusals == ()
    for name, real in (("idle_power_w", idle_w), ("active_power_w", busy_w), ("dynamic_power_w", busy_w - idle_w)):
        assert result.quantities[name].value == pytest.approx(real, rel=2e-4), name
    assert result.quantities["trimmed.dynamic_power_w"].value == pytest.approx(busy_w - idle_w, rel=2e-4)
    assert said(result, "Rail core: power is its current times the voltage of vdd, reading by reading")
    assert not [key for key in result.quantities if key.rail == "vdd"]
    assert result.quantities["active_power_w"].value == result.quantities["rail.core.active_power_w"].value
    assert [s.rail for s in result.series.rails] == ["core"]


def test_volts_without_current_are_refused_as_power(tmp_path: Path) -> None:
    (refusal,) = (r for r in result_of(tmp_path / "run", conversion={"unit": "V"}).refusals if r.scope == "power")
    assert refusal.reason == "only volts were recorded (core, vdd), and volts alone are no power"
    assert "current" in refusal.remedy


@pytest.mark.parametrize(("volts_hz", "shift_s", "look"), [
    (1000.0, 0.0004, 1.0), (5000.0, 0.0, 1.0), (50.0, 0.003, 1.0), (40.0, 0.0, 1.0), (10.0, 0.0, 1.0),
    (4.0, 0.0, 1.0), (7.0, 0.0, 1.0), (7.0, 0.0, 0.007), (23.0, 0.0, 0.023), (0.7, 0.0, 1.0), (0.3, 0.0, 1.0),
])  # fmt: skip
def test_volts_at_another_pace_follow_the_amperes(tmp_path: Path, volts_hz: float, shift_s: float, look: float) -> None:
    found = result_of(tmp_path / "run", volts_hz=volts_hz, shift_s=shift_s, look=look).quantities
    idle_w, busy_w = truth_w()
    for key, real in ((IDLE, idle_w), (ACTIVE, busy_w), (POWER, busy_w - idle_w)):
        assert held(found[key], real)
        assert found[key].value == pytest.approx(real, rel=5e-3)


def test_one_voltage_reading_cannot_show_the_sag_of_the_supply(tmp_path: Path) -> None:
    result = result_of(tmp_path / "run", volts_hz=0.2)
    (check,) = (c for c in result.findings if c.rule == "readings of the voltage of vdd at different currents of core")
    assert not check.ok and "several of these readings, which take 5 s each" in check.remedy


def test_power_lost_in_the_shunt_is_subtracted(tmp_path: Path) -> None:
    result = result_of(tmp_path / "run", conversion={"unit": "A", "supply_rail": "vdd", "burden_ohm": 0.2})
    idle_w, busy_w = truth_w(burden_ohm=0.2)
    assert result.quantities[POWER].value == pytest.approx(busy_w - idle_w, rel=3e-4)


@pytest.mark.parametrize("burden_ohm", [0.0, 0.5])
def test_volt_and_ampere_limits_enter_by_the_slope_of_power(tmp_path: Path, burden_ohm: float) -> None:
    own = {"unit": "A", "supply_rail": "vdd", "burden_ohm": burden_ohm}
    quantities = result_of(tmp_path / "run", conversion=own, volts={"resolution": 0.01}).quantities
    amperes, volts = np.array([IDLE_A, BUSY_A]), OPEN_V - OHM * np.array([IDLE_A, BUSY_A])
    slope = volts - 2.0 * burden_ohm * amperes
    for name, of in (("idle_power_w", [1, 0]), ("active_power_w", [0, 1]), ("dynamic_power_w", [-1, 1])):
        shared = {c.shared: c.u for c in quantities[name].components if c.shared}
        assert shared["gain:i"] == pytest.approx(1e-3 * (slope * amperes) @ of / 3**0.5, rel=1e-2)
        assert shared["gain:v"] == pytest.approx(2e-3 * (volts * amperes) @ of / 3**0.5, rel=1e-2)
        assert shared["offset:i"] == pytest.approx(1e-4 * slope @ of / 3**0.5, rel=1e-2)
        assert shared["offset:v"] == pytest.approx(1e-3 * amperes @ of / 3**0.5, rel=1e-2)
        for level, ampere, part in zip(("idle", "busy"), amperes, of, strict=True):
            step_w = shared.get(f"resolution, {level} level:vdd", 0.0)
            assert step_w == pytest.approx(abs(part) * 0.01 * ampere / 12**0.5, rel=1e-2)


def test_stated_and_measured_voltages_give_the_same_limits(tmp_path: Path) -> None:
    own = {"unit": "A", "burden_ohm": 0.5}
    measured, stated = (
        result_of(tmp_path / by, ohm=0.0, conversion=own | {by: of}).quantities
        for by, of in (("supply_rail", "vdd"), ("supply_v", OPEN_V))
    )
    for name in ("idle_power_w", "active_power_w", "dynamic_power_w"):
        first, second = ({c.shared: c.u for c in q[name].components if c.shared} for q in (measured, stated))
        assert [second[of] for of in ("gain:i", "offset:i")] == pytest.approx(
            [first[of] for of in ("gain:i", "offset:i")], rel=1e-2
        )


def test_stated_and_constant_volts_give_the_same_power(tmp_path: Path) -> None:
    measured = result_of(tmp_path / "a", ohm=0.0, noise=0.0).quantities
    stated = result_of(tmp_path / "b", ohm=0.0, noise=0.0, conversion={"unit": "A", "supply_v": OPEN_V}).quantities
    for name in ("idle_power_w", "active_power_w", "trimmed.dynamic_power_w"):
        assert measured[name].value == pytest.approx(stated[name].value, rel=1e-12)


def test_volts_without_a_calibration_are_noted(tmp_path: Path) -> None:
    notes = result_of(tmp_path / "run", volts={"accuracy": None}).notes
    assert "Rail vdd: instrument uncertainty not stated (no calibration was declared)" in notes


def test_the_unknown_error_of_a_constant_voltage_is_noted(tmp_path: Path) -> None:
    result = result_of(tmp_path / "run", conversion={"unit": "A", "supply_v": OPEN_V})
    assert said(result, "Rail core: power is its current times a constant 5 V, whose error is in no interval")


@pytest.mark.parametrize(("rail", "says"), [("vcc", "is not in the recording"), ("core", "no volts")])
def test_a_rail_without_volts_is_refused_as_a_supply(tmp_path: Path, rail: str, says: str) -> None:
    caught = raised(DataError, result_of, tmp_path / "run", says=says, conversion={"unit": "A", "supply_rail": rail})
    assert caught.field == "supply_rail"


@pytest.mark.parametrize("conversion", [
    {"unit": "W", "supply_rail": "vdd"}, {"unit": "A", "supply_rail": "vdd", "supply_v": 5.0},
    {"unit": "A", "supply_rail": 3}, {"unit": "mV"},
])  # fmt: skip
def test_an_invalid_conversion_is_refused(tmp_path: Path, conversion: dict[str, Any]) -> None:
    raised(StoreError, open_run, recorded(tmp_path / "run", conversion=conversion))


def test_a_voltage_alone_is_no_power() -> None:
    raised(DataError, to_watts, np.ones(3), Conversion("V"), says="power cannot be computed from a voltage alone")
    raised(DataError, to_watts, np.ones(3), Conversion("A", supply_rail="vdd"), says="no declared supply voltage")


# ---- volts over a reading -----------------------------------------------------------------


def volts_of(value: Floats, start: Floats, end: Floats, ok: Any = True) -> Volts:
    fine = np.broadcast_to(ok, len(value)).astype(bool)
    return Volts(Rail("vdd", conversion=Conversion("V")), start, end, value, fine, np.zeros(len(value), bool))


@pytest.mark.parametrize(("count", "unit_a"), [(2, 1.0), (3, 1e-9), (4, 1.0), (6, 1e-9)])
def test_the_resistance_interval_of_a_supply_holds_the_truth(count: int, unit_a: float) -> None:
    held, at, start = [], np.arange(100.0 * count), 100.0 * np.arange(count)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        works = rng.random(len(at)) < rng.uniform(0.0, 1.0, count).repeat(100)
        amperes = volts_of(unit_a * np.where(works, BUSY_A, IDLE_A), at, at + 1.0)
        sagged = OPEN_V - OHM / unit_a * amperes.value.reshape(count, 100).mean(axis=1)
        volts = volts_of(sagged + rng.normal(0.0, 3e-3, count), start, start + 100.0)
        _, sag = sagging(volts, np.zeros(len(at)), amperes)
        assert sag is not None
        held.append(abs(sag.ohm * unit_a - OHM) <= 1.96 * sag.ohm_u * unit_a)
    assert np.mean(held) > 0.88


@given(st.floats(-2.0, 2.0), st.floats(0.01, 3.0), st.floats(0.0, 6.0))
def test_a_linear_ramp_has_its_exact_mean_in_any_window(slope: float, length: float, begin: float) -> None:
    at = np.linspace(0.0, 10.0, 41)
    found, known, _ = mean_volts(volts_of(3.0 + slope * at, at, at), np.array([begin]), np.array([begin + length]))
    assert found[0] == pytest.approx(3.0 + slope * (begin + 0.5 * length), abs=1e-9) and known[0]


def test_amperes_far_from_any_volts_have_no_power() -> None:
    start = np.arange(20.0)
    lost = volts_of(np.where(start == 5.0, np.nan, 2.0), start, start + 1.0, start != 5.0)
    found, known, _ = mean_volts(lost, np.arange(-10.0, 40.0), np.arange(-9.0, 41.0))

    assert found[known] == pytest.approx(2.0)
    assert known[np.arange(-10.0, 40.0) == 5.0].all() and not known[0] and not known[-1]
    raised(DataError, mean_volts, volts_of(start, start, start + 1.0, False), start, start + 1.0, says="holds no volts")


# ---- effects of an instrument on a level: limits, steps, and ends ------------------------------


def parts_of(q: Quantity, what: str) -> Mapping[str, float]:
    return {c.source: c.u for c in q.components if what in c.source}


def test_levels_share_no_error_without_a_stated_linearity(tmp_path: Path) -> None:
    lab = plain_lab(1, "plain")
    lab.declared = {"accuracy": {"of_reading": 1e-3, "offset": 1e-5}}
    found = measured(lab, tmp_path).quantities
    busy, idle = ((1e-3 * found[key].value + 1e-5) / math.sqrt(3.0) for key in (ACTIVE, IDLE))

    assert parts_of(found[POWER], "calibration") == pytest.approx(
        {"busy level calibration": busy, "idle level calibration": -idle}, rel=1e-3
    )
    assert parts_of(found[ACTIVE], "calibration") == pytest.approx({"busy level calibration": busy})
    assert parts_of(found[IDLE], "calibration") == pytest.approx({"idle level calibration": idle})


def test_a_stated_linearity_lets_levels_share_gain_and_offset(tmp_path: Path) -> None:
    lab = plain_lab(1, "plain")
    lab.declared = {"accuracy": {"of_reading": 1e-3, "offset": 1e-5, "linearity": 1e-6}}
    found = measured(lab, tmp_path).quantities
    bend = 1e-6 / math.sqrt(3.0)

    gain = 1e-3 * found[POWER].value / math.sqrt(3.0)
    assert parts_of(found[POWER], "calibration") == pytest.approx(
        {"gain calibration": gain, "busy level calibration": bend, "idle level calibration": -bend}
    )
    assert "offset calibration" in parts_of(found[ACTIVE], "calibration")


@settings(max_examples=50)
@given(st.floats(0.0, 0.15), st.floats(-0.5, 0.5), st.integers(0, 2**32 - 1))
def test_flips_of_a_level_near_a_threshold_are_not_dither(sigma: float, level: float, seed: int) -> None:
    values = np.round(level + np.random.default_rng(seed).normal(0.0, sigma, 4000))

    assert undithered(values, 1.0) == 1.0


@settings(max_examples=50)
@given(st.floats(0.3, 5.0), st.floats(-0.5, 0.5), st.integers(0, 2**32 - 1))
def test_the_residual_step_bounds_the_error_of_a_dithered_mean(sigma: float, level: float, seed: int) -> None:
    values = np.round(level + np.random.default_rng(seed).normal(0.0, sigma, 20_000))
    left = undithered(values, 1.0)

    assert abs(float(np.mean(values)) - level) <= left / math.pi + 4.0 * float(np.std(values)) / math.sqrt(20_000)
    assert left <= 0.01 or sigma < 0.75


def test_volts_read_with_their_amperes_follow_no_resistance() -> None:
    at, amperes = np.arange(40.0), np.tile([1.0, 2.0], 20)
    one, other = (
        Volts(Rail("a", "mean"), at, at + 1.0, value, np.ones(40, bool), np.zeros(40, bool))
        for value in (amperes, 5.0 - 0.1 * amperes)
    )
    assert sagging(other, other.value, one)[1] is None


@given(st.floats(1e-6, 1e3), st.integers(2, 3), st.integers(0, 2**32 - 1))
def test_a_step_is_found_without_two_adjacent_levels(step: float, few: int, seed: int) -> None:
    levels = np.array([0, 2 * few, 5 * few, 9 * few + 1, 20 * few])
    values = np.random.default_rng(seed).choice(levels, 2000) * step

    assert step_of(values) <= step * few * 1.001


def test_readings_with_too_few_distinct_values_are_reported(tmp_path: Path) -> None:
    few, many = (result_of(tmp_path / f"{noise}", noise=noise) for noise in (0.0, 1e-3))
    assert said(few, "Rail core: all readings have one of 2 values: declare its resolution")
    assert not said(many, "all readings have one of")


def test_a_too_fine_declared_step_is_corrected(tmp_path: Path) -> None:
    lab = lab_of("coarse_steps", 1_000_001)
    step = lab.declared["resolution"]
    lab.declared["resolution"] = step / 1000.0

    parts = parts_of(measured(lab, tmp_path).quantities[ACTIVE], "resolution")
    assert parts["resolution"] == pytest.approx(step / math.sqrt(12.0), rel=1e-6)


@given(st.floats(1e-6, 1e3), st.integers(20, 40), st.integers(0, 2**32 - 1))
def test_spans_have_the_step_of_their_own_meter_range(step: float, level: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    low = rng.uniform(0.0, (level - 4.5) * step, 300)
    ends = rng.permutation(np.arange(level - 4, level)) * step
    raw = np.concatenate([low, ends, np.full(200, level * step)])
    within = np.arange(len(raw)) >= len(raw) - 200

    found, recurring = step_in(raw[within], raw[250:])

    assert found == pytest.approx(step, rel=1e-6)
    assert np.array_equal(recurring, raw[within])


def test_one_recurring_value_yields_a_finite_step() -> None:
    unlike = np.sqrt(np.arange(2.0, 50.0))
    assert step_in(np.append(unlike, np.ones(8)), unlike)[0] < 1.0
