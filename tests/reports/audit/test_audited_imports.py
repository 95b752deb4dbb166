"""The audit asks for the facts about device and meter that an import is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivers.importers.plain_csv import open_import
from reports.audit.audit import audit
from rig.commands.shell.main import main
from rig.errors import DataError
from rig.importing.write import write
from tests.support.import_traces import table, trace, windows
from tests.support.submissions import submitted

HASHES, DESCRIPTION = 2, 6
SAID = ("device_description=a board", "meter_description=a source meter")


@pytest.mark.parametrize(("told", "failed"), [(SAID, False), (SAID[:1], True), ((), True)])
def test_an_import_is_described_by_its_options(
    tmp_path: Path, told: tuple[str, ...], failed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The import names what an audit will ask for and was not told."""
    seconds, watts, _ = trace()
    source = table(tmp_path / "trace.csv", "t,p", seconds, watts)
    options = ("time=t:s", "power=p:W", f"windows={windows(tmp_path)}", *told)
    given = [word for option in options for word in ("--option", option)]

    assert main(["import", "--format", "plain-csv", str(source), "--out", str(tmp_path / "run"), *given]) == 0
    said = capsys.readouterr().out
    for option in SAID:
        name = option.partition("=")[0]
        assert (f"--option {name}=" in said) == (option not in told)
    assert (DESCRIPTION in {c.number for c in audit(tmp_path / "run", quick=True).failed}) == failed


def test_imports_of_one_plan_are_recordings_of_their_own_and_one_file_twice_is_not(tmp_path: Path) -> None:
    """A script gives each measurement the same windows, but no two measurements have the same noise."""
    imported = {}
    for name, seed in {"first": 1, "second": 2, "copy": 1}.items():
        seconds, watts, _ = trace(seed=seed)
        source = table(tmp_path / f"{name}.csv", "t,p", seconds, watts)
        options = {"time": "t:s", "power": "p:W", "windows": windows(tmp_path), "device_description": "a board"}
        run = open_import(source, **options, meter_description="a source meter")
        imported[name] = write(run, tmp_path / name)
    held = submitted(tmp_path / "sub", imported["first"], imported["second"]).path
    assert [c.found for c in audit(held, quick=True).checks if c.number == HASHES and c.outcome == "failed"] == []
    with pytest.raises(DataError, match="hold one recording: their readings of p are equal"):
        submitted(tmp_path / "twice", imported["first"], imported["copy"])
