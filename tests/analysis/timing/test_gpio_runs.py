"""Whole runs with a pin on the meter: recorded beside the power, used for placement, and as the only stamps."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec import structs

from fixtures.bench.true_power import ORIGIN_NS
from rig.analysis.evaluate import evaluate
from rig.analysis.result.result import Result
from rig.analysis.timing.alignment.aligned_rails import aligned_rails
from rig.analysis.timing.clocks_and_tolerances import timebase_of
from rig.analysis.timing.counted_spans import activity_of
from rig.bench.request import Request
from rig.errors import DataError, SetupError
from rig.recording.reader import Run, open_run
from rig.session.measure import measure
from tests.support.figures import ACTIVE, ENERGY, POWER, TIME, held, said
from tests.support.plants import BARE, OnPlant, Options, on_plant
from tests.support.raised import raised
from tests.support.run_by_hand import read_plainly, write

N = 30
DEVICE: Options = {"inference_s": 0.03, "span_spread": 0.2, "timeout_s": 100.0}

LEVEL, STAMP = ({"pin": pin} for pin in ("level", "stamp"))


def measured(path: Path, device: Options, meter: Options, n: int = N, **plant: Any) -> OnPlant:
    return on_plant(path, BARE, device=DEVICE | device, meter={"noise": 0.02} | meter, plant=plant, samples=n)


def offset(found: OnPlant) -> tuple[float, float, str]:
    """Return how far the meter's map is from the device's stamps in the middle, its sigma, and the method."""
    device = timebase_of(found.run, "device")
    placed = aligned_rails(found.run, activity_of(found.run, device), device)[0].timebase
    spans = [on for name, on, _ in found.plant.activity if name == "inference"]
    at = np.array([(spans[len(spans) // 2] - ORIGIN_NS) * 1e-9])
    here = placed.seconds(found.meter._clock.ticks_at(at)) - device.seconds(found.device._clock.ticks_at(at) - 0.5)
    return float(here[0]), placed.sigma_s, placed.method


def holds(found: OnPlant) -> list[bool]:
    """Return whether the interval of each figure contains the truth."""
    real = found.real()
    return [held(found.result.quantities[key], real[key.quantity]) for key in (POWER, ACTIVE, ENERGY, TIME)]


def values(result: Result) -> dict[str, float]:
    return {str(key): q.value for key, q in result.quantities.items()}


# ---- recorded beside the power ------------------------------------------------------------


def test_a_logic_input_is_no_supply_rail(tmp_path: Path) -> None:
    found = measured(tmp_path / "run", LEVEL, LEVEL)
    trace = found.run.traces["pin"]
    assert len(trace.value) == 2 * (N + 24)
    assert np.array_equal(trace.start_tick, trace.end_tick) and set(trace.value) == {0.0, 1.0}
    assert not [name for name in found.result.quantities if name.rail == "pin"]
    assert [r.rail for r in found.result.series.rails] == ["core"]


def test_an_undeclared_pin_changes_no_figure(tmp_path: Path) -> None:
    without = measured(tmp_path / "without", {}, {})
    beside = measured(tmp_path / "with", LEVEL, LEVEL)
    trace = beside.run.traces["pin"]
    mute = structs.replace(trace, rail=replace(trace.rail, pin=None))
    undeclared = evaluate(structs.replace(beside.run, traces={**beside.run.traces, "pin": mute}))
    assert values(undeclared) == values(without.result)


def test_a_pin_that_never_moves_is_recorded_and_reported(tmp_path: Path) -> None:
    found = measured(tmp_path / "run", {}, LEVEL)
    assert len(found.run.traces["pin"].value) == 0
    assert said(found.result, "no edge was seen")


@pytest.mark.parametrize(("column", "value", "what"), [
    ("value", 2, "neither 0 nor 1"), ("end_tick", None, "begin and end differ"), ("both", None, "forward in time"),
])  # fmt: skip
def test_impossible_edges_are_refused(tmp_path: Path, column: str, value: int | None, what: str) -> None:
    measured(tmp_path / "run", LEVEL, LEVEL, n=3)
    events, tables = read_plainly(tmp_path / "run")
    table = tables["traces/pin.arrows"]
    names = ("start_tick", "end_tick") if column == "both" else (column,)
    for name in names:
        held = table[name].to_numpy().astype(np.int64)
        held[1] = held[0] if column == "both" else held[1] + 1 if value is None else value
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(held))
    tables["traces/pin.arrows"] = table
    raised(DataError, open_run, write(tmp_path / "other", events[:-1], tables), says=what)


# ---- placed by ----------------------------------------------------------------------------


@pytest.mark.parametrize("pin", ["level", "stamp", "toggle"])
def test_faulty_edges_place_a_slow_meter_within_microseconds(tmp_path: Path, pin: str) -> None:
    wrong = {"pin": pin, "pin_missed": 0.05, "pin_bounce": 0.2, "pin_extra": 0.05, "pin_jitter_s": 2e-7}
    z = []
    for seed in range(6):
        device = wrong | {"device_seed": seed, "marks": bool(seed % 2)}
        meter = {"pin": pin, "meter_seed": seed + 1, "rate_hz": 200.0, "pin_rate_hz": 4e5}
        error, sigma, method = offset(measured(tmp_path / f"{seed}", device, meter))
        assert method == "edges" and sigma < 3e-6
        z.append(error / sigma)
    assert np.sum(np.abs(z) <= 1.96) >= 4  # of 6 at 95 %, 4 or more in 99.8 cases of 100
    assert np.max(np.abs(z)) <= 4.0


def test_a_disagreement_of_trace_and_pin_is_reported(tmp_path: Path) -> None:
    late = measured(tmp_path / "late", {"pin": "level", "pin_delay_s": 3e-4}, {"pin": "level", "noise": 1e-3}, n=60)
    assert said(late.result, "and their combined uncertainty is")
    assert not said(measured(tmp_path / "right", LEVEL, {"pin": "level", "noise": 1e-3}, n=60).result, "apart")


def test_every_method_that_was_tried_is_in_the_report(tmp_path: Path) -> None:
    clock = measured(tmp_path / "run", LEVEL, LEVEL).result.clocks["meter"]
    assert {"brackets", "marks", "activity", "edges"} == set(clock.considered)
    assert clock.sigma_s == min(clock.considered.values())


@pytest.mark.parametrize(("pin", "device", "rate_hz"), [
    ("stamp", {"pin_jitter_s": 1e-6}, 300.0),
    *((pin, {"on_pin": True}, 1000.0) for pin in ("level", "stamp", "toggle")),
])  # fmt: skip
def test_figures_by_a_pin_hold_the_truth(tmp_path: Path, pin: str, device: Options, rate_hz: float) -> None:
    every = []
    for seed in range(3):
        meter = {"pin": pin, "meter_seed": seed, "rate_hz": rate_hz}
        found = measured(tmp_path / f"{seed}", device | {"pin": pin, "device_seed": seed}, meter, seed=seed)
        assert not found.result.refusals
        every += holds(found)
    assert np.mean(every) >= 0.9


# ---- timed by -----------------------------------------------------------------------------

ON_PIN = STAMP | {"on_pin": True}


def test_the_meter_clock_rate_enters_pin_times(tmp_path: Path) -> None:
    result = measured(tmp_path / "run", ON_PIN, STAMP).result
    time, power = result.quantities["execution_time_s"], result.quantities["dynamic_power_w"]
    assert set(result.clocks) == {"meter"}
    assert any(c.source == "clock rate, device to host" for c in time.components)
    assert not any(c.source == "clock rate, meter to device" for c in power.components)


def test_the_pin_lag_enters_the_uncertainty_of_time(tmp_path: Path) -> None:
    found = measured(tmp_path / "run", ON_PIN, {"pin": "stamp", "pin_lag_s": 1e-4})
    parts = {c.source: c.u for c in found.result.quantities["execution_time_s"].components}
    assert parts["stamp jitter"] >= 1e-4 * np.sqrt(2.0 / 3.0) * 0.99


def test_edges_within_the_pin_lag_belong_to_their_issue(tmp_path: Path) -> None:
    found = measured(tmp_path / "run", ON_PIN | {"pin_delay_s": 2e-3}, {"pin": "stamp", "pin_lag_s": 2e-3})
    assert found.result.quantities[TIME].value == pytest.approx(found.real()["execution_time_s"], rel=2e-4)


def with_edges(run: Run, change: Callable[[str, Any], Any]) -> Run:
    """Return the run with other columns of its pin's trace."""
    trace = run.traces["pin"]
    columns = {name: change(name, getattr(trace, name)) for name in ("value", "start_tick", "end_tick", "overload")}
    return structs.replace(run, traces={**run.traces, "pin": structs.replace(trace, **columns)})


def test_an_issue_without_its_edges_is_named(tmp_path: Path) -> None:
    found = measured(tmp_path / "run", LEVEL | {"on_pin": True}, LEVEL)
    with pytest.raises(DataError, match="issue 7 has 1 begins and 0 ends") as caught:
        evaluate(with_edges(found.run, lambda name, column: np.delete(column, 15)))
    assert caught.value.value == 7 and "wire" in caught.value.remedy


def test_an_extra_edge_is_refused_only_within_an_issue(tmp_path: Path) -> None:
    noisy = measured(tmp_path / "noisy", LEVEL | {"on_pin": True, "pin_bounce": 1.0}, LEVEL, n=5)
    raised(DataError, evaluate, noisy.run, says="issue 0 has 3 begins and 3 ends")
    quiet = measured(tmp_path / "quiet", LEVEL | {"on_pin": True}, LEVEL, n=5)
    first = quiet.run.traces["pin"].start_tick[0] - np.array([5_000_000, 4_000_000])
    early = {"value": [1, 0], "start_tick": first, "end_tick": first, "overload": [False, False]}
    run = with_edges(quiet.run, lambda name, column: np.concatenate([early[name], column]))
    assert values(evaluate(run))["execution_time_s"] == values(quiet.result)["execution_time_s"]


def test_wide_brackets_move_no_edge_to_a_neighbouring_issue(tmp_path: Path) -> None:
    meter = LEVEL | {"meter_forward_s": 0.04, "meter_back_s": 1e-4, "meter_jitter_s": 0.0}
    found = measured(tmp_path / "run", LEVEL | {"on_pin": True}, meter)
    assert found.result.quantities[TIME].value == pytest.approx(found.real()["execution_time_s"], rel=2e-4)


def test_a_pin_without_a_meter_is_refused_before_recording(tmp_path: Path) -> None:
    caught = raised(SetupError, measured, tmp_path / "run", ON_PIN, {}, says="no meter watches it")
    assert "mark_input" in caught.remedy


def test_a_recording_without_the_pin_trace_states_a_remedy(tmp_path: Path) -> None:
    found = measured(tmp_path / "run", ON_PIN, STAMP)
    result = evaluate(structs.replace(found.run, traces={"core": found.run.traces["core"]}))
    assert "execution_time_s" not in result.quantities
    assert any("logic input" in refusal.remedy for refusal in result.refusals)


def test_a_loop_on_a_pin_stands_for_its_executions(tmp_path: Path) -> None:
    rows = measured(tmp_path / "run", ON_PIN, STAMP, n=3).run.replies.to_pylist()
    assert [(r["phase"], r["on_tick"], r["executions"]) for r in rows] == 3 * [("inference", None, 1)]
    assert json.loads(rows[0]["output"])["label"] == "x"


def test_session_times_on_a_pin_come_from_metered_runs(tmp_path: Path) -> None:
    options = ("device.on_pin=true", "device.pin=stamp", "meter.pin=stamp", "samples=3", "idle_s=0.5")
    request = Request("mock", ("mock",), "single-stream", "asc", True, None, None, options, tmp_path / "session", ())
    folder = measure(request, quiet=True)
    runs = {name: open_run(folder / name) for name in ("performance", "power")}
    for run in runs.values():
        assert "execution_time_s" in evaluate(run).quantities
