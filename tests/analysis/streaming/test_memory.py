"""An evaluation that would not fit into memory is refused before it begins; one that fits is not."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pyarrow as pa
import pytest

from rig.analysis import memory_check as room
from rig.analysis.evaluate import evaluate
from rig.analysis.memory_check import available_bytes, check_memory, check_recording, needed_bytes
from rig.errors import MeasurementRefusedError
from rig.recording.reader import open_run
from tests.support.paths import EXAMPLES

GB = 10**9


def process_in(group: str, folder: Path) -> Path:
    (folder / "self").mkdir(parents=True, exist_ok=True)
    (folder / "self" / "cgroup").write_text(group + "\n")
    return folder


def test_what_fits_is_let_through_and_what_does_not_is_refused_with_the_way_round() -> None:
    check_memory([10**8], available=lambda: needed_bytes([10**8]))
    with pytest.raises(MeasurementRefusedError, match=r"GB are available.*rig reduce") as caught:
        check_memory([10**9], available=lambda: 8 * GB)
    assert caught.value.value == needed_bytes([10**9]) - room.RUN_BYTES * 10**9
    assert caught.value.exit_code == 30


def test_short_traces_are_never_asked_about() -> None:
    check_memory([1000] * 20, available=lambda: 0)
    check_memory([], available=lambda: 0)


def test_a_run_that_is_open_already_needs_less() -> None:
    n, least = 10**8, needed_bytes([10**8]) - room.RUN_BYTES * 10**8
    check_memory([n], opened=True, available=lambda: least)
    with pytest.raises(MeasurementRefusedError):
        check_memory([n], opened=False, available=lambda: least)


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


def test_a_recording_is_counted_without_being_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "traces").mkdir()
    for name, count in (("a", 400_000), ("b", 700_000)):
        table = pa.table({"value": np.zeros(count, np.float32)})
        with pa.ipc.new_stream(str(tmp_path / "traces" / f"{name}.arrows"), table.schema) as stream:
            stream.write_table(table, max_chunksize=1 << 16)
    asked: list[object] = []
    monkeypatch.setattr(room, "check_memory", lambda counts, **k: asked.append((counts, k)))
    check_recording(tmp_path)
    assert asked == [([400_000, 700_000], {"opened": False})]


def test_a_process_that_gets_no_memory_for_its_libraries_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # OpenBLAS would ask again without end
    monkeypatch.setattr(room, "LIBRARY_BYTES", 1 << 60)
    with pytest.raises(MeasurementRefusedError, match="more than this process gets"):
        check_memory([10])


def peak_bytes(run_dir: Path) -> tuple[int, int]:
    """Readings of a run, and the most that opening and evaluating it held."""
    tracemalloc.start()
    try:
        run = open_run(run_dir)
        evaluate(run)
        return len(run.traces["core"].value), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_what_is_asked_for_covers_what_an_evaluation_takes(tmp_path: Path) -> None:
    example = (EXAMPLES / "write_run_by_hand.py").read_text()
    for period in (40, 1000):
        script = tmp_path / f"{period}.py"
        script.write_text(example.replace("1_000_040.0, 1000 ", f"1_000_040.0, {period} "))
        subprocess.run([sys.executable, script, tmp_path / f"{period}"], check=True, capture_output=True)
    peak_bytes(tmp_path / "1000")  # imports, which hold memory too
    n, most = peak_bytes(tmp_path / "40")
    assert n > 1e5
    assert most < (room.HELD_BYTES + room.WORK_BYTES) * n + 20e6  # what the search for the activity holds of any trace
