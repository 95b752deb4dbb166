"""Files that are too large, too deep or not files at all are refused with a typed error, and not read."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults.forge import hash_again, lines_of
from rig.errors import IntegrityError, StoreError
from rig.recording.disk import bounded
from rig.recording.disk.bounded import read_bounded
from rig.recording.reader import open_run
from rig.recording.session import FILE, bind, open_session
from rig.session.report import report
from tests.support.run_by_hand import short_recording

SOON_S = 5.0


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return short_recording(tmp_path_factory.mktemp("recording"))


@pytest.fixture
def run(recording: Path, tmp_path: Path) -> Path:
    return shutil.copytree(recording, tmp_path / "run")


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (nested(100), "nested more than 64"),
        ("n" * 200_000, "text of more than"),
        (10**1000, "digits"),
        ({"n" * 200_000: 1}, "text of more than"),
        ("n" * 5_000_000, "text of more than"),
    ],
)
@pytest.mark.parametrize("field", ["run_id", "anything"])
def test_a_start_line_out_of_bounds_is_refused_at_once(run: Path, field: str, value: Any, says: str) -> None:
    lines = lines_of(run)
    lines[0][field] = value
    hash_again(run, lines)
    began_s = time.process_time()
    with pytest.raises(StoreError, match=says):
        open_run(run)
    assert time.process_time() - began_s < SOON_S


def test_a_line_of_another_type_is_bounded_too(run: Path) -> None:
    lines = lines_of(run)
    lines.insert(1, {"type": "mine", "deep": nested(100)})
    hash_again(run, lines)
    with pytest.raises(StoreError, match="is nested"):
        open_run(run)


def test_brackets_in_a_text_are_not_nesting(run: Path) -> None:
    lines = lines_of(run)
    lines[0]["anything"] = '[[{"\\"' * 200 + "9" * 2000
    hash_again(run, lines)
    assert open_run(run).start.as_recorded["anything"].startswith("[[{")


def test_long_lines_and_files_are_refused_before_they_are_decoded(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "LINE_BYTES", 50)
    with pytest.raises(StoreError, match="longer than 50 bytes"):
        open_run(run)


def test_a_file_of_events_that_is_a_hole_is_not_read(run: Path) -> None:
    os.truncate(run / "events.jsonl", 1 << 40)
    with pytest.raises(StoreError, match="larger than"):
        open_run(run)


@pytest.mark.skipif(not hasattr(os.stat_result, "st_blocks"), reason="no sparse files here")
def test_a_listed_file_that_is_a_hole_is_not_hashed(run: Path) -> None:
    (run / "artifacts").mkdir(exist_ok=True)
    (run / "artifacts" / "hole").write_bytes(b"")
    hash_again(run)
    os.truncate(run / "artifacts" / "hole", 1 << 40)
    began_s = time.process_time()
    with pytest.raises(StoreError, match="artifacts/hole has 1099511627776 bytes"):
        open_run(run)
    assert time.process_time() - began_s < SOON_S


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
@pytest.mark.parametrize("name", ["events.jsonl", "events.jsonl.sha256", "samples.arrows", "traces/core.arrows"])
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(run: Path, name: str) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    with pytest.raises(StoreError):
        open_run(run)


@pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
@pytest.mark.parametrize(
    "name",
    [
        "events.jsonl", "events.jsonl.sha256", "samples.arrows", "activity.arrows", "traces/core.arrows",
        "traces/a.arrows",
    ],
)  # fmt: skip
def test_a_link_in_the_place_of_a_file_is_refused_wherever_it_leads(run: Path, name: str, target: str) -> None:
    if (run / name).exists():
        (run / name).rename(run / "elsewhere")
    (run / name).symlink_to(run / target)
    for reader in (open_run, report):
        with pytest.raises(StoreError, match="is a link"):
            reader(run)


def test_a_link_in_the_place_of_the_folder_of_traces_is_refused(run: Path) -> None:
    (run / "traces").rename(run / "elsewhere")
    (run / "traces").symlink_to(run / "elsewhere")
    with pytest.raises(StoreError, match="traces is a link"):
        open_run(run)


def test_a_payload_that_the_stop_line_does_not_list_is_refused(run: Path) -> None:
    (run / "artifacts" / "payloads").mkdir(parents=True, exist_ok=True)
    (run / "artifacts" / "payloads" / "forged.npy").write_bytes(b"")
    with pytest.raises(IntegrityError, match="does not list"):
        open_run(run)


def test_a_pipe_is_no_settings_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="regular file"):
            read_bounded(path)


def test_a_column_whose_name_is_no_text_is_refused(run: Path) -> None:
    file = run / "samples.arrows"
    file.write_bytes(file.read_bytes().replace(b"payload_sha256", b"payload\xffsha256"))
    hash_again(run)
    with pytest.raises(StoreError, match="has a column name that is not UTF-8"):
        open_run(run)


def test_a_session_file_of_gigabytes_is_refused(tmp_path: Path) -> None:
    bind(tmp_path, [])
    os.truncate(tmp_path / FILE, 1 << 40)
    with pytest.raises(StoreError, match="larger than"):
        open_session(tmp_path)
