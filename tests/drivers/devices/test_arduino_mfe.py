"""Mel-filterbank energies in whole numbers are within one code of the real ones, at every level."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from drivers.devices.arduino import mfe
from scenarios.workloads.asc.scenes import CLASSES, synthesize

RATE_HZ = 16000
TIME_S = np.arange(RATE_HZ) / RATE_HZ


def real_codes(audio: NDArray[np.int16]) -> NDArray[np.float64]:
    """Return the features in floating point, from the definition, neither rounded nor clipped."""
    signal = audio / 32768
    emphasised = signal - 0.98 * np.concatenate(([0.0], signal[:-1]))
    frames = np.stack([emphasised[at : at + 256] for at in range(0, RATE_HZ - 319, 160)])
    energy = (np.abs(np.fft.rfft(frames)) ** 2 / 256) @ mfe.triangles().T
    return np.asarray((10 * np.log10(np.maximum(energy, 1e-30)) + 52) / 0.25)


def worst_code_error(audio: NDArray[np.int16]) -> float:
    """Return the largest difference from the real features, clipped in the same way, in codes."""
    real = np.clip(real_codes(audio), 0, 255)
    return float(np.abs(mfe.features(audio).astype(int) + 128 - real).max())


def loudest(bin_: int) -> NDArray[np.int16]:
    """Return full scale with the signs of a tone."""
    tone = np.cos(2 * np.pi * bin_ * np.arange(RATE_HZ) / 256 + 0.01)
    return np.where(tone >= 0, 32767, -32768).astype(np.int16)


@pytest.mark.parametrize(
    "audio",
    [
        *(mfe.pcm16(synthesize(label, 1000)) for label in CLASSES),
        *map(loudest, (0, 1, 64, 127, 128)),
        np.zeros(RATE_HZ, np.int16),
    ],
)
def test_scenes_silence_and_loudest_audio_have_the_defined_energies_to_half_a_code(audio: NDArray[np.int16]) -> None:
    assert worst_code_error(audio) < 0.51


@given(st.integers(1, 32767), st.floats(30, 7900), st.floats(0, 6.3))
@settings(max_examples=25, deadline=None)
def test_so_has_a_tone_of_any_level_in_noise(level: int, hertz: float, phase: float) -> None:
    noise = np.random.default_rng(level).uniform(-0.5, 0.5, RATE_HZ)
    audio = np.clip(np.rint(level * np.sin(2 * np.pi * hertz * TIME_S + phase) + noise), -32768, 32767)
    assert worst_code_error(audio.astype(np.int16)) < 0.51


def test_slices_are_independent_of_each_other() -> None:
    pair = np.stack([mfe.pcm16(synthesize(label, 1000)) for label in CLASSES[:2]])
    assert np.array_equal(mfe.features(pair)[1], mfe.features(pair[1]))


def test_audio_is_sent_as_its_nearest_whole_numbers() -> None:
    audio = np.zeros(RATE_HZ)
    audio[:4] = (-1.0, 0.5, 1.0, 1.6 / 32768)
    assert mfe.pcm16(audio)[:4].tolist() == [-32768, 16384, 32767, 2]
