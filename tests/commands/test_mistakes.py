"""Mistakes at the command line are told in one line, and none is taken in silence."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rig.commands.main import main

MOCK = "measure --device mock --simulate --quiet --option samples=5"


def told(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """The exit code of a command line, and what it prints on its two streams."""
    try:
        code = main(shlex.split(line))
    except SystemExit as left:
        code = int(str(left.code))
    return code, *capsys.readouterr()


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("--json report runs/good", 2, "--json stands before the command"),
        ("--verbose report runs/good", 2, "Write it after: rig COMMAND --verbose"),
        (f"{MOCK} --out .", 7, ". is not empty"),
        (f"{MOCK} --out /", 7, "/ is not empty"),
        (f"{MOCK} --device xylo", 2, "--device is given twice"),
        (f"{MOCK} --scenario server --scenario offline", 2, "--scenario is given twice"),
        (f"{MOCK} --meter scpi-dmm", 3, "Add --option supply_v=VOLTS"),
        ("report ok.txt", 7, "ok.txt is a file"),
        ("frobnicate", 2, "unknown COMMAND 'frobnicate'. `rig --help` shows"),
        ("measure --device numpy-esn", 4, "Name one with --meter (`rig list` shows them), or --meter none"),
        (
            "measure --device numpy-esn --workload mackey-glass --data f",
            3,
            "mackey-glass takes no --data. Leave it out",
        ),
        ("measure --resume newer", 7, "install the newest one"),
        (f"{MOCK} --option inference_w=-0.003", 3, "option inference_w is -0.003. Give 0 W or more"),
        (f"{MOCK} --option hit_rate=95", 3, "option hit_rate is 95.0. Give 0 to 1"),
        (f"{MOCK} --option inference_s=1e300", 3, "option inference_s is 1e+300. Give 0 to 1000000 s"),
    ],
)
def test_a_mistake_is_told(
    line: str, code: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ok.txt").write_text("0 0 -1\n0 1 2\n")
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer/session.json").write_text('{"schema": "neurorig-session/9"}')
    monkeypatch.chdir(tmp_path)
    ended, _, err = told(line, capsys)
    assert says in err
    assert ended == code


@pytest.mark.parametrize("line", ["measure --json --devise mock", f"{MOCK} --json --trials three", "frobnicate --json"])
def test_a_command_line_that_is_wrong_is_a_json_error(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = told(line, capsys)
    assert code == json.loads(out)["exit_code"] == 2


def test_recordings_of_two_workloads_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, more in (("audio", ""), ("chaos", "--workload mackey-glass --meter none")):
        main(shlex.split(f"measure --device mock --simulate --quiet --mode accuracy --out {name} {more}"))
    code, _, err = told("compare audio chaos", capsys)
    assert code == 3
    assert "audio and chaos cannot be compared: workload: asc and mackey-glass" in err


def test_an_interruption_of_the_imports_is_one_line() -> None:
    code = (
        "import signal, sys; from rig.commands.start import main\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'rig.commands.main': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder()); sys.exit(main())"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "rig: interrupted\n")


def test_an_interruption_that_falls_into_a_callback_comes_again() -> None:
    code = (
        "import sys, time; from rig.engine.interrupts import again\n"
        "class Falls:\n"
        "    def __del__(self): raise KeyboardInterrupt\n"
        "sys.unraisablehook = again\n"
        "try:\n"
        "    Falls(); time.sleep(9)\n"
        "except KeyboardInterrupt: sys.exit(130)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "")


@pytest.mark.skipif(not hasattr(signal, "sigtimedwait"), reason="there is no parent here")
def test_a_child_that_ends_of_an_interruption_is_no_fault_of_a_driver() -> None:
    """The second signal of a terminal may find it anywhere."""
    code = (
        "import os, signal, sys, time; from rig.supervision import supervised\n"
        "parent = os.getpid()\n"
        "def work():\n"
        "    try:\n"
        "        os.kill(parent, signal.SIGINT); time.sleep(9)\n"
        "    except KeyboardInterrupt: os._exit(130)\n"
        "sys.exit(supervised(work, None, parent=True))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30)
    assert (ended.returncode, ended.stderr) == (130, "")
