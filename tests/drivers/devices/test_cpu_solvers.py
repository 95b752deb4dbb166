"""The solvers on this computer as devices: progress, costs of solutions, and budgets that hold even on a busy host."""

import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import drivers.devices.cpu.mis
from drivers.devices.cpu import cpu_mis, cpu_sa, cpu_tabu
from drivers.devices.cpu.dwave import Problem
from rig.conformance.device import check_device
from rig.errors import DeviceError, MissingExtraError, UsageError
from rig.solving import device as solver
from rig.solving.device import Pace, SolverDevice, Tally, solve_seed
from rig.solving.model import from_hex
from rig.types import Budget, Device, DeviceInfo, Reply, Sample
from scenarios.workloads.qubo_mis.graph import Graph, from_payload
from tests.support.mis_graphs import random_graph
from tests.support.remote_workers import answer, answers

pytest.importorskip("numba", reason="extra qubo is not installed")
pytest.importorskip("dwave.samplers", reason="extra qubo is not installed")

from drivers.devices.cpu.mis.search import parameters
from tests.support.raised import Patch, raised

pytestmark = pytest.mark.real_time
GRAPH = random_graph(60, 0.15, 0)
SAMPLE = Sample("g", GRAPH.to_payload())
SOLVERS: list[Callable[..., Device]] = [cpu_mis.open_device, cpu_sa.open_device, cpu_tabu.open_device]


@pytest.fixture(params=SOLVERS, ids=["mis", "sa", "tabu"])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    with closing(request.param(default_s=0.02, longest_s=20.0)) as opened:
        opened.stage([SAMPLE])
        yield opened


def solved(device: Device, budget: Budget) -> Reply:
    device.submit([SAMPLE], budget)
    return answers(device, 1)[0]


@pytest.mark.parametrize("opener", SOLVERS)
def test_the_solver_passes_the_device_check(opener: Callable[..., Device]) -> None:
    samples = [Sample(f"n{n}", random_graph(n, 0.2, n).to_payload()) for n in (60, 9, 2, 1)]
    problems = {sample.id: from_payload(sample.payload) for sample in samples}
    checked = check_device(opener(default_s=0.02), samples, judge=lambda s, text: problems[s.id].judge(text)[0])
    assert "reply.cost" in checked


def test_progress_stamps_lie_within_the_span_of_a_solve(device: Device) -> None:
    reply = solved(device, Budget(0.1))
    (span,) = reply.spans
    costs, ticks = [p.cost for p in reply.progress], [p.tick for p in reply.progress]
    assert costs == sorted(set(costs), reverse=True)
    assert costs[0] == 0.0
    assert costs[-1] == reply.output["cost"] < 0 and reply.output["budget_s"] == 0.1
    assert ticks == sorted(ticks)
    assert span.on_tick <= ticks[0] <= ticks[-1] <= span.off_tick
    assert reply.progress[-1].solution.hex() == reply.output["solution"]
    for p in reply.progress:
        assert GRAPH.cost(from_hex(p.solution.hex(), GRAPH.nodes)) == p.cost


def test_progress_ends_at_the_deadline_and_overrun_is_stated(device: Device) -> None:
    reply = solved(device, Budget(0.05))
    (span,) = reply.spans
    lasted_s = (span.off_tick - span.on_tick) * 1e-9
    assert math.isclose(reply.output["overrun_s"], max(0.0, lasted_s - 0.05), abs_tol=1e-9)
    assert reply.progress[-1].tick <= span.on_tick + 50_000_000
    assert lasted_s < 10.0


def test_solving_ends_at_a_cost(device: Device) -> None:
    reply = solved(device, Budget(None, -5.0))
    assert reply.output["cost"] <= -5
    assert (reply.spans[0].off_tick - reply.spans[0].on_tick) * 1e-9 < 10.0


def test_the_span_begins_after_loading_and_compiling() -> None:
    opened = cpu_mis.open_device()
    opened.stage([SAMPLE])
    # a millisecond is too short to compile; a busy machine may miss some
    assert any(solved(opened, Budget(1e-3)).output["cost"] < 0 for _ in range(20))
    opened.close()


def test_a_larger_budget_continues_the_same_search_walk() -> None:
    def first_sets(budget_s: float) -> list[bytes]:
        with closing(cpu_mis.open_device(seed=5)) as opened:
            return [p.solution for p in answer(opened, SAMPLE, budget=Budget(budget_s)).progress]

    short, long = first_sets(0.02), first_sets(0.1)
    assert len(short) > 1 and long[: len(short)] == short


def test_each_solve_has_its_own_seed(device: Device) -> None:
    assert [solved(device, Budget(0.01)).output["seed"] for _ in range(3)] == [solve_seed(0, k) for k in range(3)]


@given(st.integers(0, 2**31 - 10), st.integers(0, 500))
def test_devices_with_neighbouring_seeds_share_no_seeds(seed: int, k: int) -> None:
    """Repetitions have successive seeds: solve k + 1 of one must not be solve k of the next."""
    own = {solve_seed(seed, k + j) for j in range(5)}
    assert len(own) == 5
    assert own.isdisjoint(solve_seed(seed + 1, k + j) for j in range(-k, 10))


@pytest.mark.parametrize(
    ("budget", "field"),
    [(Budget(value), "timeout_s") for value in (0.0, -1.0, math.nan, math.inf, 1e9)]
    + [(Budget(1.0, cost), "stop_at_cost") for cost in (math.nan, -math.inf)],
)
def test_an_impossible_budget_and_an_unstaged_sample_are_refused(device: Device, budget: Budget, field: str) -> None:
    assert raised(UsageError, device.submit, [SAMPLE], budget).field == field
    raised(DeviceError, device.submit, [Sample("other", SAMPLE.payload)], None, says="was not staged")


@pytest.mark.parametrize("options", [{"seed": -1}, {"default_s": 0.0}, {"longest_s": math.nan}, {"default_s": 1e3}])
@pytest.mark.parametrize("opener", SOLVERS)
def test_options_out_of_range_are_refused(opener: Callable[..., Device], options: dict[str, Any]) -> None:
    assert raised(UsageError, opener, **options).field in options


@pytest.mark.parametrize(("opener", "stack"), [
    (cpu_mis.open_device, "numba"), (cpu_sa.open_device, "dwave.samplers"), (cpu_tabu.open_device, "dwave.samplers"),
])  # fmt: skip
def test_a_missing_stack_is_named_with_its_extra(opener: Callable[..., Device], stack: str, monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, stack, None)
    monkeypatch.delitem(sys.modules, "drivers.devices.cpu.mis.search", raising=False)
    monkeypatch.delattr(drivers.devices.cpu.mis, "search", raising=False)
    assert "neurorig[qubo]" in raised(MissingExtraError, opener, says=stack).remedy


def made(solve: Callable[[Graph, Tally], None]) -> SolverDevice[Graph]:
    info = DeviceInfo("own", "hardware", phases=("solve",), details={"schedule_depends_on_budget": False})
    opened = SolverDevice(info, lambda g: g, solve, seed=0, default_s=1.0, longest_s=10.0, problem_of=from_payload)
    opened.stage([SAMPLE])
    return opened


def test_closing_ends_a_long_solve() -> None:
    started = threading.Event()

    def long(graph: Graph, tally: Tally) -> None:
        started.set()
        while tally.left_s() > 0:
            pass

    opened = made(long)
    opened.submit([SAMPLE], Budget(10.0))
    assert started.wait(10.0)
    opened.close()
    (span,) = answers(opened, 1)[0].spans
    assert (span.off_tick - span.on_tick) * 1e-9 < 5.0


SMALL = random_graph(20, 0.2, 0)
Solve = Callable[[Any, Tally], None]
BEGIN_S = 100.0
CALL_S, SWEEP_S, UPDATE_S, MOVE_S = 1e-3, 5e-5, 1e-6, 1e-6
"""Seconds of a call, and of one step of each search, on an idle host."""
NOTHING = (0, np.zeros(SMALL.nodes, np.uint8))


# ---- on a busy host -------------------------------------------------------------------------


@dataclass
class Host:
    """A host's clock: from ``busy_from_s`` on, the solver runs for ``runs_s``, then other programs for ``takes_s``."""

    busy_from_s: float = 1e9
    runs_s: float = 0.008
    takes_s: float = 0.005
    wall_s: float = BEGIN_S
    worked_s: float = 0.0

    def monotonic_ns(self) -> int:
        return round(self.wall_s * 1e9)

    def thread_time_ns(self) -> int:
        return round(self.worked_s * 1e9)

    def works(self, seconds: float) -> None:
        turns = int((self.worked_s + seconds) / self.runs_s) - int(self.worked_s / self.runs_s)
        self.worked_s += seconds
        self.wall_s += seconds
        if self.wall_s > BEGIN_S + self.busy_from_s:
            self.wall_s += turns * self.takes_s

    def works_until(self, wall_s: float) -> None:
        while self.wall_s < wall_s:
            self.works(1e-4)


def mis(host: Host, tally: Tally) -> None:
    def advance(moves: int) -> bool:
        host.works(moves * MOVE_S)
        return False  # nothing is found

    walks = SimpleNamespace(Search=lambda graph, seed: SimpleNamespace(advance=advance))
    cpu_mis._Walker(walks).solve((SimpleNamespace(parameters=parameters(SMALL.nodes, 0.2)), 1.0 / MOVE_S), tally)


def sa(host: Host, tally: Tally) -> None:
    def read(problem: Problem, sweeps: int, seed: int) -> Any:
        host.works(CALL_S + sweeps * SWEEP_S)
        return NOTHING

    own: Any = SimpleNamespace(_read=read)
    cpu_sa._Annealer.solve(own, Problem(SMALL, None, CALL_S, SWEEP_S), tally)


def tabu(host: Host, tally: Tally) -> None:
    def read(problem: Problem, seed: int, threshold: Any, *, timeout_ms: int = 0, updates: int = 0) -> Any:
        host.works(CALL_S + updates * UPDATE_S)
        host.works_until(host.wall_s + timeout_ms * 1e-3)
        return NOTHING

    own: Any = SimpleNamespace(_read=read)
    cpu_tabu._Tabu.solve(own, Problem(SMALL, None, CALL_S, UPDATE_S), tally)


@pytest.mark.parametrize("solve", [mis, sa, tabu])
@pytest.mark.parametrize("budget_s", [0.1, 1.0])
@pytest.mark.parametrize(("busy_from", "unused"), [(0.0, 0.2), (0.3, 0.2), (math.inf, 0.004)])
def test_solvers_keep_time(solve: Solve, budget_s: float, busy_from: float, unused: float, monkeypatch: Patch) -> None:
    host = Host(busy_from * budget_s)
    monkeypatch.setattr(solver, "time", host)
    solve(host, Tally(SMALL.nodes, Budget(budget_s), 0, threading.Event()))
    least_s = budget_s - (unused if busy_from == math.inf else unused * budget_s)
    assert least_s < host.wall_s - BEGIN_S <= budget_s


def test_solving_continues_after_one_long_delay(monkeypatch: Patch) -> None:
    """Otherwise a call that once seemed too long would never begin again, and its true pace would not be learnt."""
    host, pace = Host(), Pace()
    pace.step(0.01, 1.0)
    monkeypatch.setattr(solver, "time", host)
    tally = Tally(SMALL.nodes, Budget(0.1), 0, threading.Event(), pace)

    assert tally.spare_s() == pytest.approx(0.1)
    tally.begin(0.01)
    host.works(0.01)
    assert 0.0 < tally.spare_s() < 0.09


def test_the_processor_time_of_a_solve_is_stated(monkeypatch: Patch) -> None:
    host = Host(busy_from_s=0.0)
    monkeypatch.setattr(solver, "time", host)
    with closing(made(lambda graph, tally: host.works(0.02))) as opened:
        reply = answer(opened, SAMPLE, times=3, budget=Budget(0.1))
    assert reply.output["processor_s"] == pytest.approx(0.06)
