"""Whole runs on a plant: changes that must not change a figure, the remedies of refusals, and the phases of a run.

Intervals of average power over the time of serving, and of power of batches, contain the plant's exact truth. A
solver's power is the average over its runtime; pre-processing is measured separately."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from fixtures.bench.mock_device import MockDevice
from fixtures.bench.true_power import ORIGIN_NS, SimPlant
from fixtures.worlds.random_draw import FIGURES, blank, steps
from reports.audit.audit import audit
from rig.analysis.evaluate import evaluate
from rig.analysis.result.finding import Finding
from rig.analysis.result.quantity import FigureKey
from rig.analysis.result.result import Result
from rig.commands.shell.main import main
from rig.types import MARK_PHASE, Budget, DeviceInfo, Idle, Issue, Mark, Preprocessing, Reply, Rules, Sample, Span, Step
from scenarios.idle_and_warmup import framed
from scenarios.offline import offline
from scenarios.rules import neurobench_1_0, quick
from scenarios.server import server
from scenarios.single_stream import single_stream
from tests.support.figures import ENERGY, POWER, TIME, held, said
from tests.support.plants import STILL, OnPlant, Options, Play, on_plant
from tests.support.serving import S


def test_doubled_power_doubles_power_and_energy_figures(tmp_path: Path) -> None:
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
def test_the_remedy_for_short_spans_states_enough_repeats(tmp_path: Path, inference_s: float, rate_hz: float) -> None:
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


def test_the_remedy_for_too_few_repeats_is_sufficient(tmp_path: Path) -> None:
    short = on_plant(tmp_path / "short", stream={"repeat": 5}, **SHORT).result
    assert POWER in on_plant(tmp_path / "long", stream={"repeat": remedy_of(short)}, **SHORT).result.quantities


METHODS = ("info", "stage", "submit", "poll", "timer", "close")


def without_loop(plant: SimPlant, device: MockDevice) -> Any:
    """A driver without ``submit_repeated``: the rig issues the sample of a loop repeatedly."""
    return SimpleNamespace(**{name: getattr(device, name) for name in METHODS})


def stamping_each(plant: SimPlant, device: MockDevice) -> MockDevice:
    """A driver that stamps each execution of a loop."""
    poll = device.poll

    def polled(timeout_s: float) -> list[Reply]:
        return [structs.replace(r, spans=tuple(one for span in r.spans for one in each(span))) for r in poll(timeout_s)]

    device.poll = polled  # type: ignore[method-assign]
    return device


def each(span: Span) -> list[Span]:
    ticks = np.linspace(span.on_tick, span.off_tick, span.executions + 1).astype(int).tolist()
    return [Span(span.phase, on, off - (off - on) // 20) for on, off in pairwise(ticks)]


@pytest.mark.parametrize("driver", [without_loop, stamping_each])
def test_a_useless_repeat_is_not_asked_for_again(tmp_path: Path, driver: Callable[[SimPlant, MockDevice], Any]) -> None:
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


def test_phases_measured_apart_have_separate_figures_and_totals(tmp_path: Path) -> None:
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


def test_phases_measured_together_have_a_total_and_separate_powers(tmp_path: Path) -> None:
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


def test_a_rail_split_into_parts_keeps_its_uncertainty(tmp_path: Path) -> None:
    """The parts have all their noise in common, which does not average out over rails."""
    run = on_plant(tmp_path / "run", device={"inference_s": 0.05}, meter={"noise": 0.05}).run
    ((name, trace),) = run.traces.items()
    rails = [replace(trace.rail, name=f"part{k}", accuracy=None, resolution=None) for k in range(4)]
    parts = {rail.name: structs.replace(trace, rail=rail, value=trace.value / 4.0) for rail in rails}
    one = {name: structs.replace(trace, rail=replace(rails[0], name=name))}
    whole, split = (evaluate(structs.replace(run, traces=traces)).quantities for traces in (one, parts))
    for key in (POWER, ENERGY, structs.replace(POWER, phase="inference"), FigureKey("average_power_w")):
        assert split[key].value == pytest.approx(whole[key].value, rel=1e-6)
        assert split[key].half_width() == pytest.approx(whole[key].half_width(), rel=0.02)
    # rails with readings at different times have no sum of readings
    fewer = {name: getattr(trace, name)[:-1] for name in ("start_tick", "end_tick", "value", "overload")}
    parts["part0"] = structs.replace(parts["part0"], **fewer | {"value": fewer["value"] / 4.0})
    assert evaluate(structs.replace(run, traces=parts)).quantities[POWER].half_width() < 0.7 * whole[POWER].half_width()


def right_without(found: OnPlant, warmup: int) -> bool:
    """Return whether the warm-up enters no figure."""
    q, real = found.result.quantities, found.real()
    assert q[ENERGY].n == q[TIME].n == q["accuracy"].n == 20
    assert len(found.result.series.warmup_windows_s) == warmup
    return all(q[key].value == pytest.approx(real[key.quantity], rel=1e-4) for key in (POWER, ENERGY, TIME))


def test_even_slow_warm_up_enters_no_result(tmp_path: Path) -> None:
    made: Options = {"device": {"inference_s": 0.05, "marks": False}, "meter": STILL}
    samples = blank(20).samples
    slow: list[Step] = [
        Mark(), Issue(samples[:1], repeat=20, warmup=True), Idle(1.0), *(Issue([s]) for s in samples), Idle(1.0), Mark()
    ]  # fmt: skip
    for warmup in (0, 5):
        assert right_without(on_plant(tmp_path / str(warmup), stream={"warmup": warmup}, **made), warmup)
    assert right_without(on_plant(tmp_path / "slow", lambda work: iter(slow), **made), 1)


def test_a_rail_without_activity_does_not_shift_other_rails(tmp_path: Path) -> None:
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


def test_marks_place_a_late_trace_whose_samples_have_two_phases_and_hardly_a_gap(tmp_path: Path) -> None:
    found = on_plant(
        tmp_path / "run", samples=30,
        device={
            "preprocess_s": 0.005, "inference_s": 0.02, "preprocess_w": 5e-3, "inference_w": 11e-3,
            "device_forward_s": 2e-4, "device_back_s": 2e-4, "device_jitter_s": 2e-5,
        },
        meter={"rate_hz": 1e3, "meter_forward_s": 4e-3, "meter_back_s": 0.0, "meter_jitter_s": 1e-5, "noise": 2e-3},
    )  # fmt: skip
    assert held(found.result.quantities["dynamic_power_w"], (0.005 * 4e-3 + 0.02 * 10e-3) / 0.025)


def test_the_drop_over_a_shunt_is_taken_off(tmp_path: Path) -> None:
    meter = STILL | {"noise": 1e-4, "supply_v": 1.8, "burden_ohm": 0.02 * 1.8**2 / 3e-3}
    found = on_plant(tmp_path / "run", device={"inference_s": 0.0053, "inference_w": 3e-3}, meter=meter, samples=150)
    for name in ("trimmed.dynamic_power_w", "dynamic_power_w"):
        assert held(found.result.quantities[name], found.real()["dynamic_power_w"])


def test_rails_behind_one_shunt_share_their_gain_error(tmp_path: Path) -> None:
    run = on_plant(tmp_path / "run", device={"rails": 2, "inference_s": 0.05}).run

    def with_rails(**fields: Any) -> Result:
        rails = {name: replace(trace.rail, **fields) for name, trace in run.traces.items()}
        traces = {name: structs.replace(trace, rail=rails[name]) for name, trace in run.traces.items()}
        return evaluate(structs.replace(run, traces=traces))

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


def test_intervals_of_every_phase_hold_the_truth_and_stay_narrow(tmp_path: Path) -> None:
    every = np.array([misses(seed, tmp_path) for seed in range(12)])
    assert np.mean(every <= 1.0) >= 0.9
    assert every.max() <= 3.0
    assert 1.0 / np.median(every) <= 8.0


# ---- average power -----------------------------------------------------------------------------


def by_server(arrival_hz: float = 8.0, duration_s: float = 6.0) -> Play:
    return lambda work: server(work, quick("server"), arrival_hz=arrival_hz, duration_s=duration_s, idle_s=1.0)


def by_offline() -> Play:
    return lambda work: offline(work, quick("offline"), idle_s=1.0)


def mean_w(found: OnPlant) -> float:
    """Return the plant's mean power from the first request to the last answer."""
    table = [row for row in found.run.replies.to_pylist() if not row["warmup"]]
    on_ns = min(row["issued_ns"] if row["due_ns"] is None else row["due_ns"] for row in table)
    off_ns = max(row["completed_ns"] for row in table)
    return found.plant.energy_j(on_ns, off_ns) / (float(off_ns - on_ns) * 1e-9)


def served(found: OnPlant) -> bool:
    """Return whether the interval of average power contains the plant's mean power, and is below 2 % of it each way."""
    real_w = mean_w(found)
    power = found.result.quantities["average_power_w"]
    return held(power, real_w, 0.999) and power.half_width() < 0.02 * real_w


@pytest.mark.parametrize(("seed", "play"), [(0, by_server()), (1, None), (2, by_offline())])
def test_average_power_holds_the_true_mean_over_serving_time(tmp_path: Path, seed: int, play: Play | None) -> None:
    faults = {"noise": 0.02, "gain_limit": 2e-3, "offset_limit": 2e-4, "meter_seed": seed + 7, "rate_hz": 2000.0}
    found = on_plant(
        tmp_path / "run", play, samples=40, meter=faults,
        device={"device_seed": seed, "inference_s": 0.05, "span_spread": 0.2},
        plant={"seed": seed, "idle_drift_per_s": 1e-4 * (seed % 2), "burst": 0.3},
    )  # fmt: skip
    assert served(found)
    q = found.result.quantities
    energy, power, time_s = (q[n] for n in ("average_energy_per_sample_j", "average_power_w", "duration_s"))
    assert energy.value == pytest.approx(power.value * time_s.value / energy.n)


@pytest.mark.parametrize("repeat", [1, 10])
def test_energy_and_latency_per_sample_do_not_depend_on_repeat(tmp_path: Path, repeat: int) -> None:
    """By hand: 20 ms at 3 mW, and 1.2 ms on the link for each request; executions share the run's joules equally."""
    found = on_plant(
        tmp_path / "run", lambda work: single_stream(work, quick("single-stream"), idle_s=1.0, repeat=repeat),
        device={"inference_s": 0.02}, samples=40,
    )  # fmt: skip
    result, q, n = found.result, found.result.quantities, 40 * repeat
    each_j = mean_w(found) * q["duration_s"].value / n
    assert q["average_energy_per_sample_j"].value == pytest.approx(each_j, 1e-3)
    assert q["latency_mean_s"].value == pytest.approx(0.02 + 1.2e-3 / repeat, 1e-2)
    assert q["throughput_samples_hz"].value == pytest.approx(n / q["duration_s"].value)
    percentiles = {"execution_time_p50_s", "phase.inference.execution_time_p99_s", "latency_p50_s", "latency_p99_s"}
    assert percentiles & {str(key) for key in q} == (percentiles if repeat == 1 else set())  # of a loop, only the mean
    assert any("shows their mean alone" in text for text in result.notes) == (repeat > 1)


def test_average_power_of_a_rarely_asked_device_is_near_idle(tmp_path: Path) -> None:
    found = on_plant(tmp_path / "run", by_server(1.0, 20.0), device={"inference_s": 0.05}, samples=40)
    assert served(found)
    assert found.result.quantities["average_power_w"].value < 1.3e-3
    assert found.result.quantities["active_power_w"].value > 2.9e-3


@pytest.mark.parametrize(("frames", "inference_s", "late_s"), [(6, 0.1, 0.0), (60, 0.1, 0.0), (6, 0.7, 1.201)])
def test_strides_go_on_after_the_last_answer(tmp_path: Path, frames: int, inference_s: float, late_s: float) -> None:
    """A stride of 0.5 s has ``inference_s`` at 3 mW, and 1 mW for the rest; a device that is too slow never rests."""
    found = on_plant(
        tmp_path / "run",
        lambda work: framed((Issue([s], due_ns=k * S // 2) for k, s in enumerate(work.samples)), work, 1.0, 1),
        stream={"stride_s": 0.5}, samples=frames, device={"inference_s": inference_s, "device_jitter_s": 0.0},
    )  # fmt: skip
    q, lasts_s = found.result.quantities, 0.5 * frames + late_s
    assert q["duration_s"].value == pytest.approx(lasts_s, abs=1e-2 * late_s)
    assert q["throughput_samples_hz"].value == pytest.approx(frames / lasts_s, 1e-2 * late_s + 1e-9)
    joules = lasts_s * 1e-3 + frames * inference_s * 2e-3
    assert held(q["average_power_w"], joules / lasts_s, 0.999)
    assert held(q["average_energy_per_sample_j"], joules / frames, 0.999)
    main(["report", str(tmp_path / "run")])
    checked = audit(tmp_path / "run").compared
    assert {"average_power_w", "average_energy_per_sample_j", "duration_s"} <= {c.key for c in checked if c.ok}


class Batching:
    """The mock device with a batch: all samples issued together have the same span of 0.1 s."""

    def __init__(self, plant: SimPlant, device: MockDevice, batch: int) -> None:
        self.device, self.plant, self.batch = device, plant, batch
        self.poll, self.stage, self.close, self.timer = device.poll, device.stage, device.close, device.timer

    def info(self) -> DeviceInfo:
        return DeviceInfo("batching", "simulator", clock=self.device.info().clock, max_batch=self.batch, timeout_s=60.0)

    def submit(self, samples: list[Sample], budget: Budget | None) -> None:
        on_ns = self.plant.clock.now_ns() + 20_000
        off_ns = on_ns + 100_000_000
        self.plant.occupy("inference", on_ns, off_ns)
        on, off = (self.device._clock.tick_at((ns - ORIGIN_NS) * 1e-9) for ns in (on_ns, off_ns))
        span = (Span("inference", on, off),)
        self.device._pending += [(off_ns, Reply(s.id, {"label": s.label}, span)) for s in samples]


@pytest.mark.parametrize("batch", [1, 4, 10])
def test_a_batch_is_one_window_with_energy_shared_by_inferences(tmp_path: Path, batch: int) -> None:
    found = on_plant(
        tmp_path / "run", by_offline(), device={"marks": False}, meter={"noise": 0.002}, samples=40,
        driver=lambda plant, device: Batching(plant, device, batch),
    )  # fmt: skip
    q, batches, plant = found.result.quantities, 40 // batch, found.plant
    assert len(found.result.series.phase_windows_s["inference"]) == batches
    assert found.run.replies.num_rows == 41  # including the warm-up
    assert q["execution_time_s"].value == pytest.approx(0.1 / batch, rel=1e-3)
    assert (q["energy_per_inference_j"].n, q["active_power_w"].n) == (40, 40)
    windows = [(on, off) for name, on, off in plant.activity if name == "inference"][-batches:]
    batch_j = float(np.mean([plant.energy_j(on, off) for on, off in windows]))
    assert held(q["energy_per_inference_j"], batch_j / batch, 0.999)
    assert held(q["active_power_w"], 3e-3, 0.999)
    assert served(found)


# ---- a solver's runtime, which begins when the graph is loaded ---------------------------------

SOLVER = {
    "idle_w": 1e-3, "inference_w": 3e-3, "inference_s": 0.1, "device_forward_s": 0.1, "device_back_s": 1e-4,
}  # fmt: skip
"""The graph takes 0.1 s to load, the solve 0.1 s."""


def solving(plant: SimPlant, device: MockDevice) -> MockDevice:
    """Let the device answer with solutions."""
    poll = device.poll

    def solved(timeout_s: float) -> list[Reply]:
        return [structs.replace(reply, output={"cost": -1.0, "solution": "80"}) for reply in poll(timeout_s)]

    device.poll = solved  # type: ignore[method-assign]
    return device


def test_runtime_power_excludes_loading_and_pauses(tmp_path: Path) -> None:
    found = on_plant(tmp_path / "run", device=SOLVER, driver=solving).result.quantities
    power = found["runtime_power_w"]
    assert held(power, 3e-3, 0.999)
    assert power.value == found["literal.active_power_w"].value
    assert found["average_power_w"].value < 0.8 * power.value


# ---- pre-processing, measured separately -------------------------------------------------------

STRICT = neurobench_1_0("single-stream")
LISTENING, NOWHERE = Preprocessing(rails=("rail1",)), Preprocessing(rails=("afe",))
PHASE, ABSENT = Preprocessing(phases=("preprocess",)), Preprocessing(none="it takes samples as they are")


def declared(folder: Path, told: Preprocessing | None, rules: Rules = STRICT, preprocess_s: float = 0.0) -> Result:
    def declaring(plant: SimPlant, device: MockDevice) -> MockDevice:
        info = replace(device.info(), preprocessing=told)
        device.info = lambda: info  # type: ignore[method-assign]
        return device

    options = {"rails": 2, "idle_w": 3e-3, "preprocess_s": preprocess_s}
    stream = {"idle_s": 0.5}
    return on_plant(folder / "run", device=options, stream=stream, samples=8, rules=rules, driver=declaring).result


def check_of(result: Result) -> Finding | None:
    assert result.validity is not None
    return next((c for c in result.validity.checks if "pre-processing" in c.rule), None)


def test_power_of_a_listening_front_end_is_reported_separately(tmp_path: Path) -> None:
    found = declared(tmp_path, LISTENING).quantities
    assert held(found["preprocessing_power_w"], 1e-3, 0.999)
    assert found["preprocessing_power_w"].value == found["rail.rail1.idle_power_w"].value


@pytest.mark.parametrize(("told", "preprocess_s", "ok", "found"), [
    (None, 0.0, False, "not declared"), (None, 0.05, False, "not declared"), (PHASE, 0.05, True, "preprocess"),
    (PHASE, 0.0, False, "preprocess, not measured by itself"), (LISTENING, 0.0, True, "rail1"),
    (NOWHERE, 0.0, False, "afe, not measured by itself"), (ABSENT, 0.0, True, "it takes samples as they are"),
])  # fmt: skip
def test_pre_processing_must_be_measured_or_declared_absent(
    tmp_path: Path, told: Preprocessing | None, preprocess_s: float, ok: bool, found: str
) -> None:
    result = declared(tmp_path, told, preprocess_s=preprocess_s)
    check = check_of(result)
    assert check is not None
    assert (check.ok, check.found) == (ok, found)
    assert [str(r.scope) for r in result.refusals if "afe" in r.reason] == ["preprocessing_power_w"] * (told is NOWHERE)


def test_quick_rules_require_no_declaration(tmp_path: Path) -> None:
    assert check_of(declared(tmp_path, None, quick("single-stream"))) is None
