"""Long runs of a session are evaluated in two processes, with the same results and errors as in one."""

import os
from pathlib import Path

import pytest

from tests.support.processes import python
from tests.support.submissions import session as recorded

TWO_CORES = hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1
pytestmark = pytest.mark.skipif(not TWO_CORES, reason="a second process starts only where there are two cores")

BEGIN = """
import json, os, signal, sys
from rig.analysis.evaluate import evaluate
from rig.errors import DataError
from rig.recording.reader import open_run
from rig.recording.session_json import runs_in
from rig.session.evaluate_in_parallel import results_of
from pathlib import Path

runs = [open_run(path) for path, _ in runs_in(Path(sys.argv[1]))]
here, power = os.getpid(), [k for k, run in enumerate(runs) if run.traces]
"""


def told(folder: Path, body: str) -> str:
    """Run a script in a process without threads, like the command line, and return what it prints."""
    done = python(BEGIN + body, folder)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("evaluating") / "session", trials=2)


def test_parallel_results_equal_serial_results(session: Path) -> None:
    said = told(session, """
where = lambda run: (os.getpid() == here, evaluate(run))
found = list(results_of(runs, where, long=1))
assert [json.dumps(r.to_json()) for _, r in found] == [json.dumps(evaluate(run).to_json()) for run in runs]
print([own for own, _ in found].count(False))
""")  # fmt: skip
    assert 0 < int(said) < 5


def test_short_runs_start_no_process(session: Path) -> None:
    assert told(session, "print(set(results_of(runs, lambda run: os.getpid() == here)))") == "{True}\n"


def test_the_first_error_is_raised(session: Path) -> None:
    assert told(session, """
def refused(run):
    raise DataError(str(runs.index(run)))
for first in (power, power[1:]):
    found = results_of(runs, lambda run: refused(run) if runs.index(run) in first else runs.index(run), long=1)
    try:
        print(list(found))
    except DataError as error:
        print(error.message == str(first[0]))
""") == "True\nTrue\n"  # fmt: skip


def test_runs_of_a_killed_process_are_evaluated_again(session: Path) -> None:
    assert told(session, """
def killed(run):
    if os.getpid() != here:
        os.kill(os.getpid(), signal.SIGKILL)
    return runs.index(run)
print(list(results_of(runs, killed, long=1)) == list(range(len(runs))))
""") == "True\n"  # fmt: skip


def test_an_interruption_ends_the_child_process(session: Path) -> None:
    assert told(session, """
import time
def stopped(run):
    if os.getpid() != here:
        time.sleep(600.0)
    raise KeyboardInterrupt
try:
    list(results_of(runs, stopped, long=1))
except KeyboardInterrupt:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print("alone")
""") == "alone\n"  # fmt: skip
