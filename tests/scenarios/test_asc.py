"""The acoustic scene workload: its synthetic samples, its scenes, its sequences, and frames of one stream."""

from collections import Counter
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings, strategies as st
from numpy.typing import NDArray

from rig.errors import DataError, UsageError
from rig.types import Streams
from scenarios.lazy_samples import Lazy
from scenarios.workloads.asc import workload as asc
from scenarios.workloads.asc.scenes import CLASSES, synthesize
from scenarios.workloads.asc.slices import Scene, Slice, frames_of
from scenarios.workloads.asc.workload import open_workload
from tests.support.raised import raised

# ---- the synthetic workload ---------------------------------------------------------------


def test_the_default_is_120_balanced_synthetic_samples() -> None:
    workload = asc.open_workload()
    samples = list(workload.samples)
    assert len(samples) == 120
    assert Counter(s.label for s in samples) == dict.fromkeys(CLASSES, 30)
    assert workload.details["source"] == "synthetic"
    assert len(workload.digest_sha256) == 64


def test_a_synthetic_sample_follows_its_seed() -> None:
    sample = asc.open_workload(samples=6, sample_seed=2000, audio_hz=8000).samples[5]
    assert sample.seed == 2005
    assert sample.label == "street_traffic"
    assert (sample.duration_s, sample.rate_hz, sample.inferences) == (1.0, 8000.0, 1)
    assert np.array_equal(sample.payload, synthesize("street_traffic", 2005, 1.0, 8000.0))


def test_test_and_training_seeds_differ() -> None:
    assert all(s.seed not in asc.TRAINING_SEEDS for s in asc.open_workload().samples)
    assert asc.open_workload().details["unseen"] is True
    assert raised(UsageError, asc.open_workload, sample_seed=1999).field == "sample_seed"


def test_the_train_split_uses_training_seeds_only() -> None:
    workload = asc.open_workload(split="train", samples=40)
    assert [s.seed for s in workload.samples] == [k // 4 for k in range(40)]
    assert workload.details["unseen"] is False
    raised(UsageError, asc.open_workload, split="train", samples=4001)


def test_the_digest_follows_the_samples() -> None:
    digests = [
        asc.open_workload(samples=8).digest_sha256,
        asc.open_workload(samples=9).digest_sha256,
        asc.open_workload(samples=8, sample_seed=2001).digest_sha256,
        asc.open_workload(samples=8, audio_hz=8000).digest_sha256,
        asc.open_workload(samples=8, split="train").digest_sha256,
    ]
    assert len(set(digests)) == len(digests)
    assert asc.open_workload(samples=8).digest_sha256 == digests[0]
    assert asc.open_workload(samples=8, audio_hz=16000).digest_sha256 == digests[0]


@pytest.mark.parametrize(("options", "field"), [
    ({"samples": 0}, "samples"), ({"samples": -3}, "samples"), ({"samples": 10**9}, "samples"),
    ({"sample_seed": -1}, "sample_seed"), ({"audio_hz": 0.0}, "audio_hz"), ({"audio_hz": -16000.0}, "audio_hz"),
    ({"audio_hz": float("nan")}, "audio_hz"), ({"audio_hz": float("inf")}, "audio_hz"),
    ({"audio_hz": 16000.5}, "audio_hz"), ({"split": "dev"}, "split"),
    ({"clipped_limit": float("nan")}, "clipped_limit"),
])  # fmt: skip
def test_an_impossible_option_is_refused(options: dict[str, object], field: str) -> None:
    error = raised(UsageError, asc.open_workload, **options)
    assert error.field == field and error.remedy


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_a_folder_without_a_list_is_refused(tmp_path: Path, name: str) -> None:
    error = raised(DataError, asc.open_workload, data=str(tmp_path / name))
    assert error.field == "data" and error.remedy


# ---- sequences ----------------------------------------------------------------------------


def test_sequences_join_slices_of_one_scene() -> None:
    workload = asc.open_workload(samples=40)
    joined = workload.sequences(5)
    assert len(joined.samples) == 8
    first = joined.samples[0]
    assert (first.inferences, first.duration_s, first.payload.shape) == (5, 5.0, (80000,))
    assert Counter(s.label for s in joined.samples) == dict.fromkeys(CLASSES, 2)
    airports = [s.payload for s in workload.samples if s.label == "airport"]
    assert np.array_equal(first.payload, np.concatenate(airports[:5]))


def test_leftovers_are_joined_without_a_label_or_dropped() -> None:
    joined = asc.open_workload(samples=26).sequences(4)
    assert [s.label for s in joined.samples].count(None) == 2
    assert joined.samples[-1].label is None
    assert joined.details["mixed_sequences"] == 2
    assert joined.details["dropped_slices"] == 2


def test_sequences_have_their_own_digest() -> None:
    workload = asc.open_workload(samples=8)
    digests = {workload.sequences(s).digest_sha256 for s in (1, 2, 4)} | {workload.digest_sha256}
    assert len(digests) == 4


@pytest.mark.parametrize("seconds", [0, -1, 1.5, float("nan"), float("inf"), 9])
def test_an_impossible_sequence_length_is_refused(seconds: float) -> None:
    assert raised(UsageError, asc.open_workload(samples=8).sequences, seconds).field == "seconds"


# ---- the synthetic scenes ----------------------------------------------------------------------


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


def test_scenes_are_of_medium_difficulty_for_a_linear_readout() -> None:
    labels = np.arange(300) % 4
    bands = np.stack([log_bands(synthesize(CLASSES[k], i)) for i, k in enumerate(labels)])
    weights = np.linalg.lstsq(bands[:200], np.eye(4)[labels[:200]], rcond=None)[0]
    assert 0.88 < np.mean((bands[200:] @ weights).argmax(axis=1) == labels[200:]) < 0.99


# ---- frames: windows of one continuous stream --------------------------------------------------

RATE_HZ = 100
SLICES = [Slice(f"{label}{k}", label, label, k) for label in "abc" for k in range(4)]
NUMBER = {part.id: n for n, part in enumerate(SLICES)}


def load(part: Slice) -> NDArray[np.float32]:
    """Return a slice; all samples of all slices are different numbers."""
    return (NUMBER[part.id] * RATE_HZ + np.arange(RATE_HZ)).astype(np.float32)


def stream(window_s: float, stride_s: float, scene_s: float, duration_s: float, seed: int = 1) -> Lazy[int]:
    lengths = {"window_s": window_s, "stride_s": stride_s, "scene_s": scene_s, "duration_s": duration_s}
    return frames_of(SLICES, load, RATE_HZ, **lengths, seed=seed)


def scenes(frames: Lazy[int]) -> tuple[Scene, ...]:
    found: tuple[Scene, ...] = attrgetter("__self__.scenes")(frames.make)
    return found


def whole(frames: Lazy[int], duration_s: float) -> tuple[NDArray[np.float32], list[str]]:
    """Return the stream and the label of each sample, joined scene by scene and slice by slice."""
    sound, labels = [], []
    ends = [*(scene.begin_s for scene in scenes(frames)[1:]), duration_s + 99.0]
    for scene, end_s in zip(scenes(frames), ends, strict=True):
        n = round(end_s * RATE_HZ) - round(scene.begin_s * RATE_HZ)
        sound.append(np.resize(np.concatenate([load(part) for part in scene.slices]), n))
        labels += [scene.label] * n
    return np.concatenate(sound), labels


# lengths on the grid of the samples, and off it
lengths = st.integers(1, 400).map(lambda n: n / RATE_HZ) | st.floats(0.02, 4.0)


@settings(max_examples=75)
@example(window_s=3.84375, stride_s=1.107421875, scene_s=3.0234375, more_s=3.0, seed=0)
@given(window_s=lengths, stride_s=lengths, scene_s=lengths, more_s=st.floats(0.0, 20.0), seed=st.integers(0, 9))
def test_frames_are_exact_slices(window_s: float, stride_s: float, scene_s: float, more_s: float, seed: int) -> None:
    """Including windows longer than scenes and strides longer than windows."""
    duration_s = window_s + min(more_s, 30 * stride_s)
    assume(duration_s < 300 * scene_s)
    frames = stream(window_s, stride_s, scene_s, duration_s, seed)
    sound, labels = whole(frames, duration_s)
    width = round(window_s * RATE_HZ)
    assert 0 <= duration_s - (window_s + (len(frames) - 1) * stride_s) + 1e-6 <= stride_s + 2e-6
    for k, frame in enumerate(frames):
        begin = round(k * stride_s * RATE_HZ)
        assert np.array_equal(frame.payload, sound[begin : begin + width])
        end_s = window_s + k * stride_s
        assert frame.label_age_s is not None
        assert 0 < frame.label_age_s <= scene_s + 1e-6 or frame.label == scenes(frames)[-1].label
        begun_s = end_s - frame.label_age_s
        assert begun_s == pytest.approx([s for s in scenes(frames) if s.begin_s < end_s - 5e-10][-1].begin_s)
        # begin and length of a frame, and begin of a scene, are each rounded by at most half a sample
        near_change = min(abs(s.begin_s - end_s) for s in scenes(frames)) * RATE_HZ <= 1.5
        assert near_change or frame.label == labels[begin + width - 1]


@given(seed=st.integers(0, 500), scene_s=st.sampled_from([0.5, 1.0, 2.5, 7.0]))
def test_no_scene_is_followed_by_one_like_it(seed: int, scene_s: float) -> None:
    heard = scenes(stream(1.0, 1.0, scene_s, 40.0, seed))
    assert all(one.label != other.label for one, other in pairwise(heard))
    assert {part.label for scene in heard for part in scene.slices} <= set("abc")
    for label in "abc":
        parts = [part.id for scene in heard if scene.label == label for part in scene.slices]
        assert len(set(parts[:4])) == min(4, len(parts))
    assert all(part.label == scene.label for scene in heard for part in scene.slices)


def test_frames_are_determined_by_the_seed() -> None:
    one, again, other = (stream(1.0, 0.5, 2.0, 20.0, seed) for seed in (3, 3, 4))
    assert [f.label for f in one] == [f.label for f in again]
    assert all(np.array_equal(a.payload, b.payload) for a, b in zip(one, again, strict=True))
    assert [f.label for f in one] != [f.label for f in other]


def test_frames_are_a_sequence() -> None:
    frames = stream(1.0, 0.5, 2.0, 5.0)
    assert [f.id for f in frames] == [f"frame-{k:06d}" for k in range(9)]
    assert frames[-1].id == frames[8].id
    assert [f.id for f in frames[2:6:2]] == ["frame-000002", "frame-000004"]
    for k in (9, -10):
        with pytest.raises(IndexError):
            frames[k]
    assert frames[0].payload.dtype == np.float32


@pytest.mark.parametrize(("change", "field"), [
    ({"window_s": 0.001}, "window_s"), ({"stride_s": 0.0}, "stride_s"), ({"scene_s": -1.0}, "scene_s"),
     ({"stride_s": float("nan")}, "stride_s"), ({"window_s": float("inf")}, "window_s"),
])  # fmt: skip
def test_impossible_stream_lengths_are_refused(change: dict[str, Any], field: str) -> None:
    lengths: dict[str, Any] = {"window_s": 1.0, "stride_s": 0.5, "scene_s": 2.0, "duration_s": 5.0} | change
    error = raised(UsageError, stream, **lengths)
    assert (error.field, bool(error.remedy)) == (field, True)


def test_the_acoustic_workload_streams_its_own_slices() -> None:
    workload = open_workload(samples=8, audio_hz=8000)
    assert isinstance(workload, Streams)
    frames = workload.stream(1.0, 0.5, 2.0, 6.0, 1)
    known = {sample.payload.tobytes() for sample in workload.samples}
    assert [f.payload.tobytes() in known for f in list(frames)[::2]] == [True] * 6
    assert all(f.rate_hz == 8000.0 and f.duration_s == 1.0 for f in frames)
