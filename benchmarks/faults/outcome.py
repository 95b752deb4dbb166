"""Run commands of the rig in separate processes, and judge what they left behind."""

import functools
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.faults.tally import Outcome
from rig.analysis.evaluate import evaluate
from rig.analysis.result.result import Result
from rig.errors import RigError
from rig.recording.reader import Run, open_run
from rig.recording.session_json import runs_in
from rig.session.report import report

RIG = "import sys; from rig.commands.shell.main import main; sys.exit(main())"
PRELOADED = (
    "rig.commands.measure", "rig.commands.sweep", "rig.commands.import_", "rig.session.measure", "reports.render",
    "reports.console", "matplotlib.pyplot", "scipy.stats", "scipy.optimize", "pandas", "fixtures.bench.mock_device",
)  # fmt: skip
"""Imported beforehand: imports take most of a short command's time, and faults should hit the run instead."""


def sound(run: Run) -> str:
    """Return "": nothing is wrong with the run."""
    return ""


@dataclass(frozen=True)
class Case:
    """A command that records: its words without ``--out``, and the number of samples that a complete run answers.

    ``check`` returns what is wrong with the readings of a run. If ``power`` is false, the verdict is made without
    readings, and no page is written.
    """

    name: str
    words: tuple[str, ...]
    samples: int = 0
    check: Callable[[Run], str] = sound
    power: bool = True


@dataclass(frozen=True)
class Ended:
    """How a command ended; ``code`` is None if the command had to be killed."""

    code: int | None
    err: str


@functools.cache
def forks() -> Any:
    """Return the server that forks processes with all imports already done."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED])
    return context


def rig(words: Sequence[str], timeout_s: float = 300.0, before: Sequence[str] = (), impatient: bool = False) -> Ended:
    """Run one command of the rig in its own process group, and wait for its end.

    If ``before`` is given, the command is started as a separate command line that begins with these words. With
    ``impatient``, the watchdog waits for seconds instead of minutes.
    """
    with tempfile.NamedTemporaryFile() as err:
        if not before:
            return ended(started(words, err.name, impatient), err.name, timeout_s)
        process = subprocess.Popen(
            [*before, sys.executable, "-c", RIG, *words], stdout=subprocess.DEVNULL, stderr=err,
            start_new_session=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        try:
            code: int | None = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = None
        return Ended(code, Path(err.name).read_text(errors="replace"))


def started(words: Sequence[str], err: str, impatient: bool = False) -> Any:
    """Start one command of the rig in its own process group, with its standard error in a file."""
    process = forks().Process(target=command, args=(tuple(words), err, impatient))
    process.start()
    return process


def ended(process: Any, err: str, timeout_s: float) -> Ended:
    """Wait for a command, and end it if it takes too long."""
    process.join(timeout_s)
    code = process.exitcode
    if code is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
    return Ended(code, Path(err).read_text(errors="replace"))


def command(words: Sequence[str], err: str, impatient: bool) -> None:
    """Run one command in this process."""
    from rig import driver_call_timeouts
    from rig.commands.shell.main import main
    from rig.engine import play_steps

    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing, to = os.open(os.devnull, os.O_RDWR), os.open(err, os.O_WRONLY | os.O_APPEND)
    for here, there in ((nothing, 0), (nothing, 1), (to, 2)):
        os.dup2(here, there)
    if impatient:
        play_steps.__dict__["SIMULATED_S"] = 10.0
        driver_call_timeouts.PATIENCE_S.update(dict.fromkeys(driver_call_timeouts.PATIENCE_S, 10.0))
    sys.argv = ["rig", *words]
    sys.exit(main())


def left_by(ended: Ended, path: Path, case: Case) -> tuple[Outcome, str]:
    """Judge what a command left in ``path`` after a fault."""
    if ended.code is None:
        return Outcome.HUNG, ended.err
    if re.search(r"^Traceback|Fatal Python error", ended.err, re.M):
        return Outcome.TRACEBACK, ended.err
    return judged(path, case)


def reported(path: Path) -> Result | None:
    """Write the report of a run or session into a temporary folder; return its result."""
    with tempfile.TemporaryDirectory() as folder:
        return report(path, Path(folder) / "report").result


def judged(path: Path, case: Case) -> tuple[Outcome, str]:
    """Read ``path`` as a user's program does, and return the outcome."""
    if not path.exists() or not any(path.iterdir()):
        return Outcome.NOTHING, ""
    try:
        found = reported(path) if case.power else evaluate(replace(open_run(path), traces={}))
        runs = [open_run(run) for run, _ in runs_in(path)]
    except RigError as error:
        return Outcome.REFUSED, f"{type(error).__name__}: {error.message}"
    except Exception:
        return Outcome.TRACEBACK, traceback.format_exc()
    if wrong := next(filter(None, map(case.check, runs)), ""):
        return Outcome.UNNOTICED, wrong
    ended = all(run.sealed and run.error is None for run in runs)
    answered = sum(run.replies.num_rows for run in runs)
    if ended and answered >= case.samples:
        return Outcome.WHOLE, ""
    # if a session was interrupted, a run that ended can be VALID, but the session must not be
    valid = found is not None and found.validity is not None and found.validity.valid
    return (Outcome.VALID_HALF if valid else Outcome.PART), f"{answered} of {case.samples} answers"
