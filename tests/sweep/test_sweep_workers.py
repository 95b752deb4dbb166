"""Sweeps over several processes: workers die, sweeps are killed and interrupted, and nothing is lost."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from drivers.links import worker_link
from drivers.links.worker_link import Worker
from rig.errors import Interrupted, SetupError
from rig.recording.reader import open_run
from rig.sweep.pool import Brake, spread
from tests.support.raised import Patch, raised, raising
from tests.support.sweep_bench import QUICK, aside, quick, rows, seals, started, states, sweep
from tests.support.waiting import until

PATIENCE_S = 180.0
SLOW = ("--option", "bench.speed=1", "--repetitions", "3")
"""Cells of nearly a second, so that some cell is always in progress."""
MORTAL = """
import os, signal
from fixtures.bench.mock_device import open_device as mock
def open_device(bench, *, die: bool = False):
    if die:
        os.kill(os.getpid(), signal.SIGKILL)
    return mock(bench, inference_s=0.01)
"""


def pending(out: Path) -> bool:
    """Return whether a cell is being recorded, past its start line."""
    return any(path.read_bytes().count(b"\n") > 1 for path in (out / "pending").glob("*/*/events.jsonl"))


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = process.communicate(timeout=PATIENCE_S)
    return process.returncode, said


def slow(out: Path, jobs: int, inference_s: float = 0.12) -> subprocess.Popen[str]:
    """Return a sweep with a cell in progress."""
    asked = (*QUICK, *SLOW, "--option", f"inference_s={inference_s}", "--out", str(out), "--jobs", str(jobs))
    process = started("--device", "mock", *asked)
    until(lambda: pending(out))
    return process


def test_a_cell_that_kills_its_worker_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(MORTAL)
    words = ("--device", f"{tmp_path}/own.py:open_device", "--simulate", *QUICK[1:7], "--vary", "die=false,true")
    assert sweep(*words, "--jobs", "2", "--out", str(tmp_path / "s")) == 20
    assert states(tmp_path / "s") == ["done", "failed"]
    assert "2 workers died while they worked on it" in rows(tmp_path / "s")[1]["error"]


def test_a_worker_takes_no_package_from_the_working_directory(here: Path) -> None:
    for name in ("rig", "msgspec"):
        (here / name).mkdir()
        (here / name / "__init__.py").write_text(f"open({str(here / 'ran')!r}, 'w')")
    (here / "own.py").write_text(MORTAL)
    words = ("--device", "own.py:open_device", *QUICK[:7], "--jobs", "1", "--out", "s")
    assert sweep(*words) == 0
    assert not (here / "ran").exists()


@pytest.mark.parametrize("with_workers", [True, False])
def test_a_killed_sweep_resumes_without_repetition(tmp_path: Path, with_workers: bool) -> None:
    process = slow(tmp_path / "s", 1)
    os.killpg(process.pid, signal.SIGKILL) if with_workers else process.kill()
    ended(process)
    before = seals(tmp_path / "s")
    assert len(before) < 3 or not with_workers
    assert sweep(str(tmp_path / "s"), "--jobs", "0") == 0
    assert before.items() <= seals(tmp_path / "s").items()
    assert states(tmp_path / "s") == ["done"] * 3
    assert len(aside(tmp_path / "s")) == int(with_workers)


def test_ctrl_c_finishes_running_cells_first(tmp_path: Path) -> None:
    process = slow(tmp_path / "s", 2)
    process.send_signal(signal.SIGINT)
    code, said = ended(process)
    assert code == 1, said
    assert "Interrupted" in said
    assert f"Continue with: rig sweep {tmp_path / 's'}" in said
    assert sorted(states(tmp_path / "s")) == ["done", "done", "open"]
    assert aside(tmp_path / "s") == []


@pytest.mark.parametrize("signals", [(signal.SIGTERM,), (signal.SIGHUP,), (signal.SIGINT, signal.SIGINT)])
def test_a_broken_off_sweep_seals_its_recordings(tmp_path: Path, signals: tuple[signal.Signals, ...]) -> None:
    process = slow(tmp_path / "s", 1, inference_s=10.0)  # no cell ends by itself before the signal
    for number in signals[:-1]:
        process.send_signal(number)
        assert any("press Ctrl-C again" in line for line in process.stderr or ())  # two signals at once count as one
    process.send_signal(signals[-1])
    code, said = ended(process)
    assert (code, "0 of 3 cells done" in said, "KeyboardInterrupt" in said) == (1, True, False), said
    (broken,) = aside(tmp_path / "s")
    run = open_run(tmp_path / "s" / "broken" / broken)
    assert run.sealed
    assert run.error is not None and run.error.error == Interrupted.__name__
    assert states(tmp_path / "s") == ["open"] * 3


@pytest.mark.parametrize(("name", "failing", "why"), [
    ("multiprocessing.spawn._python_exe", b"/bin/false", "workers"),
    ("rig.sweep.pool.ProcessPoolExecutor", raising(OSError(30, "Read-only file system")), "Read-only file system"),
])  # fmt: skip
def test_a_failed_start_is_an_error(tmp_path: Path, monkeypatch: Patch, name: str, failing: object, why: str) -> None:
    monkeypatch.setattr(name, failing)
    raised(SetupError, quick, tmp_path / "s", says=f"{why}.*--jobs 0", jobs=1)


def test_no_cells_start_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rig.sweep.pool.ProcessPoolExecutor", None)
    assert list(spread([], 2, Brake(), print, True)) == []


# ---- a cluster ------------------------------------------------------------------------------


def test_a_scheduler_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="extra dask is not installed")
    monkeypatch.setattr("rig.sweep.dask.TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    words = ("--device", "mock", *QUICK, "--out", str(tmp_path / "s"))
    for silent in (address, "tcp://127.0.0.1:port"):
        raised(SetupError, sweep, *words, "--scheduler", silent, says="does not answer")


@pytest.mark.filterwarnings("ignore")
def test_every_worker_count_makes_the_same_table(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="extra dask is not installed")
    grid = ("--vary", "inference_s=0.01,0.02")
    assert quick(tmp_path / "one", *grid, jobs=0) == quick(tmp_path / "more", *grid, jobs=2) == 0
    local = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**local) as cluster:
        assert quick(tmp_path / "two", *grid, "--scheduler", cluster.scheduler_address, jobs=1) == 0
    tables = {(tmp_path / name / "table.csv").read_bytes() for name in ("one", "more", "two")}
    assert len(tables) == 1
    assert states(tmp_path / "one") == ["done"] * 2


@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_without_workers_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed", reason="extra dask is not installed")
    monkeypatch.setattr("rig.sweep.dask.TIMEOUT_S", 0.3)
    none = distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None)
    with none as cluster, pytest.raises(SetupError, match="has no worker"):
        quick(tmp_path / "s", "--scheduler", cluster.scheduler_address)


def test_a_worker_imports_nothing_from_the_working_directory(here: Path) -> None:
    for name in ("json", "platform", "types", "struct", "execnet", "__future__", "threading"):
        (here / f"{name}.py").write_text(f"open({str(here / 'ran')!r}, 'w')")
    with (here / "log").open("wb") as log:
        process, _ = worker_link.started(Worker("bench", (), interpreter=sys.executable), log, 20.0)
    worker_link.ended(process, 1.0)
    assert not (here / "ran").exists()
