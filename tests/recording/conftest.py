"""A short recording with every kind of file, for tests that alter it."""

import shutil
from pathlib import Path

import pytest

from tests.support.run_by_hand import short_recording


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording that all tests share; a test that changes it restores it."""
    return short_recording(tmp_path_factory.mktemp("recording"))


@pytest.fixture
def run(recording: Path, tmp_path: Path) -> Path:
    """A copy of the shared recording."""
    return shutil.copytree(recording, tmp_path / "run")
