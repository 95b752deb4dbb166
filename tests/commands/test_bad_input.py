"""Input that cannot be used ends in one line with the fault and the remedy, never in a traceback."""

from __future__ import annotations

import sys
import wave
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from drivers.devices.xylo import rockpool_import
from rig.commands.main import main
from rig.recording.reader import open_run

USAGE, SETUP, EXTRA, DATA, STORE = 3, 4, 5, 6, 7
MOCK = ("measure", "--device", "mock", "--quiet")


@dataclass(frozen=True)
class Outcome:
    """The output of a command."""

    code: int
    out: str
    line: str


Rig = Callable[..., Outcome]


@pytest.fixture
def rig(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Runs a command in an empty directory; a failing command prints one line on standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*argv: str) -> Outcome:
        code = main(argv)
        out, err = capsys.readouterr()
        assert code == 0 or len(err.splitlines()) == 1
        return Outcome(code, out, err.strip())

    return run


def option(text: str) -> tuple[str, ...]:
    return (*MOCK, "--option", text)


# ---- names ---------------------------------------------------------------------------------


def test_an_option_that_nobody_takes_is_answered_in_one_line_with_where_to_look(rig: Rig) -> None:
    line = rig(*option("loudness=3")).line

    assert line.endswith("`rig list NAME` shows the options of a device, meter, scenario or workload")
    assert len(line) < 200


def test_an_option_without_its_unit_is_answered_with_the_one_that_has_it(rig: Rig) -> None:
    assert "Did you mean rate_" in rig(*option("rate=3")).line


# ---- values --------------------------------------------------------------------------------


def scenario(name: str, *options: str) -> tuple[str, ...]:
    return (*MOCK, "--scenario", name, *(word for text in options for word in ("--option", text)))


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (option("hit_rate=often"), "option hit_rate is 'often'. Give a number"),
        (option("fail_at=1.5"), "option fail_at is '1.5'. Give a whole number"),
        (option("marks=perhaps"), "option marks is 'perhaps'. Give true or false"),
        (option("noise=nan"), "option noise is 'nan'. Give a finite number"),
        (option("fail=explode"), "option fail is 'explode'. Give one of hang, raise"),
        (option(f"fail_at={'9' * 5000}"), "option fail_at is"),
        (option("idle_s=-1"), "option idle_s is -1.0. Give 0 to 86400"),
        (option("warmup=-1"), "option warmup is -1. Give 0 or more"),
        (option("rate_hz=0"), "option rate_hz is 0.0. Give 0.001 to"),
        (option("audio_hz=0"), "audio_hz 0.0 is not a usable rate"),
        (option("inference_s=0"), "option inference_s is 0.0"),
        ((*MOCK, "--amortise", "0"), "seconds 0.0 is not a positive whole number"),
        ((*MOCK, "--amortise", "nan"), "seconds nan is not a positive whole number"),
        ((*MOCK, "--amortise", "1e6"), "seconds 1000000.0 is more than the data set has"),
        ((*MOCK, "--repeat", "0"), "option repeat is 0. Give 1 to 1e+09"),
        (scenario("server", "arrival_hz=inf"), "option arrival_hz is 'inf'. Give a finite number"),
        (scenario("server", "duration_s=-1"), "option duration_s is -1.0. Give 0 to 2592000"),
        (scenario("server", "duration_s=1e16"), "option duration_s is 1e+16. Give 0 to 2592000"),
        (scenario("real-time", "stream_s=1e300"), "option stream_s is 1e+300. Give 1 to 2592000 s"),
        (option("idle_s=1e16"), "option idle_s is 1e+16. Give 0 to 86400"),
        (scenario("offline", "idle_s=1e16"), "option idle_s is 1e+16. Give 0 to 86400"),
        (scenario("server", "idle_s=1e16"), "option idle_s is 1e+16. Give 0 to 86400"),
        (scenario("real-time", "idle_s=1e16"), "option idle_s is 1e+16. Give 0 to 86400"),
        (("measure", "--quiet", "--device", "cpu-sa", "--scenario", "optimization", "--meter", "none", "--option",
          "idle_s=1e16"),
         "option idle_s is 1e+16. Give 0 to 86400"),
        (scenario("server", "arrival_seed=-1"), "option arrival_seed is '-1'. Give a whole number of 0 or more"),
        (scenario("offline", "warmup=-1"), "option warmup is -1. Give 0 or more"),
        (scenario("real-time", "stream_s=0.9"), "option stream_s is 0.9. Give 1 to 2592000 s"),
        (scenario("real-time", "stride_s=0"), "option stride_s is 0.0. Give a number above zero"),
        (scenario("real-time", "window_s=0"), "option window_s is 0.0. Give a number above zero"),
        (scenario("real-time", "scene_s=-1"), "option scene_s is -1.0. Give a number above zero"),
        (scenario("real-time", "deadline_s=0"), "option deadline_s is 0.0. Give a number above zero"),
        (scenario("real-time", "queue=0"), "option queue is 0. Give 1 or more"),
        (scenario("real-time", "stride_s=1e-9"), "stride_s 1e-09 is less than one sample of audio"),
        (scenario("real-time", "workload.samples=1"), "workload 1 scenes are too few to change"),
        ((*MOCK, "--trials", "-3"), "-3 trials. Give 1 or more"),
        ((*MOCK, "--mode", "together", "--trials", "3"), "trials is for a session, not for mode together"),
        ((*MOCK, "--mode", "power", "--compliance"), "compliance is for a session, not for mode power"),
        ((*MOCK, "--mode", "performance", "--find-peak"), "find_peak is for a session, not for mode performance"),
        ((*MOCK, "--speed", "-1"), "option speed is -1.0. Give 0 to 1000000"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_names_itself_and_what_to_give_before_anything_is_recorded(
    rig: Rig, argv: tuple[str, ...], says: str
) -> None:
    ended = rig(*argv, "--out", "run")

    assert ended.code == USAGE
    assert ended.line.startswith(f"rig: {says}")
    assert not Path("run").exists()


@pytest.mark.parametrize("command", ["report", "submit", "audit", "compare", "measure --device mock --out"])
def test_a_name_that_is_not_utf_8_is_refused_before_anything_is_read_or_written(rig: Rig, command: str) -> None:
    """The form in which a Latin-1 ``für`` reaches Python; pyarrow cannot open such a file."""
    ended = rig(*command.split(), "f\udcfcr")

    assert ended.code == USAGE
    assert ended.line == "rig: the argument 'f\\udcfcr' is not UTF-8. Rename the file or folder that it names"
    assert not list(Path().iterdir())


# ---- what is not there ---------------------------------------------------------------------


def test_xylo_without_a_board_names_the_simulator(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rockpool_import, "attached_boards", lambda: ())
    ended = rig("measure", "--device", "xylo")

    assert ended.code == SETUP
    assert "no Xylo board found" in ended.line
    assert "--simulate" in ended.line


def test_a_vendor_stack_that_is_missing_names_its_extra(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rockpool", None)
    ended = rig("measure", "--device", "xylo", "--simulate")

    assert ended.code == EXTRA
    assert "rockpool" in ended.line
    assert "pip install 'neurorig[xylo]'" in ended.line


def test_a_meter_that_belongs_to_another_device_says_which_to_use(rig: Rig) -> None:
    ended = rig(*MOCK, "--meter", "xylo-monitor")

    assert ended.code == SETUP
    assert "choose another meter" in ended.line


# ---- directories ---------------------------------------------------------------------------


def test_a_recording_is_never_written_over_another(rig: Rig) -> None:
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    ended = rig(*MOCK, "--out", "full")

    assert (ended.code, Path("full/notes.txt").read_text()) == (STORE, "mine")
    assert ended.line == "rig: full is not empty. Name a new directory with --out"


def test_a_directory_that_cannot_be_made_is_named(rig: Rig) -> None:
    Path("file").write_text("")
    ended = rig(*MOCK, "--out", "file/run")

    assert ended.code == STORE
    assert "file/run" in ended.line


@pytest.mark.parametrize("what", ["missing", "empty", "file", "noise", "list"])
def test_a_report_on_something_that_is_no_run_says_so(rig: Rig, what: str) -> None:
    Path("empty").mkdir()
    Path("file").write_text("")
    for name, content in (("noise", b"\xff\x00\n"), ("list", b"[]\n")):
        Path(name).mkdir()
        Path(name, "events.jsonl").write_bytes(content)
    ended = rig("report", what)

    assert 7 <= ended.code <= 8
    assert ended.line.startswith(f"rig: {what} ")


def test_a_report_that_cannot_be_written_names_the_directory(rig: Rig) -> None:
    Path("file").write_text("")
    assert rig(*MOCK, "--meter", "none", "--option", "samples=2", "--out", "run").code == 0
    ended = rig("report", "run", "--out", "file")

    assert ended.code == STORE
    assert ended.line.startswith("rig: cannot write file")


# ---- data ----------------------------------------------------------------------------------


def test_recordings_of_ones_own_are_measured(rig: Rig) -> None:
    pytest.importorskip("soundfile")
    pytest.importorskip("soxr")
    Path("data").mkdir()
    Path("data/labels.csv").write_text("filename,label\nclip.wav,bus\n")
    with wave.open("data/clip.wav", "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes((9e3 * np.sin(np.arange(32000) / 9.0)).astype("<i2").tobytes())

    assert rig(*MOCK, "--data", "data", "--option", "idle_s=0.5", "--allow-invalid", "--out", "run").code == 0
    assert open_run(Path("run/power")).samples["id"].to_pylist() == ["clip.wav:0", "clip.wav:1"]


# ---- the system ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(24, "Too many open files", "events.jsonl"), "Too many open files"),
        (MemoryError(), "there is not enough free memory"),
    ],
)
def test_what_the_system_refuses_is_one_line(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, error: BaseException, says: str
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr("rig.commands.report.run", refuse)
    found = rig("report", "anything")
    assert found.code == SETUP
    assert says in found.line
