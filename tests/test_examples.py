"""Every example runs as its first lines describe."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rig
from fixtures.bench.mock_device import open_device as open_mock_device
from fixtures.bench.true_power import open_plant
from rig.analysis.result.quantity import from_json
from rig.commands.shell.main import main
from rig.conformance.device import check_device, check_meter
from rig.engine.clock import HostClock
from rig.errors import UsageError
from rig.factories import build
from rig.plugins import load
from rig.types import Sample
from tests.support.paths import EXAMPLES, ROOT
from tests.support.processes import python

DEVICE = f"{EXAMPLES / 'my_device.py'}:open_device"
METER = f"{EXAMPLES / 'my_meter.py'}:open_meter"
WORKLOAD = f"{EXAMPLES / 'my_workload.py'}:open_workload"
SCENARIO = f"{EXAMPLES / 'my_scenario.py'}:periodic"
BRIEF = ("--option", "samples=8", "--option", "idle_s=0.2", "--json")
NOISE = np.random.default_rng(1).normal(size=(3, 4000))
SCENES = [Sample(f"s{k}", NOISE[k], label="park", rate_hz=16000.0) for k in range(3)]


def measured(capsys: pytest.CaptureFixture[str], out: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["measure", *arguments, *BRIEF, "--allow-invalid", "--out", str(out / "run")])
    return code, json.loads(capsys.readouterr().out)["results"]


def test_every_example_is_run_here() -> None:
    others = ("solving/test_own_solvers.py", "recording/test_run_directory.py")
    tests = (Path(__file__), *(ROOT / "tests" / other for other in others))
    source = "".join(test.read_text(encoding="utf-8") for test in tests)

    assert [p.name for p in sorted(EXAMPLES.glob("*.py")) if p.name not in source] == []


def test_the_notebook_runs_from_its_first_cell_to_its_last_and_holds_no_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its measurement on the simulated bench takes some seconds. A cell that ends in an expression prints it."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    cells = json.loads((EXAMPLES / "first_measurement.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    shown = []
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            *body, last = ast.parse("".join(cell["source"])).body
            ends_in_value = isinstance(last, ast.Expr)
            exec(compile(ast.Module([*body] if ends_in_value else [*body, last], []), "cell", "exec"), names)
            if isinstance(last, ast.Expr):
                shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
    result, figures, spans = shown

    assert "SIMULATED" in result._repr_html_()
    assert (figures.low < figures.value).all()
    assert (figures.value < figures.high).all()
    assert spans["idle"] >= 1


# ---- the examples -------------------------------------------------------------------------


def test_my_device_tells_scenes_apart_without_a_meter(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, results = measured(capsys, tmp_path, "--device", DEVICE, "--meter", "none")

    assert code == 0
    assert results["simulated"] is False
    assert results["quantities"]["execution_time_s"]["n"] == 8
    assert results["quantities"]["accuracy"]["value"] > 0.4  # far better than chance


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
        low, high = quantity.interval(0.999)  # one draw of noise: it must hold, not only in 95 of 100
        assert low <= value <= high, name
        assert quantity.half_width() < 0.01 * truth["idle_power_w"]


def test_my_meter_keeps_the_rules_on_both_clocks() -> None:
    factory = load("meters", METER)
    plant = open_plant()
    open_mock_device(plant)

    assert "read.count" in check_meter(build(factory, {"clock": HostClock()}, {}))
    assert "read.count" in check_meter(build(factory, {"clock": plant.clock}, {}), clock=plant.clock)


def test_my_workload_is_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    code = main(
        ["measure", "--device", "mock", "--workload", WORKLOAD, "--option", "count=8", "--json", "--out", str(out)]
    )

    results = json.loads(capsys.readouterr().out)["results"]
    assert code == 0
    assert results["validity"]["verdict"] == "VALID"
    assert results["quantities"]["accuracy"]["n"] == 8


def test_my_workload_draws_the_same_samples_again() -> None:
    first, again = (build(load("workloads", WORKLOAD), {}, {"count": "4"}) for _ in range(2))
    other = build(load("workloads", WORKLOAD), {}, {"count": "4", "noise": "0.2"})

    assert first.digest_sha256 == again.digest_sha256 != other.digest_sha256
    assert [sample.label for sample in first.samples] == ["low", "high", "low", "high"]


def test_my_scenario_counts_latency_from_when_a_sample_is_due(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def latency_s(period_s: str) -> float:
        words = ("--device", "mock", "--scenario", SCENARIO, "--option", f"period_s={period_s}")
        code, results = measured(capsys, tmp_path / period_s, *words)
        assert code == 0
        return float(results["quantities"]["latency_p50_s"]["value"])

    assert latency_s("0.5") < 0.11  # the device takes 0.1 s
    assert latency_s("0.05") > 0.2  # samples wait for earlier ones


# ---- the examples of the public interface ------------------------------------------------


def test_the_example_of_every_public_function_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    functions = [name for name in rig.__all__ if name.islower() and callable(getattr(rig, name))]
    assert set(functions) >= {"open_run", "evaluate", "report", "measure", "blocking", "check_device", "check_meter"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    for name in sorted(functions, key=lambda name: name != "measure"):  # the others read its recording
        doc = inspect.getdoc(getattr(rig, name)) or ""
        exec(textwrap.dedent(doc.partition("::\n")[2]), {})
        assert "rig." in doc.partition("::\n")[2], name
    exec(textwrap.dedent((rig.__doc__ or "").partition("::\n")[2]), {})


def test_every_public_name_is_there_and_documented() -> None:
    undocumented = {name for name in rig.__all__ if not inspect.getdoc(getattr(rig, name))}
    assert undocumented == set()
    assert set(rig.__all__) <= set(dir(rig))
    with pytest.raises(AttributeError):
        _ = rig.nothing_of_this_name


def test_the_public_interface_is_imported_only_when_used() -> None:
    told = python("import sys, rig; print(*sys.modules)").stdout.split()
    assert "rig" in told and not {"numpy", "rig.types", "rig.analysis"} & set(told)


def test_rasters_drive_a_device_that_takes_spikes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rasters = f"{EXAMPLES / 'spike_rasters.py'}:open_workload"
    code, results = measured(capsys, tmp_path, "--device", "mock", "--simulate", "--workload", rasters)
    assert code == 0
    assert results["workload"]["name"] == "spike-rasters"
    assert "energy_per_inference_j" in results["quantities"]


# ---- a known load -------------------------------------------------------------------------

LOAD = EXAMPLES / "known_load.py"


@pytest.mark.parametrize(("ohms", "supply_v"), [(100.0, 1.8), (4700.0, 3.3)])
def test_a_known_load_is_measured_as_what_it_draws(ohms: float, supply_v: float, tmp_path: Path) -> None:
    options = {"ohms": ohms, "device.supply_v": supply_v, "meter.supply_v": supply_v, "count": 8, "on_s": 0.2}
    request = rig.Request(
        device=f"{LOAD}:open_device", workload=f"{LOAD}:open_workload", simulate=True, mode="together",
        options=tuple(f"{key}={value}" for key, value in options.items()), out=tmp_path / "run",
    )  # fmt: skip
    run = rig.open_run(rig.measure(request, quiet=True))
    found = rig.evaluate(run)

    true_w = supply_v**2 / ohms
    truth = {"active_power_w": true_w, "dynamic_power_w": true_w, "energy_per_inference_j": true_w * 0.2}
    assert found.validity is not None and found.validity.valid
    assert run.start.device.details["true_w"] == pytest.approx(true_w)
    for name, value in truth.items():
        low, high = found.quantities[name].interval(0.999)
        assert low <= value <= high, name


def test_a_known_load_without_a_port_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--device", f"{LOAD}:open_device", "--meter", "none"]) == UsageError.exit_code
    assert "port=/dev/ttyUSB0, or --simulate" in capsys.readouterr().err
