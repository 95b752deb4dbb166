"""Hostile files: only the hashed bytes are used; too large or too deeply nested files, links and pipes are refused."""

import json
import math
import os
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.faults.forge import hash_again, lines_of, read
from drivers.importers.csv_table import all_of, find
from drivers.importers.windows import read_windows
from reports.audit.audit import audit
from reports.render import write
from rig.analysis.evaluate import evaluate
from rig.commands.shell.main import main
from rig.errors import AuditFailedError, DataError, IntegrityError, StoreError
from rig.recording.disk import size_limits
from rig.recording.disk.files import Folder, Opened
from rig.recording.disk.size_limits import read_bounded
from rig.recording.reader import open_run
from rig.recording.session_json import FILE, bind, open_session
from rig.session.report import parts_of, report
from tests.support.asleep import recording
from tests.support.hostile.arrow_bombs import REFUSED, empty_batches, put
from tests.support.raised import Capture, Patch, raised
from tests.support.run_by_hand import rewritten
from tests.support.submission_folder import altered

SOON_S, GROWN_MB = 10.0, 300


def halved(run: Path) -> bytes:
    """Return the file of the trace with half of the power."""
    (batch,) = read(run / "traces/core.arrows").combine_chunks().to_batches()
    values = pa.array(np.asarray(batch.column("value")) / 2)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch.set_column(batch.schema.names.index("value"), "value", values))
    return bytes(sink.getvalue())


def used_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextmanager
def soon(most_mb: float = math.inf) -> Iterator[None]:
    """Assert that what is done within takes little time and at most this memory."""
    before_mb, began_s = used_mb(), time.process_time()
    yield
    assert time.process_time() - began_s < SOON_S
    assert used_mb() - before_mb < most_mb


# ---- one reading ---------------------------------------------------------------------------


def test_a_trace_replaced_after_hashing_is_not_used(run: Path) -> None:
    true = np.asarray(open_run(run).traces["core"].value)
    opened = open_run(run, at_once=0)
    (run / "other").write_bytes(halved(run))
    (run / "other").replace(run / "traces/core.arrows")

    np.testing.assert_array_equal(opened.traces["core"].value, true)
    raised(IntegrityError, open_run, run, says=r"traces/core\.arrows differs")


@pytest.mark.parametrize("how", ["written", "shorter", "longer"])
def test_a_trace_changed_in_place_after_hashing_is_refused(run: Path, how: str) -> None:
    file, path = Opened(Folder.at(run), "traces/core.arrows", in_memory=0), run / "traces/core.arrows"
    assert len(file.read(0, 100)) == 100
    if how == "written":
        with path.open("r+b") as other:
            other.seek(-100, os.SEEK_END)
            other.write(b"\1")
    else:
        os.truncate(path, path.stat().st_size + (-8 if how == "shorter" else 8))
    raised(IntegrityError, file.read, 0, 100, says="changed while it was read")


def test_a_payload_replaced_after_hashing_is_refused(run: Path) -> None:
    payloads = run / "artifacts" / "payloads"
    payloads.mkdir(parents=True)
    np.save(payloads / "s0.npy", np.arange(4))
    hash_again(run)
    opened = open_run(run)
    np.save(payloads / "s0.npy", np.arange(5))
    raised(IntegrityError, opened.payload, "s0", says=r"s0\.npy differs")


def test_a_run_replaced_after_verification_is_refused(run: Path, tmp_path: Path) -> None:
    session = tmp_path / "session"
    for name in ("first", "other"):
        shutil.copytree(run, session / name)
    bind(session, [("first", "all")])
    opened = open_session(session)
    altered(session / "other", lambda lines: lines[0].update(run_id="other"))
    shutil.rmtree(session / "first")
    (session / "other").rename(session / "first")
    raised(IntegrityError, list, parts_of(session, opened), says=r"is not the one whose hash is in session\.json")


def test_a_report_follows_no_link_made_meanwhile(run: Path, tmp_path: Path) -> None:
    opened = open_run(run)
    derived, elsewhere = opened.folder.sub("derived", make=True), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (run / "derived").rename(run / "moved")
    (run / "derived").symlink_to(elsewhere)
    write(evaluate(opened), derived, opened)
    assert not list(elsewhere.iterdir())
    assert (run / "moved" / "results.json").is_file()


def test_no_link_is_followed_without_descriptors(run: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("rig.recording.disk.files.BY_DESCRIPTOR", False)
    assert report(run).result is not None
    for name, elsewhere in (("derived", tmp_path / "elsewhere"), ("traces", tmp_path / "traces")):
        (run / name).rename(elsewhere)
        (run / name).symlink_to(elsewhere)
        before = {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")}
        raised(StoreError, report, run, says=f"{name} is a link")
        assert {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")} == before


# ---- decoded size --------------------------------------------------------------------------


@pytest.mark.parametrize("name", REFUSED)
def test_a_small_file_that_expands_is_refused_at_once(run: Path, name: str) -> None:
    REFUSED[name](run)
    with soon(GROWN_MB), pytest.raises(StoreError, match=r"unpacks to|has a column"):
        open_run(run)


@pytest.mark.parametrize("name", ["replies.arrows", "traces/core.arrows"])
def test_too_many_empty_batches_are_refused(run: Path, name: str) -> None:
    rows = read(run / name).num_rows
    empty_batches(run, name, 5_000)
    with soon():
        opened = open_run(run)
    assert {len(opened.replies), len(opened.traces["core"].value)} >= {rows}
    assert opened.truncated == ()
    empty_batches(run, name, 12_000)
    with soon(), pytest.raises(StoreError, match="more than 10000 batches without a row"):
        open_run(run)


def test_a_batch_with_too_many_stated_rows_is_left_out(run: Path) -> None:
    file = run / "traces/core.arrows"
    (batch,) = read(file).combine_chunks().to_batches()
    put(run, "traces/core.arrows", [batch])
    stated = (rows.to_bytes(8, "little") for rows in (batch.num_rows, batch.num_rows + 1000))
    file.write_bytes(file.read_bytes().replace(*stated))
    hash_again(run)
    opened = open_run(run)
    assert (opened.truncated, len(opened.traces["core"].value)) == (("core.arrows",), 0)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("name", ["replies.arrows", "traces/core.arrows"])
def test_a_compressed_file_is_refused_by_name(run: Path, name: str, codec: str) -> None:
    put(run, name, read(run / name).to_batches(), codec)
    raised(StoreError, open_run, run, says=f"{name} is compressed. Write it without")


@pytest.mark.parametrize("read_it", [read_windows, lambda path: find(path, all_of(["time"]))])
def test_a_table_of_one_endless_line_is_refused(tmp_path: Path, read_it: Callable[[Path], object]) -> None:
    table = tmp_path / "table.csv"
    with table.open("wb") as file:
        file.write(b"start,end\n")
        for _ in range(64):
            file.write(b"1" * (1 << 20))
    with soon(50.0), pytest.raises(DataError, match="a line of more than 1048576 bytes"):
        read_it(table)


def test_many_short_idle_windows_make_one_note(tmp_path: Path) -> None:
    def share(events: list[dict[str, Any]], _: object) -> None:
        pairs = np.linspace(events[1]["on_ns"], events[1]["off_ns"], 20_000).astype(int).reshape(-1, 2).tolist()
        events[1:2] = [events[1] | {"on_ns": on, "off_ns": off} for on, off in pairs]

    many = rewritten(recording(tmp_path / "few", 1e-3, 1e-3), tmp_path / "many", share)
    with soon(GROWN_MB):
        audit(many)
    assert sum("holds no reading" in note.found for note in evaluate(open_run(many)).findings) == 1


# ---- the same JSON -------------------------------------------------------------------------

TWICE = {
    "a mode that is said twice": (0, b'"mode":"simulator"', b'"mode":"simulator","mode":"hardware"'),
    "an error that is taken back": (-1, b'"error":null', b'"error":{"message":"gone"},"error":null'),
    "a stamp that is no whole number": (0, b'"t0_ns":', b'"t0_ns":1E12,"was":'),
    "a number that is none": (0, b'"run_id":', b'"more":NaN,"run_id":'),
}


def without_chain(line: dict[str, Any]) -> bytes:
    return json.dumps({k: v for k, v in line.items() if k not in ("seq", "prev")}, separators=(",", ":")).encode()


@pytest.mark.parametrize("what", TWICE)
def test_report_and_audit_refuse_invalid_json(run: Path, what: str, capsys: Capture) -> None:
    number, old, new = TWICE[what]
    lines = [without_chain(line) for line in lines_of(run)]
    assert old in lines[number]
    lines[number] = lines[number].replace(old, new, 1)
    hash_again(run, lines)
    assert main(["report", str(run)]) in (StoreError.exit_code, IntegrityError.exit_code)
    refused = (StoreError.exit_code, IntegrityError.exit_code, AuditFailedError.exit_code)
    assert main(["audit", str(run)]) in refused
    assert "Traceback" not in capsys.readouterr().err


def test_a_session_without_an_ended_run_is_refused(tmp_path: Path) -> None:
    bind(tmp_path, [], seal=False)
    for command in ("report", "audit"):
        assert main([command, str(tmp_path)]) == StoreError.exit_code, command


def test_an_audit_follows_no_link_in_its_output_folder(run: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (run / "derived").mkdir(exist_ok=True)
    (run / "derived" / "audit.json").symlink_to(precious)
    assert main(["audit", str(run), "--quick", "--out", str(run / "derived")]) == StoreError.exit_code
    assert precious.read_text() == "mine"


# ---- bounds ---------------------------------------------------------------------------------


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 0


@pytest.mark.parametrize(("value", "says"), [
    (nested(100), "nested more than 64"), ("n" * 200_000, "text of more than"), (10**1000, "digits"),
    ({"n" * 200_000: 1}, "text of more than"), ("n" * 5_000_000, "text of more than"),
])  # fmt: skip
@pytest.mark.parametrize("field", ["run_id", "anything"])
def test_a_start_line_out_of_bounds_is_refused_at_once(run: Path, field: str, value: Any, says: str) -> None:
    altered(run, lambda lines: lines[0].update({field: value}))
    with soon(), pytest.raises(StoreError, match=says):
        open_run(run)


def test_lines_of_other_types_are_bounded(run: Path) -> None:
    altered(run, lambda lines: lines.insert(1, {"type": "mine", "deep": nested(100)}))
    raised(StoreError, open_run, run, says="is nested")


def test_brackets_in_a_text_are_not_nesting(run: Path) -> None:
    altered(run, lambda lines: lines[0].update(anything='[[{"\\"' * 200 + "9" * 2000))
    assert open_run(run).start.as_recorded["anything"].startswith("[[{")


@pytest.mark.parametrize("line", [b'"' + b"n" * (4 << 20) + b'"' + b"[]" * 65, (b"9" * 400 + b",") * 150_000])
def test_a_long_line_is_checked_at_once(line: bytes) -> None:
    with soon(100.0):
        size_limits.check_json(line, "a line")


def test_as_many_clocks_as_lines_are_read_at_once(run: Path) -> None:
    told = [{"type": "brackets", "clock": f"c{k}", "rows": [[k, k, k]]} for k in range(10_000)]
    altered(run, lambda lines: lines.__setitem__(slice(-1, -1), told))
    found = open_run(run)
    with soon():  # each clock is asked for several times
        assert all(found.brackets(f"c{k}")[0].tick == k for k in [*range(10_000)] * 5)


def test_long_lines_are_refused_before_decoding(run: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(size_limits, "LINE_BYTES", 50)
    raised(StoreError, open_run, run, says="longer than 50 bytes")


@pytest.mark.parametrize("read_it", [open_run, report])
def test_line_ends_that_git_converted_are_named(run: Path, tmp_path: Path, read_it: Callable[[Path], object]) -> None:
    bind(tmp_path, [(run.name, "all")])
    place = run if read_it is open_run else tmp_path
    for file in (*place.glob("*.jsonl*"), *place.glob("session.json*")):
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    raised(IntegrityError, read_it, place, says="line ends were converted")


def test_a_sparse_events_file_is_not_read(run: Path) -> None:
    os.truncate(run / "events.jsonl", 1 << 40)
    for place in (run, Folder.at(run)):
        raised(StoreError, open_run, place, says=f"cannot read {run}: .*larger than")


@pytest.mark.skipif(not hasattr(os.stat_result, "st_blocks"), reason="no sparse files here")
def test_a_sparse_listed_file_is_not_hashed(run: Path) -> None:
    (run / "artifacts").mkdir(exist_ok=True)
    (run / "artifacts" / "hole").write_bytes(b"")
    hash_again(run)
    os.truncate(run / "artifacts" / "hole", 1 << 40)
    with soon(), pytest.raises(StoreError, match="artifacts/hole has 1099511627776 bytes"):
        open_run(run)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
@pytest.mark.parametrize("name", ["events.jsonl", "events.jsonl.sha256", "samples.arrows", "traces/core.arrows"])
def test_a_pipe_instead_of_a_file_is_refused(run: Path, name: str) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    raised(StoreError, open_run, run)


@pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
@pytest.mark.parametrize("name", [
    "events.jsonl", "events.jsonl.sha256", "samples.arrows", "activity.arrows", "traces", "traces/core.arrows",
    "traces/a.arrows",
])  # fmt: skip
def test_a_link_instead_of_a_file_is_refused(run: Path, name: str, target: str) -> None:
    if (run / name).exists():
        (run / name).rename(run / "elsewhere")
    (run / name).symlink_to(run / target)
    for reader in (open_run, report):
        raised(StoreError, reader, run, says="is a link")


def test_a_settings_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        raised(OSError, read_bounded, path, says="regular file")


def test_a_non_text_column_name_is_refused(run: Path) -> None:
    file = run / "samples.arrows"
    file.write_bytes(file.read_bytes().replace(b"payload_sha256", b"payload\xffsha256"))
    hash_again(run)
    raised(StoreError, open_run, run, says="has a column name that is not UTF-8")


def test_a_session_file_of_gigabytes_is_refused(tmp_path: Path) -> None:
    bind(tmp_path, [])
    os.truncate(tmp_path / FILE, 1 << 40)
    raised(StoreError, open_session, tmp_path, says="larger than")
