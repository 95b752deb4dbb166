"""The microcontroller baseline, measured at 3 Hz, as published, and at 50 kS/s: both figures are near the truth.

A minute of a board's virtual time takes about one second to simulate."""

from pathlib import Path

import pytest

from benchmarks.nano_boards import FIGURES, PHASES, compared, failed


@pytest.mark.parametrize("seed", [2, 5])
def test_the_published_method_errs_by_less_than_its_interval_width(tmp_path: Path, seed: int) -> None:
    """A 95 % interval may miss by a little; ``benchmarks.nano_boards`` counts how many contain the truth."""
    rows = compared(seed, "as published, 3 Hz", tmp_path)
    assert len(rows) == len(PHASES) * len(FIGURES) and all(row["off"] < 2.0 * row["half"] for row in rows)


def test_the_narrow_interval_of_a_fast_meter_contains_the_truth(tmp_path: Path) -> None:
    assert all(row["held"] and row["half"] < 3e-3 for row in compared(1, "50 kS/s", tmp_path))


@pytest.mark.parametrize(("n", "held", "fails"), [(20, 18, False), (20, 17, True), (17, 17, True), (0, 0, True)])
def test_too_few_or_too_inaccurate_figures_fail(n: int, held: int, fails: bool) -> None:
    assert failed(n=n, of=20, held=held) == fails
