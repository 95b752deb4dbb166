"""A workload in one file: a list of samples with the right answers.

    rig measure --device mock --workload examples/my_workload.py:open_workload

Each sample is a tone of 1 s in noise, and its label says whether the tone is low or high. Replace ``_tone`` by your
own arrays and labels. ``count`` is an option: --option count=40.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from rig.types import Sample

RATE_HZ = 16000.0
TONES_HZ = {"low": 400.0, "high": 3000.0}


@dataclass(frozen=True)
class Tones:
    """A workload has a name, a task, a version, a digest, samples and details."""

    samples: list[Sample]
    digest_sha256: str
    name: str = "tones"
    task: str = "tone classification"
    version: str = "1"
    details: Mapping[str, object] = field(default_factory=dict)


def open_workload(*, count: int = 20, noise: float = 0.1) -> Tones:
    """Open a workload of ``count`` samples; ``noise`` is a standard deviation, and the tone has amplitude 1."""
    labels = list(TONES_HZ)
    samples = [_tone(k, labels[k % len(labels)], noise) for k in range(count)]
    digest = hashlib.sha256(b"".join(sample.payload.tobytes() for sample in samples))
    return Tones(samples, digest.hexdigest(), details={"source": "synthetic", "noise": noise})


def _tone(number: int, label: str, noise: float) -> Sample:
    """Return one second of audio, float32 of shape (16000,). A number always gives the same sample."""
    time_s = np.arange(int(RATE_HZ)) / RATE_HZ
    draw = np.random.default_rng(number).normal(0.0, noise, len(time_s))
    audio = np.sin(2 * np.pi * TONES_HZ[label] * time_s) + draw
    return Sample(f"tone-{number}", audio.astype(np.float32), label=label, duration_s=1.0, rate_hz=RATE_HZ, seed=number)
