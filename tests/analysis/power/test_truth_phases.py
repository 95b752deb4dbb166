"""Phases that follow each other without a gap, on rails that each see only one phase: the stated intervals of every
phase contain the truth. Only the edge between the phases shows a wrong clock."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fixtures.bench.mock_device import open_device
from fixtures.bench.mock_meter import open_meter
from fixtures.bench.true_power import ORIGIN_NS, SimPlant, open_plant
from fixtures.worlds.random_draw import blank, steps
from rig.analysis.evaluate import evaluate
from rig.analysis.result.figure_key import FigureKey, Figures
from rig.engine.acquisition import Bench
from rig.engine.record import record
from rig.recording.reader import open_run

IDLE_W = {"front": 35e-6, "core": 245e-6}
PHASE_W = {
    "preprocess": {"front": 71e-6, "core": 245e-6},
    "inference": {"front": 35e-6, "core": 535e-6},
    "mark": {"front": 71e-6, "core": 535e-6},
}
FIGURES = ("active_power_w", "dynamic_power_w", "energy_per_inference_j")


def measured(seed: int, folder: Path) -> tuple[Figures, SimPlant]:
    rng = np.random.default_rng(seed)
    rate_hz = float(rng.uniform(500.0, 5000.0))
    readings = rng.uniform(12.0, 200.0, 2)
    link = 0.0 if seed % 2 else 2e-3
    plant = open_plant(seed=seed)
    device = open_device(
        plant,
        device_seed=seed + 1,
        preprocess_s=float(readings[0]) / rate_hz,
        inference_s=float(readings[1]) / rate_hz,
        span_spread=0.1,
        device_forward_s=link,
        device_back_s=0.1 * link,
        device_jitter_s=0.1 * link,
        marks=seed % 3 == 0,
    )
    plant.install(IDLE_W, PHASE_W)
    meter = open_meter(plant, meter_seed=seed + 2, rate_hz=rate_hz, noise=float(rng.uniform(5e-3, 2e-2)))
    workload = blank(60)
    path = folder / str(seed)
    record(path, Bench(device, (meter,), plant.clock), workload, steps(workload, 1.5), scenario={"name": "x"}, argv=[])
    return evaluate(open_run(path)).quantities, plant


def truth(plant: SimPlant, phase: str) -> dict[str, float]:
    spans = [(on, off) for name, on, off in plant.activity if name == phase]
    t = (np.array(spans, dtype=np.int64) - ORIGIN_NS) * 1e-9
    busy = float(np.sum(t[:, 1] - t[:, 0]))
    active = sum(PHASE_W[phase].values())
    dynamic = active - sum(IDLE_W.values())
    return {"active_power_w": active, "dynamic_power_w": dynamic, "energy_per_inference_j": active * busy / len(t)}


@pytest.fixture(scope="module")
def misses(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """Return |error| over half-width of every figure of every phase; shape (plants, 6)."""
    folder = tmp_path_factory.mktemp("phases")
    rows = []
    for seed in range(12):
        found, plant = measured(seed, folder)
        row = []
        for phase in ("preprocess", "inference"):
            real = truth(plant, phase)
            quantities = {name: found[FigureKey(name, phase)] for name in FIGURES}
            row += [abs(q.value - real[name]) / q.half_width() for name, q in quantities.items()]
        rows.append(row)
    return np.array(rows)


def test_the_intervals_of_every_phase_hold_the_truth(misses: np.ndarray) -> None:
    assert np.mean(misses <= 1.0) >= 0.9


def test_no_figure_is_grossly_wrong(misses: np.ndarray) -> None:
    assert misses.max() <= 3.0


def test_the_intervals_are_not_so_wide_that_they_could_not_miss(misses: np.ndarray) -> None:
    assert 1.0 / np.median(misses) <= 8.0
