"""The audit asks for the facts about device and meter that an import is told."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from drivers.importers.plain_csv import open_import
from reports.audit.audit import audit
from rig.commands.shell.main import main
from rig.errors import DataError
from rig.importing.write import write
from tests.support.import_traces import table, trace, windows
from tests.support.processes import options
from tests.support.submissions import submitted

HASHES, DESCRIPTION, CALIBRATED = 2, 6, 23
SAID = ("device_description=a board", "meter_description=a source meter")


@pytest.mark.parametrize(("told", "failed"), [(SAID, False), (SAID[:1], True), ((), True)])
def test_an_import_is_described_by_its_options(
    tmp_path: Path, told: tuple[str, ...], failed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The import names what an audit will ask for and was not told."""
    seconds, watts, _ = trace()
    source = table(tmp_path / "trace.csv", "t,p", seconds, watts)
    given = options("time=t:s", "power=p:W", f"windows={windows(tmp_path)}", *told)

    assert main(["import", "--format", "plain-csv", str(source), "--out", str(tmp_path / "run"), *given]) == 0
    said = capsys.readouterr().out
    for option in SAID:
        name = option.partition("=")[0]
        assert (f"--option {name}=" in said) == (option not in told)
    assert (DESCRIPTION in {c.number for c in audit(tmp_path / "run", quick=True).failed}) == failed


@pytest.mark.parametrize(
    ("begin", "outcome"), [(None, "not applicable"), ("2019-01-01", "passed"), ("2016-01-01", "failed")]
)
def test_a_calibration_file_dates_the_calibration_of_the_meter(begin: str | None, outcome: str, tmp_path: Path) -> None:
    """The age is that of the calibration on the day that the stamps name, and not on the day of the import."""
    zero_s = datetime(2019, 3, 1, tzinfo=UTC).timestamp()
    seconds, watts, _ = trace()
    stamps = [datetime.fromtimestamp(zero_s + s, UTC).isoformat() for s in seconds.tolist()]
    rows = (f"{a},{w!r}" for a, w in zip(stamps, watts.tolist(), strict=True))
    (tmp_path / "trace.csv").write_text("\n".join(["t,p", *rows]))
    limits = "[[range]]\nunit = 'W'\nfull_scale = 1.0\nof_reading_percent = 0.1\nof_range_percent = 0.1\n"
    (tmp_path / "c.toml").write_text(
        f"instrument = 'made up'\nreference = 'paper 7'\nvalid_from = {begin}\nvalid_until = 2019-12-31\n{limits}"
    )
    run = open_import(
        tmp_path / "trace.csv", time="t:iso", power="p:W", windows=windows(tmp_path, zero_s=zero_s),
        calibration=None if begin is None else str(tmp_path / "c.toml"),
    )  # fmt: skip
    (check,) = (c for c in audit(write(run, tmp_path / "run"), quick=True).checks if c.number == CALIBRATED)
    assert check.outcome == outcome


def test_imports_of_one_plan_are_recordings_of_their_own_and_one_file_twice_is_not(tmp_path: Path) -> None:
    """A script gives each measurement the same windows, but no two measurements have the same noise."""
    imported = {}
    for name, seed in {"first": 1, "second": 2, "copy": 1}.items():
        seconds, watts, _ = trace(seed=seed)
        source = table(tmp_path / f"{name}.csv", "t,p", seconds, watts)
        options = {"time": "t:s", "power": "p:W", "windows": windows(tmp_path), "device_description": "a board"}
        imported[name] = write(open_import(source, **options, meter_description="a source meter"), tmp_path / name)
    held = submitted(tmp_path / "sub", imported["first"], imported["second"]).path
    assert [c.found for c in audit(held, quick=True).checks if c.number == HASHES and c.outcome == "failed"] == []
    with pytest.raises(DataError, match="hold one recording: their readings of p are equal"):
        submitted(tmp_path / "twice", imported["first"], imported["copy"])
