"""Samples that are already spikes: random rasters, for a network without a data set.

    rig measure --workload examples/spike_rasters.py:open_workload --device xylo --simulate --option network=mine.nir

They have no labels: time, energy and operations depend only on how often inputs spike; accuracy is not stated.
"""

import hashlib

import numpy as np

from rig.types import Sample, SampleSet


def open_workload(
    *, inputs: int = 12, time_steps: int = 256, share: float = 0.06, step_s: float = 1e-4, samples: int = 5
) -> SampleSet:
    """Open rasters of shape (time_steps, inputs). Each element is 1 with probability ``share``, otherwise 0."""
    rasters = [np.random.default_rng(k).random((time_steps, inputs)) < share for k in range(samples)]
    made = [Sample(f"raster-{k}", r.astype(np.int64), duration_s=time_steps * step_s) for k, r in enumerate(rasters)]
    digest = hashlib.sha256(b"".join(r.tobytes() for r in rasters)).hexdigest()
    return SampleSet("spike-rasters", "random spikes", "1", digest, tuple(made), {"share": share})
