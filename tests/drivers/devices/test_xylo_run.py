"""A whole run on the simulated Xylo: the rig measures what its profile declares."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from rig.analysis.result.quantity import Quantity, from_json
from rig.commands.shell.main import main

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("rockpool") is None, reason="the xylo extra is not installed"),
    pytest.mark.pictures,
]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    run = tmp_path_factory.mktemp("xylo") / "run"
    argv = [
        "measure", "--device", "xylo", "--simulate", "--mode", "together", "--option", "samples=40", "--out", str(run),
        "--json",
    ]  # fmt: skip
    assert main(argv) == 0
    start = json.loads((run / "events.jsonl").read_text().splitlines()[0])
    return {"run": run, "profile": start["device"]["details"]["power_profile"]}


@pytest.fixture(scope="module")
def figures(document: dict[str, Path]) -> dict[str, Quantity]:
    results = json.loads((document["run"] / "derived" / "results.json").read_text())
    assert results["simulated"] is True
    return {name: from_json(q) for name, q in results["quantities"].items()}


@pytest.mark.parametrize("phase", ["preprocess", "inference"])
def test_the_power_of_each_phase_and_rail_is_the_declared_one(
    document: dict[str, Any], figures: dict[str, Quantity], phase: str
) -> None:
    declared = document["profile"]["phase_w"][phase]
    for rail, watts in declared.items():
        measured = figures[f"phase.{phase}.rail.{rail}.active_power_w"]
        assert abs(measured.value - watts) <= 1.5 * measured.half_width(), rail
    total = figures[f"phase.{phase}.active_power_w"]
    assert abs(total.value - sum(declared.values())) <= 1.5 * total.half_width()
    assert total.half_width() < 0.005 * total.value


def test_every_file_for_people_says_simulated(document: dict[str, Path]) -> None:
    for name in ("report.html", "report.md", "figures/power.svg"):
        assert "SIMULATED" in (document["run"] / "derived" / name).read_text(), name
