"""Files, commands, codes and links that the pages name are right. Every example runs as its text says."""

import ast
import inspect
import json
import re
import shlex
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rig
from benchmarks.import_cases import cases
from fixtures.bench.mock_device import open_device as open_mock_device
from fixtures.bench.true_power import open_plant
from rig import errors
from rig.analysis.evaluate import evaluate
from rig.analysis.result.quantity import from_json
from rig.commands.shell.main import main, parser
from rig.conformance.device import check_device, check_meter
from rig.engine.clock import HostClock
from rig.errors import UsageError
from rig.factories import build
from rig.plugins import load, names
from rig.recording.reader import open_run
from rig.recording.submission import open_submission
from rig.types import Sample
from tests.support import terminal_picture
from tests.support.paths import DOCS, EXAMPLES, ROOT
from tests.support.processes import python

README = ROOT / "README.md"
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]


FOLDERS = "rig|drivers|scenarios|reports|fixtures|benchmarks|examples|docs|tests"
TOPS = ("rig", "drivers", "scenarios", "reports", "fixtures", "examples")
CODE = [file for top in TOPS for kind in ("*.py", "*.ipynb") for file in (ROOT / top).rglob(kind)]


@pytest.mark.parametrize(("files", "pattern", "place", "least"), [
    (PAGES, r"\{literalinclude\} (\S+)", None, 6),
    (PAGES, r"\]\(([^)#:]+)(?:#[^)]*)?\)", None, 40),
    ([p for p in PAGES if p.name != "CHANGELOG.md"], rf"`((?:{FOLDERS})/[\w/.-]*[\w/])`", ROOT, 40),
    (CODE, r"docs/[\w/-]+\.md", ROOT, 5),
], ids=["includes", "links between pages", "files that pages name", "pages that code names"])  # fmt: skip
def test_named_files_exist(files: list[Path], pattern: str, place: Path | None, least: int) -> None:
    named = {(f, name) for f in files for name in re.findall(pattern, f.read_text(encoding="utf-8"))}
    assert len(named) >= least
    assert sorted(f"{f.name}: {name}" for f, name in named if not ((place or f.parent) / name).exists()) == []


def test_every_fence_is_closed() -> None:
    assert [p.name for p in PAGES if len(re.findall(r"^ *```", p.read_text(encoding="utf-8"), re.M)) % 2] == []


def test_commands_of_the_readme_and_the_examples_parse() -> None:
    texts = [file.read_text(encoding="utf-8").replace("\\\n", " ") for file in (README, *EXAMPLES.glob("my_*.py"))]
    lines = re.findall(r"(?:^ *|`)(rig measure --[^`\n]+)", "\n".join(texts), flags=re.MULTILINE)

    assert len(lines) >= 10
    for line in lines:
        asked = parser("measure").parse_args(line.split()[1:])
        files = [name.partition(":")[0] for name in (asked.device, asked.scenario or "", asked.workload or "")]
        assert all((ROOT / name).is_file() for name in files if name.endswith(".py"))


def test_error_kinds_have_distinct_exit_codes() -> None:
    kinds = [k for _, k in inspect.getmembers(errors, inspect.isclass) if issubclass(k, errors.Ended)]
    codes = [kind.exit_code for kind in kinds if "exit_code" in vars(kind) and kind is not errors.Ended]

    assert len(codes) > 15
    assert len(codes) == len(set(codes))
    assert set(codes).isdisjoint({0, 1, 2, errors.Ended.exit_code})


def test_the_terminal_picture_matches_its_commands() -> None:
    """The commands measure on the simulated bench, which takes seconds."""
    known = terminal_picture.PICTURE.read_text(encoding="utf-8")

    now = terminal_picture.picture()
    assert terminal_picture.told(known) == terminal_picture.told(now), "python -m tests.support.terminal_picture"


# ---- the commands of the pages on importing and on submitting run, and give the results that the pages describe

IMPORTING = (DOCS / "how-to" / "importing.md").read_text(encoding="utf-8")
TEXT = IMPORTING.replace("\\\n", " ")
LINES = re.findall(r"^    (rig import --format [a-z].*)$", TEXT, re.M)
COMMANDS = {words[3]: words[1:] for words in map(shlex.split, LINES)}


def test_every_importer_is_in_the_table_and_has_its_command() -> None:
    assert set(COMMANDS) == set(names("importers")) == set(re.findall(r"^\| `([a-z0-9-]+)` \|", IMPORTING, re.M))


@pytest.mark.parametrize("name", sorted(COMMANDS))
@pytest.mark.usefixtures("here")
def test_the_command_makes_a_run(name: str) -> None:
    case = cases().get(name)
    if case is None:
        pytest.skip("pyjls is not installed")
    source = COMMANDS[name][3]
    for path, content in case.files.items():
        renamed = Path(re.sub(rf"^{re.escape(case.source)}\b", source, path))
        renamed = Path(source) / path if case.source == "." else renamed
        renamed.parent.mkdir(parents=True, exist_ok=True)
        renamed.write_bytes(content)
    assert main(COMMANDS[name]) == 0
    figures = evaluate(open_run(Path("runs") / name)).quantities
    assert "phase.inference.execution_time_s" in figures
    assert "active_power_w" in figures or name == "energyrunner"  # its small example ends without an idle tail


# ---- submitting

SUBMITTING = (DOCS / "how-to" / "submit.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", SUBMITTING, re.DOTALL)
STEPS = [shlex.split(line) for block in BLOCKS for line in block.splitlines()]


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH is not installed")
def test_commands_run_in_their_order(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for program, *words in STEPS:
        if program == "rig":
            assert main(words) == 0, words
        else:
            subprocess.run([program, *words], check=True)
    printed = capsys.readouterr().out

    assert len(STEPS) == 10
    assert re.search(r"kept\s+within", printed)
    files = {path.relative_to("submission").parts[0] for path in Path("submission").iterdir()}
    assert files <= set(re.findall(r"^  ([\w.-]+)|(?<=html )report\.md", SUBMITTING, re.MULTILINE)) | {"report.md"}
    assert len(open_submission(Path("submission")).document.configurations[0].sessions) == 2
    assert Path("signed/MANIFEST.sha256.sig").is_file()
    assert Path("leaderboard.html").read_text().count("mock, asc, single-stream") == 3


# ---- every example runs as its first lines describe

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


def test_the_notebook_runs_and_holds_no_output(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_my_device_classifies_scenes_without_a_meter(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, results = measured(capsys, tmp_path, "--device", DEVICE, "--meter", "none")

    assert code == 0
    assert results["simulated"] is False
    assert results["quantities"]["execution_time_s"]["n"] == 8
    assert results["quantities"]["accuracy"]["value"] > 0.4  # chance is 0.25


def test_my_device_passes_the_check_with_any_fft_size() -> None:
    for size in ("256", "4000"):
        check_device(build(load("devices", DEVICE), {}, {"fft_size": size}), SCENES)


def test_my_meter_measures_its_simulated_resistor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, results = measured(capsys, tmp_path, "--device", "mock", "--meter", METER, "--option", "ohms=470")

    truth = {"idle_power_w": 1.8**2 / 470, "active_power_w": 1.8**2 / 470, "dynamic_power_w": 0.0}
    assert code == 0
    assert results["simulated"] is True
    for name, value in truth.items():
        quantity = from_json(results["quantities"][name])
        low, high = quantity.interval(0.999)  # a 95 % interval would miss one draw of noise in twenty
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
    words = ["--device", "mock", "--workload", WORKLOAD, "--option", "count=8", "--json", "--out", str(out)]
    code = main(["measure", *words])

    results = json.loads(capsys.readouterr().out)["results"]
    assert code == 0
    assert results["validity"]["verdict"] == "VALID"
    assert results["quantities"]["accuracy"]["n"] == 8


def test_my_workload_draws_the_same_samples_again() -> None:
    first, again = (build(load("workloads", WORKLOAD), {}, {"count": "4"}) for _ in range(2))
    other = build(load("workloads", WORKLOAD), {}, {"count": "4", "noise": "0.2"})

    assert first.digest_sha256 == again.digest_sha256 != other.digest_sha256
    assert [sample.label for sample in first.samples] == ["low", "high", "low", "high"]


def test_my_scenario_counts_latency_from_the_due_time(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def latency_s(period_s: str) -> float:
        words = ("--device", "mock", "--scenario", SCENARIO, "--option", f"period_s={period_s}")
        code, results = measured(capsys, tmp_path / period_s, *words)
        assert code == 0
        return float(results["quantities"]["latency_p50_s"]["value"])

    assert latency_s("0.5") < 0.11  # the device takes 0.1 s
    assert latency_s("0.05") > 0.2  # samples wait for earlier ones


# ---- the examples of the public interface ------------------------------------------------


def test_the_example_of_every_public_function_runs(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    functions = [name for name in rig.__all__ if name.islower() and callable(getattr(rig, name))]
    assert set(functions) >= {"open_run", "evaluate", "report", "measure", "blocking", "check_device", "check_meter"}
    monkeypatch.syspath_prepend(str(ROOT))
    for name in sorted(functions, key=lambda name: name != "measure"):  # the others read its recording
        doc = inspect.getdoc(getattr(rig, name)) or ""
        exec(textwrap.dedent(doc.partition("::\n")[2]), {})
        assert "rig." in doc.partition("::\n")[2], name
    exec(textwrap.dedent((rig.__doc__ or "").partition("::\n")[2]), {})


def test_public_names_are_documented() -> None:
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
def test_a_known_load_is_measured_correctly(ohms: float, supply_v: float, tmp_path: Path) -> None:
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
