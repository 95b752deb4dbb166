"""Failures in the middle of a run: each has its own exit code, one line, and a readable recording."""

from __future__ import annotations

import json
import signal
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

from rig.analysis.evaluate import evaluate
from rig.commands.shell.main import main
from rig.recording.reader import open_run
from tests.support.processes import MAIN, begun, options

PATIENT_S = 60.0
"""A subprocess may take this long; only a broken one makes a test wait for it."""
MEASURE = (
    "measure", "--quiet", "--device", "mock", "--mode", "together", "--option", "idle_s=0.5", "--option",
    "workload.samples=40",
)  # fmt: skip
FAILURES = {
    "a device that hangs": (
        21, "DeviceTimeoutError", 4, ("fail_at=6", "fail=hang", "timeout_s=1"),
        "device mock gave no answer to SAMPLE within 1 s. Check its power and link",
    ),
    "a device that raises": (
        20, "DeviceError", 4, ("fail_at=6", "fail=raise"),
        "the device failed on sample SAMPLE: RuntimeError: the mock device failed",
    ),
    "a meter that falls silent": (
        23, "MeterSilentError", 20, ("silent_after_s=1", "inference_s=0.2"),
        "meter mock gave no reading of rail core for",
    ),
    "a meter that raises": (
        22, "MeterError", 10, ("raise_after_s=3",),
        "meter mock failed while it was read: OSError: the instrument closed the connection",
    ),
}  # fmt: skip
"""By failure: exit code, kind of error, least number of answers, options of the mock, and what is said."""


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


def answered(path: Path) -> int:
    """Return the answered samples, without warm-up."""
    replies = open_run(path).replies
    rows = zip(replies["output"].to_pylist(), replies["warmup"].to_pylist(), strict=True)
    return sum(output is not None and not warmup for output, warmup in rows)


# ---- a device or a meter that fails -------------------------------------------------------


@pytest.mark.parametrize("what", FAILURES)
def test_a_failure_has_its_exit_code_and_line_and_what_was_recorded_is_reported(tmp_path: Path, what: str) -> None:
    code, kind, least, texts, says = FAILURES[what]
    path = tmp_path / "run"
    ended = rig(path, *MEASURE, *options(*texts), "--out", str(path))
    run = open_run(path)

    (line,) = ended.err.splitlines()
    assert ended.code == code
    assert line.startswith(f"rig: {says.replace('SAMPLE', run.samples['id'].to_pylist()[-1])}")
    assert "`rig report`" in line
    assert str(path) in line
    assert run.error is not None and (run.error.error, run.error.exit_code) == (kind, code)
    assert run.sealed
    assert answered(path) >= least

    report = rig(path, "report", str(path))
    assert report.code == (30 if what == "a meter that falls silent" else 31)
    assert "INCOMPLETE" in report.out
    assert json.loads((path / "derived" / "results.json").read_text())["complete"] is False


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


# ---- a run that is stopped from outside ---------------------------------------------------


def stopped(path: Path, number: signal.Signals, *more: str) -> tuple[Outcome, int]:
    """Measure in another process in real time, and signal it once it has written some replies.

    Return how it ended, and how many answered samples were on disk before the signal.
    """
    unshielded = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"  # the suite may run under nohup
    argv = [*MEASURE[:6], *options("workload.samples=2000", "bench.speed=4", "idle_s=0.1"), "--out", str(path), *more]
    running = begun(f"{unshielded}; {MAIN}", *argv)
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["ctrl-c", "sigterm", "hang-up"])
def test_an_interrupted_run_has_its_code_and_line_and_keeps_every_reply(tmp_path: Path, number: signal.Signals) -> None:
    ended, seen = stopped(tmp_path / "run", number, "--json")
    run = open_run(ended.path)

    (line,) = ended.err.splitlines()
    assert ended.code == 130
    assert line.startswith("rig: interrupted. What was recorded until now is kept; `rig report` reads it")
    said = json.loads(ended.out)
    assert (said["error"], said["exit_code"]) == ("Interrupted", 130)
    assert str(ended.path) in said["remedy"]
    assert answered(ended.path) >= seen >= 3
    assert run.sealed
    assert run.error is not None and run.error.error == "Interrupted"

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
    (trace,) = run.traces.values()
    assert 0 < run.arrivals(trace.rail.name)[-1, 0] <= len(trace.value)
    assert report.code in (30, 31)
    assert not evaluate(run).complete
    assert "it ended in a crash" in " ".join(report.out.split())
