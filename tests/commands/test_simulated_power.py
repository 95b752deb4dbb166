"""Your own device with a simulated meter needs only a function, and the watts that the device would use."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import rig
from rig.analysis.result.quantity import from_json
from rig.commands.shell.main import main
from rig.errors import UsageError

pytestmark = pytest.mark.real_time

IDLE_W, BUSY_W, TOOK_S = 2e-3, 7e-3, 0.2
POWERED = f"""
import time
import rig

def answer(sample):
    time.sleep({TOOK_S})
    return {{"label": sample.label}}

def open_device():
    return rig.blocking(answer, power={{"core": ({IDLE_W}, {BUSY_W}), "io": (1e-3, 1e-3)}})

def open_plain():
    return rig.blocking(answer)
"""
BRIEF = ("--option", "samples=8", "--option", "audio_hz=1000", "--option", "idle_s=0.5", "--mode", "together")


@pytest.fixture
def own(here: Path) -> Path:
    (here / "mine.py").write_text(POWERED)
    return here


def figures(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["measure", "--quiet", "--json", "--allow-invalid", *arguments, *BRIEF, "--out", "run"]) == 0
    return dict(json.loads(capsys.readouterr().out)["results"]["quantities"])


def test_the_watts_that_it_states_are_what_the_meter_measures(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = figures(capsys, "--device", "mine.py:open_device", "--meter", "mock")

    for name, true in (("idle_power_w", IDLE_W + 1e-3), ("active_power_w", BUSY_W + 1e-3)):
        low, high = from_json(found[name]).interval(0.95)
        assert low <= true <= high, name
    low, high = from_json(found["energy_per_inference_j"]).interval(0.95)
    assert low <= (BUSY_W + 1e-3) * from_json(found["execution_time_s"]).value <= high


def test_a_check_takes_it_too(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--device", "mine.py:open_device", "--meter", "mock"]) == 0


@pytest.mark.parametrize("more", [(), ("--simulate",)])
def test_without_watts_the_error_leads_on(own: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]) -> None:
    code = main(["measure", "--device", "mine.py:open_plain", "--meter", "mock", *more, "--out", "run"])

    told = capsys.readouterr().err
    assert code in (3, 4)
    assert 'power={"core": (idle_w, busy_w)}' in told
    assert "plant" not in told


@pytest.mark.parametrize(("power", "says"), [
    ({"core": (1e-3, float("nan"))}, "core"), ({"core": (-1e-3, 2e-3)}, "core"), ({"core": 2e-3}, "(idle_w, busy_w)"),
    ({}, "(idle_w, busy_w)"),
])  # fmt: skip
def test_watts_that_are_none_are_refused_when_the_device_is_made(power: Any, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        rig.blocking(lambda sample: None, power=power)
