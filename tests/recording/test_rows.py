"""Rows of replies on their way to disk: any answers are read back equal, in order, in constant memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.errors import DeviceError, RigError
from rig.recording.columns.arrow_files import to_the_end
from rig.recording.columns.rows import PART_ROWS, ROWS, ReplyRows
from rig.recording.disk.files import Whole
from rig.recording.reader import Run, open_run
from rig.recording.writer import Recorder
from rig.types import Progress, Reply, Span
from tests.support.start_lines import start


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
def test_whatever_was_answered_is_read_back_equal_and_in_order(
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
def test_outputs_that_are_equal_in_python_and_not_in_json_stay_apart(wrap: Callable[[Any], Any]) -> None:
    said = [True, 1, 1.0, False, 0, 0.0, "1", "true", None, "", np.float64(1.0), np.int32(1)]

    def write(recorder: Recorder) -> None:
        for k, value in enumerate(said * 2):
            answer(recorder, k, wrap(value))

    run = written(write)
    plain = [value.item() if isinstance(value, np.generic) else value for value in said]
    assert run.replies["output"].to_pylist() == [json.dumps(wrap(value)) for value in plain * 2]


@pytest.mark.parametrize("shape", [1, 0, 3])
def test_more_rows_than_the_buffer_holds_are_all_kept(shape: int) -> None:
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


def test_answers_that_come_while_others_are_written_step_by_step_are_all_kept() -> None:
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


def test_a_flush_finishes_what_was_begun_step_by_step(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder:
        for k in range(PART_ROWS + 1):
            answer(recorder, k, None)
        assert recorder.write_some(True) and recorder.waiting == (PART_ROWS + 1) / ROWS
        recorder.flush()
        assert recorder.waiting == 0.0 and not recorder.write_some(True)


def test_what_was_never_answered_fills_the_buffer_too() -> None:
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


def test_the_file_grows_with_the_queries_and_not_with_their_square(tmp_path: Path) -> None:
    """Each of 300 different answers is written alone, as from a device slower than the writer."""
    sizes = []
    for n in (100, 300):
        with Recorder(tmp_path / str(n)) as recorder:
            for k in range(n):
                answer(recorder, k, {"label": "tram", "p": k}, sample=f"s{k}")
                recorder.flush()
            sizes.append((recorder.path / "replies.arrows").stat().st_size)
    assert sizes[1] < 3.3 * sizes[0]


@pytest.mark.parametrize("span", [
    ("inference", 1.5, 2), ("inference", 1, 2**63), ("inference", None, 2), ("inference", 1, 2, 2**31), (3, 1, 2),
    (None, 1, 2), ("\ud800", 1, 2), None,
], ids=repr)  # fmt: skip
def test_a_span_that_fits_no_column_is_refused_and_the_rows_around_it_are_kept(span: Any) -> None:
    def write(recorder: Recorder) -> None:
        answer(recorder, 0, "a")
        odd: Any = Span(*span) if span else (1, 2)
        with pytest.raises((RigError, TypeError)):
            recorder.reply(1, Reply("s", None, (odd,)), None, 1, 2)
        answer(recorder, 2, "b")
        recorder.flush()
        answer(recorder, 3, "c")

    assert written(write).replies["issue"].to_pylist() == [0, 2, 3]


@pytest.mark.parametrize("output", [object(), {1, 2}, b"x", {(1, 2): 3}])
def test_an_output_that_json_cannot_hold_is_refused_and_the_rows_around_it_are_kept(output: Any) -> None:
    def write(recorder: Recorder) -> None:
        answer(recorder, 0, "a")
        with pytest.raises(DeviceError, match="the output is not JSON"):
            answer(recorder, 1, output)
        answer(recorder, 2, "b")

    assert written(write).replies["issue"].to_pylist() == [0, 2]


def test_a_batch_goes_to_its_file_in_one_write(tmp_path: Path, monkeypatch: Any) -> None:
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
