"""A result as data frames: figures as rows, readings in watts and seconds on one timeline, a table for notebooks."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace

import rig
from rig.analysis.result.finding import refusal
from rig.analysis.result.quantity import FigureKey


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> rig.Evaluated:
    """A session on the simulated bench."""
    options = ("samples=8", "audio_hz=1000", "idle_s=0.5")
    request = rig.Request(device="mock", options=options, out=tmp_path_factory.mktemp("frames") / "session")
    return rig.evaluated(rig.measure(request, quiet=True))


def test_every_figure_is_a_row_with_its_interval(session: rig.Evaluated) -> None:
    figures = session.result.to_frame()

    assert list(figures.columns) == ["value", "low", "high", "unit", "n", "method"]
    for key, quantity in session.result.quantities.items():
        row = figures.loc[str(key)]
        assert (row.value, row.unit, row.n) == (quantity.value, quantity.unit, quantity.n)
        if quantity.stated:
            assert (row.low, row.high) == quantity.interval()
        else:
            assert np.isnan([row.low, row.high]).all()


def test_mean_watts_inside_spans_equal_active_power(session: rig.Evaluated) -> None:
    """If spans and readings were on separate clocks, the mean inside spans would be off by whole spans."""
    power = next(part.result for part in session.parts if part.purpose == "power")
    frames = power.frames()
    trace, spans = frames["trace.core"], frames["spans"]
    (first,) = [phase for phase in spans.phase.unique() if phase != "idle"]
    middle_s = 0.5 * (trace.start_s + trace.end_s)

    def mean_w(phase: str) -> float:
        windows = spans[spans.phase == phase]
        inside = pd.Series(False, index=trace.index)
        for on_s, off_s in zip(windows.on_s, windows.off_s, strict=True):
            inside |= (middle_s > on_s + 0.005) & (middle_s < off_s - 0.005)
        return float(trace.watts[inside].mean())

    assert mean_w(first) == pytest.approx(power.quantities["active_power_w"].value, rel=5e-3)
    assert mean_w("idle") == pytest.approx(power.quantities["idle_power_w"].value, rel=2e-2)
    assert len(frames["requests"]) == power.series.latency_s.size > 0


def test_a_notebook_shows_figures_and_refusals_as_escaped_html(session: rig.Evaluated) -> None:
    why = refusal(FigureKey("active_power_w"), "<b>no</b> trace", "Measure again")
    shown = replace(session.result, run_id="<script>x</script>", findings=(why,))._repr_html_()

    assert "<script>" not in shown and "&lt;script&gt;" in shown
    assert "&lt;b&gt;no&lt;/b&gt; trace" in shown
    assert "SIMULATED" in shown and "energy_per_inference_j" in shown
    assert "literal." not in shown


def test_a_run_is_evaluated_outside_its_session(session: rig.Evaluated) -> None:
    folder: Path = session.parts[-1].run.path

    assert rig.evaluated(str(folder)).result.quantities == session.parts[-1].result.quantities
