"""What is printed: text of others without control characters, and what a command does to a closed or full stream.

Signals that end a command are also tested.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from rig.commands.shell.main import main
from rig.terminal import MOST, clean, say, usable_streams
from tests.support.processes import MAIN, options, python
from tests.support.submission_folder import unpacked

Patch = pytest.MonkeyPatch

Capture = pytest.CaptureFixture[str]

ESCAPES = "\x1b]0;title\x07\x1b[2J\x9b2J\x00\u202e\u2066"


def test_control_and_direction_characters_are_replaced(capsys: Capture) -> None:
    say(f"name {ESCAPES}", f"two\nlines {ESCAPES}", error=True)
    shown = capsys.readouterr().err
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert shown.count("\n") == 2


def test_plain_text_of_any_language_stays(capsys: Capture) -> None:
    say("Größe µW ± 3 % ✓ 測定")
    assert capsys.readouterr().out == "Größe µW ± 3 % ✓ 測定\n"
    assert clean("a\tb") == "a b"


def test_a_line_has_a_longest_length(capsys: Capture) -> None:
    say("n" * 10_000_000)
    assert len(capsys.readouterr().out) == MOST + 1


def test_an_error_that_quotes_what_it_was_given_is_clean(capsys: Capture) -> None:
    main(["list", f"no{ESCAPES}name"])
    main(["report", f"no{ESCAPES}directory"])
    shown = capsys.readouterr()
    assert "\x1b" not in shown.err + shown.out
    assert shown.err.count("\n") == 2


SMALL = options("workload.samples=8", "audio_hz=1000", "idle_s=0.5")


def measure(path: Path, *words: str) -> int:
    return main(["measure", "--device", "mock", "--json", "--allow-invalid", *SMALL, "--out", str(path), *words])


def test_without_a_terminal_progress_is_on_standard_error_alone(tmp_path: Path, capsys: Capture) -> None:
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


def test_a_measurement_goes_on_where_standard_error_is_full(full: TextIO, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(sys, "stderr", full)
    assert measure(tmp_path / "out", "--mode", "together") == 0


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_command_ends_at_a_closed_stream(stream: str, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(sys, stream, None)
    assert main(["report", str(tmp_path), "--json"]) == 7


def test_a_command_ends_at_a_full_stream(full: TextIO, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(sys, "stdout", full)
    assert main(["report", str(tmp_path), "--json"]) == 7


@pytest.mark.parametrize("asked", ["--version", "list"])
def test_no_command_says_that_it_printed_what_a_full_stream_did_not_take(full: TextIO, asked: str) -> None:
    done = python(MAIN, asked, stdout=full)
    assert (done.returncode, done.stderr[:33]) == (4, "rig: the operating system refused")


@pytest.mark.skipif(os.name != "posix", reason="pipes are POSIX")
@pytest.mark.parametrize(("asked", "code"), [("report", 31), ("audit", 32), ("list", 0)])
def test_a_reader_that_leaves_early_changes_no_exit_code(asked: str, code: int, tmp_path: Path) -> None:
    """Otherwise a script that stops at errors goes on after ``rig audit DIR | head``."""
    words = [asked]
    if asked != "list":
        words.append(str(unpacked("crash-device-raises", tmp_path)))
    ear, mouth = os.pipe()
    os.close(ear)
    done = python(MAIN, *words, stdout=mouth)
    os.close(mouth)
    assert (done.returncode, done.stderr) == (code, "")


def test_what_an_encoding_lacks_is_spelt(monkeypatch: Patch) -> None:
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
