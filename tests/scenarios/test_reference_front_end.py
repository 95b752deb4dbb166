"""The samples equal those of the benchmark's own data generator, for the same audio.

``reference_front_end.npz`` holds every 97th value of the slices that librosa 0.11.0 with soxr 1.1.0 makes of ``clip``
in the generator's steps (NeuroBench/system_benchmarks, ASC/dcase_audio_scene_classification.py, commit f9c0b4f):
the file is loaded at the target rate with averaged channels, and cut into seconds; nothing is scaled.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scenarios.workloads.asc.audio import REFERENCE_ERROR
from scenarios.workloads.asc.workload import open_workload

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("soxr")

HERE, STEP, CLIP_HZ = Path(__file__).parent, 97, 44100


def clip(seconds: float = 3.0) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return a sweep and tones up to frequencies that a rate of 8 kHz must filter out, in stereo."""
    t = np.arange(round(seconds * CLIP_HZ)) / CLIP_HZ
    left = 0.4 * np.sin(2 * np.pi * (100.0 * t + 1200.0 * t * t)) + 0.05 * np.sin(2 * np.pi * 15000.0 * t)
    right = 0.3 * np.sin(2 * np.pi * 523.25 * t) + 0.2 * (t > 1.25) * np.sin(2 * np.pi * 3900.0 * t)
    return np.column_stack([left, right])


def folder(root: Path, seconds: float = 3.0) -> Path:
    soundfile.write(root / "a.wav", clip(seconds), CLIP_HZ, subtype="PCM_24")
    (root / "labels.csv").write_text("filename,label\na.wav,bus\n")
    return root


@pytest.mark.parametrize("rate_hz", [8000, 16000])
def test_samples_are_those_of_the_reference_within_the_stated_error(tmp_path: Path, rate_hz: int) -> None:
    found = np.array([s.payload for s in open_workload(data=str(folder(tmp_path)), audio_hz=float(rate_hz)).samples])
    with np.load(HERE / "reference_front_end.npz") as stored:
        expected = stored[f"at_{rate_hz}_hz"]
    assert found.shape == (3, rate_hz)
    assert float(np.abs(found[:, ::STEP] - expected).max()) <= REFERENCE_ERROR


def test_a_rest_of_less_than_a_second_is_dropped_where_the_reference_pads_it_with_silence(tmp_path: Path) -> None:
    assert len(open_workload(data=str(folder(tmp_path, 3.3)), audio_hz=8000.0).samples) == 3
