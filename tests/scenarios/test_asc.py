"""The acoustic scene workload: its synthetic samples, its sequences and its score."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from rig.errors import DataError, UsageError
from scenarios.workloads.asc import workload as asc
from scenarios.workloads.asc.scenes import CLASSES, synthesize
from tests.support.raised import raised

# ---- the synthetic workload ---------------------------------------------------------------


def test_without_data_there_are_120_balanced_synthetic_samples() -> None:
    workload = asc.open_workload()
    samples = list(workload.samples)
    assert len(samples) == 120
    assert Counter(s.label for s in samples) == dict.fromkeys(CLASSES, 30)
    assert workload.details["source"] == "synthetic"
    assert len(workload.digest_sha256) == 64


def test_a_synthetic_sample_is_the_scene_of_its_seed() -> None:
    sample = asc.open_workload(samples=6, sample_seed=2000, audio_hz=8000).samples[5]
    assert sample.seed == 2005
    assert sample.label == "street_traffic"
    assert (sample.duration_s, sample.rate_hz, sample.inferences) == (1.0, 8000.0, 1)
    assert np.array_equal(sample.payload, synthesize("street_traffic", 2005, 1.0, 8000.0))


def test_test_seeds_are_no_training_seeds() -> None:
    assert all(s.seed not in asc.TRAINING_SEEDS for s in asc.open_workload().samples)
    assert asc.open_workload().details["unseen"] is True
    assert raised(UsageError, asc.open_workload, sample_seed=1999).field == "sample_seed"


def test_the_train_split_uses_training_seeds_only() -> None:
    workload = asc.open_workload(split="train", samples=40)
    assert [s.seed for s in workload.samples] == [k // 4 for k in range(40)]
    assert workload.details["unseen"] is False
    with pytest.raises(UsageError):
        asc.open_workload(split="train", samples=4001)


def test_the_digest_follows_what_is_streamed() -> None:
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


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"samples": 0}, "samples"), ({"samples": -3}, "samples"), ({"samples": 10**9}, "samples"),
        ({"sample_seed": -1}, "sample_seed"), ({"audio_hz": 0.0}, "audio_hz"), ({"audio_hz": -16000.0}, "audio_hz"),
        ({"audio_hz": float("nan")}, "audio_hz"), ({"audio_hz": float("inf")}, "audio_hz"),
        ({"audio_hz": 16000.5}, "audio_hz"), ({"split": "dev"}, "split"),
        ({"clipped_limit": float("nan")}, "clipped_limit"),
    ],
)  # fmt: skip
def test_an_option_that_cannot_be_meant_is_refused(options: dict[str, object], field: str) -> None:
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


def test_leftovers_are_joined_without_a_label_and_the_rest_is_dropped() -> None:
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
def test_a_length_that_cannot_be_joined_is_refused(seconds: float) -> None:
    assert raised(UsageError, asc.open_workload(samples=8).sequences, seconds).field == "seconds"
