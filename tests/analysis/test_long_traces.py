"""A trace that is too long to be read singly gives the same figures as when it is read singly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fixtures.worlds.lab_recording import Lab, write
from rig.analysis.evaluate import evaluate
from rig.analysis.result.result import Result
from rig.recording.reader import Run, open_run
from tests.support.figures import held
from tests.support.labs import lab_of, off

POWERS = ("dynamic_power_w", "active_power_w", "energy_per_inference_j")
ALIKE = 0.3
"""Figures from stretches and sums may differ from those of single readings by this many half-widths."""


def recorded(seed: int, kind: str, folder: Path, block: int | None = None) -> tuple[Lab, Run]:
    lab = lab_of(kind, seed)
    write(lab, folder / "run", block)
    return lab, open_run(folder / "run")


def readings(run: Run) -> int:
    return len(run.traces["core"].value)


def agree(whole: Result, looked_into: Result, alike: float = ALIKE) -> None:
    for name in POWERS:
        first, second = whole.quantities[name], looked_into.quantities[name]
        assert abs(second.value - first.value) <= alike * first.half_width(), name
        assert 0.8 < second.half_width() / first.half_width() < 1.3, name


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("plain", 2), ("gated_inrush", 2), ("clips_at_zero", 0), ("volts_read_slowly", 1),
        ("synchronous_part_aperture", 0),
    ],
)  # fmt: skip
def test_stretches_and_sums_agree_with_the_whole(kind: str, seed: int, tmp_path: Path) -> None:
    lab, run = recorded(seed, kind, tmp_path)
    looked_into = evaluate(run, at_once=readings(run) // 4)
    agree(evaluate(run), looked_into)
    assert all(held(looked_into.quantities[name], true) for name, true in lab.truth().items())


@pytest.mark.parametrize(("kind", "seed"), [("lost_block", 0), ("wrong_rate", 2), ("every_reading_twice", 1)])
def test_what_contradicts_the_grid_is_found_in_means_of_the_whole(kind: str, seed: int, tmp_path: Path) -> None:
    _, run = recorded(seed, kind, tmp_path)
    agree(evaluate(run), evaluate(run, at_once=readings(run) // 4))


@pytest.mark.parametrize("kind", ["plain", "bits_flip_on_the_wire"])
def test_a_trace_that_stays_in_its_file_gives_the_same_figures(kind: str, tmp_path: Path) -> None:
    _, run = recorded(3, kind, tmp_path)
    at_once = readings(run) // 3
    stored = open_run(tmp_path / "run", at_once=at_once)
    assert not isinstance(stored.traces["core"].value, np.ndarray)
    assert evaluate(stored, at_once).to_json() == evaluate(run, at_once).to_json()


def test_the_number_of_readings_is_that_of_the_trace(tmp_path: Path) -> None:
    _, run = recorded(2, "plain", tmp_path)
    idle = [evaluate(run, at_once).quantities["idle_power_w"].n for at_once in (10**6, readings(run) // 4)]
    assert idle[0] == idle[1]


def test_a_recording_written_by_blocks_has_the_truth_inside(tmp_path: Path) -> None:
    lab, run = recorded(4, "plain", tmp_path, 1 << 12)
    found = evaluate(run, at_once=readings(run) // 4).quantities
    assert all(held(found[name], true) for name, true in lab.truth().items())


def test_behind_a_declared_filter_means_and_single_readings_both_hold_the_truth(tmp_path: Path) -> None:
    """Means over the margins of spans show less about the ends of spans, so the two may differ by more."""
    lab, run = recorded(1, "filter_declared", tmp_path)
    assert all(off(lab, evaluate(run, at_once)) <= 1.5 for at_once in (10**6, readings(run) // 4))
