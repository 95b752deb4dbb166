"""A folder that an importer cannot read is refused by what it lacks, and other formats are pointed to."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivers.importers.energyrunner.importer import open_import as energyrunner
from drivers.importers.mlperf_power.importer import open_import as mlperf_power
from rig.errors import DataError


def test_a_wrong_folder_is_refused_by_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Timestamp(ms),Current(uA)\n")
    for open_import, lack in ((energyrunner, "-energy.bin"), (mlperf_power, "spl.txt")):
        with pytest.raises(DataError, match=lack) as caught:
            open_import(tmp_path)
        assert "rig list" in caught.value.remedy
