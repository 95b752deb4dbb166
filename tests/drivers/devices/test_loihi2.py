"""The Loihi 2 driver without Lava: its options, its search for an interpreter, and its doctor's findings."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.devices.loihi2 import device as loihi2
from drivers.links import remote_link
from rig.conformance.device import check_device
from rig.errors import DataError, MissingExtraError, RigError, SetupError, UsageError
from rig.factories import build, options_of
from rig.types import Budget, Device, Sample
from scenarios.workloads.qubo_mis.graph import Graph
from tests.support.remote_workers import HONEST, answers, script

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
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr("shutil.which", lambda name: name if Path(name).is_file() else None)
    return tmp_path


def python(path: Path, version: str, lava: str | None) -> str:
    """Return a program that answers like such an interpreter when it is probed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = "null" if lava is None else f'"{lava}"'
    says = f'{{"python": "{version}", "versions": {{"lava-optimization": {found}}}}}'
    return script(path, f"echo 'worker interpreter: {says}'")


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use this test's worker instead of Lava's, in this interpreter."""
    monkeypatch.setattr(loihi2, "shipped", lambda module: (module, SOLVER))
    monkeypatch.setattr(loihi2, "chosen", lambda path: loihi2.Interpreter(sys.executable, "3.10.0", "0.5.0"))


def opened(**options: Any) -> Device:
    return loihi2.open_device(**ROOMY | options)


# ---- as a device --------------------------------------------------------------------------


@pytest.mark.real_time
def test_it_does_what_the_rig_asks_of_a_device(stand_in: None) -> None:
    assert check_device(opened(), [SAMPLE])


@pytest.mark.parametrize(
    ("budget", "kept"),
    [
        (None, [1.5, None]),
        (Budget(0.2), [0.2, None]),
        (Budget(0.2, -1.0), [0.2, -1.0]),
        (Budget(None, -1.0), [20.0, -1.0]),
        (Budget(), [1.5, None]),
    ],
)
def test_every_solve_has_a_deadline(stand_in: None, budget: Budget | None, kept: list[float | None]) -> None:
    device = opened(default_s=1.5, longest_s=20.0)
    device.stage([SAMPLE])
    device.submit([SAMPLE], budget)
    (reply,) = answers(device, 1)
    device.close()
    assert [reply.output["budget_s"], reply.output["stop"]] == kept


@pytest.mark.parametrize("budget", [Budget(0.0), Budget(-1.0), Budget(21.0), Budget(1.0, float("nan"))])
def test_a_budget_that_cannot_be_kept_is_refused(stand_in: None, budget: Budget) -> None:
    device = opened(longest_s=20.0)
    device.stage([SAMPLE])
    with pytest.raises(UsageError):
        device.submit([SAMPLE], budget)
    device.close()


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


def test_without_an_interpreter_it_says_what_it_saw_and_what_to_do(nothing_here: Path) -> None:
    with pytest.raises(SetupError, match="found: none") as caught:
        opened()
    assert "-m venv" in caught.value.remedy
    python(nothing_here / "pyenv/versions/3.10.13/bin/python3", "3.10.13", None)
    with pytest.raises(SetupError, match=r"Python 3\.10\.13, no lava-optimization"):
        opened()


def test_a_named_interpreter_that_is_missing_is_not_replaced_by_another(
    nothing_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python(nothing_here / "cache/neurorig/lava/bin/python", "3.10.13", "0.5.0")
    with pytest.raises(SetupError, match="nowhere"):
        opened(interpreter="/nowhere")
    monkeypatch.setenv(loihi2.VARIABLE, "/nowhere/else")
    with pytest.raises(SetupError, match="nowhere/else"):
        opened()


def test_the_first_interpreter_with_lava_is_taken(nothing_here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyenv = nothing_here / "pyenv/versions"
    python(pyenv / "3.10.14/bin/python3", "3.10.14", None)
    older = python(pyenv / "3.10.13/bin/python3", "3.10.13", "0.5.0")
    assert loihi2.chosen().path == older
    own = python(nothing_here / "cache/neurorig/lava/bin/python", "3.10.13", "0.5.0")
    assert loihi2.chosen().path == own
    named = python(nothing_here / "named", "3.10.1", "0.5.0")
    monkeypatch.setenv(loihi2.VARIABLE, named)
    assert loihi2.chosen().path == named
    assert loihi2.chosen(own).path == own


def test_an_interpreter_without_lava_is_told_by_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loihi2, "chosen", lambda path: loihi2.Interpreter(sys.executable, "3.10.0", "0.5.0"))
    with pytest.raises(MissingExtraError, match="cannot import Lava") as caught:
        opened()
    assert "rig doctor loihi2" in caught.value.remedy


# ---- the doctor ---------------------------------------------------------------------------


def said(**options: Any) -> list[tuple[bool, str, str]]:
    return [(f.ok, f.what, f.remedy) for f in loihi2.doctor(**options)]


def test_the_doctor_names_what_is_missing(nothing_here: Path) -> None:
    ((ok, what, remedy),) = said()
    assert not ok
    assert "no Python 3.10" in what
    assert "pyenv install" in remedy
    python(nothing_here / "pyenv/versions/3.10.13/bin/python3", "3.10.13", None)
    ok, what, remedy = said()[-1]
    assert (ok, what) == (False, "no interpreter has Lava")
    assert "-m venv" in remedy
    python(nothing_here / "cache/neurorig/lava/bin/python", "3.10.13", "0.4.0")
    ok, _, remedy = said()[-1]
    assert not ok
    assert "lava-optimization==0.5.0" in remedy


def test_the_doctor_tells_a_simulator_from_a_board(nothing_here: Path, stand_in: None) -> None:
    python(nothing_here / "cache/neurorig/lava/bin/python", "3.10.13", "0.5.0")
    findings = said()
    assert [ok for ok, _, _ in findings] == [True, True, True, True]
    assert "simulator: the worker answers" in findings[-2][1]


def test_the_doctor_says_why_a_worker_does_not_start(nothing_here: Path) -> None:
    python(nothing_here / "cache/neurorig/lava/bin/python", "3.10.13", "0.5.0")
    findings = said()
    assert [ok for ok, _, _ in findings] == [True, True, False, False]
    assert all(remedy for ok, _, remedy in findings if not ok)


def test_every_refusal_is_an_error_of_the_rig(nothing_here: Path) -> None:
    began_s = time.monotonic()
    garbage = script(nothing_here / "garbage", "echo no python")
    with pytest.raises(RigError):
        opened(interpreter=garbage)
    assert remote_link.PROTOCOL == 1
    assert time.monotonic() - began_s < 5.0
