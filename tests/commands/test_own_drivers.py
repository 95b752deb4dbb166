"""A driver in your own file, named ``path.py:function``, works completely, or states what is wrong.

``rig check`` runs the rules of drivers over a whole bench, and states what was found and what is required.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

import rig
from reports.audit.audit import audit
from rig.analysis.result.quantity import from_json
from rig.commands.shell.main import main
from rig.errors import ConformanceError, SetupError, UsageError
from rig.recording.disk.files import not_stored
from rig.recording.reader import open_run
from rig.session.locks import device_lock
from tests.support.processes import MAIN, python
from tests.support.raised import Capture, Patch, raised
from tests.support.undrawn import UNDRAWN

BRIEF = ("--option", "samples=2", "--option", "idle_s=0.01", "--option", "warmup=0")
GOOD = '''"""A board of my own."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rig import blocking
from rig.types import DeviceInfo

if TYPE_CHECKING:
    from rig.types import Device, SimulatedBench


@dataclass
class Board:
    gain: float = 1.0

    def run(self, sample):
        return {"label": sample.label, "gain": self.gain}


def open_board(bench: SimulatedBench | None = None, *, gain: float = 1.0, port: str | None = None) -> Device:
    """Open the board."""
    return blocking(Board(gain).run, DeviceInfo("board", "hardware", details={"port": port}))
'''


@pytest.fixture
def elsewhere(here: Path) -> Path:
    """A directory outside the repository, with the good driver in it."""
    (here / "board.py").write_text(GOOD)
    return here


def measure(device: str, *more: str) -> int:
    words = ("--quiet", "--meter", "none", "--mode", "together", "--out", "run")
    return main(["measure", "--device", device, *words, *BRIEF, *more])


def failed(capsys: Capture, source: str, name: str = "f", *more: str) -> tuple[int, str]:
    """Return the exit code and the one line for a driver file with this source."""
    Path("mine.py").write_text(source)
    code = measure(f"mine.py:{name}", *more)
    (line,) = capsys.readouterr().err.splitlines()
    return code, line


def test_a_device_in_a_file_has_its_parameters_as_options(elsewhere: Path) -> None:
    assert measure("board.py:open_board", "--option", "gain=2.5", "--option", "port=none") == 0

    run = open_run(elsewhere / "run")
    assert len(run.replies) == 2
    assert run.replies["output"][0].as_py().endswith('"gain": 2.5}')
    assert (run.start.device.name, run.start.device.details) == ("board", {"port": None})
    digest = hashlib.sha256(GOOD.encode()).hexdigest()
    assert run.start.environment is not None and run.start.environment.local_code == {"board.py": digest}
    assert digest in (elsewhere / "run" / "derived" / "report.html").read_text()
    (told,) = (check for check in audit(elsewhere / "run").checks if check.number == 27)
    assert (f"board.py ({digest})" in told.found) is (not run.start.environment.dirty)


def test_a_path_outside_the_repository_has_no_digest(elsewhere: Path) -> None:
    (elsewhere / "board.py").rename(elsewhere / "my_board.py")
    assert measure(str(elsewhere / "my_board.py") + ":open_board", "--option", "port=no.py:thing") == 0
    environment = open_run(elsewhere / "run").start.environment
    assert environment is not None and list(environment.local_code) == ["my_board.py"]
    assert "Local code my_board.py (SHA-256)" in (elsewhere / "run" / "derived" / "report.html").read_text()


def test_options_are_listed(elsewhere: Path, capsys: Capture) -> None:
    assert main(["list", "board.py:open_board"]) == 0

    out = capsys.readouterr().out
    assert "Open the board." in out
    assert "gain" in out


def test_a_class_is_a_factory(elsewhere: Path) -> None:
    source = """
from rig.engine.blocking_device import BlockingDevice
from rig.types import DeviceInfo
class Board(BlockingDevice):
    def __init__(self, *, gain: float = 1.0):
        super().__init__(lambda s: {"label": s.label, "gain": gain}, DeviceInfo("board", "hardware"), None)
"""
    Path("mine.py").write_text(source)

    assert measure("mine.py:Board", "--option", "gain=2") == 0
    assert open_run(elsewhere / "run").replies["output"][0].as_py().endswith('"gain": 2.0}')


def test_device_and_meter_of_one_file_share_a_module(elsewhere: Path) -> None:
    source = """
from dataclasses import replace
from fixtures.bench.mock_device import open_device
from fixtures.bench.mock_meter import open_meter
opened = []
def f(bench):
    opened.append("device")
    return open_device(bench)
def m(bench):
    meter = open_meter(bench)
    info = replace(meter.info(), omitted=tuple(opened))
    meter.info = lambda: info
    return meter
"""
    Path("mine.py").write_text(source)

    main(["measure", "--device", "mine.py:f", "--meter", "mine.py:m", "--mode", "together", "--out", "run", *BRIEF])
    assert open_run(elsewhere / "run").start.meters[0].omitted == ["device"]


LACKS = """
from types import SimpleNamespace
from rig import blocking
def f():
    whole = blocking(lambda sample: None)
    return SimpleNamespace(**{{n: getattr(whole, n) for n in {has}}})
"""
FOR_EVER = """
import rig
def f():
    return rig.blocking(lambda s: s.label, rig.DeviceInfo('own', 'hardware', timeout_s={timeout_s}))
"""
PROTOCOL = ("info", "stage", "submit", "poll", "close")


@pytest.mark.parametrize(("source", "more", "says"), [
    ("raise RuntimeError('boom')", (), "mine.py cannot be loaded: RuntimeError: boom. Correct the file"),
    ("import no_such_package", (), "mine.py cannot be loaded: ModuleNotFoundError: No module named"),
    ("open('other.py', 'w').close(); import other", (), "does not see its neighbours: set PYTHONPATH="),
    ("import sys; sys.exit(0)", (), "mine.py cannot be loaded: SystemExit: 0. Correct the file"),
    ("def f(): raise OSError('no such port')", (), "mine.f failed: OSError: no such port. Check its cable"),
    ("def f(bench): return bench.nothing", (), "mine.f failed: AttributeError"),
    ("class f:\n  def info(self): raise OSError('unplugged')", (), "OSError: unplugged"),
    ("import rig\ndef f(): return rig.blocking(str, rig.DeviceInfo('own', 'hardware', phases=None))", (), "a comma"),
    ("import rig\ndef f(): return rig.blocking(str, rig.DeviceInfo('own', 'hardware'))\n"
     "class m:\n  def info(self): return rig.MeterInfo('m', 'hardware', rig.ClockInfo('c', 1e9), 'core')\n",
     ("--meter", "mine.py:m"), "a comma"),
    (LACKS.format(has=PROTOCOL), ("--apart",), "device <lambda> cannot run its phases one at a time"),
    (LACKS.format(has=("info", "submit", "close")), (), "has no stage, poll"),
    *((FOR_EVER.format(timeout_s=text), (), "timeout_s") for text in ("float('inf')", "1e300", "float('nan')", "'2'")),
])  # fmt: skip
def test_a_bad_file_is_refused(elsewhere: Path, capsys: Capture, source: str, more: tuple[str, ...], says: str) -> None:
    code, line = failed(capsys, source, "f", *more)

    assert code == 4
    assert says in line
    assert not Path("run").exists()


def test_a_simulated_device_without_a_plant_uses_host_time(elsewhere: Path) -> None:
    mine = GOOD.replace('"hardware"', '"simulator"').replace("bench: SimulatedBench | None = None, ", "")
    Path("mine.py").write_text(mine)

    assert measure("mine.py:open_board", "--simulate") == 0
    for row in open_run(elsewhere / "run").replies.to_pylist():
        assert row["issued_ns"] <= row["on_tick"] <= row["off_tick"] <= row["completed_ns"]


@pytest.mark.parametrize("error", ["OwnExit('cable')", "Mute()"])
@pytest.mark.parametrize("command", ["measure", "check"])
def test_a_custom_driver_error_fails_the_command(tmp_path: Path, capsys: Capture, command: str, error: str) -> None:
    driver = tmp_path / "driver.py"
    driver.write_text(f"from tests.engine.test_ways_out import Mute, OwnExit\ndef open_device(): raise {error}\n")

    assert main([command, "--device", f"{driver}:open_device", "--meter", "none", "--json"]) in (4, 20)
    assert "rig: " in capsys.readouterr().err


@pytest.mark.parametrize("close", ["sys.stdout.close()", "os.close(1)"])
def test_a_driver_may_close_standard_output(elsewhere: Path, close: str) -> None:
    once = f"import os, sys\nfirst = [0]\ndef once():\n    first and first.pop() == 0 and {close}\n"
    source = GOOD.replace("        return", "        once()\n        return") + once
    (elsewhere / "board.py").write_text(source)
    words = ["measure", "--device", "board.py:open_board", "--meter", "none", "--mode", "together", "--out", "run"]
    done = python(UNDRAWN + MAIN, *words, *BRIEF, "--allow-invalid", env={"MPLBACKEND": "nope"})
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "rig report run" in done.stderr
    assert (elsewhere / "run" / "derived" / "report.html").is_file()


def test_a_report_on_a_full_disk_keeps_the_recording(elsewhere: Path, capsys: Capture, monkeypatch: Patch) -> None:
    def full(path: Path, **_: object) -> None:
        raise not_stored(path / "derived", "cannot be written (No space left on device)")

    monkeypatch.setattr("rig.session.report.report", full)
    assert measure("board.py:open_board") == 7
    assert capsys.readouterr().err.rstrip().endswith("then: rig report run")


# ---- with a simulated meter, a device needs only a function, and the watts that it would use

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
SHORT = ("--option", "samples=8", "--option", "audio_hz=1000", "--option", "idle_s=0.5", "--mode", "together")


@pytest.fixture
def own(here: Path) -> Path:
    (here / "mine.py").write_text(POWERED)
    return here


@pytest.mark.real_time
def test_the_meter_measures_the_stated_watts(own: Path, capsys: Capture) -> None:
    words = ["measure", "--device", "mine.py:open_device", "--meter", "mock", "--quiet", "--json", "--allow-invalid"]
    assert main([*words, *SHORT, "--out", "run"]) == 0
    found = json.loads(capsys.readouterr().out)["results"]["quantities"]

    for name, true in (("idle_power_w", IDLE_W + 1e-3), ("active_power_w", BUSY_W + 1e-3)):
        low, high = from_json(found[name]).interval(0.95)
        assert low <= true <= high, name
    low, high = from_json(found["energy_per_inference_j"]).interval(0.95)
    assert low <= (BUSY_W + 1e-3) * from_json(found["execution_time_s"]).value <= high


@pytest.mark.real_time
@pytest.mark.parametrize("more", [(), ("--simulate",)])
def test_an_error_names_the_way_to_state_watts(own: Path, capsys: Capture, more: tuple[str, ...]) -> None:
    code = main(["measure", "--device", "mine.py:open_plain", "--meter", "mock", *more, "--out", "run"])

    told = capsys.readouterr().err
    assert code in (3, 4)
    assert 'power={"core": (idle_w, busy_w)}' in told
    assert "plant" not in told


@pytest.mark.parametrize(("power", "says"), [
    ({"core": (1e-3, float("nan"))}, "core"), ({"core": (-1e-3, 2e-3)}, "core"), ({"core": 2e-3}, "(idle_w, busy_w)"),
    ({}, "(idle_w, busy_w)"),
])  # fmt: skip
def test_impossible_watts_are_refused_early(power: Any, says: str) -> None:
    raised(UsageError, rig.blocking, lambda sample: None, power=power, says=re.escape(says))


# ---- `rig check` -------------------------------------------------------------------------------


def test_a_conforming_bench_is_reported_part_by_part(capsys: Capture) -> None:
    code = main(("check", "--device", "mock", "--json"))

    rows = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [row["checked"] for row in rows] == ["workload asc", "meter mock", "scenario single-stream", "device mock"]
    assert all(row["kept"] and not row["failed"] for row in rows)


def test_a_driver_that_breaks_a_rule_is_named(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "board.py"
    file.write_text("import rig\n\ndef open_board():\n    return rig.blocking(lambda sample: float('nan'))\n")

    code = main(("check", "--device", f"{file}:open_board", "--meter", "none"))
    said = capsys.readouterr().out

    assert code == ConformanceError.exit_code
    assert "✓ workload asc keeps" in said
    assert "✓ scenario single-stream keeps 1 rule\n" in said
    assert "reply.json: found an output that raises" in said
    assert "required is an output that JSON can hold, no NaN" in said


def test_rules_from_a_table_cover_its_scenarios(elsewhere: Path, capsys: Capture) -> None:
    (elsewhere / "mine.py").write_text("def f(scenario): return {}[scenario]\n")

    assert main(["measure", "--device", "mock", "--rules", "mine.py:f"]) == UsageError.exit_code

    assert "the rules mine.py:f do not cover the scenario 'single-stream'" in capsys.readouterr().err


def test_a_scenario_that_fails_on_the_workload_is_named(capsys: Capture, tmp_path: Path) -> None:
    (file := tmp_path / "mine.py").write_text("import rig\ndef f(): return rig.workload([], name='none')\n")

    main(("check", "--device", "mock", "--workload", f"{file}:f"))

    assert "scenario.steps: found ZeroDivisionError" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["check", "measure"])
def test_a_device_that_another_process_measures_is_not_opened(capsys: Capture, tmp_path: Path, command: str) -> None:
    device = f"{tmp_path / 'board.py'}:open_board"
    (tmp_path / "board.py").write_text("def open_board():\n    raise OSError('reset')\n")
    with device_lock(device):
        assert main((command, "--device", device, "--meter", "none")) == SetupError.exit_code
    assert "in use by process" in capsys.readouterr().err
