"""Input that cannot be used ends in one line with the fault and the remedy, never in a traceback."""

from __future__ import annotations

import sys
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from drivers.devices.xylo import rockpool_import
from rig.commands.shell.main import main
from rig.recording.reader import open_run

Patch = pytest.MonkeyPatch

USAGE, SETUP, EXTRA, STORE = 3, 4, 5, 7
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


def test_xylo_without_a_board_names_the_simulator(rig: Rig, monkeypatch: Patch) -> None:
    monkeypatch.setattr(rockpool_import, "attached_boards", lambda: ())
    code, line = rig("measure", "--device", "xylo")

    assert code == SETUP
    assert "no Xylo board found" in line
    assert "--simulate" in line


def test_a_vendor_stack_that_is_missing_names_its_extra(rig: Rig, monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "rockpool", None)
    code, line = rig("measure", "--device", "xylo", "--simulate")

    assert code == EXTRA
    assert "rockpool" in line
    assert "pip install 'neurorig[xylo]'" in line


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
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr("rig.commands.report.run", refuse)
    code, line = rig("report", "anything")
    assert code == SETUP
    assert says in line
