"""Frames are windows of one continuous stream, sample by sample, with the label that is heard at their end."""

from __future__ import annotations

from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rig.errors import UsageError
from rig.types import Streams
from scenarios.lazy import Lazy
from scenarios.workloads.asc.frames import Scene, frames_of
from scenarios.workloads.asc.slices import Slice
from scenarios.workloads.asc.workload import open_workload
from tests.support.raised import raised

RATE_HZ = 100
SLICES = [Slice(f"{label}{k}", label, label, k) for label in "abc" for k in range(4)]
NUMBER = {part.id: n for n, part in enumerate(SLICES)}


def load(part: Slice) -> NDArray[np.float32]:
    """Every sample of every slice is another number."""
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


@settings(max_examples=75, deadline=None)
@example(window_s=3.84375, stride_s=1.107421875, scene_s=3.0234375, more_s=3.0, seed=0)
@given(window_s=lengths, stride_s=lengths, scene_s=lengths, more_s=st.floats(0.0, 20.0), seed=st.integers(0, 9))
def test_each_frame_is_a_slice_of_the_stream_sample_by_sample(
    window_s: float, stride_s: float, scene_s: float, more_s: float, seed: int
) -> None:
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
def test_no_scene_is_followed_by_one_like_it_and_none_is_heard_again_before_others(seed: int, scene_s: float) -> None:
    heard = scenes(stream(1.0, 1.0, scene_s, 40.0, seed))
    assert all(one.label != other.label for one, other in pairwise(heard))
    assert {part.label for scene in heard for part in scene.slices} <= set("abc")
    for label in "abc":
        parts = [part.id for scene in heard if scene.label == label for part in scene.slices]
        assert len(set(parts[:4])) == min(4, len(parts))
    assert all(part.label == scene.label for scene in heard for part in scene.slices)


def test_frames_are_the_same_for_the_same_seed_and_other_for_another() -> None:
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


@pytest.mark.parametrize(
    ("change", "field"),
    [({"window_s": 0.001}, "window_s"), ({"stride_s": 0.0}, "stride_s"), ({"scene_s": -1.0}, "scene_s"),
     ({"stride_s": float("nan")}, "stride_s"), ({"window_s": float("inf")}, "window_s"),
     ({"duration_s": 0.9}, "stream_s"), ({"duration_s": float("nan")}, "stream_s")],
)  # fmt: skip
def test_lengths_that_make_no_stream_are_refused_by_name(change: dict[str, Any], field: str) -> None:
    lengths: dict[str, Any] = {"window_s": 1.0, "stride_s": 0.5, "scene_s": 2.0, "duration_s": 5.0} | change
    error = raised(UsageError, stream, **lengths)
    assert (error.field, bool(error.remedy)) == (field, True)


def test_a_set_of_one_label_cannot_change_its_scene() -> None:
    lengths = {"window_s": 1.0, "stride_s": 0.5, "scene_s": 2.0, "duration_s": 5.0}
    with pytest.raises(UsageError, match="too few for scenes"):
        frames_of(SLICES[:4], load, RATE_HZ, **lengths, seed=1)


def test_the_acoustic_workload_streams_its_own_slices() -> None:
    workload = open_workload(samples=8, audio_hz=8000)
    assert isinstance(workload, Streams)
    frames = workload.stream(1.0, 0.5, 2.0, 6.0, 1)
    known = {sample.payload.tobytes() for sample in workload.samples}
    assert [f.payload.tobytes() in known for f in list(frames)[::2]] == [True] * 6
    assert all(f.rate_hz == 8000.0 and f.duration_s == 1.0 for f in frames)
