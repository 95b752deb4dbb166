"""Without Lava, the Loihi 2 driver checks its options, finds its interpreter, and its worker computes costs."""

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from drivers.devices.loihi2 import device as loihi2
from drivers.workers.common import Refusal
from drivers.workers.lava_network import MARGIN, Found, Rate, use_board
from drivers.workers.lava_qubo import Problem, Solve
from rig.errors import DataError, MissingExtraError, SetupError, UsageError
from rig.factories import build, options_of
from rig.solving.model import from_hex
from rig.types import Budget, Device, Sample
from scenarios.workloads.qubo_mis.graph import Graph
from tests.support.mis_graphs import graphs
from tests.support.raised import Patch, raised
from tests.support.remote_workers import HONEST, answer

pytest.importorskip("execnet", reason="extra loihi2 is not installed")

GRAPH = Graph(3, np.array([[0, 1], [1, 2]], np.int32))
SAMPLE = Sample("g", GRAPH.to_payload())
SOLVER = (
    HONEST.replace('"name": "honest"', '"name": "loihi2"').replace("inference", "solve")
    + """
class Solver(Worker):
    def output(self, sample, budget):
        time.sleep(min(budget[0], 0.01))
        return {"cost": -2, "solution": "a0", "budget_s": budget[0], "stop": budget[1], "options": self.options}

def open_worker(options):
    return Solver(options)
"""
)
ROOMY: dict[str, Any] = {"simulate": True, "start_s": 30.0, "load_s": 30.0}


@pytest.fixture(autouse=True)
def nothing_here(tmp_path: Path, monkeypatch: Patch) -> Path:
    """Let no interpreter be found unless a test puts one into this folder's ``cache``."""
    monkeypatch.delenv(loihi2.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def stand_in(monkeypatch: Patch) -> None:
    """Use this test's worker instead of Lava's, in this interpreter."""
    monkeypatch.setattr(loihi2, "shipped", lambda module: (module, SOLVER))
    monkeypatch.setattr(loihi2, "python_of", lambda path: sys.executable)


def opened(**options: Any) -> Device:
    return loihi2.open_device(**ROOMY | options)


# ---- as a device --------------------------------------------------------------------------


@pytest.mark.parametrize(("budget", "kept"), [
    (None, [1.5, None]), (Budget(0.2), [0.2, None]), (Budget(0.2, -1.0), [0.2, -1.0]),
    (Budget(None, -1.0), [20.0, -1.0]), (Budget(), [1.5, None]),
])  # fmt: skip
def test_every_solve_has_a_deadline(stand_in: None, budget: Budget | None, kept: list[float | None]) -> None:
    with closing(opened(default_s=1.5, longest_s=20.0)) as device:
        output = answer(device, SAMPLE, budget=budget).output
    assert [output["budget_s"], output["stop"]] == kept


def test_a_payload_without_a_graph_is_refused(stand_in: None) -> None:
    device = opened()
    raised(DataError, device.stage, [Sample("audio", np.zeros(16000, np.float32))], says="not a graph")
    raised(DataError, device.stage, [Sample("dot", np.array([1, 0], np.int32))], says="one node")
    device.close()


# ---- options ------------------------------------------------------------------------------


def test_options_reach_the_worker_typed(stand_in: None) -> None:
    texts = {"seed": "4", "refract": "9", "hyperparameters": '{"temperature": 2, "x": [1]}'}
    raised(UsageError, build, loihi2.open_device, {"simulate": True}, texts, says="hyperparameters")
    texts["hyperparameters"] = '{"temperature": 2, "x": 1}'
    with closing(build(loihi2.open_device, {"simulate": True}, texts)) as device:
        options = answer(device, SAMPLE, budget=Budget(0.01)).output["options"]
    assert options["hyperparameters"] == {"temperature": 2, "x": 1}
    assert (options["seed"], options["refract"], options["neuron_model"]) == (4, 9, "nebm")


@pytest.mark.parametrize("options", [
    {"neuron_model": "sa"}, {"neuron_model": "nebm", "simulate": False}, {"neuron_model": "scif"},
    {"temperature": -1}, {"loihi_gen": "N3C9"}, {"refract": 128}, {"refract": -1},
    {"hyperparameters": "{"}, {"hyperparameters": "3"}, {"hyperparameters": '{"a": null}'}, {"seed": -1},
    {"default_s": 0.0}, {"default_s": 2e3}, {"longest_s": float("inf")}, {"start_s": 0.0}, {"load_s": float("nan")},
])  # fmt: skip
def test_an_impossible_option_is_refused_before_the_worker_starts(options: dict[str, Any]) -> None:
    caught = raised(UsageError, opened, **options)
    assert caught.field in options and caught.remedy


def test_every_option_is_described() -> None:
    told = str(loihi2.open_device.__doc__)
    assert [name for name in options_of(loihi2.open_device) if f"``{name}``" not in told] == []


# ---- interpreters -------------------------------------------------------------------------


def test_a_missing_interpreter_is_refused_with_a_remedy() -> None:
    raised(SetupError, opened, says=r"an interpreter of its own.*-m venv.*lava-optimization==0\.5\.0")


def test_a_named_interpreter_takes_precedence(nothing_here: Path, monkeypatch: Patch) -> None:
    own = nothing_here / "cache" / "neurorig" / "lava" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.touch()
    assert loihi2.python_of("") == str(own)
    monkeypatch.setenv(loihi2.VARIABLE, "/nowhere/else")
    assert loihi2.python_of("") == "/nowhere/else"
    raised(SetupError, opened, says="nowhere/named", interpreter="/nowhere/named")


def test_an_interpreter_without_lava_is_reported_by_the_worker() -> None:
    raised(MissingExtraError, opened, says=r"cannot import Lava.*lava-optimization", interpreter=sys.executable)


# ---- the arithmetic of its worker ------------------------------------------------------------------

SECONDS = st.floats(1e-6, 10.0)
PATH = Graph(4, np.array([[0, 1], [1, 2], [2, 3]], np.int32))


def problem(graph: Graph) -> Problem:
    payload = graph.to_payload()
    return Problem({"dtype": payload.dtype.str, "shape": list(payload.shape), "data": payload.tobytes()})


class Playback:
    """Stands for a network: the solutions that it finds in each slice, as seconds from now, cost and nodes."""

    def __init__(self, *slices: Sequence[tuple[float, int, tuple[int, ...]]]) -> None:
        self.slices, self.steps = list(slices), 0

    def run(self, steps: int) -> None:
        self.steps += steps
        time.sleep(1e-4)

    def found(self) -> list[Found]:
        told = self.slices.pop(0) if self.slices else ()
        now_ns = time.monotonic_ns()
        return [Found(now_ns + round(s * 1e9), self.steps, cost, packed(nodes)) for s, cost, nodes in told]


def packed(nodes: tuple[int, ...]) -> bytes:
    x = np.zeros(PATH.nodes, np.uint8)
    x[list(nodes)] = 1
    return np.packbits(x).tobytes()


def played(network: Playback, budget_s: float = 0.02, stop: float | None = None) -> dict[str, Any]:
    solve = Solve(problem(PATH), [budget_s, stop], 7)
    solve.spend(network, Rate(1e-6, 1e-4, 0.0))  # type: ignore[arg-type]
    return solve.answer()


@given(SECONDS, SECONDS, SECONDS, SECONDS, st.booleans())
def test_slices_end_in_time(left_s: float, call_s: float, step_s: float, first_s: float, first: bool) -> None:
    steps = Rate(call_s, step_s, first_s).steps(left_s, first)
    assert steps >= 0
    if steps:
        assert call_s + first * first_s + steps * step_s <= left_s / MARGIN * (1 + 1e-9)


@given(SECONDS, SECONDS, SECONDS)
def test_a_slice_is_planned_only_if_a_step_fits(left_s: float, call_s: float, step_s: float) -> None:
    steps = Rate(call_s, step_s, 0.0).steps(left_s, False)
    fits = (left_s / MARGIN - call_s) / step_s
    assert (steps > 0) == (fits >= 1)


def test_a_slice_of_slow_steps_is_short() -> None:
    assert Rate(0.001, 0.05, 0.0).steps(10.0, False) == 4


@given(graphs(), st.integers(0, 2**32))
def test_costs_match_the_benchmark_matrix(graph: Graph, seed: int) -> None:
    x = np.random.default_rng(seed).integers(0, 2, graph.nodes)
    ours = problem(graph)
    q = ours.q()
    assert (q == q.T).all()
    assert x @ q @ x == ours.cost(x.astype(np.uint8)) == graph.cost(x)


def test_each_improvement_is_reported_with_time_and_cost() -> None:
    network = Playback([(0.0, -1, (0,))], [(0.0, -2, (0, 2))])
    told = played(network, 10.0, -2.0)
    ((phase, on_ns, off_ns, executions),) = told["spans"]
    assert (phase, executions) == ("solve", 1)
    assert [cost for _, cost, _ in told["progress"]] == [0.0, -1.0, -2.0]
    assert all(on_ns <= ns <= off_ns for ns, _, _ in told["progress"])
    output = told["output"]
    assert from_hex(output["solution"], 4).tolist() == [1, 0, 1, 0]
    assert (output["cost"], output["solver_cost"], output["seed"], output["steps"]) == (-2, -2, 7, network.steps)


def test_late_solutions_are_reported_separately() -> None:
    told = played(Playback([(0.0, -1, (0,)), (60.0, -2, (0, 2))]), 10.0, -1.0)
    assert told["output"]["cost"] == -1
    assert told["output"]["late_cost"] == -2
    assert len(told["progress"]) == 2


def test_a_cost_that_contradicts_its_solution_is_counted() -> None:
    output = played(Playback([(0.0, -4, (0, 1)), (0.0, -3, (0, 3))]), 10.0, -2.0)["output"]
    assert (output["cost"], output["solver_cost"], output["miscounted"]) == (-2, -4, 2)


@pytest.mark.parametrize(("stop", "asked"), [(-1.0, 1), (-2.0, 2)])
def test_the_stop_cost_ends_the_solve(stop: float, asked: int) -> None:
    network = Playback([(0.0, -1, (0,))], [(0.0, -2, (0, 2))], [(0.0, -3, ())])
    told = played(network, 10.0, stop)
    assert len(network.slices) == 3 - asked
    assert told["output"]["overrun_s"] == 0.0


def test_a_solve_without_progress_answers_empty() -> None:
    output = played(Playback())["output"]
    assert (output["cost"], output["best_step"], output["late_cost"]) == (0, -1, None)
    assert not from_hex(output["solution"], 4).any()


# ---- where the board is ----------------------------------------------------------------------------


ChipGeneration = Enum("ChipGeneration", {"N3B2": "N3B2", "N3B3": "N3B3", "N3C1": "N3C1"})


@pytest.fixture
def asked(monkeypatch: Patch) -> list[tuple[str, dict[str, Any]]]:
    """Replace the used parts of Lava's module ``loihi``, with the signatures of lava-nc 0.10.0; return their calls."""
    calls: list[tuple[str, dict[str, Any]]] = []

    def use_slurm_host(partition: str | None = None, board: str | None = None, loihi_gen: Any = None) -> None:
        calls.append(("slurm", {"partition": partition, "board": board, "loihi_gen": loihi_gen.value}))

    def use_ethernet_host(host_address: str, host_binary_path: str = "", loihi_gen: Any = None) -> None:
        if host_address == "192.0.2.99":
            raise ValueError(f"`ping {host_address}` failed.")
        calls.append(("ethernet", {"address": host_address, "loihi_gen": loihi_gen.value}))

    loihi = SimpleNamespace(
        ChipGeneration=ChipGeneration, use_slurm_host=use_slurm_host, use_ethernet_host=use_ethernet_host,
        is_installed=lambda: True,
    )  # fmt: skip
    utils = SimpleNamespace(loihi=loihi)
    for name, module in (("lava", SimpleNamespace(utils=utils)), ("lava.utils", utils), ("lava.utils.loihi", loihi)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delenv("LOIHI_GEN", raising=False)
    return calls


def test_a_board_is_selected_by_slurm_or_address(asked: list[tuple[str, dict[str, Any]]]) -> None:
    use_board("oheogulch", "", "", "")
    use_board("", "ncl-edu", "", "N3C1")
    use_board("", "", "192.0.2.5", "N3C1")
    assert asked == [
        ("slurm", {"partition": "oheogulch", "board": None, "loihi_gen": "N3B3"}),
        ("slurm", {"partition": None, "board": "ncl-edu", "loihi_gen": "N3C1"}),
        ("ethernet", {"address": "192.0.2.5", "loihi_gen": "N3C1"}),
    ]


def test_the_environment_generation_is_kept(asked: list[tuple[str, dict[str, Any]]], monkeypatch: Patch) -> None:
    monkeypatch.setenv("LOIHI_GEN", "N3C1")
    use_board("", "", "", "")
    assert asked == [("slurm", {"partition": None, "board": None, "loihi_gen": "N3C1"})]


@pytest.mark.usefixtures("asked")
def test_an_unreachable_board_is_named_by_its_address() -> None:
    caught = raised(Refusal, use_board, "", "", "192.0.2.99", "", says=r"no Loihi 2 board at 192\.0\.2\.99")
    assert (caught.rig["field"], caught.rig["value"]) == ("address", "192.0.2.99")
