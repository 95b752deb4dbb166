"""Lines of events, and rows of replies on their way to disk.

Refused lines are named with their value, and older fields move to their new places. A line of a network that no device
could give is refused, and not recorded if a driver gives it. Any answers are read back equal, in order, in constant
memory.
"""

import dataclasses
import hashlib
import json
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rig.errors import DeviceError, StoreError
from rig.network.description import MOST_PARTS, Connection, Layer, Memory, NetworkInfo
from rig.recording.anonymise import without_identity, without_place, without_places
from rig.recording.columns.arrow_files import to_the_end
from rig.recording.columns.rows import PART_ROWS, ROWS, ReplyRows
from rig.recording.disk.decoding import decode, start_of
from rig.recording.disk.files import Folder
from rig.recording.disk.full_disk import Whole
from rig.recording.events import IdleWindow, Start
from rig.recording.reader import Run, open_run
from rig.recording.write_events import Chain
from rig.recording.writer import Recorder
from rig.types import Progress, Reply, Sample, Span
from tests.support.raised import raised
from tests.support.run_by_hand import SAMPLES, Document, start_line, table, write, write_lines
from tests.support.start_lines import LEAST, start


def test_a_refusal_names_line_field_and_value() -> None:
    line = json.dumps({"seq": 4, "prev": "", "type": "idle", "on_ns": 1.5, "off_ns": 2}).encode()
    caught = raised(StoreError, decode, line, "idle", 4)
    assert caught.field == "on_ns"
    assert "line 5" in caught.message
    assert "1.5" in caught.message


def test_unknown_line_types_and_fields_are_ignored(tmp_path: Path) -> None:
    idle = {"type": "idle", "on_ns": 1, "off_ns": 2, "colour": "blue"}
    run = open_run(write(tmp_path / "run", [start_line(), {"type": "door", "open": True}, idle], {}))
    assert run.events == (IdleWindow(on_ns=1, off_ns=2),)
    assert len(run.lines) == 4


def test_fields_of_older_recordings_move_to_their_new_places() -> None:
    device = {"details": {"schedule_depends_on_budget": False, "solver": "tabu", "colour": "blue"}}
    workload = {"details": {"targets": {"best": {"p1": -3}}, "notes": ["a note"], "nodes": 20}}
    found = start_of(LEAST | {"device": device, "workload": workload, "scenario": {"amortise_s": None}})
    assert found.device.schedule_depends_on_budget is False
    assert found.device.algorithm.solver == "tabu"
    assert (found.workload.targets, found.workload.notes) == ({"best": {"p1": -3.0}}, ["a note"])
    assert (found.workload.nodes, found.scenario.amortise_s) == (20, None)


def test_details_with_another_meaning_are_not_moved() -> None:
    found = start_of(LEAST | {"workload": {"details": {"nodes": "many", "notes": "one"}}})
    assert (found.workload.nodes, found.workload.notes) == (None, [])


def test_results_show_scenario_and_workload_as_recorded(tmp_path: Path) -> None:
    workload = {"name": "mine", "details": {"nodes": 3}, "colour": "blue"}
    run = open_run(write(tmp_path / "run", [start_line(workload=workload)], {}))
    assert run.start.played == {"scenario": {"name": "by hand"}, "workload": workload}


@pytest.mark.parametrize(("word", "left"), [
    ("--out=/srv/data/run", "--out=run"), ("model=/home/alice/nets/m.net", "model=~/nets/m.net"),
    ("port=/dev/ttyACM0", "port=/dev/ttyACM0"), ("host=ada@board.lab", "host=left out"), ("runs/here", "runs/here"),
])  # fmt: skip
def test_a_command_line_is_recorded_without_places(word: str, left: str) -> None:
    assert without_place(word) == left
    assert without_places(["/opt/env/bin/rig", word]) == ["rig", left]


@pytest.mark.parametrize("host", ["board", 'the "old" board', "lab\\"])
def test_a_line_is_stripped_of_identity(host: str) -> None:
    line = json.dumps({"message": "cannot open /home/alice/x: no", "host": host}, separators=(",", ":"))
    assert json.loads(without_identity(line)) == {"message": "cannot open ~/x: no", "host": "left out"}


@pytest.mark.parametrize("keep", [False, True])
def test_identity_is_recorded_only_when_asked_for(tmp_path: Path, keep: bool) -> None:
    with Recorder(tmp_path / "run", keep) as recorder:
        recorder.event(start(device={"details": {"file": "/home/alice/x"}}))
        recorder.stop()
    read: Start = open_run(tmp_path / "run").start
    assert read.device.details["file"] == ("/home/alice/x" if keep else "~/x")


def test_an_interruption_while_writing_breaks_no_chain(tmp_path: Path) -> None:
    """Otherwise the next line holds the hash of the line before the interrupted one."""

    class Interrupting:
        def __init__(self, file: Any) -> None:
            self.file, self.count = file, 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def write(self, data: bytes) -> int:
            written = int(self.file.write(data))
            self.count += 1
            if self.count == 2:
                raise KeyboardInterrupt
            return written

    chain = Chain(Folder(tmp_path, None), keep_identity=True)
    chain._file = Interrupting(chain._file)  # type: ignore[assignment]
    chain.append(IdleWindow(on_ns=1, off_ns=2))
    raised(KeyboardInterrupt, chain.append, IdleWindow(on_ns=3, off_ns=4))
    chain.append(IdleWindow(on_ns=5, off_ns=6))
    chain.close()
    lines = (tmp_path / "events.jsonl").read_bytes().splitlines()
    heads = [json.loads(line) for line in lines]
    assert [head["seq"] for head in heads] == [0, 1, 2]
    assert [head["prev"] for head in heads[1:]] == [hashlib.sha256(line).hexdigest() for line in lines[:-1]]


# ---- lines that describe a network -------------------------------------------------------------

CONNECTION, MEMORY = Connection("in-output", "in", "output", 6, 0, 6, 2), Memory("weights", "weights", 6, 8)
NETWORK = NetworkInfo((Layer("output", 2),), (CONNECTION,), (MEMORY,), execution_s=0.1)
OTHER = dataclasses.replace(NETWORK, convention="another")


def network(network: Any = NETWORK, sample_id: Any = "a") -> Document:
    given = json.loads(json.dumps(dataclasses.asdict(network))) if isinstance(network, NetworkInfo) else network
    return {"type": "network", "sample_id": sample_id, "network": given}


def spoilt(part: str, **values: Any) -> Document:
    document = network()
    document["network"][part][0].update(values)
    return document


def lacking(part: str, name: str) -> Document:
    document = network()
    del document["network"][part][0][name]
    return document


def many(part: str, one: Document) -> Document:
    document = network()
    document["network"][part] = [one | {"name": f"{k}"} for k in range(MOST_PARTS + 1)]
    return document


HOSTILE: dict[str, tuple[Callable[[], Document], str]] = {
    "a huge shape": (lambda: spoilt("connections", weights=2**60), r"network\.connections\[0\]\.weights"),
    "a huge layer": (lambda: spoilt("layers", neurons=10**300), r"network\.layers\[0\]\.neurons"),
    "a huge delay": (lambda: spoilt("connections", delay=2**40), r"network\.connections\[0\]\.delay"),
    "NaN weights": (lambda: spoilt("connections", weights=float("nan")), "NaN is no plain number"),
    "a NaN stride": (lambda: network(dataclasses.replace(NETWORK, execution_s=float("nan"))), "NaN is no plain number"),
    "an endless stride": (lambda: network(dataclasses.replace(NETWORK, execution_s=float("inf"))),
                          "Infinity is no plain number"),
    "a negative count": (lambda: spoilt("memory", elements=-1), r"network\.memory\[0\]\.elements"),
    "no neurons": (lambda: spoilt("layers", neurons=0), r"network\.layers\[0\]\.neurons"),
    "a fraction": (lambda: spoilt("connections", zeros=0.5), r"network\.connections\[0\]\.zeros"),
    "an unknown kind": (lambda: spoilt("memory", kind="cache"), r"network\.memory\[0\]\.kind"),
    "a missing key": (lambda: lacking("connections", "dense"), "missing required field `dense`"),
    "no sample": (lambda: {k: v for k, v in network().items() if k != "sample_id"}, "lacks sample_id"),
    "no network": (lambda: network(None), "network of the network line"),
    "a list": (lambda: network([]), "network of the network line"),
    "a name without end": (lambda: spoilt("layers", name="x" * 10**6), r"network\.layers\[0\]\.name"),
    "too many layers": (lambda: many("layers", {"neurons": 1}), r"network\.layers"),
    "too many arrays": (lambda: many("memory", {"kind": "states", "elements": 1, "bits": 1}), r"network\.memory"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_an_invalid_network_description_is_refused_by_line(what: str) -> None:
    document, said = HOSTILE[what]
    with pytest.raises(StoreError, match=said) as caught:
        decode(json.dumps({"seq": 4, "prev": "", **document()}).encode(), "network", 4)
    assert "line 5 of events.jsonl" in caught.value.message
    assert len(json.dumps(caught.value.to_json())) < 1000


def recorded(path: Path, *lines: Document, ended: bool = True) -> Path:
    """Return a run of one sample; ``lines`` follow a line of unknown type. Without ``ended``, it lacks its samples."""
    samples = table(SAMPLES, [{"id": "a", "inferences": 1}])
    events = [start_line(), {"type": "door", "open": True}, *lines]
    if ended:
        return write(path / "run", events, {"samples.arrows": samples})
    (path / "run").mkdir()
    write_lines(path / "run", events, seal=False)
    return path / "run"


@pytest.mark.parametrize(("lines", "number", "said"), [
    ([network(), network(OTHER)], 4, "is of sample 'a', which has one already"),
    ([network(), network()], 4, "is of sample 'a', which has one already"),
    ([network(), network(sample_id="b")], 4, "is of sample 'b', which the run does not have"),
    ([network(sample_id="")], 3, "is of sample '', which the run does not have"),
])  # fmt: skip
def test_each_sample_has_at_most_one_network(tmp_path: Path, lines: list[Document], number: int, said: str) -> None:
    caught = raised(StoreError, open_run, recorded(tmp_path, *lines), says=said)
    assert f"line {number} of events.jsonl" in caught.message


def test_a_crashed_run_may_lack_a_described_sample(tmp_path: Path) -> None:
    (tmp_path / "twice").mkdir()
    assert open_run(recorded(tmp_path, network(), ended=False)).networks() == {"a": NETWORK}
    with pytest.raises(StoreError, match="has one already"):
        open_run(recorded(tmp_path / "twice", network(), network(), ended=False))


# ---- what a driver gives ------------------------------------------------------------------


def answered(path: Path, *networks: Any) -> Path:
    """Return a run whose device gave these networks for one sample, in turn."""
    with Recorder(path / "run") as recorder:
        recorder.event(start())
        recorder.sample(Sample("a", np.zeros(1)))
        try:
            for issue, network in enumerate(networks):
                recorder.activity(issue, Reply("a", None, network=network))
        finally:
            recorder.stop()
    return path / "run"


def test_a_network_is_recorded_once(tmp_path: Path) -> None:
    given = dataclasses.replace(NETWORK, layers=(Layer("output", np.int64(2)),))  # type: ignore[arg-type]
    run = open_run(answered(tmp_path, given, NETWORK))
    assert run.networks() == {"a": NETWORK}
    assert len(run.lines) == 3


@pytest.mark.parametrize(("networks", "said"), [
    ([dataclasses.replace(NETWORK, execution_s=float("nan"))], "execution_s"),
    ([dataclasses.replace(NETWORK, layers=(Layer("output", -1),))], "neurons"),
    (["a network"], "object"),
    ([NETWORK, OTHER], "another network than before"),
])  # fmt: skip
def test_an_unreadable_network_ends_the_run(tmp_path: Path, networks: list[Any], said: str) -> None:
    caught = raised(DeviceError, answered, tmp_path, *networks, says=said)
    assert caught.field == "network"
    assert len(open_run(tmp_path / "run").networks()) == len(networks) - 1


# ---- rows of replies on their way to disk ------------------------------------------------------


def written(write: Callable[[Recorder], object]) -> Run:
    """Return what a recorder got, read back."""
    with TemporaryDirectory() as folder, Recorder(Path(folder) / "run") as recorder:
        recorder.event(start(device={"name": "d", "clock": {"name": "device", "tick_hz": 1e6}}))
        write(recorder)
        recorder.stop()
        return open_run(recorder.path)


def answer(recorder: Recorder, issue: int, output: Any, *spans: Span, sample: str = "s") -> None:
    recorder.reply(issue, Reply(sample, output, spans or (Span("inference", 1, 2),)), None, 1, 2)


ticks = st.integers(-(2**61), 2**61)
numbers = st.integers(-(2**61), 2**61) | st.floats(allow_nan=False, allow_infinity=False)
outputs = (
    st.none() | st.text(max_size=8) | st.booleans() | numbers | st.sampled_from([True, 1, 1.0, False, 0, 0.0, "1", ""])
    | st.dictionaries(st.sampled_from(["label", "a", "b"]), st.sampled_from([True, 1, 1.0, 0, "1"]), max_size=3)
)  # fmt: skip


@st.composite
def spans(draw: st.DrawFn) -> Span:
    phase, on = draw(st.sampled_from(["preprocess", "inference"])), draw(ticks)
    return Span(phase, on, on + draw(st.integers(0, 999)), draw(st.integers(1, 9)))


@st.composite
def replies(draw: st.DrawFn) -> tuple[Reply, int | None, int, int, bool]:
    name = draw(st.sampled_from(["s0", "s1", "ä/ö", ""]))
    progress = draw(st.lists(st.builds(Progress, ticks, st.floats(-9, 9), st.binary(max_size=3)), max_size=2))
    reply = Reply(name, draw(outputs), tuple(draw(st.lists(spans(), max_size=3))), tuple(progress))
    return reply, draw(st.none() | ticks), *draw(st.tuples(ticks, ticks)), draw(st.booleans())


@given(asked=st.lists(replies(), max_size=12), at=st.lists(st.integers(0, 12)))
def test_answers_are_read_back_equal_and_in_order(
    asked: Sequence[tuple[Reply, int | None, int, int, bool]], at: Sequence[int]
) -> None:
    def write(recorder: Recorder) -> None:
        for issue, (reply, due, issued, completed, warmup) in enumerate(asked):
            recorder.reply(issue, reply, due, issued, completed, warmup)
            if issue in at:
                recorder.flush()

    run = written(write)
    expected = [
        (k, r.sample_id, span and span.phase, due, issued, completed, span and span.on_tick, span and span.off_tick,
         span and span.executions, json.dumps(r.output) if first else None, warmup)
        for k, (r, due, issued, completed, warmup) in enumerate(asked)
        for first, span in zip([True, False, False], r.spans or (None,), strict=False)
    ]  # fmt: skip
    assert [tuple(row.values()) for row in run.replies.to_pylist()] == expected
    progress = [(k, r.sample_id, p.tick, p.cost, p.solution) for k, (r, *_) in enumerate(asked) for p in r.progress]
    assert [tuple(row.values()) for row in run.progress.to_pylist()] == progress


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"label": x}, lambda x: [x]])
def test_outputs_that_differ_in_json_stay_distinct(wrap: Callable[[Any], Any]) -> None:
    said = [True, 1, 1.0, False, 0, 0.0, "1", "true", None, "", np.float64(1.0), np.int32(1)]

    def write(recorder: Recorder) -> None:
        for k, value in enumerate(said * 2):
            answer(recorder, k, wrap(value))

    run = written(write)
    plain = [value.item() if isinstance(value, np.generic) else value for value in said]
    assert run.replies["output"].to_pylist() == [json.dumps(wrap(value)) for value in plain * 2]


@pytest.mark.parametrize("shape", [1, 0, 3])
def test_rows_beyond_the_buffer_are_kept(shape: int) -> None:
    n = (2 * ROWS + 7) // max(shape, 1) + 1
    one = tuple(Span("inference", k, k + 1) for k in range(shape))

    def write(recorder: Recorder) -> None:
        for k in range(n):
            recorder.reply(k, Reply(f"s{k % 5}", k % 3, one), k, k + 1, k + 2)

    table = written(write).replies
    assert table.num_rows == n * max(shape, 1)
    assert table["issue"].to_pylist() == [k for k in range(n) for _ in range(max(shape, 1))]
    assert table["sample_id"].to_pylist()[:: max(shape, 1)] == [f"s{k % 5}" for k in range(n)]
    assert table["output"].to_pylist()[:: max(shape, 1)] == [str(k % 3) for k in range(n)]


def test_answers_during_stepwise_writing_are_kept() -> None:
    """Each answer is a new text, so known texts are forgotten after a while."""
    n = 3 * ROWS

    def write(recorder: Recorder) -> None:
        for k in range(n):
            answer(recorder, k, {"p": k}, sample=f"s{k}")
            assert recorder.write_some(True) or recorder.waiting < PART_ROWS / ROWS
            assert recorder.waiting < 2 * PART_ROWS / ROWS

    table = written(write).replies
    assert table["issue"].to_pylist() == list(range(n))
    assert table["sample_id"].to_pylist() == [f"s{k}" for k in range(n)]
    assert [json.loads(text)["p"] for text in table["output"].to_pylist()] == list(range(n))


def test_a_flush_finishes_a_stepwise_write(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder:
        for k in range(PART_ROWS + 1):
            answer(recorder, k, None)
        assert recorder.write_some(True) and recorder.waiting == (PART_ROWS + 1) / ROWS
        recorder.flush()
        assert recorder.waiting == 0.0 and not recorder.write_some(True)


def test_unanswered_samples_fill_the_buffer() -> None:
    def write(recorder: Recorder) -> None:
        for k in range(ROWS + 5):
            recorder.unanswered(k, "s", k, None)

    run = written(write)
    assert run.replies["due_ns"].to_pylist() == list(range(ROWS + 5))
    for name in ("issued_ns", "completed_ns", "on_tick", "off_tick", "executions", "phase", "output"):
        assert run.replies[name].null_count == ROWS + 5


def test_memory_does_not_grow_with_the_queries() -> None:
    """Thousands of different answers, as from a device with probabilities."""
    rows = ReplyRows()
    peaks = []
    tracemalloc.start()
    for k in range(6 * ROWS):
        if rows.put(k, Reply(f"s{k}", {"p": k}, (Span("inference", k, k + 1),)), None, k, k, False):
            to_the_end(rows.take())
            peaks.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert max(peaks[3:]) < 1.1 * max(peaks[:3])


def test_the_file_grows_linearly_with_queries(tmp_path: Path) -> None:
    """Each of 300 different answers is written alone, as from a device slower than the writer."""
    sizes = []
    for n in (100, 300):
        with Recorder(tmp_path / str(n)) as recorder:
            for k in range(n):
                answer(recorder, k, {"label": "tram", "p": k}, sample=f"s{k}")
                recorder.flush()
            sizes.append((recorder.path / "replies.arrows").stat().st_size)
    assert sizes[1] < 3.3 * sizes[0]


@pytest.mark.parametrize("output", [object(), {1, 2}, b"x", {(1, 2): 3}])
def test_an_output_that_json_cannot_hold_costs_only_its_row(output: Any) -> None:
    def write(recorder: Recorder) -> None:
        answer(recorder, 0, "a")
        raised(DeviceError, answer, recorder, 1, output, says="the output is not JSON")
        answer(recorder, 2, "b")

    assert written(write).replies["issue"].to_pylist() == [0, 2]


def test_a_batch_is_written_in_one_call(tmp_path: Path, monkeypatch: Any) -> None:
    written, write = list[str](), Whole.write

    def counted(file: Whole, data: Any) -> int:
        written.append(Path(str(file.name)).name)
        return write(file, data)

    with Recorder(tmp_path / "run") as recorder:
        answer(recorder, 0, {"label": 1})
        recorder.flush()
        monkeypatch.setattr(Whole, "write", counted)
        for k in range(1, 4):
            answer(recorder, k, {"label": k})
            recorder.flush()
    assert written.count("replies.arrows") == 3
