"""Every example runs as its first lines say, and the README shows the files as they are."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures.bench.mock_device import open_device as open_mock_device
from fixtures.bench.plant import open_plant
from rig import errors
from rig.analysis.quantity import from_json
from rig.commands.main import main, parser
from rig.conformance.device import check_device, check_meter
from rig.engine.clock import HostClock
from rig.errors import MeasurementRefusedError
from rig.plugins import build, load
from rig.types import Sample
from tests.support.paths import EXAMPLES, ROOT

DEVICE = f"{EXAMPLES / 'my_device.py'}:open_device"
METER = f"{EXAMPLES / 'my_meter.py'}:open_meter"
README = (ROOT / "README.md").read_text(encoding="utf-8")
BRIEF = ("--option", "samples=8", "--option", "idle_s=0.2", "--json")
NOISE = np.random.default_rng(1).normal(size=(3, 4000))
SCENES = [Sample(f"s{k}", NOISE[k], label="park", rate_hz=16000.0) for k in range(3)]


def measured(capsys: pytest.CaptureFixture[str], out: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["measure", *arguments, *BRIEF, "--out", str(out / "run")])
    return code, json.loads(capsys.readouterr().out)["results"]


def test_every_example_is_run_here() -> None:
    source = Path(__file__).read_text(encoding="utf-8")

    assert [p.name for p in sorted(EXAMPLES.glob("*.py")) if p.name not in source] == []


# ---- the examples -------------------------------------------------------------------------


def test_my_device_is_measured_without_a_meter(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, results = measured(capsys, tmp_path, "--device", DEVICE, "--meter", "none")

    assert code == 0
    assert results["simulated"] is False
    assert results["quantities"]["execution_time_s"]["n"] == 8


def test_my_device_tells_more_scenes_apart_than_chance(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, results = measured(capsys, tmp_path, "--device", DEVICE, "--meter", "none", "--option", "samples=120")

    assert results["quantities"]["accuracy"]["value"] > 0.4


def test_my_device_keeps_the_rules_with_any_spectrum() -> None:
    for size in ("256", "4000"):
        check_device(build(load("devices", DEVICE), {}, {"fft_size": size}), SCENES)


def test_my_meter_measures_its_resistor_and_says_simulated(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, results = measured(capsys, tmp_path, "--device", "mock", "--meter", METER, "--option", "ohms=470")

    truth = {"idle_power_w": 1.8**2 / 470, "active_power_w": 1.8**2 / 470, "dynamic_power_w": 0.0}
    assert code == 0
    assert results["simulated"] is True
    for name, value in truth.items():
        quantity = from_json(results["quantities"][name])
        low, high = quantity.interval(0.999)  # one draw of noise: it is to hold, not to hold in 95 of 100
        assert low <= value <= high, name
        assert quantity.half_width() < 0.01 * truth["idle_power_w"]


def test_both_together_refuse_power_of_spans_too_short_for_a_reading(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, results = measured(capsys, tmp_path, "--device", DEVICE, "--meter", METER)

    assert code == MeasurementRefusedError.exit_code
    assert "whole reading" in results["refusals"][0]["reason"]


def test_my_meter_keeps_the_rules_on_both_clocks() -> None:
    factory = load("meters", METER)
    plant = open_plant()
    open_mock_device(plant)

    assert "read.count" in check_meter(build(factory, {"clock": HostClock()}, {}))
    assert "read.count" in check_meter(build(factory, {"clock": plant.clock}, {}), clock=plant.clock)


def test_a_run_written_by_hand_reports_its_truth(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    example = EXAMPLES / "write_run_by_hand.py"
    if not example.is_file():
        pytest.skip("the example is not here")
    written = subprocess.run(
        [sys.executable, str(example), str(tmp_path / "run")], capture_output=True, text=True, check=True, timeout=60
    )

    assert main(["report", str(tmp_path / "run"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["results"]["quantities"]
    for name, value in json.loads(written.stdout).items():
        low, high = from_json(found[name]).interval(0.999)
        assert low - 1e-12 <= value <= high + 1e-12, name


# ---- what the README says -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["my_device.py", "my_meter.py"])
def test_the_readme_shows_the_file_as_it_is(name: str) -> None:
    source = (EXAMPLES / name).read_text(encoding="utf-8")
    blocks: list[str] = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)

    assert source in blocks
    assert len(blocks) == 2


def test_commands_of_the_readme_and_the_examples_parse() -> None:
    texts = [README, *(p.read_text(encoding="utf-8") for p in EXAMPLES.glob("my_*.py"))]
    commands = [
        line.split()[1:] for t in texts for line in re.findall(r"^ *(rig measure --.+)$", t, flags=re.MULTILINE)
    ]

    assert len(commands) >= 5
    for command in commands:
        names = [a for a in parser().parse_args(command).device.split(":")[:1] if a.endswith(".py")]
        assert all((ROOT / n).is_file() for n in names)


def test_the_readme_lists_the_exit_code_of_every_error() -> None:
    rows = re.findall(r"^\| (\d+) \| (`.*?`) \|", README, flags=re.MULTILINE)
    listed = {name: int(code) for code, names in rows for name in re.findall(r"\w+", names)}
    kinds = [k for _, k in inspect.getmembers(errors, inspect.isclass) if issubclass(k, errors.RigError)]

    assert listed == {k.__name__: k.exit_code for k in kinds}


def test_the_readme_lists_every_make_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.search(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE)

    assert targets is not None
    assert set(re.findall(r"^\| `make (\w+)` \|", README, flags=re.MULTILINE)) == set(targets[1].split())


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    targets = {(p, t) for p in pages for t in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", p.read_text(encoding="utf-8"))}

    assert len(targets) > 10
    assert sorted(f"{p.name}: {t}" for p, t in targets if not (p.parent / t).exists()) == []
