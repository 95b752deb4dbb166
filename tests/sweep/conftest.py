"""A sweep that was completed once, and copies of it to damage."""

import os
import shutil
from pathlib import Path

import pytest

from tests.support.sweep_bench import GRID, quick


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A completed sweep of four cells, only for reading."""
    out = tmp_path_factory.mktemp("whole") / "sweep"
    assert quick(out, *GRID) == 0
    return out


@pytest.fixture
def copy(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sweep and of the cache that holds its rows, for tests that damage them."""
    shutil.copytree(os.environ["NEURORIG_CACHE_DIR"], tmp_path / "cache")
    monkeypatch.setenv("NEURORIG_CACHE_DIR", str(tmp_path / "cache"))
    return Path(shutil.copytree(whole, tmp_path / "copy"))
