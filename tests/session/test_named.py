"""A recording is found by its path, by its name below ``runs/``, or by a part of this name."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fixtures.worlds.lab_recording import plain_lab, write
from rig.commands.shell.main import main
from rig.errors import UsageError
from rig.session.named import meant


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "run"
    write(plain_lab(1, "plain"), path)
    return path


@pytest.fixture
def lab(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three recordings; ``b-mock`` is the newest."""
    for age_s, name in enumerate(("b-mock", "a-mock", "first")):
        shutil.copytree(recorded, tmp_path / "runs" / name)
        os.utime(tmp_path / "runs" / name / "events.jsonl", (1e9 - age_s, 1e9 - age_s))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("lab")
def test_a_name_or_a_part_of_one_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert meant(Path("first")) == meant(Path("irs")) == meant(Path("runs/first")) == Path("runs/first")
    assert meant(Path("gone")) == Path("gone")
    with pytest.raises(UsageError, match=r"mock may be one of 2 recordings.*such as runs/b-mock"):
        meant(Path("mock"))
    listed = [line.split(",")[0].strip() for line in capsys.readouterr().err.splitlines()]
    assert listed == ["runs/b-mock", "runs/a-mock"]


def test_an_exact_name_is_that_recording_though_others_contain_it(lab: Path) -> None:
    (lab / "runs" / "a-mock").rename(lab / "runs" / "first-2")
    assert meant(Path("first")) == Path("runs/first")


@pytest.mark.usefixtures("lab")
def test_a_report_of_a_folder_of_recordings_lists_them_newest_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "runs"]) == UsageError.exit_code
    *listed, said = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0].strip() for line in listed] == ["runs/b-mock", "runs/a-mock", "runs/first"]
    assert said == "rig: runs holds 3 recordings. Name one of them, such as runs/b-mock"


@pytest.mark.usefixtures("lab")
def test_a_report_and_a_comparison_take_names() -> None:
    assert main(["report", "first", "--allow-invalid"]) == 0
    assert main(["compare", "first", "a-mock"]) == 0
