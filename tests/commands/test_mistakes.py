"""Mistakes at the command line are reported in one line, and none is silently accepted."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path

import pytest

from rig.commands.shell.main import main
from tests.support.processes import python

Capture = pytest.CaptureFixture[str]


def told(line: str, capsys: Capture) -> tuple[int, str, str]:
    """Return the exit code of a command line, and its output on the two streams."""
    return main(shlex.split(line)), *capsys.readouterr()


def test_a_device_that_answers_no_solution_of_a_problem_is_not_valid(here: Path, capsys: Capture) -> None:
    pytest.importorskip("dimod")
    (here / "p.txt").write_text("0 0 -1\n0 1 2\n1 1 -1\n")
    _, out, _ = told("measure --device mock --workload qubo --data p.txt --option scenario.timeout_s=0.1", capsys)
    assert "INVALID" in out
    assert "solutions that could be checked" in out
    assert "as a device of rig.solver does" in " ".join(out.split())


def test_recordings_of_two_workloads_are_not_compared(here: Path, capsys: Capture) -> None:
    for name, more in (("audio", ""), ("chaos", "--workload mackey-glass --meter none")):
        main(shlex.split(f"measure --device mock --simulate --quiet --mode accuracy --out {name} {more}"))
    code, _, err = told("compare audio chaos", capsys)
    assert code == 3
    assert "audio and chaos cannot be compared: workload: asc and mackey-glass" in err


IMPORTS = """
import sys; from rig.commands.start import main
class Finder:
    def find_spec(self, name, *_):
        if name == 'rig.commands.shell.main': raise KeyboardInterrupt
sys.meta_path.insert(0, Finder()); sys.exit(main())
"""
CALLBACK = """
import sys, time; from rig.engine.interrupts import again
class Falls:
    def __del__(self): raise KeyboardInterrupt
sys.unraisablehook = again
try:
    Falls()
    for _ in range(900): time.sleep(0.01)
except KeyboardInterrupt: sys.exit(130)
"""
CHILD = """
import os, signal, sys, time; from rig.supervision import supervised
parent = os.getpid()
def work():
    try:
        os.kill(parent, signal.SIGINT); time.sleep(9)
    except KeyboardInterrupt: os._exit(130)
sys.exit(supervised(work, None, parent=True))
"""
"""The second signal of a terminal may come at any point; a child that it ends is no fault of a driver."""
no_parent = pytest.mark.skipif(not hasattr(signal, "sigtimedwait"), reason="there is no parent here")


@pytest.mark.parametrize(("code", "says"), [
    (IMPORTS, "rig: interrupted\n"), (CALLBACK, ""), pytest.param(CHILD, "", marks=no_parent),
], ids=["of the imports", "in a callback", "of a child"])  # fmt: skip
def test_an_interruption_anywhere_is_one_line_at_most(code: str, says: str) -> None:
    done = python(code)
    assert (done.returncode, done.stderr) == (130, says)
