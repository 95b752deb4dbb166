"""Failures in the middle of a run: each has its own exit code, one line, and a readable recording."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

from rig.analysis.evaluate import evaluate
from rig.commands.shell.main import main
from rig.errors import RigError
from rig.recording.reader import open_run

PATIENT_S = 60.0
"""A subprocess may take this long; only a broken one makes a test wait for it."""
MEASURE = (
    "measure", "--quiet", "--device", "mock", "--mode", "together", "--option", "idle_s=0.5", "--option",
    "workload.samples=40",
)  # fmt: skip
FAILURES = {
    "a device that hangs": (21, "DeviceTimeoutError", 4, ("fail_at=6", "fail=hang", "timeout_s=1")),
    "a device that raises": (20, "DeviceError", 4, ("fail_at=6", "fail=raise")),
    "a meter that falls silent": (23, "MeterSilentError", 20, ("silent_after_s=1", "inference_s=0.2")),
    "a meter that raises": (22, "MeterError", 10, ("raise_after_s=3",)),
}
SAYS = {
    "a device that hangs": "device mock gave no answer to SAMPLE within 1 s. Check its power and link",
    "a device that raises": "the device failed on sample SAMPLE: RuntimeError: the mock device failed",
    "a meter that falls silent": "meter mock gave no reading of rail core for",
    "a meter that raises": "meter mock failed while it was read: OSError: the instrument closed the connection",
}


@dataclass(frozen=True)
class Outcome:
    """The results of a command."""

    code: int
    out: str
    err: str
    path: Path


def rig(path: Path, *argv: str) -> Outcome:
    """Run a command here, like the command line."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(argv)
    return Outcome(code, out.getvalue(), err.getvalue(), path)


def options(*texts: str) -> list[str]:
    return [word for text in texts for word in ("--option", text)]


@pytest.fixture(scope="module", params=FAILURES)
def failure(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Outcome]:
    """One failed run of each kind, in virtual time."""
    path = tmp_path_factory.mktemp("failed") / "run"
    texts = FAILURES[request.param][3]
    return request.param, rig(path, *MEASURE, *options(*texts), "--out", str(path))


def answered(path: Path) -> int:
    """Return the answered samples, without warm-up."""
    replies = open_run(path).replies
    rows = zip(replies["output"].to_pylist(), replies["warmup"].to_pylist(), strict=True)
    return sum(output is not None and not warmup for output, warmup in rows)


# ---- a device or a meter that fails -------------------------------------------------------


def test_each_failure_has_an_exit_code_of_its_own(failure: tuple[str, Outcome]) -> None:
    what, ended = failure

    assert ended.code == FAILURES[what][0]


def test_one_line_says_what_failed_what_to_do_and_where_the_recording_is(failure: tuple[str, Outcome]) -> None:
    what, ended = failure
    (line,) = ended.err.splitlines()

    sample = open_run(ended.path).samples["id"].to_pylist()[-1]
    assert line.startswith(f"rig: {SAYS[what].replace('SAMPLE', sample)}")
    assert "`rig report`" in line
    assert str(ended.path) in line


def test_the_recording_names_the_error(failure: tuple[str, Outcome]) -> None:
    what, ended = failure
    run = open_run(ended.path)

    assert run.error is not None and (run.error.error, run.error.exit_code) == (FAILURES[what][1], FAILURES[what][0])
    assert run.sealed


def test_every_reply_until_then_is_kept(failure: tuple[str, Outcome]) -> None:
    what, ended = failure

    assert answered(ended.path) >= FAILURES[what][2]


def test_the_report_reads_what_there_is_and_says_that_it_is_incomplete(failure: tuple[str, Outcome]) -> None:
    what, ended = failure
    report = rig(ended.path, "report", str(ended.path))

    assert report.code == (30 if what == "a meter that falls silent" else 31)
    assert "INCOMPLETE" in report.out
    assert json.loads((ended.path / "derived" / "results.json").read_text())["complete"] is False


def test_with_json_the_error_is_one_object(tmp_path: Path) -> None:
    path = tmp_path / "run"
    ended = rig(path, *MEASURE, "--json", *options("fail_at=3", "fail=raise"), "--out", str(path))
    said = json.loads(ended.out)

    assert (said["error"], said["exit_code"]) == ("DeviceError", ended.code)
    assert "told to" in said["message"]
    assert str(path) in said["remedy"]


def test_the_sample_that_was_not_answered_is_recorded_as_such(tmp_path: Path) -> None:
    path = tmp_path / "run"
    rig(path, *MEASURE, *options("fail_at=3", "fail=raise"), "--out", str(path))

    assert [output is None for output in open_run(path).replies["output"].to_pylist()] == [False, False, True]


def test_a_failure_before_the_first_reply_is_readable_too(tmp_path: Path) -> None:
    path = tmp_path / "run"
    rig(path, *MEASURE, *options("fail_at=1", "fail=hang"), "--out", str(path))
    report = rig(path, "report", str(path))

    assert report.code == 30
    assert "no span was recorded" in report.out


def test_a_meter_that_falls_silent_near_the_end_is_noticed_when_the_run_ends(tmp_path: Path) -> None:
    path = tmp_path / "run"
    ended = rig(path, *MEASURE, *options("silent_after_s=3"), "--out", str(path))

    assert ended.code == 23
    assert answered(path) == 40


def test_exit_codes_of_errors_are_distinct() -> None:
    def kinds(base: type[RigError]) -> Iterator[type[RigError]]:
        yield base
        for child in base.__subclasses__():
            yield from kinds(child)

    own = {kind: kind.exit_code for kind in kinds(RigError) if kind.__module__ == "rig.errors"}
    declared = [code for kind, code in own.items() if "exit_code" in vars(kind)]

    assert len(set(declared)) == len(declared)
    assert not set(declared) & {0, 1, 2}


# ---- a run that is stopped from outside ---------------------------------------------------


def stopped(path: Path, number: signal.Signals, *more: str) -> tuple[Outcome, int]:
    """Measure in another process in real time, and signal it once it has written some replies.

    Return how it ended, and how many answered samples were on disk before the signal.
    """
    unshielded = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"  # the suite may run under nohup
    program = f"{unshielded}; import sys; from rig.commands.shell.main import main; sys.exit(main())"
    argv = [*MEASURE[:6], *options("workload.samples=2000", "bench.speed=4", "idle_s=0.1"), "--out", str(path), *more]
    running = subprocess.Popen(
        [sys.executable, "-c", program, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        seen, deadline = 0, time.monotonic() + PATIENT_S
        while seen < 3 and running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
            seen = answered(path) if (path / "replies.arrows").exists() else 0
        running.send_signal(number)
        out, err = running.communicate(timeout=PATIENT_S)
    finally:
        running.kill()
    return Outcome(running.returncode, out, err, path), seen


@pytest.fixture(
    scope="module", params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["ctrl-c", "sigterm", "hang-up"]
)
def interrupted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, int]:
    return stopped(tmp_path_factory.mktemp("stopped") / "run", request.param, "--json")


def test_an_interrupted_run_ends_with_its_own_code_and_one_line(interrupted: tuple[Outcome, int]) -> None:
    ended, _ = interrupted
    (line,) = ended.err.splitlines()

    assert ended.code == 130
    assert line.startswith("rig: interrupted. What was recorded until now is kept; `rig report` reads it")


def test_an_interrupted_run_is_one_json_object_when_asked_for(interrupted: tuple[Outcome, int]) -> None:
    ended, _ = interrupted

    assert json.loads(ended.out)["error"] == "Interrupted"


def test_an_interrupted_run_keeps_every_reply_and_is_closed(interrupted: tuple[Outcome, int]) -> None:
    ended, seen = interrupted
    run = open_run(ended.path)

    assert answered(ended.path) >= seen >= 3
    assert run.sealed
    assert run.error is not None and run.error.error == "Interrupted"


def test_an_interrupted_run_is_reported_as_incomplete(interrupted: tuple[Outcome, int]) -> None:
    ended, _ = interrupted
    report = rig(ended.path, "report", str(ended.path))

    assert report.code in (30, 31)
    assert "INCOMPLETE" in report.out


def test_a_killed_run_is_read_to_its_last_whole_batch(tmp_path: Path) -> None:
    ended, seen = stopped(tmp_path / "run", signal.SIGKILL)
    run = open_run(ended.path)
    report = rig(ended.path, "report", str(ended.path))

    assert ended.code == -signal.SIGKILL
    assert run.stop is None
    assert answered(ended.path) >= seen >= 3
    assert report.code in (30, 31)
    assert not evaluate(run).complete
    assert "it ended in a crash" in " ".join(report.out.split())
