"""In a session, the three key figures agree: energy is power times the reported time, by phase and overall."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rig.analysis.evaluate import evaluate
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.quantity import Quantity
from rig.analysis.result.result import Result
from rig.analysis.sessions.part import Part
from rig.analysis.sessions.summary import summarise
from rig.recording.reader import open_run
from rig.recording.session import runs_in
from rig.session.measure import measure
from rig.session.setup import Request

SMALL = ("samples=8", "audio_hz=1000", "idle_s=0.5", "span_spread=0.2")
TWO = "preprocess_s=0.05"
TWO_PHASES = ("", "preprocess", "inference")


def recorded(folder: Path, *options: str, **more: Any) -> Path:
    amortise_s = more.pop("amortise_s", None)
    request = Request(
        device="mock", meters=("mock",), scenario="single-stream", workload="asc", simulate=False, data=None,
        amortise_s=amortise_s, options=(*SMALL, *options), out=folder, argv=(), **more,
    )  # fmt: skip
    return measure(request, quiet=True)


def parts_of(folder: Path) -> list[Part]:
    runs = [(open_run(path), purpose) for path, purpose in runs_in(folder)]
    return [Part(run.path.name, purpose, run, evaluate(run)) for run, purpose in runs]


def summary(folder: Path) -> Result:
    whole = summarise(folder.name, parts_of(folder))
    assert whole is not None
    return whole


def agree(figures: Mapping[FigureKey, Quantity], method: str = "") -> list[float]:
    """Return energy over power times time, for each phase and overall."""
    return [
        figures[FigureKey("energy_per_inference_j", phase, method=method)].value
        / (
            figures[FigureKey("active_power_w", phase, method=method)].value
            * figures[FigureKey("execution_time_s", phase)].value
        )
        for phase in TWO_PHASES
    ]


@pytest.mark.parametrize(
    ("options", "more"), [((), {"trials": 2}), ((), {"amortise_s": 2.0}), (("apart=true",), {})], ids=str
)
def test_energy_is_power_times_the_time_beside_it(
    tmp_path: Path, options: tuple[str, ...], more: dict[str, Any]
) -> None:
    whole = summary(recorded(tmp_path / "out", TWO, *options, **more)).quantities
    assert agree(whole) == pytest.approx([1.0] * 3, rel=1e-12)


def test_integrated_energy_is_that_of_the_power_runs(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "out")
    key = FigureKey("energy_per_inference_integrated_j")
    (power,) = [part for part in parts_of(folder) if part.purpose == "power"]
    assert summary(folder).quantities[key] == power.result.quantities[key]


def test_energies_apart_beyond_both_intervals_are_told_of(tmp_path: Path) -> None:
    alike = parts_of(recorded(tmp_path / "alike"))
    other = parts_of(recorded(tmp_path / "other", "inference_s=0.12"))
    mixed = [*alike[:-1], other[-1]]

    def told(parts: list[Part]) -> list[str]:
        whole = summarise("", parts)
        assert whole is not None
        return [n for n in whole.notes if "energy_per_inference_integrated_j" in n and "beyond both intervals" in n]

    assert [part.purpose for part in mixed] == ["accuracy", "performance", "power"]
    assert (len(told(alike)), len(told(mixed))) == (0, 1)


def test_an_error_of_the_stamps_of_one_run_does_not_cancel_in_another(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "out", "stamp_jitter_s=1e-4")
    (power,) = [part for part in parts_of(folder) if part.purpose == "power"]
    key = FigureKey("energy_per_inference_j")
    assert summary(folder).quantities[key].u > power.result.quantities[key].u


def test_amortised_time_is_that_of_the_sequences_and_a_single_sample_stands_beside(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "out", TWO, amortise_s=2.0)
    by = {part.purpose: part.result.quantities for part in parts_of(folder)}
    whole = summary(folder)
    for phase in TWO_PHASES:
        time, single = FigureKey("execution_time_s", phase), FigureKey("execution_time_single_s", phase)
        assert whole.quantities[time] == by["power"][time]
        assert whole.quantities[single].value == by["performance"][time].value
    assert any("sequences of 2 s" in note for note in whole.notes)
