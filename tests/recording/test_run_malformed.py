"""A malformed, altered or ambiguous recording is refused by a typed error that names the fault.

A recording is ambiguous if it has two descriptions of a rail or a clock. A recording that a crash cut off is read up to
its last whole batch."""

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
from hypothesis import HealthCheck, given, settings, strategies as st

from fixtures.worlds import lab_recording
from rig.analysis.evaluate import evaluate
from rig.errors import DataError, IntegrityError, RigError, StoreError
from rig.recording.reader import open_run
from tests.support.raised import raised
from tests.support.run_by_hand import read_plainly, rewritten, start_line, trace, write, write_lines


def minimal(path: Path, *events: dict[str, Any], tables: dict[str, pa.Table] | None = None, **start: Any) -> Path:
    return write(path, [start_line(**start), *events], tables or {})


@pytest.mark.parametrize("fields", [["t0_ns"], ["clocks", "device"], ["run_id", "meters", "scenario", "workload"]])
def test_missing_start_fields_are_named(tmp_path: Path, fields: list[str]) -> None:
    start = {k: v for k, v in start_line().items() if k not in fields}
    caught = raised(StoreError, open_run, write(tmp_path / "run", [start], {}))
    assert all(field in str(caught) for field in fields)


@pytest.mark.parametrize("option", ["to_gap", "latency_bound_s", "deadline_s", "stride_s"])
def test_a_non_numeric_option_is_named(tmp_path: Path, option: str) -> None:
    scenario = {"name": "single-stream", "options": {option: "wide"}}
    played = open_run(minimal(tmp_path / "run", scenario=scenario)).start.scenario
    with pytest.raises(DataError, match=f"option {option} is 'wide', not a number"):
        float(played.to_gap or played.latency_bound_s or played.deadline_s or 0.0)


RULES = {"name": "r", "scenario": "server", "source": "", "submittable": False}
OUT_OF_BOUNDS: dict[str, dict[str, Any]] = {
    "percentile": {"rules": RULES | {"percentile": 1.0}},
    r"clocks\[0\].tolerance": {"clocks": [{"name": "host", "tick_hz": 1e9, "tolerance": 0.6}]},
}


@pytest.mark.parametrize("field", OUT_OF_BOUNDS)
def test_an_impossible_number_in_a_start_line_is_refused(field: str, tmp_path: Path) -> None:
    raised(StoreError, open_run, minimal(tmp_path / "run", **OUT_OF_BOUNDS[field]), says=field)


def test_an_unknown_format_version_is_named(tmp_path: Path) -> None:
    raised(StoreError, open_run, minimal(tmp_path / "run", schema="neurorig-run/9"), says="neurorig-run/9")
    caught = raised(StoreError, open_run, minimal(tmp_path / "other", schema="x" * 10_000))
    assert len(caught.message) < 1000


READINGS = {"value": [1.0, 2.0, 3.0], "start_tick": [0, 10, 20], "end_tick": [10, 20, 30]}
GRID = {"t0_tick": 0, "period_tick": 1, "aperture_tick": 1}
DEEP = {"meter": "hand", "clock": "meter", "rail": "[" * 100_000}
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
    "an unknown unit": lambda: trace({"name": "core", "conversion": {"unit": "VA"}}, READINGS),
    "joules per reading": lambda: trace({"name": "core", "conversion": {"unit": "J"}}, READINGS),
    "a misspelt field": lambda: trace({"name": "core", "filter_tau": 1e-3}, READINGS),
    "a negative rate": lambda: trace({"name": "core", "rate_hz": -1.0}, READINGS),
    "a grid without an end": lambda: trace({"name": "core"}, {"value": [1.0]}, grid=GRID | {"period_tick": 1e308}),
    "a grid from nowhere": lambda: trace({"name": "core"}, {"value": [1.0]}, grid=GRID | {"t0_tick": 10**30}),
    "a grid of words": lambda: trace({"name": "core"}, {"value": [1.0]}, grid={"t0_tick": "a"}),
    "two columns of one name": lambda: pa.Table.from_arrays(
        [pa.array([1.0]), pa.array([1.0])], names=["value", "value"]
    ).replace_schema_metadata(trace({"name": "core"}, {}, grid=GRID).schema.metadata),
    "a rail nested deeply": lambda: trace({"name": "core"}, READINGS).replace_schema_metadata(DEEP),
    "thousands of columns": lambda: trace({"name": "core"}, READINGS | {f"c{k}": [1, 2, 3] for k in range(5000)}),
}


@pytest.mark.parametrize("what", BAD_TRACES)
@pytest.mark.parametrize("at_once", [0, 1 << 20])
def test_a_trace_without_a_valid_description_is_refused(tmp_path: Path, what: str, at_once: int) -> None:
    path = minimal(tmp_path / "run", tables={"traces/core.arrows": BAD_TRACES[what]()})
    raised(StoreError, open_run, path, says=r"core\.arrows", at_once=at_once)


def test_two_traces_of_one_rail_are_refused(tmp_path: Path) -> None:
    same = trace({"name": "core"}, READINGS)
    with pytest.raises(StoreError, match="two traces"):
        open_run(minimal(tmp_path / "run", tables={"traces/a.arrows": same, "traces/b.arrows": same}))


def a_trace(**ticks: list[int]) -> dict[str, pa.Table]:
    return {"traces/a.arrows": trace({"name": "a"}, READINGS | ticks)}


CLOCK = {"type": "brackets", "clock": "meter", "rows": [[1, 1, 2]]}
BACKWARDS: dict[str, Callable[[Path], Path]] = {
    "an idle window": lambda p: minimal(p, {"type": "idle", "on_ns": 5, "off_ns": 4}),
    "a bracket": lambda p: minimal(p, CLOCK | {"rows": [[5, 1, 4]]}),
    "a counter": lambda p: minimal(p, CLOCK | {"rows": [[1, 4_294_967_295, 2], [3, 10, 4]]}),
    "a mark": lambda p: minimal(p, {"type": "marks", "spans": [[5, 4]]}),
    "a reading": lambda p: minimal(p, tables=a_trace(end_tick=[10, 5, 30])),
    "readings": lambda p: minimal(p, CLOCK, tables=a_trace(start_tick=[0, 10, 5]), device={"clock": None}),
}


@pytest.mark.parametrize("what", BACKWARDS)
def test_time_that_runs_backwards_is_a_data_error(tmp_path: Path, what: str) -> None:
    raised(DataError, lambda: evaluate(open_run(BACKWARDS[what](tmp_path / "run"))))


@pytest.mark.parametrize("spoil", [{"on_tick": 2**61, "off_tick": 5}, {"off_tick": 2**62}, {"executions": 0}], ids=str)
def test_an_impossible_span_is_left_out(recording: Path, tmp_path: Path, spoil: dict[str, int]) -> None:
    events, tables = read_plainly(recording)
    rows = tables["replies.arrows"].to_pylist()
    rows[3] |= spoil
    tables["replies.arrows"] = pa.Table.from_pylist(rows, tables["replies.arrows"].schema)
    run = open_run(write(tmp_path / "run", events[:-1], tables))
    (what,) = run.left_out
    assert rows[3]["sample_id"] in what
    found, whole = (evaluate(r).quantities["execution_time_s"] for r in (run, open_run(recording)))
    assert found.n == whole.n - 1
    assert run.replies["output"].to_pylist() == [row["output"] for row in rows]


SPOILT = {"too large": ("value", 1e308), "late": ("start_tick", 2**61), "early": ("end_tick", 0)}


@pytest.mark.parametrize("what", SPOILT)
def test_an_impossible_reading_is_left_out(recording: Path, tmp_path: Path, what: str) -> None:
    events, tables = read_plainly(recording)
    table = tables["traces/core.arrows"]
    column, value = SPOILT[what]
    values = table[column].to_pylist()
    values[len(values) // 2] = value
    at = table.schema.get_field_index(column)
    tables["traces/core.arrows"] = table.set_column(at, table.schema.field(at), [values])
    run = open_run(write(tmp_path / "run", events[:-1], tables))
    assert run.left_out == (f"1 of {len(values)} readings of rail core, which are out of bounds or out of order",)
    spoilt, whole = (evaluate(r) for r in (run, open_run(recording)))
    assert set(spoilt.quantities) == set(whole.quantities), spoilt.refusals


@pytest.mark.parametrize("rate_hz", [1.0, 1e6])
def test_a_rate_contradicted_by_ticks_is_a_data_error(recording: Path, tmp_path: Path, rate_hz: float) -> None:
    events, tables = read_plainly(recording)
    columns = {name: tables["traces/core.arrows"][name] for name in ("value", "start_tick", "end_tick")}
    tables["traces/core.arrows"] = trace({"name": "core", "rate_hz": rate_hz}, columns)
    raised(DataError, open_run, write(tmp_path / "run", events[:-1], tables), says="as far apart")


REPLY = {"issue": 0, "issued_ns": 1, "on_tick": None, "off_tick": 5, "output": "{", "sample_id": None}


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
    raised(StoreError, open_run, path, says="replies")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield every place in a document (of a list, the first six), as a path of keys."""
    yield at
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value[:6]):
            yield from places(inner, (*at, key))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@given(data=st.data(), other=ANYTHING)
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_a_malformed_line_raises_only_rig_errors(
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


# ---- two descriptions of one thing -------------------------------------------------------------

Json = dict[str, Any]


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording whose start line lists its traces' rails."""
    folder = tmp_path_factory.mktemp("described")
    lab_recording.write(lab_recording.plain_lab(0, ""), folder / "plain")

    def listed(events: list[Json], tables: dict[str, pa.Table]) -> None:
        rails = [json.loads(t.schema.metadata[b"rail"]) for name, t in tables.items() if name.startswith("traces/")]
        events[0]["meters"] = [events[0]["meters"][0] | {"rails": rails}]

    return rewritten(folder / "plain", folder / "run", listed)


def changed(described: Path, folder: Path, change: Callable[[Json], object]) -> Path:
    """Return the recording after a change of its start line."""
    return rewritten(described, folder / "changed", lambda events, tables: change(events[0]))


RAILS = [
    {"conversion": {"unit": "A", "supply_v": 0.1}}, {"rate_hz": 12345.0}, {"resolution": 0.5}, {"range_max": 1e-3},
    {"accuracy": {"of_reading": 1e-9, "offset": 0.0, "source": "a certificate"}},
]  # fmt: skip


@pytest.mark.parametrize("rail", RAILS, ids=lambda rail: next(iter(rail)))
def test_a_rail_described_in_two_ways_is_refused(described: Path, tmp_path: Path, rail: Json) -> None:
    says = f"{next(iter(rail))} of rail .* in its trace, and .* in the start line"
    with pytest.raises(DataError, match=says):
        open_run(changed(described, tmp_path, lambda start: start["meters"][0]["rails"][0].update(rail)))


def test_the_source_of_limits_may_differ(described: Path, tmp_path: Path) -> None:
    """In earlier recordings, start lines left home directories out, and traces did not."""

    def elsewhere(start: Json) -> None:
        rail = start["meters"][0]["rails"][0]
        rail["accuracy"] = (rail["accuracy"] or {}) | {"source": "~/certificate.pdf"}

    def here(events: list[Json], tables: dict[str, pa.Table]) -> None:
        elsewhere(events[0])
        for name, table in tables.items():
            if name.startswith("traces/"):
                meta = dict(table.schema.metadata)
                rail = json.loads(meta[b"rail"])
                rail["accuracy"] = (rail["accuracy"] or {}) | {"source": "/home/anna/certificate.pdf"}
                tables[name] = table.replace_schema_metadata(meta | {b"rail": json.dumps(rail).encode()})

    assert open_run(rewritten(described, tmp_path / "changed", here)).traces


def test_a_device_clock_with_two_rates_is_refused(described: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"of the device has .* ticks a second, and .* in the list of clocks"):
        open_run(changed(described, tmp_path, lambda start: start["device"]["clock"].update(tick_hz=1.0)))


# ---- altered and cut off -----------------------------------------------------------------------

UNCHECKED = list(HealthCheck)
QUICK = settings(max_examples=30, suppress_health_check=UNCHECKED)
TABLES = ("samples", "replies", "progress", "activity", "traces/core")
RECORDED = ("events.jsonl", "events.jsonl.sha256", *(f"{table}.arrows" for table in TABLES))


@contextmanager
def with_content(file: Path, content: bytes) -> Iterator[None]:
    """Give the file other content until the block ends."""
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
    with with_content(recording / name, bytes(data)), pytest.raises(StoreError):
        open_run(recording)


@pytest.mark.parametrize("line", [0, 1, -2, -1])
def test_an_altered_byte_of_a_line_is_refused(recording: Path, line: int) -> None:
    lines = (recording / "events.jsonl").read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b"1", b"2", 1)
    with with_content(recording / "events.jsonl", b"".join(lines)), pytest.raises(IntegrityError):
        open_run(recording)


@pytest.mark.parametrize("name", ["traces/more.arrows", "progress.arrows", "artifacts/payloads/forged.npy"])
def test_a_file_outside_the_stop_line_list_is_refused(recording: Path, tmp_path: Path, name: str) -> None:
    events, tables = read_plainly(recording)
    write(tmp_path / "run", events[:-1], {k: v for k, v in tables.items() if k != name})
    (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(recording / "traces" / "core.arrows", tmp_path / "run" / name)
    raised(IntegrityError, open_run, tmp_path / "run", says="does not list")


def test_lines_after_the_stop_line_are_an_integrity_error(run: Path) -> None:
    events, _ = read_plainly(run)
    write_lines(run, [*events, events[1]])
    raised(IntegrityError, open_run, run, says="after its stop line")


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "a/../../b", ""])
def test_the_stop_line_cannot_point_outside(run: Path, name: str) -> None:
    events, _ = read_plainly(run)
    write_lines(run, [*events[:-1], events[-1] | {"files": {name: "0" * 64}}])
    raised(StoreError, open_run, run, says="files")


def test_derived_files_are_not_recorded(recording: Path) -> None:
    with with_content(recording / "derived" / "results.json", b"altered"):
        assert open_run(recording).sealed


def test_a_missing_seal_is_only_noted(run: Path) -> None:
    (run / "events.jsonl.sha256").unlink()
    assert any("not sealed" in note for note in evaluate(open_run(run)).notes)


# ---- torn ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crashed(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the recording as after a crash: without stop line and seal."""
    events, _ = read_plainly(recording)
    path = shutil.copytree(recording, tmp_path_factory.mktemp("crashed") / "run")
    write_lines(path, events[:-1], seal=False)
    return path


@given(name=st.sampled_from(RECORDED[2:]), keep=st.floats(0, 1))
@QUICK
def test_a_torn_file_is_read_to_its_last_whole_batch(crashed: Path, name: str, keep: float) -> None:
    with pa.ipc.open_stream(str(crashed / name)) as stream:
        whole = [0, *accumulate(batch.num_rows for batch in stream)]
    data = (crashed / name).read_bytes()
    with with_content(crashed / name, data[: int(keep * len(data))]):
        run = open_run(crashed)
    trace_rows = len(run.traces["core"].value) if "core" in run.traces else 0
    rows = trace_rows if name.startswith("traces") else getattr(run, name.removesuffix(".arrows")).num_rows
    assert rows in whole
    assert run.stop is None
    assert whole.index(rows) >= int(keep * len(data)) // (len(data) // (len(whole) - 1)) - 2


@given(keep=st.floats(0, 1, exclude_max=True))
@QUICK
def test_torn_lines_are_read_to_the_last_whole_line(crashed: Path, keep: float) -> None:
    data = (crashed / "events.jsonl").read_bytes()
    kept = data[: int(keep * len(data))]
    with with_content(crashed / "events.jsonl", kept):
        if len(kept) < data.index(b"\n"):
            raised(StoreError, open_run, crashed, says="empty")
        else:
            assert abs(len(open_run(crashed).lines) - kept.count(b"\n") - 0.5) <= 0.5


def test_a_stop_line_without_its_newline_is_whole(run: Path) -> None:
    (run / "events.jsonl.sha256").unlink()
    (run / "events.jsonl").write_bytes((run / "events.jsonl").read_bytes()[:-1])
    assert open_run(run).stop is not None
