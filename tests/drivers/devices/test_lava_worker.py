"""Lava's CPU backend is a device of the rig, tested if an interpreter has Lava."""

import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.devices.loihi2.device import open_device, python_of
from drivers.links.remote_device import RemoteDevice
from rig.analysis.evaluate import evaluate
from rig.conformance.device import check_device
from rig.engine.acquisition import Bench
from rig.engine.clock import HostClock
from rig.engine.record import record
from rig.errors import DeviceError, SetupError
from rig.network.description import activity_faults, network_faults
from rig.recording.reader import open_run
from rig.solving.device import solve_seed
from rig.solving.model import from_hex
from rig.types import Budget, Device, Issue, Reply, Sample, SampleSet
from scenarios.workloads.qubo_mis.graph import Graph
from tests.support.mis_graphs import random_graph
from tests.support.raised import raised
from tests.support.remote_workers import answer, answers, gone, members
from tests.support.waiting import until

pytestmark = pytest.mark.real_time

pytest.importorskip("execnet", reason="extra loihi2 is not installed")


def python() -> str:
    try:
        return python_of("")
    except SetupError as error:
        return pytest.skip(error.message)


GRAPH = random_graph(60, 0.15, 0)
SAMPLE = Sample("g", GRAPH.to_payload())


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with closing(open_device(simulate=True, interpreter=python(), default_s=0.2, longest_s=20.0)) as opened:
        yield opened


def solved(device: Device, budget: Budget | None, sample: Sample = SAMPLE) -> Any:
    return answer(device, sample, budget=budget)


def solved_by_a_new_one(budget: Budget, sample: Sample, **options: int) -> Any:
    with closing(open_device(simulate=True, interpreter=python(), **options)) as device:
        return solved(device, budget, sample)


def lasted_s(reply: Reply) -> float:
    (span,) = reply.spans
    return (span.off_tick - span.on_tick) * 1e-9


@pytest.mark.parametrize("nodes", [2, 40])
def test_each_node_of_an_edgeless_graph_spikes_once(nodes: int) -> None:
    """At zero temperature each node enters the set once and stays, and its spike reaches no synapse."""
    empty = Sample("e", Graph(nodes, np.empty((0, 2), np.int32)).to_payload())
    output = solved_by_a_new_one(Budget(0.2), empty, temperature=0, refract=0).output
    assert (output["spikes"], output["synaptic_operations"], output["cost"]) == (nodes, 0, -nodes)


def test_spikes_are_counted_in_the_step_after_sending(device: Device) -> None:
    """In a complete graph a flip reaches all other nodes; one neuron gets all costs and sends each better cost on."""
    full = Sample("k", random_graph(9, 1.0, 0).to_payload())
    reply = solved(device, Budget(0.2), full)
    activity, network = reply.activity, reply.network
    assert list(network_faults(network)) == list(activity_faults(network, activity)) == []
    assert {len(counts) for counters in activity.values() for counts in counters.values()} == {reply.output["steps"]}
    arrived = activity["variables-variables"]["acs"]
    assert arrived[0] == 0 and reply.output["synaptic_operations"] == 8 * reply.output["spikes"] > 0
    assert set(arrived % 8) == {0}
    assert 0 <= reply.output["synaptic_operations"] - arrived.sum() <= 9 * 8, "what was sent in the last step"
    assert activity["cost"]["active"].sum() >= len(reply.progress) - 1 > 0


def test_the_footprint_of_a_graph_network_is_exact() -> None:
    """By hand: 2 weights for an edge and 3 to the cost, of 8 bits; 24 + 8 + 8 + 8 bits for each of 3 nodes; 8 + 64."""
    line = Sample("n3", Graph(3, np.array([[0, 2]], np.int32)).to_payload())
    network = solved_by_a_new_one(Budget(0.05), line).network
    assert network.footprint_bits() == 8 * (2 + 3) + 3 * (24 + 8 + 8 + 8) + 8 + 64
    assert [(c.weights, c.zeros, c.fan_out_max) for c in network.connections] == [(6, 4, 1), (3, 0, 1)]


def test_a_lava_recording_has_complexity(device: Device, tmp_path: Path) -> None:
    workload = SampleSet("graphs", "qubo-mis", "1", "0" * 64, (SAMPLE,), {})
    bench = Bench(device, (), HostClock())
    record(tmp_path / "run", bench, workload, [Issue((SAMPLE,), budget=Budget(0.2))], scenario={"name": "by hand"})
    figures = {str(key): q.value for key, q in evaluate(open_run(tmp_path / "run")).quantities.items()}
    assert figures["connection_sparsity"] == pytest.approx(1 - (2 * len(GRAPH.edges) + 60) / (60 * 59 + 60))
    assert 0 < figures["effective_acs_per_execution"] < figures["dense_operations_per_execution"] == 60 * 59 + 60
    assert 0 < figures["layer.variables.activation_sparsity"] < 1


def test_the_device_passes_the_device_check() -> None:
    graphs = [Graph(2, np.empty((0, 2), np.int32)), Graph(3, np.array([[0, 2]], np.int32)), random_graph(9, 1.0, 0)]
    samples = [Sample(f"n{graph.nodes}", graph.to_payload()) for graph in graphs]
    checked = check_device(open_device(simulate=True, interpreter=python(), default_s=0.1), samples)
    assert {"reply.activity", "reply.network"} <= set(checked)


def test_the_claimed_cost_matches_the_solution_and_the_monitor(device: Device) -> None:
    output = solved(device, Budget(0.3)).output
    assert GRAPH.cost(from_hex(output["solution"], GRAPH.nodes)) == output["cost"] == output["solver_cost"] < -5
    assert output["miscounted"] == 0
    assert 0 < output["best_step"] <= output["steps"]


def test_the_overrun_is_stated_and_late_progress_is_dropped(device: Device) -> None:
    for budget_s in (0.02, 0.1, 0.3):
        reply = solved(device, Budget(budget_s))
        assert reply.output["overrun_s"] == pytest.approx(max(0.0, lasted_s(reply) - budget_s), abs=1e-8)
        assert reply.progress[-1].tick <= reply.spans[0].on_tick + budget_s * 1e9
        assert lasted_s(reply) < budget_s + 1.0


def test_a_budget_below_one_step_yields_the_empty_set(device: Device) -> None:
    reply = solved(device, Budget(1e-6))
    assert (reply.output["cost"], reply.output["steps"]) == (0, 0)
    assert not from_hex(reply.output["solution"], GRAPH.nodes).any()
    assert lasted_s(reply) < 0.05


def test_a_longer_budget_continues_the_same_walk() -> None:
    walks = [solved_by_a_new_one(Budget(budget_s), SAMPLE, seed=5).progress for budget_s in (0.15, 0.6)]
    short, long = ([(p.cost, p.solution) for p in walk] for walk in walks)
    assert len(short) > 2
    assert long[: len(short)] == short


def test_small_problems_are_solved_to_the_end(device: Device) -> None:
    graph = random_graph(10, 0.25, 3)
    best = min(graph.cost(np.array(x)) for x in itertools.product((0, 1), repeat=10))
    assert solved(device, Budget(2.0, best), Sample("small", graph.to_payload())).output["cost"] == best


def test_a_graph_can_be_solved_again_without_staging(device: Device) -> None:
    device.stage([SAMPLE])
    for _ in range(2):
        device.submit([SAMPLE], Budget(0.1))
    first, second = answers(device, 2)
    seeds = [solve_seed(0, k) for k in range(20)]
    assert second.output["seed"] == seeds[seeds.index(first.output["seed"]) + 1]
    assert second.spans[0].on_tick >= first.spans[0].off_tick


def test_hardware_mode_without_a_board_is_refused() -> None:
    assert "--simulate" in raised(SetupError, open_device, says="lava-loihi", interpreter=python()).remedy


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_closing_ends_all_lava_processes(killed: bool) -> None:
    before = shared()
    device = open_device(simulate=True, interpreter=python())
    assert isinstance(device, RemoteDevice)
    device.stage([SAMPLE])
    device.submit([SAMPLE], Budget(60.0))
    leader = int(device._link.hello["pid"])
    until(lambda: len(members(leader)) > 6)  # the processes of the network
    started = members(leader)
    if killed:
        os.kill(leader, signal.SIGKILL)
        raised(DeviceError, answers, device, 1, says="ended unexpectedly")
    device.close()
    gone(started)
    until(lambda: shared() <= before)  # no shared memory is left behind


def shared() -> set[str]:
    return {path.name for path in Path("/dev/shm").glob("psm_*")}
