"""The samples equal those of the benchmark's own data generator, for the same audio.

``reference_front_end.npz`` holds every 97th value of the slices that librosa 0.11.0 with soxr 1.1.0 makes of ``clip``
in the generator's steps (NeuroBench/system_benchmarks, ASC/dcase_audio_scene_classification.py, commit f9c0b4f):
the file is loaded at the target rate with averaged channels, and cut into seconds; nothing is scaled.
"""

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rig.errors import DataError
from scenarios.workloads.asc import audio
from scenarios.workloads.asc.audio import REFERENCE_ERROR
from scenarios.workloads.asc.workload import open_workload
from tests.support.paths import ROOT
from tests.support.raised import raised

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
def test_samples_match_the_reference_within_its_stated_error(tmp_path: Path, rate_hz: int) -> None:
    found = np.array([s.payload for s in open_workload(data=str(folder(tmp_path)), audio_hz=float(rate_hz)).samples])
    with np.load(HERE / "reference_front_end.npz") as stored:
        expected = stored[f"at_{rate_hz}_hz"]
    assert found.shape == (3, rate_hz)
    assert float(np.abs(found[:, ::STEP] - expected).max()) <= REFERENCE_ERROR


def test_a_rest_of_less_than_a_second_is_dropped(tmp_path: Path) -> None:
    assert len(open_workload(data=str(folder(tmp_path, 3.3)), audio_hz=8000.0).samples) == 3


# ---- reading audio: what is decoded, and what is refused ---------------------------------------


def tone(seconds: float = 1.0, rate_hz: int = 16000, freq_hz: float = 440.0, level: float = 0.5) -> np.ndarray:
    times_s = np.arange(round(seconds * rate_hz)) / rate_hz
    return (level * np.sin(2 * np.pi * freq_hz * times_s)).astype(np.float32)


def written(path: Path, samples: np.ndarray, rate_hz: int = 16000, subtype: str | None = None) -> Path:
    soundfile.write(path, samples, rate_hz, subtype=subtype)
    return path


def refused(path: Path, **options: float) -> DataError:
    error = raised(DataError, audio.read_native, path, **options)
    assert error.field == str(path) and error.remedy
    return error


@pytest.mark.parametrize(("name", "subtype", "tolerance"), [
    ("a.wav", "PCM_16", 1e-4), ("a.wav", "PCM_24", 1e-6), ("a.wav", "FLOAT", 0), ("a.flac", "PCM_16", 1e-4),
    ("a.ogg", "VORBIS", 0.05),
])  # fmt: skip
def test_every_container_gives_the_written_samples(tmp_path: Path, name: str, subtype: str, tolerance: float) -> None:
    read = audio.read_native(written(tmp_path / name, tone(), subtype=subtype))
    assert read.dtype == np.float32
    assert read.shape == (16000,)
    assert np.max(np.abs(read - tone())) <= tolerance


def test_resampling_keeps_the_duration_and_the_tone(tmp_path: Path) -> None:
    read = audio.read_audio(written(tmp_path / "a.wav", tone(2.0, 44100, 1000.0), 44100), 16000.0)
    assert read.shape == (32000,)
    assert np.argmax(np.abs(np.fft.rfft(read))) == 2000


def test_stereo_is_averaged(tmp_path: Path) -> None:
    path = written(tmp_path / "a.wav", np.stack([tone(), np.zeros(16000, np.float32)], axis=1), subtype="FLOAT")
    assert audio.read_native(path) == pytest.approx(tone() / 2, abs=1e-6)


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.ogg"])
@pytest.mark.parametrize("lost", [2, 500, 0.5])
def test_a_file_cut_short_is_truncated_or_unreadable(tmp_path: Path, name: str, lost: float) -> None:
    path = written(tmp_path / name, np.random.default_rng(0).uniform(-0.5, 0.5, 16000).astype(np.float32))
    whole = path.read_bytes()
    path.write_bytes(whole[: -int(lost)] if lost >= 1 else whole[: len(whole) // 2])
    refused(path)


def test_a_truncated_wav_states_its_length(tmp_path: Path) -> None:
    path = written(tmp_path / "a.wav", tone(), subtype="PCM_16")
    path.write_bytes(path.read_bytes()[:-1000])
    error = refused(path)
    assert "truncated" in error.message
    assert error.value == "31000 of 32000 data bytes"


NOTE = b"LIST" + struct.pack("<I", 4) + b"INFO"


@pytest.mark.parametrize("changed", [
    lambda raw: raw.replace(b"data" + struct.pack("<I", 32000), b"data" + struct.pack("<I", 0xFFFFFFFF)),
    lambda raw: raw[:12] + NOTE + raw[12:] + NOTE,
], ids=["length left open", "chunks before and after the data"])  # fmt: skip
def test_an_unusual_wav_header_is_accepted(tmp_path: Path, changed: Callable[[bytes], bytes]) -> None:
    path = written(tmp_path / "a.wav", tone(), subtype="PCM_16")
    whole = path.read_bytes()
    path.write_bytes(changed(whole))
    assert path.read_bytes() != whole
    assert len(audio.read_native(path)) == 16000


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_samples_that_are_nan_are_refused(tmp_path: Path, bad: float) -> None:
    samples = tone()
    samples[[5, 700]] = bad
    error = refused(written(tmp_path / "a.wav", samples, subtype="FLOAT"))
    assert error.value == 2
    assert "NaN" in error.message


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "FLOAT"])
def test_a_waveform_cut_flat_is_clipped(tmp_path: Path, subtype: str) -> None:
    error = refused(written(tmp_path / "a.wav", np.clip(tone(level=1.5), -1, 1), subtype=subtype))
    assert "clipped" in error.message
    assert error.value == pytest.approx(0.53, abs=0.05)


def test_a_clipped_channel_is_refused(tmp_path: Path) -> None:
    both = np.stack([np.clip(tone(level=1.5), -1, 1), tone(level=0.1)], axis=1)
    refused(written(tmp_path / "a.wav", both))


def test_clipped_share_counts_runs_of_three_or_more() -> None:
    signal = np.array([1, 1, 0, 1, 1, 1, 0, -1, -1, -1, -1, 0, 0, 0, 1, 0, 0, 0, 0, 0], dtype=np.float32)
    assert audio.clipped_share(signal) == pytest.approx(7 / 20)


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "empty"), (b"not audio at all\n" * 20, "cannot be read"), (None, "cannot be read")]
)
def test_a_file_without_audio_is_refused(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "a.wav"
    if content is not None:
        path.write_bytes(content)
    error = refused(path)
    assert said in error.message and ".. " not in str(error)


def test_a_file_without_frames_and_a_folder_are_refused(tmp_path: Path) -> None:
    assert "empty" in refused(written(tmp_path / "a.wav", np.zeros(0, np.float32))).message
    refused(tmp_path)


def test_importing_the_workload_loads_no_audio_package() -> None:
    check = "import sys, scenarios.workloads.asc.workload; assert not {'soundfile', 'soxr'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT, check=False).returncode == 0
