"""A workload in one file: a list of samples with the right answers.

    rig measure --device mock --workload examples/my_workload.py:open_workload

Each sample is a tone of 1 s in noise, and its label says whether the tone is low or high. Replace ``_tone`` by your
own arrays and labels. ``count`` is an option: --option count=40.
"""

import numpy as np

import rig

RATE_HZ = 16000.0
TONES_HZ = {"low": 400.0, "high": 3000.0}


def open_workload(*, count: int = 20, noise: float = 0.1) -> rig.SampleSet:
    """Open a workload of ``count`` samples; ``noise`` is a standard deviation, and the tone has amplitude 1."""
    labels = list(TONES_HZ)
    samples = [_tone(k, labels[k % len(labels)], noise) for k in range(count)]
    details = {"source": "synthetic", "noise": noise}
    return rig.workload(samples, name="tones", task="tone classification", classes=labels, details=details)


def _tone(number: int, label: str, noise: float) -> rig.Sample:
    """Return one second of audio, float32 of shape (16000,). The same number always gives the same sample."""
    time_s = np.arange(int(RATE_HZ)) / RATE_HZ
    draw = np.random.default_rng(number).normal(0.0, noise, len(time_s))
    audio = (np.sin(2 * np.pi * TONES_HZ[label] * time_s) + draw).astype(np.float32)
    return rig.Sample(f"tone-{number}", audio, label=label, duration_s=1.0, rate_hz=RATE_HZ, seed=number)
