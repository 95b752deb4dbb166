"""Altered recordings are refused; those that a crash cut off are read up to their last whole batch."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rig.analysis.evaluate import evaluate
from rig.errors import IntegrityError, StoreError
from rig.recording.reader import open_run
from tests.support.run_by_hand import read_plainly, write, write_lines

UNCHECKED = list(HealthCheck)
QUICK = settings(max_examples=30, deadline=None, database=None, derandomize=True, suppress_health_check=UNCHECKED)
TABLES = ("samples", "replies", "progress", "activity", "traces/core")
RECORDED = ("events.jsonl", "events.jsonl.sha256", *(f"{table}.arrows" for table in TABLES))


@contextmanager
def changed(file: Path, content: bytes) -> Iterator[None]:
    """The file with other content, for a while."""
    before = file.read_bytes()
    file.write_bytes(content)
    try:
        yield
    finally:
        file.write_bytes(before)


# ---- altered ------------------------------------------------------------------------------


@given(name=st.sampled_from(RECORDED), at=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
@QUICK
def test_any_altered_byte_is_refused(recording: Path, name: str, at: float, flip: int) -> None:
    data = bytearray((recording / name).read_bytes())
    data[int(at * len(data))] ^= flip
    with changed(recording / name, bytes(data)), pytest.raises(StoreError):
        open_run(recording)


@pytest.mark.parametrize("line", [0, 1, -2, -1])
def test_an_altered_byte_of_any_line_is_an_integrity_error(recording: Path, line: int) -> None:
    lines = (recording / "events.jsonl").read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b"1", b"2", 1)
    with changed(recording / "events.jsonl", b"".join(lines)), pytest.raises(IntegrityError):
        open_run(recording)


@pytest.mark.parametrize("name", RECORDED[2:])
def test_a_missing_file_is_an_integrity_error(run: Path, name: str) -> None:
    (run / name).unlink()
    with pytest.raises(IntegrityError, match="missing"):
        open_run(run)


@pytest.mark.parametrize("name", ["traces/more.arrows", "progress.arrows", "artifacts/payloads/forged.npy"])
def test_a_file_that_the_stop_line_does_not_list_breaks_integrity(recording: Path, tmp_path: Path, name: str) -> None:
    events, tables = read_plainly(recording)
    write(tmp_path / "run", events[:-1], {k: v for k, v in tables.items() if k != name})
    (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(recording / "traces" / "core.arrows", tmp_path / "run" / name)
    with pytest.raises(IntegrityError, match="does not list"):
        open_run(tmp_path / "run")


def test_lines_after_the_stop_line_are_an_integrity_error(run: Path) -> None:
    events, _ = read_plainly(run)
    write_lines(run, [*events, events[1]])
    with pytest.raises(IntegrityError, match="after its stop line"):
        open_run(run)


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "a/../../b", ""])
def test_the_stop_line_cannot_point_outside(run: Path, name: str) -> None:
    events, _ = read_plainly(run)
    write_lines(run, [*events[:-1], events[-1] | {"files": {name: "0" * 64}}])
    with pytest.raises(StoreError, match="files"):
        open_run(run)


def test_derived_files_are_not_recorded(recording: Path) -> None:
    with changed(recording / "derived" / "results.json", b"altered"):
        assert open_run(recording).sealed


def test_a_missing_seal_is_said_not_refused(run: Path) -> None:
    (run / "events.jsonl.sha256").unlink()
    assert any("not sealed" in note for note in evaluate(open_run(run)).notes)


# ---- torn ---------------------------------------------------------------------------------


def crashed(recording: Path, path: Path) -> Path:
    """Return the same run after a crash: no stop line, no seal."""
    events, _ = read_plainly(recording)
    shutil.copytree(recording, path)
    write_lines(path, events[:-1], seal=False)
    return path


@given(name=st.sampled_from(RECORDED[2:]), keep=st.floats(0, 1))
@QUICK
def test_a_torn_file_of_a_crashed_run_reads_to_its_last_whole_batch(
    recording: Path, tmp_path_factory: pytest.TempPathFactory, name: str, keep: float
) -> None:
    path = tmp_path_factory.getbasetemp() / "crashed"
    path = path if path.exists() else crashed(recording, path)
    with pa.ipc.open_stream(str(path / name)) as stream:
        whole = [0, *accumulate(batch.num_rows for batch in stream)]
    data = (path / name).read_bytes()
    with changed(path / name, data[: int(keep * len(data))]):
        run = open_run(path)
    trace_rows = len(run.traces["core"].value) if "core" in run.traces else 0
    rows = trace_rows if name.startswith("traces") else getattr(run, name.removesuffix(".arrows")).num_rows
    assert rows in whole
    assert run.stop is None
    assert whole.index(rows) >= int(keep * len(data)) // (len(data) // (len(whole) - 1)) - 2


@given(keep=st.floats(0, 1, exclude_max=True))
@QUICK
def test_torn_lines_of_a_crashed_run_read_to_the_last_whole_one(
    recording: Path, tmp_path_factory: pytest.TempPathFactory, keep: float
) -> None:
    path = tmp_path_factory.getbasetemp() / "crashed"
    path = path if path.exists() else crashed(recording, path)
    data = (path / "events.jsonl").read_bytes()
    kept = data[: int(keep * len(data))]
    with changed(path / "events.jsonl", kept):
        if len(kept) < data.index(b"\n"):
            with pytest.raises(StoreError, match="empty"):
                open_run(path)
        else:
            assert abs(len(open_run(path).lines) - kept.count(b"\n") - 0.5) <= 0.5


def test_a_stop_line_without_its_newline_is_whole(run: Path) -> None:
    (run / "events.jsonl.sha256").unlink()
    (run / "events.jsonl").write_bytes((run / "events.jsonl").read_bytes()[:-1])
    assert open_run(run).stop is not None
