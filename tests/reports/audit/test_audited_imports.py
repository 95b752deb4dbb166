"""What an import is told of the device and the meter is what the audit asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.audit.audit import audit
from rig.commands.main import main
from tests.support.import_traces import table, trace, windows

DESCRIPTION = 6
SAID = ("device_description=a board", "meter_description=a source meter")


@pytest.mark.parametrize(("told", "failed"), [(SAID, False), (SAID[:1], True), ((), True)])
def test_an_import_is_described_by_its_options(tmp_path: Path, told: tuple[str, ...], failed: bool) -> None:
    seconds, watts, _ = trace()
    source = table(tmp_path / "trace.csv", "t,p", seconds, watts)
    options = ("time=t:s", "power=p:W", f"windows={windows(tmp_path)}", *told)
    given = [word for option in options for word in ("--option", option)]

    assert main(["import", "--format", "plain-csv", str(source), "--out", str(tmp_path / "run"), *given]) == 0
    assert (DESCRIPTION in {c.number for c in audit(tmp_path / "run", quick=True).failed}) == failed
