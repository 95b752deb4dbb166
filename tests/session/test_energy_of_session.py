"""In a session, the three key figures agree: energy is power times the reported time, by phase and overall."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.quantity import Quantity
from rig.session.report import evaluated
from tests.support.submissions import session

SPREAD, TWO = "span_spread=0.2", "preprocess_s=0.05"
TWO_PHASES = ("", "preprocess", "inference")


def agree(figures: Mapping[FigureKey, Quantity], method: str = "") -> list[float]:
    """Return energy over power times time, for each phase and overall."""
    energies = [figures[FigureKey("energy_per_inference_j", p, method=method)].value for p in TWO_PHASES]
    powers = [figures[FigureKey("active_power_w", p, method=method)].value for p in TWO_PHASES]
    times = [figures[FigureKey("execution_time_s", p)].value for p in TWO_PHASES]
    return [e / (p * t) for e, p, t in zip(energies, powers, times, strict=True)]


@pytest.mark.parametrize(("options", "more"), [((), {"trials": 2}), ((), {"amortise_s": 2.0}), (("apart=true",), {})])
def test_energy_is_power_times_time_beside_it(tmp_path: Path, options: tuple[str, ...], more: dict[str, Any]) -> None:
    whole = evaluated(session(tmp_path / "out", SPREAD, TWO, *options, **more)).result.quantities
    assert agree(whole) == pytest.approx([1.0] * 3, rel=1e-12)


def test_an_error_of_the_stamps_of_one_run_does_not_cancel_in_another(tmp_path: Path) -> None:
    found = evaluated(session(tmp_path / "out", SPREAD, "stamp_jitter_s=1e-4"))
    (power,) = [part for part in found.parts if part.purpose == "power"]
    key = FigureKey("energy_per_inference_j")
    assert found.result.quantities[key].u > power.result.quantities[key].u


def test_amortised_time_is_that_of_the_sequences_and_a_single_sample_stands_beside(tmp_path: Path) -> None:
    found = evaluated(session(tmp_path / "out", SPREAD, TWO, amortise_s=2.0))
    by = {part.purpose: part.result.quantities for part in found.parts}
    whole = found.result
    for phase in TWO_PHASES:
        time, single = FigureKey("execution_time_s", phase), FigureKey("execution_time_single_s", phase)
        assert whole.quantities[time] == by["power"][time]
        assert whole.quantities[single].value == by["performance"][time].value
    assert any("sequences of 2 s" in note for note in whole.notes)
    assert "average_energy_per_sample_j" in by["power"] and "average_energy_per_sample_j" not in whole.quantities
