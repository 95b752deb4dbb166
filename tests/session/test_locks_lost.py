"""If a driver closes a lock's file, the lock is lost, which is reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rig.errors import StoreError
from rig.session.locks import locked


def close_it(lock: Path) -> None:
    mine = next(fd for fd in Path("/proc/self/fd").iterdir() if os.path.realpath(fd) == str(lock.resolve()))
    os.close(int(mine.name))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no list of open files here")
def test_a_lock_that_a_driver_closed_is_said_to_be_lost(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    with pytest.raises(StoreError, match="was lost"), locked(lock, "it"):
        close_it(lock)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no list of open files here")
def test_the_first_error_says_more_than_the_loss_of_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    with pytest.raises(ValueError, match="first"), locked(lock, "it"):
        close_it(lock)
        raise ValueError("first")
