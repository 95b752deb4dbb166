"""Common behaviour of all importers of one instrument's trace: options, and windows that are read first."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivers.importers import joulescope_csv, joulescope_jls, otii, plain_csv, ppk2, socwatch
from drivers.importers.energyrunner.importer import open_import as energyrunner
from drivers.importers.mlperf_power.importer import open_import as mlperf_power
from rig.errors import DataError, UsageError
from tests.support.import_traces import plain
from tests.support.raised import raised

FORMATS = [joulescope_csv, joulescope_jls, otii, plain_csv, ppk2, socwatch]


@pytest.mark.parametrize("module", FORMATS, ids=lambda m: m.__name__.rpartition(".")[2])
def test_without_windows_an_import_is_refused_before_its_file_is_read(module: object, tmp_path: Path) -> None:
    assert raised(UsageError, module.open_import, tmp_path / "absent").field == "windows"  # type: ignore[attr-defined]


def test_a_value_out_of_range_is_named_with_its_option(tmp_path: Path) -> None:
    error = raised(UsageError, plain, tmp_path, sync_s=-1.0)
    assert (error.field, error.value) == ("sync_s", -1.0)


def test_a_wrong_folder_is_refused_by_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Timestamp(ms),Current(uA)\n")
    for open_import, lack in ((energyrunner, "-energy.bin"), (mlperf_power, "spl.txt")):
        assert "rig list" in raised(DataError, open_import, tmp_path, says=lack).remedy
