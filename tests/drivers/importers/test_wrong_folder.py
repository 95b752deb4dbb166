"""A folder that an importer cannot read is refused with a guess of its format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drivers.importers.energyrunner.importer import open_import as energyrunner
from drivers.importers.mlperf_power.importer import open_import as mlperf_power
from rig.errors import DataError


@pytest.mark.parametrize(
    ("open_import", "name", "content", "hint"),
    [
        (energyrunner, "run_1/spl.txt", "Time,", "mlperf-power"),
        (energyrunner, "a.csv", "Timestamp(ms),Current(uA)\n", "ppk2"),
        (energyrunner, "log.txt", "m-ready", "performance or accuracy"),
        (energyrunner, "notes.md", "x", "no known format"),
        (energyrunner, "", "", "empty"),
        (mlperf_power, "s/trace1-energy.bin", "x", "energyrunner"),
        (mlperf_power, "run_1/mlperf_log_detail.txt", ":::MLLOG {}", "none of a power meter"),
        (mlperf_power, "a.csv", "#time,current,voltage,power\n", "joulescope-csv"),
        (mlperf_power, "", "", "empty"),
    ],
)
def test_a_wrong_folder_is_told_by_what_it_looks_like(
    open_import: Callable[[Path], Any], name: str, content: str, hint: str, tmp_path: Path
) -> None:
    if name:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=hint):
        open_import(tmp_path)
