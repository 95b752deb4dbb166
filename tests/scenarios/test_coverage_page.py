"""The page on coverage agrees with the code, and has a row for each part of the sources."""

from __future__ import annotations

import re
import tomllib

import pytest

from rig.analysis.result.catalogue import CATALOGUE
from tests.support.paths import DOCS, ROOT

PAGE = (DOCS / "reference" / "benchmark-coverage.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| of the sources"))
]
POINTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
KNOWN = {name for group in POINTS.values() for name in group} | set(CATALOGUE)
SOURCES = (
    "Keyword FSCIL", "Event camera object detection", "Non-human primate", "Chaotic function prediction",
    "Acoustic scene", "QUBO, maximum", "Poissonian", "rank order", "flashing", "moving", "COCO mAP", "R2", "sMAPE",
    "Footprint", "Model execution rate", "Connection sparsity", "Activation sparsity", "Synaptic operations",
    "Throughput", "Latency", "Average power", "Energy per sample", "Sopbs", "Sops/W", "Single-stream", "Offline",
    "Server", "Real-time", "Optimization", "M5", "RED", "Hybrid", "ANN (motor", "SNN (motor", "ANN_Flat", "SNN_Flat",
    "ESN", "LSTM", "Loihi 2", "SpiNNaker", "TrueNorth", "Neurogrid", "HI-CANN", "HiAER-IFAT", "Speck", "NIR",
)  # fmt: skip


def test_every_name_of_the_page_is_one_of_the_code() -> None:
    names = [name for row in ROWS for name in re.findall(r"`([^`]+)`", row[3])]
    assert len(names) > 60
    assert not [name for name in names if name not in KNOWN and not (ROOT / name).is_file()]


def test_every_row_says_its_state_and_what_it_was_shown_on() -> None:
    assert {len(row) for row in ROWS} == {4}
    assert not [row for row in ROWS if not row[1].startswith(("built", "not built")) or not row[2]]
    assert not [row for row in ROWS if row[1].startswith("built") and "`" not in row[3]]


@pytest.mark.parametrize("part", SOURCES)
def test_each_part_of_the_sources_has_a_row(part: str) -> None:
    assert any(part in row[0] for row in ROWS)


def test_each_workload_is_named() -> None:
    assert not [name for name in POINTS["rig.workloads"] if f"`{name}`" not in PAGE]
