"""Mistakes at the command line are reported in one line, and none is silently accepted."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rig.commands.shell.main import main


def told(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Return the exit code of a command line, and its output on the two streams."""
    return main(shlex.split(line)), *capsys.readouterr()


def test_a_device_that_answers_no_solution_of_a_problem_is_not_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("dimod")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.txt").write_text("0 0 -1\n0 1 2\n1 1 -1\n")
    _, out, _ = told("measure --device mock --workload qubo --data p.txt --option scenario.timeout_s=0.1", capsys)
    assert "INVALID" in out
    assert "solutions that could be checked" in out
    assert "as a device of rig.solver does" in " ".join(out.split())


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
        "        if name == 'rig.commands.shell.main': raise KeyboardInterrupt\n"
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
        "    Falls()\n"
        "    for _ in range(900): time.sleep(0.01)\n"
        "except KeyboardInterrupt: sys.exit(130)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "")


@pytest.mark.skipif(not hasattr(signal, "sigtimedwait"), reason="there is no parent here")
def test_a_child_that_ends_of_an_interruption_is_no_fault_of_a_driver() -> None:
    """The second signal of a terminal may come at any point."""
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
