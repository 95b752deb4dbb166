"""A function that takes a dimod model, or a sampler by its name, serves as a device; only the rig judges its costs."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rig
from drivers.devices.cpu import dimod_sampler
from rig.commands.shell.main import main
from rig.errors import DeviceError, DeviceTimeoutError, UnknownNameError, UsageError
from rig.plugins import load
from rig.solving import function
from rig.solving.device import SolverDevice, solver_info
from rig.solving.model import problem_in
from scenarios.workloads.qubo_mis.random_graphs import gnm_edges
from tests.support.paths import EXAMPLES
from tests.support.raised import Capture, Patch, raised

dimod = pytest.importorskip("dimod", reason="extra qubo is not installed")
pytest.importorskip("dwave.samplers", reason="extra qubo is not installed")

pytestmark = pytest.mark.real_time

MODEL = dimod.BinaryQuadraticModel({0: -1.0, 1: 2.5, 2: -0.25}, {(0, 1): -2.0, (1, 2): 4.0}, 1.0, "BINARY")
(SAMPLE,) = rig.qubo({"three": MODEL}).samples
BEST = -0.25
"""The least cost of the model, at bits 0 and 2."""


def replied(device: rig.Device, sample: rig.Sample = SAMPLE, budget: rig.Budget | None = None) -> rig.Reply:
    try:
        device.stage([sample])
        device.submit([sample], budget)
        until_s = time.monotonic() + 20.0
        while not (replies := device.poll(20.0)) and time.monotonic() < until_s:  # poll waits at most 0.5 s
            pass
        (reply,) = replies
        return reply
    finally:
        device.close()


def exact(model: Any) -> Any:
    return dimod.ExactSolver().sample(model)


def given(bits: list[int]) -> Callable[[Any], Any]:
    return lambda model: dimod.SampleSet.from_samples_bqm(bits, model)


def test_the_best_returned_sample_is_the_answer() -> None:
    reply = replied(rig.solver(exact))

    assert (reply.output["cost"], reply.output["solution"]) == (BEST, "a0")
    assert [p.cost for p in reply.progress] == [BEST]
    (span,) = reply.spans
    assert span.phase == "solve"


def test_a_solver_may_have_a_description() -> None:
    info = rig.DeviceInfo("own", "hardware", phases=("solve",))
    assert replied(rig.solver(exact, info)).output["cost"] == BEST


@pytest.mark.parametrize(("stated", "kept"), [(-999.0, -999.0), (BEST + 1e-7, None), (float("nan"), None)])
def test_a_differing_stated_cost_is_recorded(stated: float, kept: float | None) -> None:
    output = replied(rig.solver(lambda _: dimod.SampleSet.from_samples([1, 0, 1], "BINARY", stated))).output

    assert (output["cost"], output.get("stated_cost")) == (BEST, kept)


def test_a_bad_solution_is_still_the_answer() -> None:
    assert replied(rig.solver(given([0, 1, 1]))).output["cost"] == 1.0 + 2.5 - 0.25 + 4.0


def test_each_solve_gets_a_new_binary_model() -> None:
    seen = []

    def spoil(model: Any) -> Any:
        seen.append((model.vartype.name, sorted(model.variables), model.num_interactions))
        answer = exact(model)
        model.change_vartype("SPIN", inplace=True)
        return answer

    device = rig.solver(spoil)
    device.stage([SAMPLE])
    for _ in range(2):
        device.submit([SAMPLE], None)
        (reply,) = device.poll(20.0)
        assert reply.output["cost"] == BEST
    device.close()
    assert seen == [("BINARY", [0, 1, 2], 2)] * 2


def test_spins_and_variable_order_are_converted() -> None:
    def spins(model: Any) -> Any:
        found = exact(model.change_vartype("SPIN", inplace=False))
        backwards = (found.record.sample[:, ::-1], list(found.variables)[::-1])
        return dimod.SampleSet.from_samples(backwards, "SPIN", found.record.energy)

    assert replied(rig.solver(spins)).output["cost"] == BEST


def test_a_generator_is_closed_at_the_deadline() -> None:
    closed = []

    def walk(model: Any, seed: int) -> Iterator[Any]:
        try:
            yield given([0, 1, 1])(model)
            yield given([0, 0, 0])(model)
            while True:
                time.sleep(1e-3)
                yield given([1, 0, 0])(model)
        finally:
            closed.append(seed)

    reply = replied(rig.solver(walk), budget=rig.Budget(0.5))
    assert [p.cost for p in reply.progress] == [7.25, 1.0, 0.0]
    assert reply.output["overrun_s"] < 10.0
    assert closed == [reply.output["seed"]]


def test_a_waiting_generator_gets_its_whole_time() -> None:
    def waits(model: Any) -> Iterator[Any]:
        for bits in ([0, 1, 1], [0, 0, 0], [1, 0, 0]):
            time.sleep(0.1)
            yield given(bits)(model)

    assert [p.cost for p in replied(rig.solver(waits), budget=rig.Budget(1.0)).progress] == [7.25, 1.0, 0.0]


@pytest.mark.parametrize("times", [1, 2])
def test_a_hanging_generator_answers_with_its_last_yield(times: int, monkeypatch: Patch) -> None:
    monkeypatch.setattr(function, "PATIENCE_S", 0.2)
    end = threading.Event()

    def stops(model: Any) -> Iterator[Any]:
        yield exact(model)
        end.wait(60.0)

    device = rig.solver(stops)
    device.stage([SAMPLE])
    device.submit_repeated([SAMPLE], times, None, rig.Budget(0.1))
    began_s = time.monotonic()
    while not (replies := device.poll(20.0)):
        assert time.monotonic() - began_s < 60.0
    assert [reply.output["cost"] for reply in replies] == [BEST]
    assert replies[0].output["overrun_s"] >= 0.2
    with pytest.raises(DeviceTimeoutError, match=r"yielded nothing for .* since its time was up, on sample three"):
        device.submit([SAMPLE], rig.Budget(0.1))
    device.close()
    end.set()


def test_solves_of_a_loop_are_prepared_before_the_span() -> None:
    prepared_ns = []

    def prepared(problem: Any) -> Any:
        prepared_ns.append(time.monotonic_ns())
        return problem

    device = SolverDevice(
        solver_info("still", "offers nothing", (), 1.0, schedule_depends_on_budget=False),
        lambda problem: problem, lambda problem, tally: time.sleep(1e-3),
        seed=0, default_s=0.1, longest_s=1.0, problem_of=problem_in, fresh=prepared,
    )  # fmt: skip
    device.stage([SAMPLE])
    device.submit_repeated([SAMPLE], 3, None, rig.Budget(0.1))
    (reply,) = device.poll(20.0)
    device.close()
    assert len(prepared_ns) == 3 and max(prepared_ns) < reply.spans[0].on_tick


def test_a_generator_stops_at_the_stop_cost() -> None:
    def endless(model: Any) -> Iterator[Any]:
        while True:
            yield exact(model)

    reply = replied(rig.solver(endless), budget=rig.Budget(15.0, 0.0))
    assert (reply.spans[0].off_tick - reply.spans[0].on_tick) * 1e-9 < 10.0


def test_a_solver_gets_values_for_its_parameters() -> None:
    got: dict[str, Any] = {}

    def solve(model: Any, timeout_s: float, *, stop_at_cost: float | None, sweeps: int = 3) -> Any:
        got.update(timeout_s=timeout_s, stop_at_cost=stop_at_cost, sweeps=sweeps)
        return exact(model)

    device = rig.solver(solve)
    assert device.info().details["schedule_depends_on_budget"] is True
    replied(device, budget=rig.Budget(2.0))
    assert got == {"timeout_s": pytest.approx(2.0, abs=1.0), "stop_at_cost": None, "sweeps": 3}


def test_a_solution_found_too_late_does_not_count() -> None:
    def slow(model: Any) -> Any:
        time.sleep(0.1)
        return exact(model)

    reply = replied(rig.solver(slow), budget=rig.Budget(0.05))
    assert (reply.output["cost"], reply.output["late_cost"]) == (1.0, BEST)
    assert reply.output["overrun_s"] >= 0.05


@pytest.mark.parametrize(("solve", "says"), [
    (lambda model: {0: 1}, "gave a dict"),
    (lambda model: None, "gave a NoneType"),
    (lambda model: exact(model).slice(0), "gave 0 samples"),
    (lambda model: dimod.SampleSet.from_samples({0: 1}, "BINARY", 0.0), "1 variables for 3 bits"),
])  # fmt: skip
def test_an_invalid_sample_set_is_reported(solve: Any, says: str) -> None:
    raised(DeviceError, replied, rig.solver(solve), says=says)


@pytest.mark.parametrize("solve", [lambda: None, lambda model, chip: None, 3])
def test_a_function_without_a_model_is_refused(solve: Any) -> None:
    raised(UsageError, rig.solver, solve, says="solve")


def test_benchmark_problems_are_solved() -> None:
    graph = gnm_edges(14, 0.25, 0)
    reply = replied(rig.solver(exact), rig.Sample("g", graph.to_payload()))

    assert reply.output["cost"] == graph.judge(reply.output["solution"])[0] < 0


def test_a_dimod_sampler_can_be_named_as_a_device() -> None:
    factory = load("devices", "dimod:dwave.samplers.SimulatedAnnealingSampler")
    device = factory(num_reads=5, num_sweeps=20)

    assert device.info().versions.keys() >= {"dimod", "dwave-samplers"}
    assert {"num_reads": "5", "num_sweeps": "20"}.items() <= device.info().details["tuning"].items()
    assert replied(device).output["cost"] == BEST


def test_a_sampler_passes_the_device_check() -> None:
    device = dimod_sampler.named("dwave.samplers.SteepestDescentSolver")()

    checked = rig.check_device(device, [SAMPLE], judge=lambda s, text: problem_in(s.payload).judge(text)[0])
    assert "reply.cost" in checked


@pytest.mark.parametrize(("name", "error", "says"), [
    ("dimod", UsageError, "dimod:PACKAGE.Sampler"),
    ("dimod:no_such_package.Sampler", UsageError, "no_such_package"),
    ("dimod:dwave.samplers.SimulatedAnealing", UnknownNameError, "SimulatedAnnealingSampler"),
    ("dimod:json.JSONDecoder", UnknownNameError, "dimod sampler in json"),
    ("mock:other", UsageError, "takes no name after a colon"),
])  # fmt: skip
def test_an_unknown_sampler_name_is_reported(name: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        load("devices", name)()


# ---- from the command line --------------------------------------------------------------------


@pytest.fixture
def own(here: Path) -> Path:
    (here / "three.txt").write_text("0 0 -1\n1 1 2.5\n2 2 -0.25\n0 1 -2\n1 2 4\n")
    return here


def measured(capsys: Capture, *arguments: str, timeout_s: float = 0.1) -> dict[str, Any]:
    times = ("--option", f"timeout_s={timeout_s}", "--option", "idle_s=0.5")
    brief = (*times, "--mode", "together", "--quiet", "--json")
    assert main(["measure", *arguments, *brief, "--allow-invalid", "--out", "run"]) == 0
    return dict(json.loads(capsys.readouterr().out)["results"]["quantities"])


def test_the_example_solver_gives_gap_and_energy(own: Path, capsys: Capture) -> None:
    solver = f"{EXAMPLES / 'my_solver.py'}:open_device"
    found = measured(
        capsys, "--device", solver, "--workload", "qubo", "--data", "three.txt", "--meter", "mock",
        "--option", "target=-1.25", timeout_s=0.6,
    )  # fmt: skip

    assert (found["cost_best"]["value"], found["gap_given_mean"]["value"]) == (-1.25, 0.0)
    assert "feasible_share" not in found
    names = ("time_to_gap_given_0_01_s", "runtime_power_w", "energy_to_gap_given_0_01_j")
    time_s, power_w, energy_j = (found.get(name, {}).get("value") for name in names)
    if power_w is None:  # on a busy host, readings or stamps may give no power, with a note
        assert energy_j is None
        assert json.loads((own / "run" / "derived" / "results.json").read_text())["refusals"]
    else:
        assert 0.0 < energy_j < 2.0 * power_w * time_s
    assert rig.open_run(own / "run").start.scenario.name == "optimization"


def test_the_example_problems_are_solved_without_a_target(own: Path, capsys: Capture) -> None:
    workload = f"{EXAMPLES / 'my_qubo.py'}:open_workload"
    found = measured(
        capsys, "--device", "dimod:dwave.samplers.SteepestDescentSolver", "--option", "num_reads=50", "--workload",
        workload, "--scenario", "optimization", "--meter", "none",
    )  # fmt: skip

    assert found["cost_best"]["value"] >= 0
    assert not [name for name in found if name.startswith("gap")]


def test_the_rig_solvers_take_only_graphs(own: Path, capsys: Capture) -> None:
    pytest.importorskip("numba", reason="extra qubo is not installed")
    Path("ring.edges").write_text("0 1\n1 2\n2 3\n0 3\n")
    found = measured(capsys, "--device", "cpu-mis", "--workload", "qubo", "--data", "ring.edges", "--meter", "none")
    assert found["cost_best"]["value"] == -2

    assert main(["check", "--device", "cpu-sa", "--workload", "qubo", "--data", "three.txt", "--meter", "none"]) == 33
    assert "dimod:dwave.samplers.TabuSampler" in capsys.readouterr().out


def test_a_qubo_workload_needs_data(own: Path, capsys: Capture) -> None:
    assert main(["check", "--device", "dimod:dimod.ExactSolver", "--workload", "qubo", "--meter", "none"]) == 3
    assert "Give --data a file" in capsys.readouterr().err


def test_data_imply_an_optimization_workload(own: Path, capsys: Capture) -> None:
    main(["workload", "export", "qubo-mis", "10", "0.25", "3", "--out", "graph.npz"])
    capsys.readouterr()
    found = measured(
        capsys, "--device", "dimod:dimod.ExactSolver", "--scenario", "optimization", "--data", "graph.npz", "--meter",
        "none",
    )  # fmt: skip

    assert found["cost_best"]["value"] < 0


OWN_WORKLOAD = """
import numpy as np
import rig

def open_workload():
    return rig.workload([rig.Sample("q", np.eye(3), target_cost={target})], name="mine", task="mine")

def open_device():
    return rig.blocking(lambda sample: {{"cost": {cost}, "solution": "a0"}})
"""


@pytest.mark.parametrize(("target", "cost", "rule"), [
    ("-1.0", "-1.0", "reply.cost"), ("float('nan')", "-1.0", "sample.target"), ("-1.0", "'low'", "reply.solution"),
])  # fmt: skip
def test_a_check_finds_bad_targets_and_costs(own: Path, capsys: Capture, target: str, cost: str, rule: str) -> None:
    Path("mine.py").write_text(OWN_WORKLOAD.format(target=target, cost=cost))
    names = ("--device", "mine.py:open_device", "--workload", "mine.py:open_workload", "--scenario", "optimization")

    assert main(["check", *names, "--meter", "none"]) == 33
    assert rule in capsys.readouterr().out


def test_a_check_finds_an_impossible_scenario(own: Path, capsys: Capture) -> None:
    names = ("--device", "dimod:dimod.ExactSolver", "--workload", "qubo", "--data", "three.txt", "--meter", "none")

    assert main(["check", *names]) == 0
    assert main(["check", *names, "--option", "to_gap=0.1"]) == 33
    assert "has no target cost" in capsys.readouterr().out


def test_unjudged_solutions_are_noted(own: Path, capsys: Capture) -> None:
    Path("mine.py").write_text(OWN_WORKLOAD.format(target="-1.0", cost="-1.0"))
    names = ("--device", "mine.py:open_device", "--workload", "mine.py:open_workload", "--scenario", "optimization")

    main(["measure", *names, "--meter", "none", "--quiet", "--allow-invalid", "--mode", "together", "--out", "run"])
    told = " ".join(capsys.readouterr().out.split())
    assert "5 solutions have no cost" in told
    assert "rig.qubo(models)" in told


def test_the_audit_computes_the_costs_again(own: Path, capsys: Capture) -> None:
    device = "dimod:dimod.ExactSolver"
    measured(capsys, "--device", device, "--workload", "qubo", "--data", "three.txt", "--meter", "none")

    main(["audit", "run"])
    assert "ok      accuracy and costs derived again" in capsys.readouterr().out
