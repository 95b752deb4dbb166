"""The output at the end of a measurement: at most fifteen lines, each figure once."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from reports.console import print_result
from rig.analysis.result.finding import note
from rig.analysis.result.result import Result
from tests.support.made_up import made_up


def printed(result: Result, verbose: bool = False) -> list[str]:
    out = io.StringIO()
    print_result(result, out, verbose=verbose)
    return out.getvalue().splitlines()


def test_the_first_screen_is_short() -> None:
    notes = tuple(note(f"something to know, number {k}") for k in range(20))
    lines = printed(replace(made_up(), findings=notes))

    assert len(lines) <= 15
    assert "17 more notes are in the report (or --verbose)" in lines


def test_the_first_screen_has_the_figures_with_their_intervals() -> None:
    lines = printed(made_up())

    assert any(line.startswith("Execution time, mean") and "±" in line for line in lines)
    assert sum(line.startswith("Active power") for line in lines) == 1


def test_verbose_prints_every_note() -> None:
    notes = tuple(note(f"something to know, number {k}") for k in range(20))
    lines = printed(replace(made_up(), findings=notes), verbose=True)

    assert sum(line.startswith("note: something to know") for line in lines) == 20


@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_ends_with_a_space(verbose: bool) -> None:
    assert [line for line in printed(made_up(), verbose) if line != line.rstrip()] == []
