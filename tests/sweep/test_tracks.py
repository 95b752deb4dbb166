"""``rig tracks``: one network on several devices in both tracks; a resumed command; energy per operation from
several networks."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import counting_device
from reports.sweeps.tracks_page import page
from reports.sweeps.tracks_picture import line_figure
from rig.analysis.complexity.energy_line import EnergyLine, Point
from rig.analysis.result.quantity import FigureKey, Figures, Quantity
from rig.commands.shell.main import main
from rig.errors import UnknownNameError, UsageError
from rig.sweep.sweep_folder import frozen
from rig.sweep.tracks import ALGORITHM, SYSTEM, Track, Tracks, front
from tests.support.raised import Capture
from tests.support.sweep_bench import seals

COUNTING = f"{counting_device.__file__}:open_device"
METER = f"{counting_device.__file__}:open_meter"
HERE = """
from pathlib import Path
import rig
from rig.errors import DataError
def open_solver(*, network: str = "") -> rig.Device:
    if "9" in Path(network).read_text():
        raise DataError("this network is too large", field="network", value=network, remedy="Prune it")
    return rig.blocking(lambda sample: {"label": sample.label}, rig.DeviceInfo("lookup", mode="hardware"))
def open_bare() -> rig.Device:
    return rig.blocking(lambda sample: {"label": sample.label})
"""
QUICK = ("--option", "samples=3", "--option", "audio_hz=1000", "--jobs", "0")


@pytest.fixture(autouse=True)
def networks(here: Path) -> None:
    for active in (50, 150, 300, 500, 700, 900):
        (here / f"n{active}.txt").write_text(str(active))
    (here / "own.py").write_text(HERE)


def tracks(capsys: Capture, *words: str, idle_s: float = 0.2) -> tuple[int, Any, str]:
    capsys.readouterr()
    code = main(["tracks", *words, *QUICK, "--option", f"idle_s={idle_s}", "--out", "both", "--json"])
    found = capsys.readouterr()
    return code, json.loads(found.out) if found.out else None, found.err


def test_one_network_on_two_devices_makes_one_table(here: Path, capsys: Capture) -> None:
    devices = f"{COUNTING},own.py:open_solver"
    given = ("n150.txt", "--devices", devices, "--simulate", "--meter", f"{COUNTING}={METER}")
    code, document, _ = tracks(capsys, *given)
    assert code == 0 and document["done"] == 2
    chip, lookup = document["rows"]
    assert (chip["simulated"], lookup["simulated"]) == (True, False)
    assert chip["figures"]["effective_acs_per_execution"]["value"] == 1500.0
    low, high = chip["figures"]["dynamic_energy_per_inference_j"]["interval_95"]
    assert low <= 10 * (5e-6 + 1500 * 2e-9) <= high
    assert lookup["figures"]["accuracy"]["value"] == 1.0 and "energy_per_inference_j" not in lookup["figures"]
    assert set(chip["figures"]) <= {str(key) for key in (*ALGORITHM, *SYSTEM)}
    assert chip["verdict"].startswith("INVALID") and "energy: 0" in document["energy"][COUNTING]["refusal"]
    page = (here / "both" / "tracks.html").read_text()
    assert "SIMULATED" in page and "Algorithm track" in page and "System track" in page and "<svg" in page
    assert chip["rails"] and lookup["rails"] == []
    assert f">{', '.join(chip['rails'])}</td>" in page, "figures of a core and of a board cannot be ranked"
    assert ">no meter</td>" in page and 'data-of="counting_device.py:open_device SIMULATED"' in page
    assert "Activation sparsity" in page and ">—</td>" in page


def test_an_ended_command_resumes(here: Path, capsys: Capture) -> None:
    given = ("n150.txt", "n300.txt", "--devices", COUNTING, "--simulate", "--meter", METER)
    assert tracks(capsys, *given)[0] == 0
    before = seals(here / "both")
    assert len(before) == 2 and tracks(capsys, *given)[0] == 0
    assert seals(here / "both") == before
    other = (*given[:2], "--devices", "own.py:open_solver")
    code, _, err = tracks(capsys, *other)
    assert code == UsageError.exit_code and "--extend" in err and seals(here / "both") == before
    assert tracks(capsys, *other, "--extend")[1]["done"] == 4
    assert tracks(capsys, *given)[0] == tracks(capsys, *other)[0] == 0
    assert seals(here / "both").items() > before.items() and len(frozen(here / "both")) == 2


def test_six_networks_give_energy_per_operation_and_execution(here: Path, capsys: Capture) -> None:
    networks = sorted(path.name for path in here.glob("n*.txt"))
    given = ("--devices", COUNTING, "--simulate", "--meter", METER, "--option", "meter_seed=3")
    code, document, _ = tracks(capsys, *networks, *given, idle_s=2.0)
    assert code == 0
    energy = document["energy"][COUNTING]
    for name, true_j in (("per_operation_j", 2e-9), ("per_execution_j", 5e-6)):
        low, high = energy[name]["interval_95"]
        assert low <= true_j <= high and high - low < 0.5 * true_j
    assert len(energy["points"]) == 6
    page = (here / "both" / "tracks.html").read_text()
    assert "per effective operation" in page and "The line fits" in page


def test_energy_unrelated_to_operations_is_not_stated(here: Path, capsys: Capture) -> None:
    networks = sorted(path.name for path in here.glob("n*.txt"))
    given = ("--devices", COUNTING, "--simulate", "--meter", METER, "--option", "law=scatter")
    energy = tracks(capsys, *networks, *given, idle_s=2.0)[1]["energy"][COUNTING]
    assert "no line" in energy["refusal"] and "per_operation_j" not in energy


def test_a_device_that_refuses_the_network_is_named(here: Path, capsys: Capture) -> None:
    devices = f"{COUNTING},own.py:open_solver"
    code, document, _ = tracks(capsys, "n900.txt", "--devices", devices, "--simulate", "--meter", f"{COUNTING}={METER}")
    assert code == 0 and document["done"] == 1
    assert document["refused"] == {"own.py:open_solver": "this network is too large. Prune it"}
    assert "this network is too large. Prune it" in (here / "both" / "tracks.html").read_text()


def test_a_page_of_failures_states_remedies() -> None:
    failed = replace(track("chip", False, 0.9, 1.0, 1.0), state="failed", figures=Figures(), error="no room. Prune it")
    text = page(Tracks((failed,), {}, {}, {})).decode()
    assert "<li>n on chip: no room. Prune it</li>" in text and "<table" not in text


def test_simulated_energies_are_drawn_hollow() -> None:
    points = tuple(Point(x, Quantity(2.0 * x, "J"), 0.0) for x in (1.0, 2.0))
    found = Tracks((track("chip", True, 0.9, 1.0, 1.0),), {}, {"chip": points}, {"chip": EnergyLine(refusal="no")})
    text = (line_figure(found) or b"").decode()
    assert "hollow: SIMULATED" in text and "fill: #ffffff" in text and "last phase" in text


def test_an_option_goes_to_its_devices(here: Path, capsys: Capture) -> None:
    devices = f"{COUNTING},own.py:open_solver"
    given = ("n150.txt", "--devices", devices, "--simulate", "--meter", f"{COUNTING}={METER}")
    code, document, _ = tracks(capsys, *given, "--option", "slope_j=4e-9", "--option", f"{COUNTING}.base_j=1e-5")
    assert code == 0
    low, high = document["rows"][0]["figures"]["dynamic_energy_per_inference_j"]["interval_95"]
    assert low <= 10 * (1e-5 + 1500 * 4e-9) <= high


@pytest.mark.parametrize(("words", "code", "text"), [
    (("n150.txt", "--devices", "nobody"), UnknownNameError.exit_code, "unknown device 'nobody'"),
    (("n150.txt", "--devices", "own.py:open_bare"), UsageError.exit_code, "takes no network"),
    (("n150.txt", "--devices", "own.py:open_solver", "--option", "volts=1"), UnknownNameError.exit_code, "volts"),
    (("n150.txt", "--devices", COUNTING, "--meter", "x=y=z"), UsageError.exit_code, "y=z"),
    (("n900.txt", "--devices", "own.py:open_solver"), 6, "this network is too large"),
    (("n150.txt", "--devices", "mock,mock"), UsageError.exit_code, "twice"),
])  # fmt: skip
def test_impossible_arguments_are_refused(words: tuple[str, ...], code: int, text: str, capsys: Capture) -> None:
    found, _, err = tracks(capsys, *words)
    assert found == code and text in err and "Traceback" not in err


def test_the_table_is_printed_on_the_terminal(here: Path, capsys: Capture) -> None:
    given = ("n150.txt", "--devices", COUNTING, "--simulate", "--meter", METER, *QUICK, "--out", "both")
    assert main(["tracks", *given]) == 0
    out = capsys.readouterr().out
    assert "SIMULATED" in out and "Effective ACs per execution" in out and "±" in out and "tracks.html" in out


def track(device: str, simulated: bool, accuracy: float, energy_j: float, time_s: float) -> Track:
    keys = ("accuracy", "energy_per_inference_j", "execution_time_s")
    values = {FigureKey(k): Quantity(v, "") for k, v in zip(keys, (accuracy, energy_j, time_s), strict=True)}
    return Track(device, "n", "done", simulated, "VALID", Figures(values), "")


def test_the_front_holds_the_unbeaten_tracks() -> None:
    best, worse = track("a", False, 0.9, 1.0, 1.0), track("b", False, 0.9, 2.0, 1.0)
    dear = track("c", False, 1.0, 9.0, 9.0)
    simulated, unmetered = track("d", True, 0.5, 5.0, 5.0), replace(best, figures=Figures())
    invalid = replace(track("e", False, 1.0, 0.5, 0.5), verdict="INVALID")
    assert front([worse, best, dear, simulated, unmetered, invalid]) == [best, dear, simulated]
