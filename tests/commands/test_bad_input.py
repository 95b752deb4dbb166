"""Input that cannot be used ends in one line with the fault and the remedy, never in a traceback."""

from __future__ import annotations

import shlex
import signal
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rig.commands.shell.main import main
from rig.recording.reader import open_run
from tests.support.processes import python
from tests.support.raised import raising

Patch = pytest.MonkeyPatch

USAGE, SETUP, STORE = 3, 4, 7
MOCK = ("measure", "--device", "mock", "--quiet")
Rig = Callable[..., tuple[int, str]]


@pytest.fixture
def rig(capsys: pytest.CaptureFixture[str], here: Path) -> Rig:
    """Runs a command in an empty directory; a failing command prints one line on standard error."""

    def run(*argv: str) -> tuple[int, str]:
        code = main(argv)
        line = capsys.readouterr().err
        assert code == 0 or len(line.splitlines()) == 1
        return code, line.strip()

    return run


@pytest.mark.parametrize("command", ["report", "submit", "audit", "compare", "measure --device mock --out"])
def test_a_name_that_is_not_utf_8_is_refused_before_anything_is_read_or_written(rig: Rig, command: str) -> None:
    """The form in which a Latin-1 ``für`` reaches Python; pyarrow cannot open such a file."""
    says = "rig: the argument 'f\\udcfcr' is not UTF-8. Rename the file or folder that it names"
    assert rig(*command.split(), "f\udcfcr") == (USAGE, says)
    assert not list(Path().iterdir())


def test_a_report_that_cannot_be_written_names_the_directory(rig: Rig) -> None:
    Path("file").write_text("")
    assert rig(*MOCK, "--meter", "none", "--option", "samples=2", "--out", "run") == (0, "")
    code, line = rig("report", "run", "--out", "file")

    assert code == STORE
    assert line.startswith("rig: cannot write file")


def test_recordings_of_ones_own_are_measured(rig: Rig) -> None:
    pytest.importorskip("soundfile")
    pytest.importorskip("soxr")
    Path("data").mkdir()
    Path("data/labels.csv").write_text("filename,label\nclip.wav,bus\n")
    with wave.open("data/clip.wav", "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes((9e3 * np.sin(np.arange(32000) / 9.0)).astype("<i2").tobytes())

    assert rig(*MOCK, "--data", "data", "--option", "idle_s=0.5", "--allow-invalid", "--out", "run")[0] == 0
    assert open_run(Path("run/power")).samples["id"].to_pylist() == ["clip.wav:0", "clip.wav:1"]


@pytest.mark.parametrize(("error", "says"), [
    (OSError(24, "Too many open files", "events.jsonl"), "Too many open files"),
    (MemoryError(), "there is not enough free memory"),
])  # fmt: skip
def test_what_the_system_refuses_is_one_line(rig: Rig, monkeypatch: Patch, error: BaseException, says: str) -> None:
    monkeypatch.setattr("rig.commands.report.run", raising(error))
    code, line = rig("report", "anything")
    assert code == SETUP
    assert says in line


def test_recordings_of_two_workloads_are_not_compared(rig: Rig) -> None:
    for name, more in (("audio", ""), ("chaos", "--workload mackey-glass --meter none")):
        rig(*shlex.split(f"measure --device mock --simulate --quiet --mode accuracy --out {name} {more}"))
    code, line = rig("compare", "audio", "chaos")
    assert code == USAGE
    assert "audio and chaos cannot be compared: workload: asc and mackey-glass" in line


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
