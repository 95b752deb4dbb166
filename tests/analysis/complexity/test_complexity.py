"""Complexity follows exactly from the declared network and its counters, per execution and per sample. Energy
per operation and per execution equal their true values, and are not stated if no line fits."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rig.analysis.complexity.cost_and_activity import complexity_of, energies_of
from rig.analysis.complexity.energy_line import Point, line_of, point_of
from rig.analysis.evaluate import evaluate
from rig.analysis.result.quantity import Component, FigureKey, Figures, Quantity
from rig.analysis.result.result import Result
from rig.network.description import MOST, Connection, Layer, Memory, NetworkInfo
from rig.recording.reader import open_run
from tests.support.run_by_hand import REPLIES, SAMPLES, reply, start_line, table, write

T0_NS = start_line()["t0_ns"]
NETWORK = NetworkInfo(
    (Layer("hidden", 4), Layer("output", 2)),
    (
        Connection("in-hidden", "in", "hidden", 12, 3, 12, 4),
        Connection("hidden-output", "hidden", "output", 8, 1, 8, 2, 1),
    ),
    (
        Memory("weights", "weights", 20, 8),
        Memory("thresholds", "parameters", 6, 16),
        Memory("membranes", "states", 6, 16, 0),
        Memory("past inputs", "buffers", 30, 4, 3),
    ),
    execution_s=0.1,
)
ONE = {
    "in": {"active": [3, 0]}, "hidden": {"active": [2, 1], "updates": [4, 4]}, "output": {"active": [0, 1],
    "updates": [0, 2]}, "in-hidden": {"acs": [9, 0], "macs": [0, 0]}, "hidden-output": {"acs": [0, 0], "macs": [0, 3]},
}  # fmt: skip
OTHER = {name: {counter: [0, 0, 0] for counter in counters} for name, counters in ONE.items()}


def evaluated(
    path: Path, answers: Sequence[tuple[str, Mapping[str, Any]]], network: NetworkInfo = NETWORK, warm: int = 0,
    executions: Sequence[int] = (), inferences: int = 1, own: Mapping[str, NetworkInfo] | None = None,
    label: str | None = None, **samples: float,
) -> Result:  # fmt: skip
    """Return the result of a hand-made recording with one issue per answer, the first ``warm`` of them warm-up."""
    counted = [
        {"issue": issue, "sample_id": name, "layer": part, "counter": counter, "counts": counts}
        for issue, (name, activity) in enumerate(answers)
        for part, counters in activity.items()
        for counter, counts in counters.items()
    ]
    kinds = {"issue": pa.int64(), "sample_id": pa.string(), "layer": pa.string(), "counter": pa.string()}
    rows = [
        reply(k, name, T0_NS + k * 10**9, T0_NS + k * 10**9 + 1000, executions=times, warmup=k < warm)
        for k, ((name, _), times) in enumerate(zip(answers, executions or [1] * len(answers), strict=True))
    ]
    same = {"inferences": inferences, "label": label}
    asked = [{"id": name, "duration_s": samples.get(name), **same} for name in dict(answers)]
    line = start_line()
    line["device"] |= {"network": dataclasses.asdict(network), "clock": None}
    tables = {"samples.arrows": table(SAMPLES, asked), "replies.arrows": table(REPLIES, rows)}
    tables["activity.arrows"] = table(kinds | {"counts": pa.list_(pa.int64())}, counted)
    given = {name: dataclasses.asdict(of) for name, of in (own or {}).items()}
    networks = [{"type": "network", "sample_id": name, "network": of} for name, of in given.items()]
    return evaluate(open_run(write(path / "run", [line, *networks], tables)))


def figures(result: Result) -> dict[str, float]:
    return {str(key): q.value for key, q in result.quantities.items()}


def test_every_figure_equals_a_hand_calculation(tmp_path: Path) -> None:
    found = figures(evaluated(tmp_path, [("a", ONE), ("b", OTHER)]))
    by_hand = {
        "footprint_bytes": 20 + 12 + 12 + 15, "footprint_at_start_bytes": 20 + 12 + 1.5, "footprint_weights_bytes": 20,
        "footprint_parameters_bytes": 12, "footprint_states_bytes": 12, "footprint_buffers_bytes": 15,
        "parameters": 26, "connection_sparsity": 4 / 20, "model_execution_rate_hz": 10,
        "executions_per_sample": 2.5, "dense_operations_per_execution": 20, "dense_operations_per_sample": 50,
        "effective_acs_per_execution": 9 / 5, "effective_acs_per_sample": 4.5,
        "effective_macs_per_execution": 3 / 5, "effective_macs_per_sample": 1.5,
        "membrane_updates_per_execution": 2, "membrane_updates_per_sample": 5,
        "activation_sparsity": 1 - 4 / 30, "layer.hidden.activation_sparsity": 1 - 3 / 20,
        "layer.output.activation_sparsity": 1 - 1 / 10,
        "layer.in-hidden.dense_operations_per_sample": 30, "layer.in-hidden.effective_acs_per_sample": 4.5,
        "layer.in-hidden.effective_macs_per_sample": 0, "layer.hidden-output.effective_macs_per_sample": 1.5,
    }  # fmt: skip
    assert {name: found[name] for name in by_hand} == pytest.approx(by_hand, rel=1e-15)


def test_a_sample_is_counted_against_its_own_network(tmp_path: Path) -> None:
    """Counted by hand: NETWORK, and one with a single layer of 2 neurons whose 6 synapses have no zeros."""
    small = NetworkInfo((Layer("output", 2),), (Connection("in-output", "in", "output", 6, 0, 6, 2),), ())
    did = {"in": {"active": [3, 3]}, "output": {"active": [1, 2]}, "in-output": {"acs": [6, 6], "macs": [0, 0]}}
    found = figures(evaluated(tmp_path, [("a", ONE), ("b", did)], own={"a": NETWORK, "b": small}))
    by_hand = {
        "footprint_bytes": 59 / 2, "connection_sparsity": (4 / 20 + 0) / 2,
        "dense_operations_per_sample": (40 + 12) / 2, "effective_acs_per_sample": (9 + 12) / 2,
        "activation_sparsity": 1 - (4 + 3) / (12 + 4), "layer.output.activation_sparsity": 1 - (1 + 3) / (4 + 4),
    }  # fmt: skip
    assert {name: found[name] for name in by_hand} == pytest.approx(by_hand, rel=1e-15)
    assert "layer.hidden.activation_sparsity" not in found, "the other network has no such layer"
    assert "membrane_updates_per_sample" not in found, "the other network does not count them"


def test_a_network_without_activations_has_no_sparsity(tmp_path: Path) -> None:
    """As in an LSTM with its readout: no value is an activation, and each connection ends at its own sums."""
    network = NetworkInfo((), (Connection("readout", "state", "readout", 6, 1, 6, 2),), ())
    found = figures(evaluated(tmp_path, [("a", {"readout": {"acs": [2, 0], "macs": [0, 3]}})], network))
    assert found["effective_acs_per_sample"] == 2
    assert found["effective_macs_per_execution"] == 1.5
    assert not {"activation_sparsity", "membrane_updates_per_sample", "spikes_per_sample"} & set(found)


def test_counts_are_exact_and_exclude_the_warm_up(tmp_path: Path) -> None:
    counted = evaluated(tmp_path, [("a", OTHER), ("a", ONE)], warm=1).quantities["effective_acs_per_sample"]
    assert counted.interval() == (9.0, 9.0)
    assert counted.to_json()["standard_uncertainty"] == 0.0


def test_a_repeated_sample_counts_once(tmp_path: Path) -> None:
    once = figures(evaluated(tmp_path / "once", [("a", ONE), ("b", OTHER)]))
    often = figures(evaluated(tmp_path / "often", [("a", ONE), ("b", OTHER), ("b", OTHER), ("b", OTHER)]))
    about = [name for name in once if name.endswith(("_execution", "_sample", "sparsity"))]
    assert {name: often[name] for name in about} == pytest.approx({name: once[name] for name in about}, rel=1e-15)


def test_a_network_without_counters_has_only_static_figures(tmp_path: Path) -> None:
    found = figures(evaluated(tmp_path, [("a", {})]))
    assert found["footprint_bytes"] == 59
    assert "effective_acs_per_sample" not in found


@pytest.mark.parametrize(("part", "counter", "counts"), [
    ("in-hidden", "acs", [13, 0]),  # more than dense
    ("in-hidden", "acs", [9, 1]),  # nothing was sent
    ("in-hidden", "acs", [-1, 0]),
    ("hidden-output", "macs", [3, 0]),  # before anything can have arrived
    ("hidden", "active", [5, 1]),  # more than its neurons
    ("hidden", "updates", [4, 9]),
    ("output", "active", [0]),  # a wrong number of executions
    ("output", "spikes", [-1, 0]),
    ("output", "spikes", [2**60, 0]),
])  # fmt: skip
def test_counters_unlike_the_network_give_no_figure(part: str, counter: str, counts: list[int], tmp_path: Path) -> None:
    wrong = {name: dict(counters) for name, counters in ONE.items()}
    wrong[part][counter] = counts
    result = evaluated(tmp_path, [("a", ONE), ("b", wrong)])
    assert "activation_sparsity" not in figures(result)
    assert "footprint_bytes" in figures(result)
    assert [note for note in result.notes if "sample b" in note]


def test_a_network_that_contradicts_itself_gives_no_figure(tmp_path: Path) -> None:
    wrong = dataclasses.replace(NETWORK, connections=(Connection("c", "in", "nowhere", 1, 2, 1, 1),))
    for where, own in (("alone", None), ("of a sample", {"a": NETWORK, "b": wrong})):
        result = evaluated(tmp_path / where, [("a", {}), ("b", {})], NETWORK if own else wrong, own=own)
        assert "footprint_bytes" not in figures(result)
        (said,) = [note for note in result.notes if "nowhere" in note]
        assert ("sample b" in said) == (own is not None)


@pytest.mark.parametrize("delay", [3, 2**31])
def test_operations_that_precede_their_delay_are_reported(delay: int, tmp_path: Path) -> None:
    late = dataclasses.replace(NETWORK.connections[1], delay=delay)
    network = dataclasses.replace(NETWORK, connections=(NETWORK.connections[0], late))
    result = evaluated(tmp_path, [("a", ONE)], network)
    assert "activation_sparsity" not in figures(result)
    assert [note for note in result.notes if "more operations than the active neurons of hidden reach" in note]


def test_the_largest_allowed_counts_do_not_overflow(tmp_path: Path) -> None:
    """A product of two such counts, or a sum of products, exceeds 64 bits."""
    whole = Connection("in-output", "in", "output", MOST, 0, MOST, MOST)
    network = NetworkInfo((Layer("in", MOST), Layer("output", 1)), (whole,), ())
    times = 2048
    did = {"in": {"active": [2**11] * times}, "output": {"active": [1] * times}}
    did |= {"in-output": {"acs": [MOST] * times, "macs": [0] * times}}
    found = figures(evaluated(tmp_path, [("a", did)], network))
    assert found["effective_acs_per_sample"] == float(MOST) * times


def test_a_declared_rate_that_the_samples_contradict_is_reported(tmp_path: Path) -> None:
    assert not [n for n in evaluated(tmp_path / "a", [("a", ONE)], a=0.2).notes if "rate" in n]
    assert [n for n in evaluated(tmp_path / "b", [("a", ONE)], a=2.0).notes if "rate" in n]


def energies(
    path: Path, answers: Sequence[tuple[str, Mapping[str, Any]]], executions: Sequence[int] = (), inferences: int = 1
) -> Figures:
    """Return energies per operation if an inference takes 12 J, 6 J of it dynamic; spans may repeat a sample."""
    evaluated(path, answers, executions=executions, inferences=inferences)
    run = open_run(path / "run")
    known = {"energy_per_inference_j": 12.0, "dynamic_energy_per_inference_j": 6.0}
    of_phase = {FigureKey(name, "inference"): Quantity(j, "J", (Component("noise", 1.2),)) for name, j in known.items()}
    return energies_of(run, complexity_of(run), Figures(of_phase | {FigureKey("energy_per_inference_j"): OTHER_PHASES}))


OTHER_PHASES = Quantity(99.0, "J")


def test_energy_per_operation_uses_the_phase_that_runs_the_network(tmp_path: Path) -> None:
    """The energy of a spike is stated only if every layer counts its spikes."""
    counts = {name: {"spikes": [2 * n for n in ONE[name]["active"]]} for name in ("hidden", "output")}
    spiking = {name: {**counters, **counts.get(name, {})} for name, counters in ONE.items()}
    found = energies(tmp_path, [("a", spiking)])
    assert {str(name): q.value for name, q in found.items()} == {
        "energy_per_effective_operation_j": 12 / 12, "dynamic_energy_per_effective_operation_j": 6 / 12,
        "energy_per_spike_j": 12 / 8, "dynamic_energy_per_spike_j": 6 / 8,
    }  # fmt: skip
    assert found["energy_per_effective_operation_j"].u == pytest.approx(0.1)
    assert not [name for name in energies(tmp_path / "none", [("a", ONE)]) if "spike" in str(name)]


def test_energy_per_operation_counts_each_metered_inference(tmp_path: Path) -> None:
    """A sample that was looped three times counts three times, except in a figure per sample."""
    found = energies(tmp_path, [("a", ONE), ("b", OTHER)], executions=(3, 1), inferences=2)
    assert found["energy_per_effective_operation_j"].value == pytest.approx(12 / (3 * 12 / (4 * 2)))


@pytest.mark.parametrize("answers", [[("a", ONE), ("b", {})], [("b", OTHER)]], ids=["without counters", "nothing done"])
def test_a_metered_span_without_operations_gives_no_energy_per_operation(tmp_path: Path, answers: list[Any]) -> None:
    assert energies(tmp_path, answers) == Figures()


# ---- energy by operations, of several networks -------------------------------------------------

SLOPE_J, BASE_J, GAIN_U = 2e-9, 5e-6, 2e-3
OPERATIONS = (500.0, 1200.0, 2500.0, 4000.0, 6000.0, 9000.0)


def straight(operations: float) -> float:
    return SLOPE_J * operations + BASE_J


def of_networks(
    rng: np.random.Generator, energy_j: Callable[[float], float] = straight, u: float = 0.004
) -> list[Point]:
    """Return one energy for each number of operations, with a common gain, errors of stamps, and noise."""
    gain = 1.0 + GAIN_U * rng.normal()
    points = []
    for operations in OPERATIONS:
        true_j = energy_j(operations)
        parts = (
            Component("gain", GAIN_U * true_j, shared="gain:core"),
            Component("noise", u * true_j, dof=20.0),
            Component("stamp jitter", 0.5 * u * true_j, shared="stamps:inference"),
        )
        value = gain * true_j + u * true_j * rng.normal() + 0.5 * u * true_j * rng.normal()
        points.append(Point(operations, Quantity(value, "J", parts), 0.2 * true_j))
    return points


def test_both_energies_are_found_with_a_shared_calibration_error() -> None:
    found = line_of(of_networks(np.random.default_rng(1)))
    assert found.refusal == "" and found.per_operation is not None and found.per_execution is not None
    for q, true_j in ((found.per_operation, SLOPE_J), (found.per_execution, BASE_J)):
        low, high = q.interval()
        assert low <= true_j <= high and high - low < 0.1 * true_j
        (gain,) = (c for c in q.components if c.shared == "gain:core")
        assert gain.u == pytest.approx(GAIN_U * q.value, rel=0.05)
        # each run has stamps of its own
        assert len({c.shared for c in q.components if c.shared}) == 1 + len(OPERATIONS)


def test_intervals_contain_the_true_energies() -> None:
    found = [line_of(of_networks(np.random.default_rng(seed))) for seed in range(200)]
    each = [[q.interval() for q in (one.per_operation, one.per_execution) if q is not None] for one in found]
    assert sum(not one.refusal for one in found) >= 0.98 * len(found)
    for k, true_j in enumerate((SLOPE_J, BASE_J)):
        inside = [low <= true_j <= high for low, high in (both[k] for both in each if both)]
        assert sum(inside) >= 0.93 * len(inside)


def test_a_meter_limit_does_not_average_out_over_networks() -> None:
    """Linearity is not stated, and the meter reads too high by its whole limit everywhere."""
    points, limit = [], 0.01
    for x in np.geomspace(1e3, 1e5, 12):
        own = Component("busy level calibration", limit * straight(x) / 3**0.5, shared="busy level:core")
        points.append(Point(x, Quantity((1.0 + limit) * straight(x), "J", (own,)), 0.0))
    found = line_of(points).per_operation
    assert found is not None and found.interval()[0] <= SLOPE_J


def test_an_accidentally_small_uncertainty_does_not_dominate_the_fit() -> None:
    """As with a few trials each: four degrees of freedom."""
    held, rng = 0, np.random.default_rng(3)
    for _ in range(400):
        scatter = 0.01 * np.sqrt(rng.chisquare(4.0, len(OPERATIONS)) / 4.0)
        points = [
            Point(x, Quantity(j * (1.0 + 0.01 * rng.normal()), "J", (Component("noise", u * j, 4.0),)), 0.0)
            for x, u in zip(OPERATIONS, scatter.tolist(), strict=True)
            for j in [straight(x)]
        ]
        line = line_of(points).per_operation
        held += line is None or line.interval()[0] <= SLOPE_J <= line.interval()[1]
    assert held > 0.92 * 400


@pytest.mark.parametrize(("energy_j", "text"), [
    (lambda operations: BASE_J + 2e-13 * operations**2, "no line"),
    (lambda operations: BASE_J * (1.0 + 0.3 * np.sin(operations)), "no line"),
    (lambda operations: BASE_J, "does not grow with its operations"),
    (lambda operations: 5.0 * BASE_J - SLOPE_J * operations, "does not grow with its operations"),
])  # fmt: skip
def test_energy_unrelated_to_operations_is_refused(energy_j: Callable[[float], float], text: str) -> None:
    found = [line_of(of_networks(np.random.default_rng(seed), energy_j)) for seed in range(100)]
    assert sum(text in one.refusal and one.per_operation is None for one in found) >= 95


def test_too_few_or_too_similar_networks_are_refused() -> None:
    points = of_networks(np.random.default_rng(0))
    assert "with energy: 4" in line_of(points[:4]).refusal
    assert "5 or more" in line_of([points[0]] * 6).refusal
    alike = [Point(1000.0 + k, point.dynamic, 0.0) for k, point in enumerate(points)]
    assert "hardly differ" in line_of(alike).refusal
    bare = [Point(point.operations, Quantity(point.dynamic.value, "J"), 0.0) for point in points]
    assert "no interval" in line_of(bare).refusal


def test_a_point_has_the_operations_and_energies_of_one_execution() -> None:
    q = Quantity(3e-9, "J", (Component("noise", 1e-11),))
    figures = Figures({
        FigureKey("effective_macs_per_execution"): Quantity(100.0, "1"),
        FigureKey("effective_acs_per_execution"): Quantity(300.0, "1"),
        FigureKey("dynamic_energy_per_effective_operation_j"): q,
        FigureKey("energy_per_effective_operation_j"): Quantity(5e-9, "J"),
    })  # fmt: skip
    point = point_of(figures)
    assert point is not None and point.operations == 400.0
    assert (point.dynamic.value, point.dynamic.u, point.idle_j) == pytest.approx((1.2e-6, 4e-9, 8e-7))
    assert point_of(Figures({FigureKey("effective_acs_per_execution"): Quantity(1.0, "1")})) is None


@pytest.mark.parametrize(("label", "told"), [("x", True), (None, False)])
def test_unknown_training_is_noted_if_answers_are_judged(label: str | None, told: bool, tmp_path: Path) -> None:
    notes = evaluated(tmp_path, [("a", ONE)], label=label).notes
    assert any("on which data the network was trained" in note for note in notes) is told
