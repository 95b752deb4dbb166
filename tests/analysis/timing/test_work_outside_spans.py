"""Work outside all spans is named; it neither moves the spans nor adds to their power."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fixtures.worlds.lab_recording import Lab, Piece, plain_lab, write
from rig.analysis.evaluate import evaluate
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.result import Result
from rig.recording.reader import open_run
from tests.support.labs import POWER, evaluated, measured, off

LENGTH_S, GAP_S, PAUSE_S = 0.88, 0.2, 0.02


def _retried(which: int | None) -> Lab:
    """Six spans of 0.9 s, one of them tried twice; the clocks were read over a link of half a second."""
    lab = plain_lab(7, "retried")
    before_s = np.full(6 if which is None else 7, GAP_S)
    if which is not None:
        before_s[which + 1] = PAUSE_S
    on = 2.0 + np.cumsum(LENGTH_S + before_s)
    lab.rate_hz, lab.bracket_s = 126.0, 0.5
    if which is not None:
        lab.pieces.append(Piece(float(on[which]), float(on[which]) + LENGTH_S, float(lab.span_w[0]) - lab.idle_w))
        on = np.delete(on, which)
    lab.spans_s = np.column_stack([on, on + LENGTH_S])
    lab.label, lab.span_w, lab.end_s = np.zeros(6, np.int64), lab.span_w[:6], float(on[-1]) + 3.0
    lab.idle_s = [(0.02, 2.5), (float(on[-1]) + 1.0, lab.end_s - 0.02)]
    return lab


def _named(result: Result) -> list[str]:
    return [note for note in result.notes if "where no span is" in note]


@pytest.mark.parametrize("which", [0, 3, 5])
def test_a_try_that_was_repeated_leaves_power_where_it_was(which: int, tmp_path: Path) -> None:
    lab = _retried(which)
    result = measured(lab, tmp_path)
    assert off(lab, result) <= 1.5
    assert result.quantities[POWER].half_width() < 0.02 * result.quantities[POWER].value


def test_work_without_a_span_is_named_with_how_often_and_how_long(tmp_path: Path) -> None:
    (note,) = _named(measured(_retried(2), tmp_path))
    assert "busy once where no span is, for 0.8" in note


def test_a_trace_too_long_to_look_at_as_a_whole_names_it_too(tmp_path: Path) -> None:
    write(_retried(2), tmp_path / "run")
    run = open_run(tmp_path / "run")
    (note,) = _named(evaluate(run, at_once=len(run.traces["core"].value) // 4))
    assert "busy once where no span is, for 0.8" in note


def test_nothing_is_named_where_every_execution_has_a_span(tmp_path: Path) -> None:
    assert not _named(measured(_retried(None), tmp_path))


def test_work_in_an_idle_window_is_named_and_does_not_raise_idle(tmp_path: Path) -> None:
    lab = _retried(None)
    begin_s, above_w = lab.idle_s[1][0] + 0.5, float(lab.span_w[0]) - lab.idle_w
    lab.pieces.append(Piece(begin_s, begin_s + LENGTH_S, above_w))
    result = measured(lab, tmp_path)
    idle = result.quantities[FigureKey("idle_power_w")]

    (note,) = _named(result)
    assert "busy once where no span is (1 in idle windows), for 0.8" in note
    assert abs(idle.value - lab.idle_w) <= idle.half_width() < 0.02 * lab.idle_w


def test_work_in_each_idle_window_comes_back_and_is_part_of_idle(tmp_path: Path) -> None:
    lab = _retried(None)
    above_w = float(lab.span_w[0]) - lab.idle_w
    lab.pieces += [Piece(begin_s + 0.5, begin_s + 0.5 + LENGTH_S, above_w) for begin_s, _ in lab.idle_s]
    assert not _named(measured(lab, tmp_path))


@pytest.mark.parametrize("seed", [88, 115, 1_000_036])
def test_spans_are_not_placed_on_work_without_a_span(seed: int, tmp_path: Path) -> None:
    assert off(*evaluated("work_without_spans", seed, tmp_path)) <= 1.0


@pytest.mark.parametrize("kind", ["plain", "idle_housekeeping", "bursts", "gated_late"])
def test_what_comes_back_all_the_time_is_no_work_without_a_span(kind: str, tmp_path: Path) -> None:
    assert not _named(evaluated(kind, 3, tmp_path)[1])


def test_work_that_goes_on_from_the_end_of_a_span_may_be_of_its_energy(tmp_path: Path) -> None:
    lab = _retried(None)
    on_s, off_s = lab.spans_s.copy().T
    short_s = off_s - np.array([0.0, 0.0, 0.7, 0.3, 0.0, 0.0]) * LENGTH_S
    rest = [Piece(short_s[k], off_s[k], lab.span_w[k] - lab.idle_w) for k in (2, 3)]
    result = measured(replace(lab, spans_s=np.column_stack([on_s, short_s]), pieces=rest), tmp_path)
    assert off(lab, result, FigureKey("energy_per_inference_j")) <= 1.0
    assert "from the ends of spans" in _named(result)[0]
