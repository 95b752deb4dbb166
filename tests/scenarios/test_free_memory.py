"""Free memory: what the machine and the tightest control group leave."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from scenarios.workloads.qubo_mis.memory import available_bytes


def process_in(group: str, folder: Path) -> Path:
    (folder / "self").mkdir(parents=True, exist_ok=True)
    (folder / "self" / "cgroup").write_text(group + "\n")
    return folder


def test_without_a_control_group_the_machine_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    assert available_bytes(process_in("0::/", tmp_path), tmp_path / "none") == 1000


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ("0::/job/inner", ("memory.max", "memory.current", "inactive_file")),
        ("4:cpu,memory:/job/inner", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")),
    ],
)
def test_the_tightest_control_group_counts(group: str, names: tuple[str, str, str], tmp_path: Path) -> None:
    proc, root = process_in(group, tmp_path / "proc"), tmp_path / "cgroup"
    job = (root if group.startswith("0") else root / "memory") / "job"
    (job / "inner").mkdir(parents=True)
    limit, current, cache = names
    (job / limit).write_text("5000\n")
    (job / current).write_text("3000\n")
    (job / "memory.stat").write_text(f"anon 1\n{cache} 700\n")
    (job / "inner" / limit).write_text("max\n")
    (job / "inner" / current).write_text("3000\n")
    assert available_bytes(proc, root) == 2700
