"""Sessions of two monkeys that reach for targets: spikes of the motor cortex, and the velocity of the cursor.

The files are those of "Nonhuman Primate Reaching with Multichannel Sensorimotor Cortex Electrophysiology"
(doi 10.5281/zenodo.583331); NeuroBench uses six of them. They are MATLAB files in HDF5, which the user downloads.
Without files, a session is synthetic: reaches are smooth, and the rate of a unit depends on the direction of the
movement. Figures of a synthetic session are not comparable with those of a cortex.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rig.errors import DataError, reason
from rig.plugins import imported
from rig.types import Bools, Floats, Indices

STEP_S = 0.004
RECIPE = "minimum-jerk reaches to targets drawn from a square, and cosine-tuned units with Poisson spikes"
_SIDE = 100.0
_REACH_S, _REST_S = (0.4, 1.0), (0.1, 0.4)
_BASE_HZ, _DEPTH = (2.0, 20.0), 1.5
"""For synthetic units: the range of rates at rest, and the largest relative change of a rate by a movement."""
TRAIN_SHARE = 0.75
"""The share of the reaches, from the first on, that are for training and validation (NeuroBench)."""
MD5S = {
    "indy_20160622_01": "c33d5fff31320d709d23fe445561fb6e",
    "indy_20160630_01": "197413a5339630ea926cbd22b8b43338",
    "indy_20170131_02": "2790b1c869564afaa7772dbf9e42d784",
    "loco_20170210_03": "4cae63b58c4cb9c8abd44929216c703b",
    "loco_20170215_02": "739b70762d838f3a1f358733c426bb02",
    "loco_20170301_05": "47342da09f9c950050c9213c3df38ea3",
}


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """One session in steps of ``STEP_S``.

    ``spikes``, shape (steps, channels), is True where a channel had a spike. ``velocity``, shape (steps, 2), float64,
    is in units of the cursor's position per step. ``reaches``, shape (reaches,), are the first steps of the reaches.
    """

    name: str
    spikes: Bools
    velocity: Floats
    reaches: Indices

    @property
    def test_from(self) -> int:
        """Return the first step after the training reaches."""
        return int(self.reaches[math.floor(TRAIN_SHARE * len(self.reaches))])


def read_session(folder: Path, name: str, md5s: Mapping[str, str] = MD5S) -> Session:
    """Read ``name.mat`` of a folder.

    Raises ``DataError`` for a missing file, a file that differs from the published one, and a session without spikes.
    Raises ``MissingExtraError`` without h5py.
    """
    path = folder / f"{name}.mat"
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "md5").hexdigest()
    except OSError as error:
        what = f"{path} cannot be read: {reason(error)}"
        raise DataError(what, field="data", value=str(path), remedy="Download doi 10.5281/zenodo.583331") from error
    if found != md5s[name]:
        what = f"{path} has the md5 {found}, and the published file {md5s[name]}"
        raise DataError(what, field="data", value=found, remedy="Download the file again, unchanged")
    h5py = imported("h5py", "a session of primate-reaching", "primate", field="data", value=str(path))
    with h5py.File(path, "r") as file:
        spikes = _spikes(file, np.asarray(file["t"], np.float64).ravel())
        velocity = np.gradient(np.asarray(file["cursor_pos"], np.float64), axis=1).T
        return Session(name, spikes, velocity, reaches_of(np.asarray(file["target_pos"]).T))


def reaches_of(targets: Floats) -> Indices:
    """Return the first step of each reach from targets of shape (steps, 2).

    As in the reference implementation, a reach begins with the last step of the previous target.
    """
    moved = np.nonzero(np.any(np.diff(targets, axis=0) != 0, axis=1))[0]
    return np.concatenate(([0], moved)).astype(np.int64)


def _spikes(file: Any, times_s: Floats) -> Bools:
    """Return whether any unit of a channel had a spike, for each of the times, shape (steps, channels).

    A spike in the step that ends at one time is counted at the next time, so one step late. The reference
    implementation has this delay, and the published networks were trained with it.
    """
    units = file["spikes"]
    found = np.zeros((len(times_s), units.shape[1]), np.bool_)
    edges_s = np.arange(times_s[0] - STEP_S, times_s[-1], STEP_S)
    for unit in range(units.shape[0]):
        for channel in range(units.shape[1]):
            step = np.searchsorted(edges_s, np.asarray(file[units[unit, channel]], np.float64).ravel(), side="right")
            found[step[(step > 0) & (step < min(len(edges_s), len(found)))], channel] = True
    if not found.any():
        what = f"{file.filename} has no spike in its {len(times_s)} steps"
        raise DataError(what, field="spikes", value=0, remedy="Download it again from doi 10.5281/zenodo.583331")
    return found


# ---- without recordings ----------------------------------------------------------------------


def synthetic(reaches: int, seed: int, channels: int = 96) -> Session:
    """Return a session of ``reaches`` reaches; the same seed gives the same session."""
    rng = np.random.default_rng(seed)
    position, targets = _reaches(reaches, rng)
    velocity = np.gradient(position, axis=0)
    angle = rng.uniform(0.0, 2 * np.pi, channels)
    along = velocity @ np.stack((np.cos(angle), np.sin(angle))) / np.linalg.norm(velocity, axis=1).max()
    rate_hz = rng.uniform(*_BASE_HZ, channels) * np.maximum(1.0 + _DEPTH * along, 0.0)
    spikes = rng.random(rate_hz.shape) < -np.expm1(-rate_hz * STEP_S)
    return Session(f"synthetic_{seed}", spikes, velocity, reaches_of(targets))


def _reaches(count: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return positions and targets of shape (steps, 2); after each reach the hand rests."""
    at, positions, targets = np.zeros(2), [], []
    for _ in range(count):
        target = rng.uniform(-_SIDE / 2, _SIDE / 2, 2)
        moving, resting = (round(rng.uniform(*span) / STEP_S) for span in (_REACH_S, _REST_S))
        share = np.minimum(np.arange(moving + resting) / moving, 1.0)[:, None]
        positions.append(at + (target - at) * share**3 * (10.0 - 15.0 * share + 6.0 * share**2))
        targets.append(np.tile(target, (len(share), 1)))
        at = target
    return np.concatenate(positions), np.concatenate(targets)
