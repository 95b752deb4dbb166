"""Synthetic scenes: equal for equal seeds, in range, and hard enough to need a network."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from scenarios.workloads.asc.scenes import CLASSES, synthesize


@pytest.mark.parametrize("label", CLASSES)
def test_a_scene_is_the_same_for_the_same_seed_and_another_for_another(label: str) -> None:
    assert np.array_equal(synthesize(label, 7), synthesize(label, 7))
    assert not np.array_equal(synthesize(label, 7), synthesize(label, 8))


@pytest.mark.parametrize("label", CLASSES)
@pytest.mark.parametrize(
    ("seconds", "rate_hz"), [(1.0, 16000.0), (0.01, 8000.0), (1.5, 12500.0), (1.0, 4000.0), (1.0, 16001.0)]
)
def test_a_scene_is_finite_and_never_clips(label: str, seconds: float, rate_hz: float) -> None:
    for seed in range(5):
        scene = synthesize(label, seed, seconds, rate_hz)
        assert scene.dtype == np.float32
        assert scene.shape == (round(seconds * rate_hz),)
        assert np.all(np.isfinite(scene))
        assert 1e-4 < np.max(np.abs(scene)) < 0.9


def log_bands(scene: np.ndarray) -> np.ndarray:
    power = np.abs(np.fft.rfft(scene.reshape(8, -1) * np.hanning(2000), axis=1)) ** 2
    edges = np.geomspace(50, 8000, 17) / 8
    bands = [power[:, int(a) : max(int(a) + 1, int(b))].mean(axis=1) for a, b in pairwise(edges)]
    logs = np.log(np.stack(bands, axis=1) + 1e-9)
    return np.concatenate([logs.mean(axis=0), logs.std(axis=0), [1.0]])


def test_scenes_are_neither_trivial_nor_hopeless_for_a_linear_readout() -> None:
    labels = np.arange(300) % 4
    bands = np.stack([log_bands(synthesize(CLASSES[k], i)) for i, k in enumerate(labels)])
    weights = np.linalg.lstsq(bands[:200], np.eye(4)[labels[:200]], rcond=None)[0]
    assert 0.88 < np.mean((bands[200:] @ weights).argmax(axis=1) == labels[200:]) < 0.99
