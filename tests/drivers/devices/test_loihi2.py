"""The Loihi 2 driver without Lava: its options, and its interpreter."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.devices.loihi2 import device as loihi2
from rig.conformance.device import check_device
from rig.errors import DataError, MissingExtraError, SetupError, UsageError
from rig.factories import build, options_of
from rig.types import Budget, Device, Sample
from scenarios.workloads.qubo_mis.graph import Graph
from tests.support.remote_workers import HONEST, answers

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
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No interpreter is found unless a test puts one there."""
    monkeypatch.delenv(loihi2.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use this test's worker instead of Lava's, in this interpreter."""
    monkeypatch.setattr(loihi2, "shipped", lambda module: (module, SOLVER))
    monkeypatch.setattr(loihi2, "python_of", lambda path: sys.executable)


def opened(**options: Any) -> Device:
    return loihi2.open_device(**ROOMY | options)


# ---- as a device --------------------------------------------------------------------------


@pytest.mark.real_time
def test_it_does_what_the_rig_asks_of_a_device(stand_in: None) -> None:
    assert check_device(opened(), [SAMPLE])


@pytest.mark.parametrize(
    ("budget", "kept"),
    [
        (None, [1.5, None]), (Budget(0.2), [0.2, None]), (Budget(0.2, -1.0), [0.2, -1.0]),
        (Budget(None, -1.0), [20.0, -1.0]), (Budget(), [1.5, None]),
    ],
)  # fmt: skip
def test_every_solve_has_a_deadline(stand_in: None, budget: Budget | None, kept: list[float | None]) -> None:
    device = opened(default_s=1.5, longest_s=20.0)
    device.stage([SAMPLE])
    device.submit([SAMPLE], budget)
    (reply,) = answers(device, 1)
    device.close()
    assert [reply.output["budget_s"], reply.output["stop"]] == kept


def test_a_payload_that_is_no_graph_never_reaches_lava(stand_in: None) -> None:
    device = opened()
    with pytest.raises(DataError, match="not a graph"):
        device.stage([Sample("audio", np.zeros(16000, np.float32))])
    with pytest.raises(DataError, match="one node"):
        device.stage([Sample("dot", np.array([1, 0], np.int32))])
    device.close()


# ---- options ------------------------------------------------------------------------------


def test_what_is_asked_reaches_the_worker_in_builtins(stand_in: None) -> None:
    texts = {"seed": "4", "refract": "9", "hyperparameters": '{"temperature": 2, "x": [1]}'}
    with pytest.raises(UsageError, match="hyperparameters"):
        build(loihi2.open_device, {"simulate": True}, texts)
    texts["hyperparameters"] = '{"temperature": 2, "x": 1}'
    device = build(loihi2.open_device, {"simulate": True}, texts)
    device.stage([SAMPLE])
    device.submit([SAMPLE], Budget(0.01))
    (reply,) = answers(device, 1)
    device.close()
    options = reply.output["options"]
    assert options["hyperparameters"] == {"temperature": 2, "x": 1}
    assert (options["seed"], options["refract"], options["neuron_model"]) == (4, 9, "nebm")


@pytest.mark.parametrize(
    "options",
    [
        {"neuron_model": "sa"}, {"neuron_model": "nebm", "simulate": False}, {"neuron_model": "scif"},
        {"temperature": -1}, {"refract": 128}, {"refract": -1}, {"hyperparameters": "{"}, {"hyperparameters": "3"},
        {"hyperparameters": '{"a": null}'}, {"seed": -1}, {"default_s": 0.0}, {"default_s": 2e3},
        {"longest_s": float("inf")}, {"start_s": 0.0}, {"load_s": float("nan")},
    ],
)  # fmt: skip
def test_an_option_that_cannot_be_meant_is_refused_before_anything_starts(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        opened(**options)
    assert caught.value.field in options
    assert caught.value.remedy


def test_every_option_has_a_plain_type_and_is_described() -> None:
    declared = options_of(loihi2.open_device)
    assert all(option.kind in (str, int, float) for option in declared.values())
    assert loihi2.open_device.__doc__
    assert [name for name in declared if f"``{name}``" not in loihi2.open_device.__doc__] == []


# ---- interpreters -------------------------------------------------------------------------


def test_without_an_interpreter_it_says_how_to_make_one() -> None:
    with pytest.raises(SetupError, match="an interpreter of its own") as caught:
        opened()
    assert "-m venv" in caught.value.remedy and "lava-optimization==0.5.0" in caught.value.remedy


def test_the_named_interpreter_comes_before_that_of_the_environment_and_the_own_one(
    nothing_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = nothing_here / "cache" / "neurorig" / "lava" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.touch()
    assert loihi2.python_of("") == str(own)
    monkeypatch.setenv(loihi2.VARIABLE, "/nowhere/else")
    assert loihi2.python_of("") == "/nowhere/else"
    with pytest.raises(SetupError, match="nowhere/named"):
        opened(interpreter="/nowhere/named")


def test_an_interpreter_without_lava_is_told_by_the_worker() -> None:
    with pytest.raises(MissingExtraError, match="cannot import Lava") as caught:
        opened(interpreter=sys.executable)
    assert "lava-optimization" in caught.value.remedy
