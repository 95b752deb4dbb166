"""Input that cannot be used ends in one line that says what was wrong and what to do, never in a traceback."""

from __future__ import annotations

import json
import struct
import sys
import wave
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from drivers.devices.xylo import rockpool_import
from rig.commands.main import main
from rig.plugins import names
from rig.recording.reader import open_run

USAGE, SETUP, EXTRA, DATA, STORE = 3, 4, 5, 6, 7
MOCK = ("measure", "--device", "mock", "--quiet")
RATE_HZ = 16000


@dataclass(frozen=True)
class Outcome:
    """What a command said."""

    code: int
    out: str
    line: str


Rig = Callable[..., Outcome]


@pytest.fixture
def rig(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Runs a command in an empty directory; a command that fails says one line on standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*argv: str) -> Outcome:
        code = main(argv)
        out, err = capsys.readouterr()
        assert code == 0 or len(err.splitlines()) == 1
        return Outcome(code, out, err.strip())

    return run


def known(group: str) -> str:
    return ", ".join(sorted(names(group)))


def option(text: str) -> tuple[str, ...]:
    return (*MOCK, "--option", text)


# ---- names ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (
            ("measure", "--device", "xilo"),
            "unknown device 'xilo'. Did you mean xylo? `rig list` shows every name. There is no bench file here",
        ),
        (
            (*MOCK, "--meter", "mok"),
            "unknown meter 'mok'. Did you mean mock? `rig list` shows every name. There is no bench file here",
        ),
        (
            (*MOCK, "--scenario", "double"),
            f"unknown scenario 'double'. Known: ./file.py:function, {known('scenarios')}",
        ),
        ((*MOCK, "--workload", "csa"), "unknown workload 'csa'. `rig list` shows every name"),
        (option("sampels=3"), "unknown option 'sampels'. Did you mean samples or "),
        (
            option("device.samples=3"),
            "unknown option 'device.samples'. It is an option of the workload: write workload.samples",
        ),
        (
            option("meter.samples=3"),
            "unknown option 'meter.samples'. It is an option of the workload: write workload.samples",
        ),
        (("list", "mok"), "unknown name 'mok'. Did you mean mock? `rig list` shows every name"),
    ],
)
def test_an_unknown_name_is_answered_with_the_known_ones(rig: Rig, argv: tuple[str, ...], says: str) -> None:
    ended = rig(*argv)

    assert ended.code == USAGE
    assert ended.line.startswith(f"rig: {says}")


def test_an_option_that_nobody_takes_is_answered_in_one_line_with_where_to_look(rig: Rig) -> None:
    line = rig(*option("loudness=3")).line

    assert line.endswith("`rig list NAME` shows the options of a device, meter, scenario or workload")
    assert len(line) < 200


def test_an_option_without_its_unit_is_answered_with_the_one_that_has_it(rig: Rig) -> None:
    assert "Did you mean rate_" in rig(*option("rate=3")).line


def test_with_json_the_error_is_one_object_with_the_code(rig: Rig) -> None:
    ended = rig(*MOCK, "--json", "--meter", "mok")
    said = json.loads(ended.out)

    assert (said["error"], said["field"], said["value"]) == ("UnknownNameError", "meter", "mok")
    assert said["exit_code"] == ended.code == USAGE


# ---- values --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (option("hit_rate=often"), "option hit_rate is 'often'. Give a number"),
        (option("fail_at=1.5"), "option fail_at is '1.5'. Give a whole number"),
        (option("marks=perhaps"), "option marks is 'perhaps'. Give true or false"),
        (option("noise=nan"), "option noise is 'nan'. Give a finite number"),
        (option("fail=explode"), "option fail is 'explode'. Give one of hang, raise"),
        (option(f"fail_at={'9' * 5000}"), "option fail_at is"),
        (option("idle_s"), "option 'idle_s' is not key=value"),
        (option("idle_s=-1"), "option idle_s is -1.0. Give 0 to 86400"),
        (option("warmup=-1"), "option warmup is -1. Give 0 or more"),
        (option("rate_hz=0"), "option rate_hz is 0.0. Give 0.001 to"),
        (option("audio_hz=0"), "audio_hz 0.0 is not a usable rate"),
        (option("samples=0"), "samples 0 is not positive"),
        (option("inference_s=0"), "option inference_s is 0.0"),
        ((*MOCK, "--amortise", "0"), "seconds 0.0 is not a positive whole number"),
        ((*MOCK, "--amortise", "nan"), "seconds nan is not a positive whole number"),
        ((*MOCK, "--amortise", "-1"), "seconds -1.0 is not a positive whole number"),
        ((*MOCK, "--amortise", "1e6"), "seconds 1000000.0 is more than the data set has"),
        ((*MOCK, "--repeat", "0"), "option repeat is 0. Give 1 to 1e+09"),
    ],
)
def test_a_value_that_cannot_be_meant_names_itself_and_what_to_give(rig: Rig, argv: tuple[str, ...], says: str) -> None:
    ended = rig(*argv, "--out", "run")

    assert ended.code == USAGE
    assert ended.line.startswith(f"rig: {says}")
    assert not Path("run").exists()


def scenario(name: str, *options: str, rules: str = "quick") -> tuple[str, ...]:
    return (*MOCK, "--scenario", name, "--rules", rules, *(word for text in options for word in ("--option", text)))


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (scenario("server", "arrival_hz=0"), "option arrival_hz is 0.0. Give a number above zero"),
        (scenario("server", "arrival_hz=-1"), "option arrival_hz is -1.0. Give a number above zero"),
        (scenario("server", "arrival_hz=nan"), "option arrival_hz is 'nan'. Give a finite number"),
        (scenario("server", "arrival_hz=inf"), "option arrival_hz is 'inf'. Give a finite number"),
        (scenario("server", "latency_bound_s=0"), "option latency_bound_s is 0.0. Give a number above zero"),
        (scenario("server", "duration_s=-1"), "option duration_s is -1.0. Give 0 to 2592000"),
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
        (scenario("server", rules="mlperf-7"), "unknown rule 'mlperf-7'. Did you mean mlperf-6? "),
        (scenario("real-time", rules="mlperf-6"), "the rules mlperf-6 do not cover the scenario 'real-time'. "),
        ((*MOCK, "--trials", "0"), "0 trials. Give 1 or more"),
        ((*MOCK, "--trials", "-3"), "-3 trials. Give 1 or more"),
        ((*MOCK, "--mode", "bogus"), "mode 'bogus' is unknown. Known: session, together, performance, accuracy, power"),
        ((*MOCK, "--mode", "together", "--trials", "3"), "trials is for a session, not for mode together"),
        ((*MOCK, "--mode", "power", "--compliance"), "compliance is for a session, not for mode power"),
        ((*MOCK, "--mode", "performance", "--find-peak"), "find_peak is for a session, not for mode performance"),
        ((*MOCK, "--find-peak"), "this scenario has no rate to search. Use --scenario server"),
        ((*MOCK, "--speed", "-1"), "option speed is -1.0. Give 0 to 1000000"),
    ],
)  # fmt: skip
def test_a_scenario_or_a_session_that_cannot_be_meant_is_refused_before_anything_is_recorded(
    rig: Rig, argv: tuple[str, ...], says: str
) -> None:
    ended = rig(*argv, "--out", "run")

    assert ended.code == USAGE
    assert ended.line.startswith(f"rig: {says}")
    assert not Path("run").exists()


@pytest.mark.parametrize("command", ["report", "submit", "audit", "compare", "measure --device mock --out"])
def test_a_name_that_is_not_utf_8_is_refused_before_anything_is_read_or_written(rig: Rig, command: str) -> None:
    """As a Latin-1 ``für`` reaches Python; pyarrow opens no such file."""
    ended = rig(*command.split(), "f\udcfcr")

    assert ended.code == USAGE
    assert ended.line == "rig: the argument 'f\\udcfcr' is not UTF-8. Rename the file or folder that it names"
    assert not list(Path().iterdir())


@pytest.mark.parametrize("argv", [("--amortise", "long"), ("--repeat", "2.5"), ("--nope",)])
def test_arguments_that_do_not_parse_leave_by_argparse(rig: Rig, argv: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as left:
        rig(*MOCK, *argv)

    assert left.value.code == 2


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


def test_a_decoder_that_is_missing_names_its_extra(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    ended = rig(*MOCK, "--data", str(recordings(tmp_path / "data", np.zeros(RATE_HZ))))

    assert ended.code == EXTRA
    assert "pip install 'neurorig[audio]'" in ended.line


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


def recordings(root: Path, audio: np.ndarray, kind: str = "int16") -> Path:
    """A folder of one labelled wav; ``audio`` has shape (n,), full scale 1."""
    root.mkdir()
    (root / "labels.csv").write_text("filename,label\nclip.wav,bus\n")
    if kind == "int16":
        with wave.open(str(root / "clip.wav"), "wb") as file:
            file.setparams((1, 2, RATE_HZ, len(audio), "NONE", ""))
            file.writeframes((audio * 32767).astype("<i2").tobytes())
    else:
        data = audio.astype("<f4").tobytes()
        form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 3, 1, RATE_HZ, 4 * RATE_HZ, 4, 32)
        body = b"WAVE" + form + struct.pack("<4sI", b"data", len(data)) + data
        (root / "clip.wav").write_bytes(struct.pack("<4sI", b"RIFF", len(body)) + body)
    return root


def tone() -> np.ndarray:
    return 0.3 * np.sin(np.arange(2 * RATE_HZ) / 9.0)


def truncated(root: Path) -> Path:
    clip = recordings(root, tone()) / "clip.wav"
    clip.write_bytes(clip.read_bytes()[:-RATE_HZ])
    return root


def missing_clip(root: Path) -> Path:
    (recordings(root, tone()) / "clip.wav").unlink()
    return root


def no_labels(root: Path) -> Path:
    (recordings(root, tone()) / "labels.csv").unlink()
    return root


def not_audio(root: Path) -> Path:
    (recordings(root, tone()) / "clip.wav").write_bytes(b"not a wav")
    return root


BAD_DATA: dict[str, Callable[[Path], Path]] = {
    "is not a folder": lambda root: root,
    "holds neither meta.csv nor labels.csv": no_labels,
    "1 of 1 listed audio files are missing": missing_clip,
    "is truncated": truncated,
    "cannot be read": not_audio,
    "is too short": lambda root: recordings(root, tone()[:100]),
    "has NaN or infinity": lambda root: recordings(root, np.append(tone(), np.nan), "float32"),
    "is clipped": lambda root: recordings(root, np.clip(9.0 * tone(), -1.0, 1.0)),
}


@pytest.mark.parametrize("says", BAD_DATA)
def test_data_that_cannot_be_used_are_refused_before_the_run(rig: Rig, tmp_path: Path, says: str) -> None:
    pytest.importorskip("soundfile")
    pytest.importorskip("soxr")
    ended = rig(*MOCK, "--data", str(BAD_DATA[says](tmp_path / "data")), "--out", "run")

    assert ended.code == DATA
    assert says in ended.line
    assert not Path("run").exists()


def test_good_data_of_the_same_kind_are_measured(rig: Rig, tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    pytest.importorskip("soxr")
    data = str(recordings(tmp_path / "data", tone()))

    assert rig(*MOCK, "--data", data, "--option", "idle_s=0.5", "--allow-invalid", "--out", "run").code == 0
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
