"""What a fault left behind, as one word: three kinds are right, the others are defects."""

from __future__ import annotations

import collections
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from rig.errors import RigError
from rig.recording.reader import open_run
from rig.recording.session import runs_in
from rig.session.report import report

RIG = "import sys; from rig.commands.main import main; sys.exit(main())"
IMPATIENT = f"""
from rig.engine import collect, watchdog
collect.SIMULATED_S = 10.0
watchdog.PATIENCE_S.update(dict.fromkeys(watchdog.PATIENCE_S, 10.0))
{RIG}"""
"""The rig with a watchdog that waits for seconds where it waits for minutes."""


class Outcome(StrEnum):
    """What may become of a recording."""

    WHOLE = "whole"
    PART = "kept in part, not VALID"
    REFUSED = "refused by type"
    NOTHING = "ended by type before anything was recorded"
    TRACEBACK = "TRACEBACK"
    VALID_HALF = "VALID HALF"
    HUNG = "HUNG"
    OUTSIDE = "WRITTEN OUTSIDE"
    UNNOTICED = "UNNOTICED"


RIGHT = (Outcome.WHOLE, Outcome.PART, Outcome.REFUSED, Outcome.NOTHING)


@dataclass
class Tally:
    """Outcomes of one part of the campaign, and the defects by case."""

    part: str
    counts: collections.Counter[Outcome] = field(default_factory=collections.Counter)
    defects: list[str] = field(default_factory=list)

    def add(self, case: str, outcome: Outcome, said: str = "") -> None:
        """Count one case."""
        self.counts[outcome] += 1
        if outcome not in RIGHT:
            self.defects.append(f"{self.part}, {case}: {outcome}: {said[-600:]}")


@dataclass(frozen=True)
class Ended:
    """How a command ended; ``code`` is None if it had to be killed."""

    code: int | None
    err: str


def rig(words: Sequence[str], timeout_s: float = 120.0, before: Sequence[str] = (), program: str = RIG) -> Ended:
    """Run one command of the rig, led by the words ``before``, in a process group of its own, and wait for it."""
    with tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            [*before, sys.executable, "-c", program, *words], stdout=subprocess.DEVNULL, stderr=err,
            start_new_session=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        try:
            code: int | None = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = None
        err.seek(0)
        return Ended(code, err.read())


def left_by(ended: Ended, path: Path, samples: int) -> tuple[Outcome, str]:
    """Judge what a command that met a fault left in ``path``; a whole run answers ``samples`` samples."""
    if ended.code is None:
        return Outcome.HUNG, ended.err
    if re.search(r"^Traceback|Fatal Python error", ended.err, re.M):
        return Outcome.TRACEBACK, ended.err
    return judged(path, samples)


def judged(path: Path, samples: int) -> tuple[Outcome, str]:
    """Read what stands in ``path`` as a reader does, and say what it is."""
    if not path.exists() or not any(path.iterdir()):
        return Outcome.NOTHING, ""
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = report(path, Path(folder) / "report")
        runs = [open_run(run) for run, _ in runs_in(path)]
    except RigError as error:
        return Outcome.REFUSED, f"{type(error).__name__}: {error.message}"
    except Exception:
        return Outcome.TRACEBACK, traceback.format_exc()
    ended = all(run.sealed and run.error is None for run in runs)
    answered = sum(run.replies.num_rows for run in runs)
    if ended and answered >= samples:
        return Outcome.WHOLE, ""
    valid = any(r.result is not None and r.result.validity is not None and r.result.validity.valid
                for r in (found, *(found.runs or ())))  # fmt: skip
    return (Outcome.VALID_HALF if valid else Outcome.PART), f"{answered} of {samples} answers"
