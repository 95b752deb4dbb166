"""A driver keeps its own output; its effects on the process are noticed and reported in one line."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rig.child_process import HAS_PARENT
from rig.errors import DeviceError, DriverLeftError, MeterError, SetupError
from rig.recording.reader import open_run
from tests.support.hostile.drivers import VERDICT
from tests.support.paths import ROOT
from tests.support.processes import MAIN, begun, python
from tests.support.undrawn import UNDRAWN
from tests.support.waiting import until

DRIVERS = ROOT / "tests" / "support" / "hostile" / "drivers.py"
BRIEF = ("--meter", "none", "--mode", "together", "--option", "samples=4", "--option", "idle_s=0.01", "--quiet")
needs_a_parent = pytest.mark.skipif(not HAS_PARENT, reason="this system has no parent for a measurement")


def measured(path: Path, device: str, *words: str, umask: int = -1) -> subprocess.CompletedProcess[str]:
    given = ("measure", "--out", path, "--json", "--device", device, *(words or BRIEF))
    return python(UNDRAWN + MAIN, *given, umask=umask, timeout=100)


def test_what_a_driver_prints_stays_out_of_the_document(tmp_path: Path) -> None:
    ended = measured(tmp_path / "run", f"{DRIVERS}:prints")

    assert json.loads(ended.stdout)["run"] == str(tmp_path / "run")
    assert VERDICT not in ended.stdout
    said = (tmp_path / "run.log").read_text().splitlines()
    assert said[0] == "a file that is loaded prints"
    assert said.count(VERDICT) == said.count("by the descriptor") == 4 + 1
    assert said[-1] == "at the end"
    assert [line.removeprefix("driver: ") for line in ended.stderr.splitlines()] == said
    assert open_run(tmp_path / "run").error is None


def test_a_silent_driver_leaves_no_log(tmp_path: Path) -> None:
    assert measured(tmp_path / "run", "mock", *BRIEF[2:], "--allow-invalid").returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@needs_a_parent
@pytest.mark.parametrize(("how", "says", "mode", "then"), [
    ("leaves", "with exit code 0", "together", "rig report"),
    ("crashes", "by the signal SIGSEGV", "session", "rig measure --resume"),
])  # fmt: skip
def test_a_driver_that_exits_has_an_exit_code(tmp_path: Path, how: str, says: str, mode: str, then: str) -> None:
    ended = measured(tmp_path / "run", f"{DRIVERS}:{how}", *BRIEF[:3], mode, *BRIEF[4:])

    assert ended.returncode == json.loads(ended.stdout)["exit_code"] == DriverLeftError.exit_code
    *_, last = ended.stderr.splitlines()
    assert last.startswith(f"rig: the process ended {says}, and the rig did not end it")
    assert last.endswith(f"{then} {tmp_path / 'run'}")
    assert open_run(tmp_path / "run" / ("accuracy" if mode == "session" else "")).stop is None


@needs_a_parent
def test_an_error_of_the_rig_is_not_blamed_on_drivers(tmp_path: Path) -> None:
    broken = "import rig.session.measure as m; m.measure = lambda *a, **k: 1 / 0; "
    ended = python(broken + MAIN, "measure", "--device", "mock", "--out", tmp_path / "run")

    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize("how", ["lowers_the_depth_of_calls", "takes_the_hooks_away"])
def test_a_driver_that_changes_the_interpreter_is_contained(tmp_path: Path, how: str) -> None:
    ended = measured(tmp_path / "run", f"{DRIVERS}:{how}", *BRIEF, "--allow-invalid")

    assert "Traceback" not in ended.stderr
    assert ended.returncode in (0, SetupError.exit_code, DeviceError.exit_code)
    assert json.loads(ended.stdout).get("exit_code", 0) == ended.returncode


def test_malformed_readings_are_refused_before_display(tmp_path: Path) -> None:
    ended = measured(tmp_path / "run", "mock", "--meter", f"{DRIVERS}:flat_meter", *BRIEF[2:])

    assert ended.returncode == MeterError.exit_code
    assert "not a column of numbers" in json.loads(ended.stdout)["message"]
    assert "Traceback" not in ended.stderr


@needs_a_parent
def test_a_measurement_dies_with_its_parent(tmp_path: Path) -> None:
    many = ("--option", "workload.samples=5000", "--speed", "1")
    words = ("--device", "mock", *BRIEF[2:4], *many)
    running = begun(UNDRAWN + MAIN, "measure", "--out", tmp_path / "run", "--json", *words)
    until((tmp_path / "run" / "events.jsonl").exists)
    running.send_signal(signal.SIGKILL)
    out, err = running.communicate(timeout=60.0)  # it ends when no process holds its streams
    assert running.returncode == -signal.SIGKILL
    assert out == ""
    assert "Traceback" not in err


# ---- modes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("umask", "files", "folders"), [(0o077, 0o600, 0o700), (0o000, 0o644, 0o755)])
def test_file_modes_follow_the_umask(tmp_path: Path, umask: int, files: int, folders: int) -> None:
    out = tmp_path / "of" / "mine" / "session"
    ended = measured(out, f"{DRIVERS}:prints", *BRIEF, "--allow-invalid", umask=umask)

    assert ended.returncode == 0, ended.stderr
    found = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "of").rglob("*")}
    assert {mode for path, mode in found.items() if path.is_file()} == {files}
    assert {mode for path, mode in found.items() if path.is_dir()} == {folders}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of address space are as on Linux")
@pytest.mark.parametrize("kilobytes", [60_000, 150_000])
def test_a_lack_of_memory_is_reported_in_one_line(tmp_path: Path, kilobytes: int) -> None:
    command = f'ulimit -v {kilobytes}; exec "$0" -c "$1" measure --device mock --out run'
    ended = subprocess.run(
        ["sh", "-c", command, sys.executable, MAIN], capture_output=True, text=True, check=False, timeout=60,
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ended.returncode == SetupError.exit_code
    assert len(ended.stderr.splitlines()) == 1
