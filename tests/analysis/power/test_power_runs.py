"""Whole runs on a plant: changes that must not change a figure, the remedies of refusals, and the phases of a
run."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from fixtures.bench.mock_device import MockDevice
from fixtures.bench.true_power import SimPlant
from fixtures.worlds.random_draw import FIGURES, blank, steps
from rig.analysis.evaluate import evaluate
from rig.analysis.result.quantity import FigureKey
from rig.analysis.result.result import Result
from rig.types import MARK_PHASE, Idle, Issue, Mark, Reply, Span, Step
from tests.support.figures import ENERGY, POWER, TIME, held, said
from tests.support.plants import STILL, OnPlant, Options, on_plant


def test_twice_the_watts_are_twice_the_figures_noise_and_all(tmp_path: Path) -> None:
    def scaled(times: float) -> Result:
        device = {"idle_w": 1e-3 * times, "inference_w": 3e-3 * times, "marks": False, "inference_s": 0.05}
        meter = {"noise": 0.02, "gain_limit": 1e-3, "hum": 1e-3}
        return on_plant(tmp_path / str(times), device=device, meter=meter).result

    once, twice = (scaled(times).quantities for times in (1.0, 2.0))
    assert once.keys() == twice.keys()
    for name, q in once.items():
        factor = 2.0 if q.unit in ("W", "J") else 1.0
        assert twice[name].value == pytest.approx(factor * q.value, rel=1e-6), name
        assert twice[name].half_width() == pytest.approx(factor * q.half_width(), rel=1e-3), name


# ---- spans too short for the meter -----------------------------------------------------------

SHORT: Options = {"device": {"inference_s": 1e-3}, "meter": {"rate_hz": 100.0}}


def told(result: Result) -> str:
    """Return the refusal or note about the length of a window."""
    every = [f"{r.reason} {r.remedy}" for r in result.refusals] + list(result.notes)
    return next(text for text in every if "a window lasts" in text)


def remedy_of(result: Result) -> int:
    """Return the recommended repeat, beside a wide figure or instead of one."""
    found = re.search(r"--repeat (\d+)", told(result))
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize(("inference_s", "rate_hz"), [(1e-3, 100.0), (2e-4, 1000.0)])
def test_a_span_too_short_for_the_meter_has_at_most_a_wide_figure_and_the_repeat_it_asks_for_is_enough(
    tmp_path: Path, inference_s: float, rate_hz: float
) -> None:
    made: Options = {"device": {"inference_s": inference_s}, "meter": {"rate_hz": rate_hz}}
    short = on_plant(tmp_path / "short", **made)
    times, wide = remedy_of(short.result), short.result.quantities.get(POWER)
    assert wide is None or held(wide, short.real()["dynamic_power_w"])
    long = on_plant(tmp_path / "long", stream={"repeat": times}, **made)
    assert not long.result.refusals
    power, energy = long.result.quantities[POWER], long.result.quantities[ENERGY]
    assert held(power, long.real()["dynamic_power_w"])
    assert wide is None or power.half_width() < 0.5 * wide.half_width()
    assert held(energy, long.real()["energy_per_inference_j"] / times)
    assert energy.n == 20 * times


def test_a_repeat_that_was_not_enough_is_answered_with_one_that_is(tmp_path: Path) -> None:
    short = on_plant(tmp_path / "short", stream={"repeat": 5}, **SHORT).result
    long = on_plant(tmp_path / "long", stream={"repeat": remedy_of(short)}, **SHORT).result
    assert POWER in long.quantities


METHODS = ("info", "stage", "submit", "poll", "timer", "close")


def without_loop(plant: SimPlant, device: MockDevice) -> Any:
    """A driver without ``submit_repeated``: the rig issues the sample of a loop repeatedly."""
    return SimpleNamespace(**{name: getattr(device, name) for name in METHODS})


def stamping_each(plant: SimPlant, device: MockDevice) -> MockDevice:
    """A driver that stamps each execution of a loop."""
    poll = device.poll

    def polled(timeout_s: float) -> list[Reply]:
        return [replace(r, spans=tuple(one for span in r.spans for one in each(span))) for r in poll(timeout_s)]

    device.poll = polled  # type: ignore[method-assign]
    return device


def each(span: Span) -> list[Span]:
    ticks = np.linspace(span.on_tick, span.off_tick, span.executions + 1).astype(int).tolist()
    return [Span(span.phase, on, off - (off - on) // 20) for on, off in pairwise(ticks)]


@pytest.mark.parametrize("driver", [without_loop, stamping_each])
def test_a_repeat_that_made_no_span_longer_is_not_asked_for_again(
    tmp_path: Path, driver: Callable[[SimPlant, MockDevice], Any]
) -> None:
    short = on_plant(tmp_path / "short", driver=driver, **SHORT).result
    looped = on_plant(tmp_path / "looped", stream={"repeat": remedy_of(short)}, driver=driver, **SHORT).result
    assert "--repeat made no span longer" in told(looped)
    assert "one span around the loop (submit_repeated)" in told(looped)
    assert not re.search(r"--repeat \d", told(looped))


def test_time_is_reported_where_power_is_refused(tmp_path: Path) -> None:
    found = on_plant(tmp_path / "run", device={"inference_s": 1e-3}, meter={"rate_hz": 20.0})
    remedy_of(found.result)
    assert not {POWER, ENERGY} & found.result.quantities.keys()
    assert found.result.quantities[TIME].value == pytest.approx(found.real()["execution_time_s"], rel=1e-3)


# ---- phases, rails, warm-up --------------------------------------------------------------------


def test_phases_measured_apart_have_figures_of_their_own_and_totals(tmp_path: Path) -> None:
    device = {"preprocess_s": 0.03, "inference_s": 0.05, "preprocess_w": 2e-3, "inference_w": 4e-3}
    found = on_plant(tmp_path / "run", stream={"apart": True, "repeat": 2}, device=device, meter={"noise": 0.005})
    q = found.result.quantities
    energy = time_s = 0.0
    for phase in ("preprocess", "inference"):
        real = found.real(phase)
        assert held(q[f"phase.{phase}.dynamic_power_w"], real["dynamic_power_w"])
        assert held(q[f"phase.{phase}.energy_per_inference_j"], real["energy_per_inference_j"] / 2)
        assert q[f"phase.{phase}.energy_per_inference_j"].n == 40
        energy += real["energy_per_inference_j"] / 2
        time_s += real["execution_time_s"] / 2
    assert held(q[ENERGY], energy)
    assert q[TIME].value == pytest.approx(time_s, rel=1e-3)
    assert held(q["active_power_w"], energy / time_s)
    assert not found.result.refusals


def test_phases_measured_together_are_one_total_and_parts_where_readings_fit(tmp_path: Path) -> None:
    found = on_plant(tmp_path / "run", device={"preprocess_s": 0.03, "inference_s": 0.05}, meter={"noise": 0.005})
    q, both = found.result.quantities, {phase: found.real(phase) for phase in ("preprocess", "inference")}
    assert held(q[ENERGY], sum(real["energy_per_inference_j"] for real in both.values()))
    assert all(held(q[f"phase.{phase}.dynamic_power_w"], real["dynamic_power_w"]) for phase, real in both.items())


def test_rails_of_one_device_add_up_to_the_truth(tmp_path: Path) -> None:
    meter = {"noise": 0.01, "gain_limit": 2e-3}
    found = on_plant(tmp_path / "run", device={"rails": 3, "inference_s": 0.05}, meter=meter)
    q = found.result.quantities
    assert held(q[POWER], found.real()["dynamic_power_w"])
    assert q[POWER].value == pytest.approx(sum(q[f"rail.rail{k}.dynamic_power_w"].value for k in range(3)))
    shared = {c.shared for c in q[ENERGY].components if c.source.startswith("gain calibration")}
    assert shared == {f"gain:mock:rail{k}" for k in range(3)}


def test_a_rail_split_into_equal_parts_is_no_more_certain(tmp_path: Path) -> None:
    """The parts have all their noise in common, which does not average out over rails."""
    run = on_plant(tmp_path / "run", device={"inference_s": 0.05}, meter={"noise": 0.05}).run
    ((name, trace),) = run.traces.items()
    rails = [dataclasses.replace(trace.rail, name=f"part{k}", accuracy=None, resolution=None) for k in range(4)]
    parts = {rail.name: dataclasses.replace(trace, rail=rail, value=trace.value / 4.0) for rail in rails}
    one = {name: dataclasses.replace(trace, rail=dataclasses.replace(rails[0], name=name))}
    whole, split = (evaluate(dataclasses.replace(run, traces=traces)).quantities for traces in (one, parts))
    for key in (POWER, ENERGY):
        assert split[key].value == pytest.approx(whole[key].value, rel=1e-6)
        assert split[key].half_width() == pytest.approx(whole[key].half_width(), rel=0.02)
    # rails with readings at different times have no sum of readings
    fewer = {name: getattr(trace, name)[:-1] for name in ("start_tick", "end_tick", "value", "overload")}
    parts["part0"] = dataclasses.replace(parts["part0"], **fewer | {"value": fewer["value"] / 4.0})
    apart = evaluate(dataclasses.replace(run, traces=parts)).quantities
    assert apart[POWER].half_width() < 0.7 * whole[POWER].half_width()


def right_without(found: OnPlant, warmup: int) -> bool:
    """Return whether the warm-up enters no figure."""
    q, real = found.result.quantities, found.real()
    assert q[ENERGY].n == q[TIME].n == q["accuracy"].n == 20
    assert len(found.result.series.warmup_windows_s) == warmup
    return all(q[key].value == pytest.approx(real[key.quantity], rel=1e-4) for key in (POWER, ENERGY, TIME))


def test_warm_up_enters_no_result_however_slow_it_is(tmp_path: Path) -> None:
    made: Options = {"device": {"inference_s": 0.05, "marks": False}, "meter": STILL}
    samples = blank(20).samples
    slow: list[Step] = [
        Mark(), Issue(samples[:1], repeat=20, warmup=True), Idle(1.0), *(Issue([s]) for s in samples), Idle(1.0), Mark()
    ]  # fmt: skip
    for warmup in (0, 5):
        assert right_without(on_plant(tmp_path / str(warmup), stream={"warmup": warmup}, **made), warmup)
    assert right_without(on_plant(tmp_path / "slow", lambda work: iter(slow), **made), 1)


def test_a_rail_that_the_activity_does_not_touch_places_no_other_rail(tmp_path: Path) -> None:
    def two_rails(plant: SimPlant, device: MockDevice) -> MockDevice:
        busy = {"core": 3e-3, "io": 1e-3}
        plant.install({"core": 1e-3, "io": 1e-3}, {"inference": busy, MARK_PHASE: busy})
        return device

    links = {"device_forward_s": 5e-3, "device_back_s": 1e-4, "inference_s": 0.004, "marks": False}
    for seed in (4, 14):
        found = on_plant(
            tmp_path / str(seed), stream={"warmup": 0}, samples=40, plant={"seed": seed}, driver=two_rails,
            device=links | {"device_seed": seed},
            meter={"meter_seed": seed, "rate_hz": 5e3, "meter_forward_s": 1e-4, "meter_back_s": 5e-3},
        )  # fmt: skip
        power = found.result.quantities["rail.core.dynamic_power_w"].value
        assert power == pytest.approx(found.real()["dynamic_power_w"], rel=0.01)


def test_the_drop_over_a_shunt_is_taken_off(tmp_path: Path) -> None:
    meter = STILL | {"noise": 1e-4, "supply_v": 1.8, "burden_ohm": 0.02 * 1.8**2 / 3e-3}
    found = on_plant(tmp_path / "run", device={"inference_s": 0.0053, "inference_w": 3e-3}, meter=meter, samples=150)
    for name in ("trimmed.dynamic_power_w", "dynamic_power_w"):
        assert held(found.result.quantities[name], found.real()["dynamic_power_w"])


def test_rails_behind_one_shunt_err_together_and_one_without_calibration_claims_no_gain(tmp_path: Path) -> None:
    run = on_plant(tmp_path / "run", device={"rails": 2, "inference_s": 0.05}).run

    def with_rails(**fields: Any) -> Result:
        rails = {name: dataclasses.replace(trace.rail, **fields) for name, trace in run.traces.items()}
        traces = {name: dataclasses.replace(trace, rail=rails[name]) for name, trace in run.traces.items()}
        return evaluate(dataclasses.replace(run, traces=traces))

    apart, joint, silent = evaluate(run), with_rails(gain_id="shunt"), with_rails(accuracy=None)
    alone, together, none = (
        [c.u for c in result.quantities[POWER].components if "gain" in c.source] for result in (apart, joint, silent)
    )
    assert together == pytest.approx([sum(alone)]) and len(alone) == 2
    assert joint.quantities[POWER].u > apart.quantities[POWER].u
    assert none == [] and said(silent, "^Rail rail0: instrument uncertainty not stated")


# ---- phases without a gap, on rails that each see one ------------------------------------------

IDLE_W = {"front": 35e-6, "core": 245e-6}
PHASE_W = {
    "preprocess": {"front": 71e-6, "core": 245e-6}, "inference": {"front": 35e-6, "core": 535e-6},
    "mark": {"front": 71e-6, "core": 535e-6},
}  # fmt: skip


def on_two_rails(plant: SimPlant, device: MockDevice) -> MockDevice:
    plant.install(IDLE_W, PHASE_W)
    return device


def misses(seed: int, folder: Path) -> list[float]:
    """Return |error| over half-width of every figure of both phases."""
    rng = np.random.default_rng(seed)
    rate_hz, link = float(rng.uniform(500.0, 5000.0)), 0.0 if seed % 2 else 2e-3
    preprocess_s, inference_s = (rng.uniform(12.0, 200.0, 2) / rate_hz).tolist()
    found = on_plant(
        folder / str(seed), lambda work: steps(work, 1.5), plant={"seed": seed}, samples=60,
        device={"device_seed": seed + 1, "preprocess_s": preprocess_s, "inference_s": inference_s, "span_spread": 0.1,
                "device_forward_s": link, "device_back_s": 0.1 * link, "device_jitter_s": 0.1 * link,
                "marks": seed % 3 == 0},
        meter={"meter_seed": seed + 2, "rate_hz": rate_hz, "noise": float(rng.uniform(5e-3, 2e-2))},
        driver=on_two_rails,
    )  # fmt: skip
    pairs = [
        (found.result.quantities[FigureKey(name, phase)], found.real(phase)[name])
        for phase in ("preprocess", "inference")
        for name in FIGURES
    ]
    return [abs(q.value - real) / q.half_width() for q, real in pairs]


def test_the_intervals_of_every_phase_hold_the_truth_and_could_miss_it(tmp_path: Path) -> None:
    every = np.array([misses(seed, tmp_path) for seed in range(12)])
    assert np.mean(every <= 1.0) >= 0.9
    assert every.max() <= 3.0
    assert 1.0 / np.median(every) <= 8.0
