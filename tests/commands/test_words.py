"""What a user reads before a first measurement, and after a wrong one: help, lists, completion, suggestions.

Input that cannot be used ends in one line with the fault and the remedy, never in a traceback. Text of others is
printed without control characters, and a command ends well at a closed or full stream, and at a signal.
"""

import io
import json
import os
import shlex
import signal
import sys
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pytest

from reports.sweeps.table import print_sweep
from rig.analysis.result.quantity import FigureKey
from rig.commands.shell.main import main, parser
from rig.engine.record import record
from rig.errors import Ended, Interrupted, MeterError
from rig.recording.reader import open_run
from rig.terminal import MOST, aside, clean, say, usable_streams
from tests.support.processes import MAIN, options, python
from tests.support.raised import Capture, Patch, raised, raising
from tests.support.submission_folder import unpacked


@pytest.fixture(params=[60, 80, 120])
def columns(request: pytest.FixtureRequest, monkeypatch: Patch) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    return int(request.param)


def shown(capsys: Capture, *words: str) -> str:
    assert raised(SystemExit, main, words).code == 0
    return capsys.readouterr().out


def test_rare_options_of_measure_are_shown_on_demand(capsys: Capture) -> None:
    common, whole = shown(capsys, "measure", "--help"), shown(capsys, "measure", "--help-all")
    assert "--device" in common and "--help-all" in common and "--amortise" not in common
    assert "--amortise" in whole and "measure power and execution time on sequences" in whole
    assert len(common.splitlines()) < 0.7 * len(whole.splitlines())


def test_rules_list_a_limit_of_zero(capsys: Capture) -> None:
    assert main(["list", "mlperf-6"]) == 0
    assert "warmup            0 " in capsys.readouterr().out


def test_a_list_fits_the_terminal_width(capsys: Capture, columns: int, monkeypatch: Patch) -> None:
    assert main(["list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= columns
    words = " ".join(said.split())
    assert all(" ".join(row["description"].replace("``", "`").split()) in words for row in rows)
    assert "✓ mock" in words
    monkeypatch.setattr("rig.commands.list.describe", lambda: [rows[0] | {"installed": False, "extra": "serial"}])
    assert main(["list"]) == 0
    assert "- arduino pip install 'neurorig[serial]'" in " ".join(capsys.readouterr().out.split())


def test_measure_alone_lists_resumable_sessions_and_devices(here: Path, capsys: Capture) -> None:
    for age_s, name in enumerate(("new one", "old")):
        (here / "runs" / name).mkdir(parents=True)
        for file in ("session.json", "request.json"):
            (here / "runs" / name / file).write_text("{}")
            os.utime(here / "runs" / name / file, (1e9 - age_s, 1e9 - age_s))
    assert raised(SystemExit, main, ["measure"]).code == 2
    first, second, *devices, said = capsys.readouterr().err.splitlines()
    assert first.startswith("rig measure --resume 'runs/new one'")
    assert second.startswith("rig measure --resume runs/old")
    assert "mock" in " ".join(devices) and "--device" in said


def unplugged() -> None:
    raise MeterError("the meter is gone")


@pytest.mark.parametrize(("ends", "error"), [
    (lambda: signal.raise_signal(signal.SIGINT), Interrupted),
    (unplugged, MeterError),
], ids=["interrupted", "unplugged"])  # fmt: skip
def test_a_session_ended_early_names_its_commands(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture, ends: Callable[[], object], error: type[Ended]
) -> None:
    def ended(path: Path, *given: Any, **more: Any) -> Any:
        if path.name == "power":
            ends()
        return record(path, *given, **more)

    out = tmp_path / "a run"
    words = ["--option", "samples=4", "--option", "audio_hz=1000", "--quiet"]
    with monkeypatch.context() as patched:
        patched.setattr("rig.session.measure.record", ended)
        assert main(["measure", "--device", "mock", "--out", str(out), *words]) == error.exit_code
    *_, told = capsys.readouterr().err.partition("Go on with: ")
    command, _, shows = told.partition(". What is recorded: ")
    assert shlex.split(command) == ["rig", "measure", "--resume", str(out)]
    if shows:
        assert shlex.split(shows) == ["rig", "report", str(out)]
        assert main([*shlex.split(shows)[1:], "--allow-invalid"]) == 0
    assert bool(shows) is (error is Interrupted)
    assert main([*shlex.split(command)[1:], "--quiet", "--allow-invalid"]) == 0


def completed(line: str, folder: Path) -> set[str]:
    """Return what completion offers a shell for a command line."""
    env = {
        "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": line, "COMP_POINT": str(len(line)),
        "_ARGCOMPLETE_STDOUT_FILENAME": str(folder / "out"),
    }  # fmt: skip
    python(MAIN, env=env, cwd=folder)
    return {word.strip() for word in (folder / "out").read_text().splitlines()}


def test_a_shell_completes_commands_options_and_names(tmp_path: Path) -> None:
    pytest.importorskip("argcomplete")
    (tmp_path / "bench.toml").write_text('[devices.board]\ndriver = "mock"\n')
    (tmp_path / "runs" / "before").mkdir(parents=True)
    (tmp_path / "runs" / "before" / "session.json").write_text("{}")
    assert {"measure", "audit"} <= completed("rig ", tmp_path)
    assert completed("rig compare --fail", tmp_path) == {"--fail-if"}
    assert {"mock", "xylo", "board"} <= completed("rig measure --device ", tmp_path)
    assert completed("rig report bef", tmp_path) == {"before"}


def test_shell_completions_are_printed(capsys: Capture) -> None:
    pytest.importorskip("argcomplete")
    assert main(["completion", "bash"]) == 0
    assert "_python_argcomplete" in capsys.readouterr().out
    assert parser("completion").parse_args(["completion", "zsh"]).shell == "zsh"


def test_a_sweep_table_fits_the_terminal_width(capsys: Capture, columns: int) -> None:
    quantities = ("energy_per_inference_j", "active_power_w", "execution_time_s", "accuracy")
    row = {"inference_s": 0.05, "verdict": "VALID", "accuracy": 0.95, "accuracy.interval_95": (0.82, 0.99)}
    for name in quantities[:3]:
        row |= {name: 1.23456e-3, f"{name}.interval_95": (1.23336e-3, 1.23576e-3)}
    print_sweep([row], ["inference_s"], {q: FigureKey(q) for q in quantities})
    said = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in said.splitlines()) <= columns
    assert "95 (82 to 99) %" in said
    assert said.index("Accuracy") < (said + "Energy").index("Energy") < (said + "Active").index("Active")
    assert ("table.csv also has: " in said) == (columns < 100)


# ---- input that cannot be used -----------------------------------------------------------------

USAGE, SETUP, STORE = 3, 4, 7
MOCK = ("measure", "--device", "mock", "--quiet")
Rig = Callable[..., tuple[int, str]]


@pytest.fixture
def rig(capsys: Capture, here: Path) -> Rig:
    """Runs a command in an empty directory; a failing command prints one line on standard error."""

    def run(*argv: str) -> tuple[int, str]:
        code = main(argv)
        line = capsys.readouterr().err
        assert code == 0 or len(line.splitlines()) == 1
        return code, line.strip()

    return run


@pytest.mark.parametrize("command", ["report", "submit", "audit", "compare", "measure --device mock --out"])
def test_a_name_that_is_not_utf_8_is_refused_at_once(rig: Rig, command: str) -> None:
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


def test_own_recordings_are_measured(rig: Rig) -> None:
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
def test_a_system_error_is_one_line(rig: Rig, monkeypatch: Patch, error: BaseException, says: str) -> None:
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
import os, signal, sys, time; from rig.child_process import supervised
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
def test_an_interruption_prints_at_most_one_line(code: str, says: str) -> None:
    done = python(code)
    assert (done.returncode, done.stderr) == (130, says)


# ---- closed and full streams, and text of others -----------------------------------------------

ESCAPES = "\x1b]0;title\x07\x1b[2J\x9b2J\x00\u202e\u2066"


def test_control_and_direction_characters_are_replaced(capsys: Capture) -> None:
    say(f"name {ESCAPES}", f"two\nlines {ESCAPES}", error=True)
    shown = capsys.readouterr().err
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert shown.count("\n") == 2


def test_plain_text_stays_unchanged(capsys: Capture) -> None:
    say("Größe µW ± 3 % ✓ 測定")
    assert capsys.readouterr().out == "Größe µW ± 3 % ✓ 測定\n"
    assert clean("a\tb") == "a b"


def test_a_line_is_bounded(capsys: Capture) -> None:
    say("n" * 10_000_000)
    assert len(capsys.readouterr().out) == MOST + 1


def test_a_quoted_control_sequence_is_removed(capsys: Capture) -> None:
    main(["list", f"no{ESCAPES}name"])
    main(["report", f"no{ESCAPES}directory"])
    shown = capsys.readouterr()
    assert "\x1b" not in shown.err + shown.out
    assert shown.err.count("\n") == 2


SMALL = options("workload.samples=8", "audio_hz=1000", "idle_s=0.5")


def measure(path: Path, *words: str) -> int:
    return main(["measure", "--device", "mock", "--json", "--allow-invalid", *SMALL, "--out", str(path), *words])


def test_progress_without_a_terminal_is_on_standard_error(tmp_path: Path, capsys: Capture) -> None:
    assert measure(tmp_path / "out") == 0
    said = capsys.readouterr()
    first, *lines = said.err.splitlines()
    assert json.loads(said.out)["session"] == str(tmp_path / "out")
    assert first == f"measuring mock, single-stream, into {tmp_path / 'out'}"
    assert [line.split(",")[0].split(" 8 ")[0] for line in lines if ": begins" in line or ": ended" in line] == [
        f"{run}: {what}" for run in ("accuracy", "performance", "power") for what in ("begins", "ended")
    ]


@pytest.fixture
def full() -> Iterator[TextIO]:
    """A stream to which nothing can be written."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("w") as stream:
        yield stream


def test_a_full_standard_error_stops_no_measurement(full: TextIO, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(sys, "stderr", full)
    assert measure(tmp_path / "out", "--mode", "together") == 0


def test_driver_output_is_dropped_on_a_full_stream(full: TextIO) -> None:
    with aside(full.fileno()):
        assert sys.stdout.write("40 degrees\n")


def test_a_command_ends_at_a_closed_or_full_stream(full: TextIO, tmp_path: Path) -> None:
    for name, stream in (("stdout", None), ("stderr", None), ("stdout", full)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, name, stream)
            assert main(["report", str(tmp_path), "--json"]) == 7


@pytest.mark.parametrize("asked", ["--version", "list"])
def test_output_on_a_full_stream_is_an_error(full: TextIO, asked: str) -> None:
    done = python(MAIN, asked, stdout=full)
    assert (done.returncode, done.stderr[:33]) == (4, "rig: the operating system refused")


@pytest.mark.skipif(os.name != "posix", reason="pipes are POSIX")
@pytest.mark.parametrize("by", ["pipe", "openpty"])
@pytest.mark.parametrize(("asked", "code"), [("report", 31), ("audit", 32), ("list", 0)])
def test_a_reader_that_leaves_early_changes_no_exit_code(asked: str, code: int, by: str, tmp_path: Path) -> None:
    """Otherwise a script that stops at errors goes on after ``rig audit DIR | head``."""
    words = [asked]
    if asked != "list":
        words.append(str(unpacked("crash-device-raises", tmp_path)))
    ear, mouth = getattr(os, by)()
    os.close(ear)
    done = python(MAIN, *words, stdout=mouth)
    os.close(mouth)
    assert (done.returncode, done.stderr) == (code, "")


def test_missing_characters_are_escaped(monkeypatch: Patch) -> None:
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="ascii"))
    usable_streams()
    say("3 ± 1 ✗")
    assert printed.getvalue().decode() == r"3 \xb1 1 \u2717" + "\n"


def test_no_file_takes_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    """A library's output on standard output would get into the recording."""
    look = "import os; os.closerange(0, 3); import rig.terminal as t; t.usable_streams(); os._exit(os.dup(0))"
    assert python(look).returncode > 2


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_ends_any_command_with_a_message(name: str) -> None:
    code = (
        "import signal, sys, rig.session.report as report; from rig.commands.shell.main import main\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # the suite may run under nohup
        f"report.report = lambda *given, **more: signal.raise_signal(signal.{name})\nsys.exit(main(['report', 'run']))"
    )
    done = python(code)
    assert (done.returncode, done.stderr) == (130, "rig: interrupted\n")
