"""If two commands use one directory, the later one changes nothing in it. A driver may change the working directory."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

import rig
from rig.errors import SetupError, StoreError
from rig.session.locks import locked
from rig.session.rate_and_size_search import PlannedRun
from rig.session.resumable_session import opened
from tests.support.raised import Patch, raised, raising
from tests.support.serving import samples

OPTIONS = ("samples=8", "idle_s=0.5")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("mode", ["together", "session"])
def test_a_directory_filled_during_setup_is_refused(tmp_path: Path, monkeypatch: Patch, mode: str) -> None:
    request = rig.Request(device="mock", meters=("mock",), mode=mode, options=OPTIONS, out=tmp_path / "shared")
    first: dict[str, bytes] = {}

    def another(*_: object) -> None:
        monkeypatch.undo()
        first.update(contents(rig.measure(request, quiet=True)))

    monkeypatch.setattr("rig.session.measure.check_declared", another)
    refused = raised(StoreError, rig.measure, request, says="empty", quiet=True)

    assert "Recorded until then" not in refused.remedy
    assert contents(tmp_path / "shared") == first


def test_a_session_in_use_is_left_unchanged(tmp_path: Path) -> None:
    request = rig.Request(device="mock", out=tmp_path)
    planned = PlannedRun("accuracy", "accuracy", rig.SampleSet("blank", "none", "1", "0" * 64, samples(4)), False)
    with opened(tmp_path, request, resume=False) as first:
        first.link()
        (tmp_path / "accuracy").mkdir()
        (tmp_path / "accuracy" / "events.jsonl").write_text("{}\n")
        before = contents(tmp_path)
        with pytest.raises(SetupError, match="in use"), opened(tmp_path, request, resume=False) as second:
            try:
                second.link()
            finally:
                second.add(planned)
        raised(StoreError, rig.measure, replace(request, out=tmp_path / "power"), says="lies in a session", quiet=True)

        assert contents(tmp_path) == before


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no list of open files here")
def test_a_driver_may_close_the_lock_file(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    with locked(lock, "it"):
        mine = next(fd for fd in Path("/proc/self/fd").iterdir() if os.path.realpath(fd) == str(lock.resolve()))
        os.close(int(mine.name))
    with locked(lock, "it", wait=False):
        pass


DRIVER = """
import os
from fixtures.bench.mock_device import open_device as mock

def open_device(bench):
    device = mock(bench)
    inner = device.{at}
    def wander(*given):
        os.makedirs("elsewhere", exist_ok=True)
        os.chdir("elsewhere")
        return inner(*given)
    device.{at} = wander
    return device
"""


@pytest.mark.parametrize("at", ["info", "stage", "submit", "close"])
def test_paths_are_relative_to_caller(here: Path, at: str) -> None:
    (here / "wanders.py").write_text(DRIVER.format(at=at))
    options = ("workload.samples=2", "idle_s=0.1")
    request = rig.Request("wanders.py:open_device", ("mock",), options=options, out=Path("run"), simulate=True)
    rig.measure(request, quiet=True)
    assert Path.cwd() == here
    assert (here / "run" / "power" / "events.jsonl").is_file()
    assert not [*here.rglob("elsewhere/run")]


def test_an_unwritable_target_is_refused_before_opening(monkeypatch: Patch) -> None:
    monkeypatch.setattr("rig.session.measure.set_up_bench", lambda request: pytest.fail("the bench is opened"))
    out = Path("/proc/new/run")  # where not even root makes a file

    raised(StoreError, rig.measure, rig.Request(device="mock", out=out), says=r"new.run cannot be written", quiet=True)


def test_a_full_disk_is_not_taken_for_missing_locks(tmp_path: Path, monkeypatch: Patch) -> None:
    full = raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    monkeypatch.setattr("rig.session.locks.FileLock.acquire", full)
    with pytest.raises(StoreError, match="Make room"), locked(tmp_path / ".lock", "the session"):
        pass
