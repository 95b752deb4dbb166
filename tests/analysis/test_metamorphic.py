"""A change to a recording changes its figures within their intervals, or the figures are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fixtures.worlds.lab_recording import Lab, plain_lab, write
from rig.analysis.evaluate import evaluate
from rig.analysis.result.figure_key import FigureKey
from rig.analysis.result.quantity import Quantity
from rig.errors import RigError
from rig.recording.reader import open_run

FIGURES = ("dynamic_power_w", "active_power_w", "energy_per_inference_j", "execution_time_s")
Change = Callable[[Lab], None]


def thinned(lab: Lab) -> None:
    """Half of the readings are gone; the others keep their stamps."""
    lab.uniform = False
    lab.deliver = lambda n: np.flatnonzero(np.random.default_rng(3).random(n) < 0.5)


def shifted(lab: Lab) -> None:
    """The meter's grid is declared to begin a part of a reading late."""
    lab.said_late_s = 0.4 / lab.rate_hz


def doubled(lab: Lab) -> None:
    lab.deliver = lambda n: np.repeat(np.arange(n), 2)


def quantised(lab: Lab) -> None:
    step = 0.05 * float(lab.span_w[0] - lab.idle_w)
    lab.raw = lambda w: np.round(w / step) * step


def clipped(lab: Lab) -> None:
    top = lab.idle_w + 0.7 * float(lab.span_w[0] - lab.idle_w)
    lab.raw = lambda w: np.minimum(w, top)


def slowed(lab: Lab) -> None:
    """Both clocks run slow by a part in a thousand; their brackets show it."""
    lab.device_rate -= 1e-3
    lab.meter_rate -= 1e-3


def figures(seed: int, folder: Path, change: Change | None = None) -> dict[str, Quantity]:
    """Return the figures of one bench, with or without the change; empty if refused."""
    lab = plain_lab(seed, "metamorphic")
    if change:
        change(lab)
    write(lab, folder)
    try:
        result = evaluate(open_run(folder))
    except RigError:
        return {}
    return {name: q for name in FIGURES if (q := result.quantities.get(FigureKey(name))) is not None}


@pytest.fixture(scope="module", params=[0, 2])
def plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Quantity]]:
    """A seed and its bench without a change."""
    return request.param, figures(request.param, tmp_path_factory.mktemp("plain") / "before")


@pytest.mark.parametrize("change", [thinned, shifted, doubled, quantised, clipped, slowed])
def test_a_change_moves_figures_within_their_intervals(
    tmp_path: Path, plain: tuple[int, dict[str, Quantity]], change: Change
) -> None:
    seed, before = plain
    after = figures(seed, tmp_path / "after", change)
    assert set(before) == set(FIGURES)
    for name, q in after.items():
        assert abs(q.value - before[name].value) <= np.hypot(q.half_width(), before[name].half_width()), name


def test_what_no_interval_can_cover_is_refused(tmp_path: Path) -> None:
    assert "dynamic_power_w" not in figures(0, tmp_path / "after", clipped)
