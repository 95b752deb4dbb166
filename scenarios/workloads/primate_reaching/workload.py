"""The velocity of a hand from spikes of the motor cortex (NeuroBench, non-human primate motor prediction).

A sample is one session: a model learns from the first three quarters of its reaches, and predicts the velocity in each
step of the rest. The payload is the whole session, with one row for each step.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rig.bench.settings import one_of, parts_of, within
from rig.types import Sample, SampleSet
from scenarios.workloads.primate_reaching.sessions import MD5S, RECIPE, STEP_S, Session, read_session, synthetic

CHANNELS = {"indy": 96, "loco": 192}
"""Number of channels by animal."""


def open_workload(
    *, data: str | None = None, animal: str = "indy", sessions: str = "", reaches: int = 200, seed: int = 0
) -> SampleSet:
    """Open the sessions of one animal in the folder ``data``; without ``data``, a synthetic session with its channels.

    ``sessions`` names some of the animal's three sessions, separated by commas. ``reaches`` and ``seed`` apply to the
    synthetic session.

    Raises ``UsageError`` for options out of range, ``DataError`` for files that are not the published ones, and
    ``MissingExtraError`` without h5py when a folder is given.
    """
    one_of(CHANNELS, animal=animal)
    within(8, 2000, reaches=reaches)
    within(0, 2**31 - 1, seed=seed)
    if data is None:
        return _of([synthetic(reaches, seed, CHANNELS[animal])], {"source": "synthetic", "synthetic": RECIPE})
    known = [name for name in MD5S if name.startswith(animal)]
    chosen = parts_of(sessions) or known
    for name in chosen:
        one_of(known, sessions=name)
    source = {"source": "doi 10.5281/zenodo.583331", "md5": {name: MD5S[name] for name in chosen}}
    return _of([read_session(Path(data), name) for name in chosen], source)


def _of(sessions: Sequence[Session], source: Mapping[str, object]) -> SampleSet:
    samples = tuple(_sample(session) for session in sessions)
    details = {
        **source, "regress": "velocity", "regress_from": {session.name: session.test_from for session in sessions},
        "reaches": {session.name: len(session.reaches) for session in sessions}, "step_s": STEP_S,
        "velocity": "change of the cursor's position in one step",
    }  # fmt: skip
    digest = hashlib.sha256(b"".join(sample.payload.tobytes() for sample in samples)).hexdigest()
    task = "non-human primate motor prediction: velocity of the hand from spikes"
    return SampleSet("primate-reaching", task, "1", digest, samples, details)


def _sample(session: Session) -> Sample:
    """Return the session as a sample: rows of ``spikes``, packed by ``numpy.packbits``, and of ``velocity``."""
    packed = np.packbits(session.spikes, axis=1)
    fields = np.dtype([("spikes", np.uint8, packed.shape[1:]), ("velocity", "<f4", 2)])
    payload = np.zeros(len(packed), fields)
    payload["spikes"], payload["velocity"] = packed, session.velocity
    steps = len(packed) - session.test_from
    return Sample(session.name, payload, rate_hz=1.0 / STEP_S, inferences=steps, keep=True)
