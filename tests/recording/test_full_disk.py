"""A full disk or a limit of the process loses later data; earlier data are read as a run that ended."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rig.errors import RigError, StoreError
from rig.recording.lines import ROOM
from rig.recording.reader import open_run
from rig.recording.writer import Recorder
from rig.types import Reply, Sample, Span
from tests.support.processes import python
from tests.support.start_lines import start

RUN = """
import resource, sys
from pathlib import Path
{limits}
from rig.commands.shell.main import main
sys.exit(main(["measure", "--device", "mock", "--mode", "together", "--out", sys.argv[1], "--json",
    *(w for t in sys.argv[2:] for w in ("--option", t))]))
"""
PATIENCE_S = 600.0
"""Only a broken program makes a test wait this long."""
KIB = 300
"""Room for about half of a run."""
OPTIONS = ("idle_s=2", "workload.samples=60", "rate_hz=20000")


def measured(path: Path, limits: str = "", *more: str) -> subprocess.CompletedProcess[str]:
    """Measure in a separate process under limits."""
    return python(RUN.format(limits=limits), path, *OPTIONS, *more, timeout=PATIENCE_S)


def ended_well(path: Path, done: subprocess.CompletedProcess[str]) -> None:
    """One typed line, no traceback; and the recording ends with the error."""
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == StoreError.exit_code, done.stderr
    assert "`rig report` reads it" in done.stderr
    run = open_run(path)
    assert run.error is not None and run.error.error == "StoreError"
    assert run.sealed
    assert not (path / ROOM).exists()


@pytest.fixture(scope="module")
def small_disk() -> list[str]:
    """The command that gives a program its own file system in memory."""
    probe = ["unshare", "-Urm", "true"]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("this system permits no mount namespace of one's own (unshare -Urm)")
    return ["unshare", "-Urm", "sh", "-c"]


def test_a_full_disk_is_a_typed_error_and_what_was_recorded_is_sealed(small_disk: list[str], tmp_path: Path) -> None:
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    argv = [sys.executable, "-c", RUN.format(limits=""), str(disk / "run"), *OPTIONS]
    script = f'mount -t tmpfs -o size={KIB}k none {disk} && "$@"; code=$?; cp -r {disk}/run {kept}; exit $code'
    words = [*small_disk, script, "sh", *argv]
    ended_well(kept, subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False))


def test_a_limit_of_file_size_is_a_typed_error_too(tmp_path: Path) -> None:
    done = measured(tmp_path / "run", f"resource.setrlimit(resource.RLIMIT_FSIZE, ({KIB << 10}, {KIB << 10}))")
    ended_well(tmp_path / "run", done)


def test_a_limit_of_open_files_is_a_typed_error_too(tmp_path: Path) -> None:
    few = "import rig.engine.record, rig.session.measure, rig.session.report, fixtures.bench.mock_meter\n"
    few += "resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6))"
    done = measured(tmp_path / "run", few)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode not in (0, 1), done.stderr


# ---- each write that can fail, one by one ---------------------------------------------------


def fill(recorder: Recorder) -> None:
    """Record replies and samples until something fails."""
    for k in range(200):
        recorder.sample(Sample(f"s{k}", np.zeros(4), keep=k % 50 == 0))
        recorder.reply(k, Reply(f"s{k}", "x", (Span("inference", k, k + 1),)), None, k, k + 2)
        recorder.flush()


@pytest.mark.parametrize("limit", range(2_000, 60_000, 5_300))
def test_whatever_write_fails_the_recording_ends_with_its_last_whole_batch(tmp_path: Path, limit: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    recorder = Recorder(tmp_path / "run")
    recorder.event(start())
    error: RigError | None = None
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        fill(recorder)
    except StoreError as caught:
        error = caught
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error is not None
    recorder.stop(error)
    run = open_run(tmp_path / "run")
    assert run.error is not None
    assert run.replies["issue"].to_pylist() == list(range(run.replies.num_rows))
