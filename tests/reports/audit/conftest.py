"""A session that keeps every rule, to be forged."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.forgery import start
from tests.support.hardware_clothes import recorded
from tests.support.submission_folder import forged


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session of a benchmark of twelve scenes by neurobench-1.0 that keeps every rule."""
    of_twelve = start(lambda run, line: line["workload"]["benchmark"].update(name="twelve scenes"))
    folder = tmp_path_factory.mktemp("honest")
    return forged(recorded("single-stream", folder).path, folder / "session", of_twelve)


@pytest.fixture(scope="session")
def few(session: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the session with four of its runs, for what each run shows by itself."""
    kept, folder = ("accuracy", "performance-1", "power-1", "power-2"), tmp_path_factory.mktemp("few")
    document = json.loads((session / "session.json").read_text())
    document["runs"] = [run for run in document["runs"] if run["path"] in kept]
    shutil.copytree(session, folder / "all")
    (folder / "all" / "session.json").write_text(json.dumps(document))
    numbered = start(lambda run, line: line["session"].update(number=kept.index(run) + 1, of=len(kept)))
    return forged(folder / "all", folder / "few", numbered)
