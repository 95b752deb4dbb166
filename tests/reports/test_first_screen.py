"""The output at the end of a measurement: at most fifteen lines, each figure once."""

from __future__ import annotations

from dataclasses import replace

from rig.analysis.result.finding import note
from tests.support.made_up import made_up, printed

NOTED = replace(made_up(), findings=tuple(note(f"something to know, number {k}") for k in range(20)))


def test_the_first_screen_is_short_and_has_the_figures_with_their_intervals() -> None:
    lines = printed(NOTED).splitlines()

    assert len(lines) <= 15
    assert "17 more notes are in the report (or --verbose)" in lines
    assert any(line.startswith("Execution time, mean") and "±" in line for line in lines)
    assert sum(line.startswith("Active power") for line in lines) == 1
    assert lines == [line.rstrip() for line in lines]


def test_verbose_prints_every_note() -> None:
    lines = printed(NOTED, verbose=True).splitlines()

    assert sum(line.startswith("note: something to know") for line in lines) == 20
    assert lines == [line.rstrip() for line in lines]
