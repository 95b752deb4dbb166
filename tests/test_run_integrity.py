"""What was altered, torn or malformed is refused by a typed error, or read to its last whole batch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_by_hand import observed, read_plainly, start_line, trace, write, write_lines

from rig.errors import DataError, IntegrityError, RigError, StoreError
from rig.evaluate import evaluate
from rig.run import open_run

QUICK = settings(
    max_examples=150, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
RECORDED = (
    "events.jsonl",
    "events.jsonl.sha256",
    "samples.arrows",
    "replies.arrows",
    "progress.arrows",
    "traces/core.arrows",
)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sealed run of a few hundred readings with a derived file beside it."""
    folder = tmp_path_factory.mktemp("recording")
    observed(folder / "long", 2)
    events, tables = read_plainly(folder / "long")
    tables["traces/core.arrows"] = tables["traces/core.arrows"].slice(0, 2500)
    solved = {"issue": [0, 0], "sample_id": ["s0", "s0"], "tick": [1, 2], "cost": [3.0, 2.0], "solution": [b"a", b"b"]}
    tables["progress.arrows"] = pa.table(solved)
    path = write(folder / "run", [e for e in events if e["type"] != "stop"], tables, batch=20)
    (path / "derived").mkdir()
    (path / "derived" / "results.json").write_text("{}")
    return path


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
def test_a_missing_file_is_an_integrity_error(recording: Path, tmp_path: Path, name: str) -> None:
    copy = shutil.copytree(recording, tmp_path / "run")
    (copy / name).unlink()
    with pytest.raises(IntegrityError, match="missing"):
        open_run(copy)


@pytest.mark.parametrize("name", ["traces/more.arrows", "progress.arrows"])
def test_a_file_that_the_stop_line_does_not_list_is_an_integrity_error(
    recording: Path, tmp_path: Path, name: str
) -> None:
    events, tables = read_plainly(recording)
    write(tmp_path / "run", events[:-1], {k: v for k, v in tables.items() if k != name})
    shutil.copy(recording / "traces" / "core.arrows", tmp_path / "run" / name)
    with pytest.raises(IntegrityError, match="does not list"):
        open_run(tmp_path / "run")


def test_lines_after_the_stop_line_are_an_integrity_error(recording: Path, tmp_path: Path) -> None:
    events, _ = read_plainly(recording)
    copy = shutil.copytree(recording, tmp_path / "run")
    write_lines(copy, [*events, events[1]])
    with pytest.raises(IntegrityError, match="after its stop line"):
        open_run(copy)


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "a/../../b", ""])
def test_the_stop_line_cannot_point_outside(recording: Path, tmp_path: Path, name: str) -> None:
    events, _ = read_plainly(recording)
    copy = shutil.copytree(recording, tmp_path / "run")
    write_lines(copy, [*events[:-1], events[-1] | {"files": {name: "0" * 64}}])
    with pytest.raises(StoreError, match="files"):
        open_run(copy)


def test_derived_files_are_not_recorded(recording: Path) -> None:
    with changed(recording / "derived" / "results.json", b"altered"):
        assert open_run(recording).sealed


def test_a_missing_seal_is_said_not_refused(recording: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(recording, tmp_path / "run")
    (copy / "events.jsonl.sha256").unlink()
    assert any("not sealed" in note for note in evaluate(open_run(copy)).notes)


# ---- torn ---------------------------------------------------------------------------------


def crashed(recording: Path, path: Path) -> Path:
    """The same run as a crash would have left it: no stop line, no seal."""
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
            assert abs(len(open_run(path).events) - kept.count(b"\n") - 0.5) <= 0.5


def test_a_crashed_run_says_so(recording: Path, tmp_path: Path) -> None:
    result = evaluate(open_run(crashed(recording, tmp_path / "run")))
    assert not result.complete
    assert any("no stop line" in note for note in result.notes)


def test_a_stop_line_without_its_newline_is_whole(recording: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(recording, tmp_path / "run")
    (copy / "events.jsonl.sha256").unlink()
    (copy / "events.jsonl").write_bytes((copy / "events.jsonl").read_bytes()[:-1])
    assert open_run(copy).stop is not None


# ---- malformed ----------------------------------------------------------------------------


def minimal(path: Path, *events: dict[str, Any], tables: dict[str, pa.Table] | None = None, **start: Any) -> Path:
    return write(path, [start_line(**start), *events], tables or {})


@pytest.mark.parametrize("fields", [["t0_ns"], ["clocks", "device"], ["run_id", "meters", "scenario", "workload"]])
def test_missing_start_fields_are_named(tmp_path: Path, fields: list[str]) -> None:
    start = {k: v for k, v in start_line().items() if k not in fields}
    with pytest.raises(StoreError) as caught:
        open_run(write(tmp_path / "run", [start], {}))
    assert all(field in str(caught.value) for field in fields)


def test_another_version_of_the_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="neurorig-run/9"):
        open_run(minimal(tmp_path / "run", schema="neurorig-run/9"))


def test_a_directory_without_events_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a run directory"):
        open_run(tmp_path)


READINGS = {"value": [1.0, 2.0, 3.0], "start_tick": [0, 10, 20], "end_tick": [10, 20, 30]}
BAD_TRACES: dict[str, Callable[[], pa.Table]] = {
    "no metadata": lambda: pa.table(READINGS),
    "no clock": lambda: pa.table(READINGS).replace_schema_metadata({"rail": '{"name": "core"}'}),
    "no value": lambda: trace({"name": "core"}, {"start_tick": [0], "end_tick": [1]}),
    "words": lambda: trace({"name": "core"}, READINGS | {"value": ["a", "b", "c"]}),
    "half of the ticks": lambda: trace({"name": "core"}, {"value": [1.0], "start_tick": [0]}),
    "neither ticks nor grid": lambda: trace({"name": "core"}, {"value": [1.0]}),
    "a null tick": lambda: trace({"name": "core"}, READINGS | {"start_tick": [0, None, 20]}),
    "a fractional tick": lambda: trace({"name": "core"}, READINGS | {"end_tick": [10.5, 20.5, 30.5]}),
    "an unknown kind": lambda: trace({"name": "core", "kind": "median"}, READINGS),
    "an unknown unit": lambda: trace({"name": "core", "conversion": {"unit": "V"}}, READINGS),
    "joules per reading": lambda: trace({"name": "core", "conversion": {"unit": "J"}}, READINGS),
    "a misspelt field": lambda: trace({"name": "core", "filter_tau": 1e-3}, READINGS),
    "a negative rate": lambda: trace({"name": "core", "rate_hz": -1.0}, READINGS),
    "a grid of words": lambda: trace({"name": "core"}, {"value": [1.0]}, grid={"t0_tick": "a"}),
}


@pytest.mark.parametrize("what", BAD_TRACES)
def test_a_trace_that_does_not_say_what_it_is_is_refused(tmp_path: Path, what: str) -> None:
    path = minimal(tmp_path / "run", tables={"traces/core.arrows": BAD_TRACES[what]()})
    with pytest.raises(StoreError, match=r"traces/core\.arrows"):
        open_run(path)


def test_two_traces_of_one_rail_are_refused(tmp_path: Path) -> None:
    same = trace({"name": "core"}, READINGS)
    with pytest.raises(StoreError, match="two traces"):
        open_run(minimal(tmp_path / "run", tables={"traces/a.arrows": same, "traces/b.arrows": same}))


CLOCK = {"type": "brackets", "clock": "meter", "rows": [[1, 1, 2]]}
BACKWARDS: dict[str, Callable[[Path], Path]] = {
    "an idle window": lambda p: minimal(p, {"type": "idle", "on_ns": 5, "off_ns": 4}),
    "a bracket": lambda p: minimal(p, CLOCK | {"rows": [[5, 1, 4]]}),
    "a mark": lambda p: minimal(p, {"type": "marks", "spans": [[5, 4]]}),
    "a reading": lambda p: minimal(
        p, tables={"traces/a.arrows": trace({"name": "a"}, READINGS | {"end_tick": [10, 5, 30]})}
    ),
    "readings": lambda p: minimal(
        p,
        CLOCK,
        tables={"traces/a.arrows": trace({"name": "a"}, READINGS | {"start_tick": [0, 10, 5]})},
        device={"clock": None},
    ),
}


@pytest.mark.parametrize("what", BACKWARDS)
def test_time_that_runs_backwards_is_a_data_error(tmp_path: Path, what: str) -> None:
    with pytest.raises(DataError):
        evaluate(open_run(BACKWARDS[what](tmp_path / "run")))


def test_a_span_that_runs_backwards_is_a_data_error(recording: Path, tmp_path: Path) -> None:
    events, tables = read_plainly(recording)
    rows = tables["replies.arrows"].to_pylist()
    rows[3]["on_tick"], rows[3]["off_tick"] = rows[3]["off_tick"], rows[3]["on_tick"]
    tables["replies.arrows"] = pa.Table.from_pylist(rows, tables["replies.arrows"].schema)
    with pytest.raises(DataError, match="span"):
        evaluate(open_run(write(tmp_path / "run", events[:-1], tables)))


REPLY = {"issue": 0, "issued_ns": 1, "on_tick": None, "off_tick": 5, "executions": 0, "output": "{", "sample_id": None}


@pytest.mark.parametrize("column", [*REPLY, "phase"])
def test_a_malformed_reply_is_refused_by_its_column(recording: Path, tmp_path: Path, column: str) -> None:
    events, tables = read_plainly(recording)
    replies = tables["replies.arrows"]
    at = replies.column_names.index(column)
    if column in ("issue", "issued_ns", "phase"):
        replies = replies.remove_column(at)
    else:
        values = replies[column].to_pylist()
        values[1] = REPLY[column]
        if column == "off_tick":
            values = [str(v) + "x" for v in values]
        replies = replies.set_column(at, column, [values])
    path = write(tmp_path / "run", events[:-1], tables | {"replies.arrows": replies})
    with pytest.raises(StoreError, match="replies"):
        open_run(path)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document, as a path of keys."""
    yield at
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value[:6]):
            yield from places(inner, (*at, key))


@given(data=st.data(), other=ANYTHING)
@settings(QUICK, max_examples=200)
def test_no_malformed_line_makes_anything_but_a_rig_error(
    recording: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, other: Any
) -> None:
    copy = tmp_path_factory.getbasetemp() / "malformed"
    copy = copy if copy.exists() else shutil.copytree(recording, copy)
    events, _ = read_plainly(recording)
    events = json.loads(json.dumps(events))
    at = data.draw(st.sampled_from([p for p in places(events) if len(p) > 1]))
    parent: Any = events
    for key in at[:-1]:
        parent = parent[key]
    parent[at[-1]] = other
    write_lines(copy, events)
    try:
        result = evaluate(open_run(copy))
    except RigError:
        return
    assert np.isfinite([q.value for q in result.quantities.values()]).all()
