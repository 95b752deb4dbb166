"""Primate reaching: sessions are read as in the publication, and no other file is accepted as one."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rig.errors import DataError, UsageError
from scenarios.workloads.primate_reaching.sessions import MD5S, STEP_S, reaches_of, read_session, synthetic
from scenarios.workloads.primate_reaching.workload import open_workload
from tests.support.raised import raised

NAME = "indy_20160622_01"


def write_session(folder: Path, times_s: list[list[list[float]]], steps: int) -> dict[str, str]:
    """Write a file in the published layout, with spikes ``times_s`` by unit and channel; return its md5 by name."""
    h5py: Any = pytest.importorskip("h5py")
    path = folder / f"{NAME}.mat"
    with h5py.File(path, "w") as file:
        file["t"] = (100.0 + STEP_S * np.arange(steps))[None]
        file["cursor_pos"] = np.stack((np.arange(steps) ** 2, -np.arange(steps))).astype(float)
        file["target_pos"] = np.stack((np.arange(steps) // 5, np.zeros(steps)))
        cells = file.create_dataset("spikes", (len(times_s), len(times_s[0])), dtype=h5py.ref_dtype)
        for unit, channels in enumerate(times_s):
            for channel, found in enumerate(channels):
                # MATLAB stores an empty cell as two zeros
                stored = file.create_dataset(f"#refs#/{unit}-{channel}", data=np.array([found or [0, 0]], float))
                cells[unit, channel] = stored.ref
    return {NAME: hashlib.md5(path.read_bytes()).hexdigest()}


def test_spikes_are_seen_one_step_later(tmp_path: Path) -> None:
    times_s: list[list[list[float]]] = [[[99.0, 100.001], []], [[100.0025, 100.0090], [100.018, 200.0]]]
    session = read_session(tmp_path, NAME, write_session(tmp_path, times_s, steps=10))
    assert np.argwhere(session.spikes).tolist() == [[2, 0], [4, 0], [6, 1]]


def test_velocity_is_the_change_of_position_in_a_step(tmp_path: Path) -> None:
    session = read_session(tmp_path, NAME, write_session(tmp_path, [[[100.001]]], steps=6))
    assert session.velocity.tolist() == [[1, -1], [2, -1], [4, -1], [6, -1], [8, -1], [9, -1]]


@pytest.mark.parametrize("reaches", range(4, 12))
def test_the_last_quarter_of_reaches_is_for_testing(reaches: int, tmp_path: Path) -> None:
    """The reference uses half of the reaches for training and half of the rest for validation, both rounded down."""
    session = read_session(tmp_path, NAME, write_session(tmp_path, [[[100.001]]], steps=5 * reaches))
    assert session.reaches.tolist() == [0, *range(4, 5 * reaches - 1, 5)]
    train = reaches // 2
    assert session.test_from == session.reaches[train + (reaches - train) // 2]


def test_a_session_without_spikes_is_refused(tmp_path: Path) -> None:
    md5s = write_session(tmp_path, [[[]]], steps=6)
    assert raised(DataError, read_session, tmp_path, NAME, md5s, says="has no spike in its 6 steps").field == "spikes"


def test_an_unpublished_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.mat").write_bytes(b"another file")
    raised(DataError, open_workload, says=MD5S[NAME], data=str(tmp_path), sessions=NAME)
    with pytest.raises(DataError, match=r"indy_20160630_01\.mat cannot be read"):
        open_workload(data=str(tmp_path), sessions="indy_20160630_01")


def test_a_session_of_another_animal_is_refused() -> None:
    raised(UsageError, open_workload, says="loco_20170210_03", data=".", sessions="loco_20170210_03")


def test_a_synthetic_session_is_marked_as_synthetic() -> None:
    workload = open_workload(reaches=20)
    (sample,) = workload.samples
    assert sample.id == "synthetic_0"
    assert "synthetic" in workload.details
    assert sample.inferences == len(sample.payload) - workload.details["regress_from"][sample.id]
    again, other = open_workload(reaches=20), open_workload(reaches=20, seed=1)
    assert workload.digest_sha256 == again.digest_sha256 != other.digest_sha256


def test_the_payload_holds_the_spikes_and_the_velocity() -> None:
    session = synthetic(12, 0)
    (sample,) = open_workload(reaches=12).samples
    assert np.array_equal(np.unpackbits(sample.payload["spikes"], axis=1), session.spikes)
    assert np.array_equal(sample.payload["velocity"], session.velocity.astype(np.float32))


def test_synthetic_units_have_realistic_directions_and_rates() -> None:
    """The direction of a unit comes from a regression of its spikes on the velocity, where this is high."""
    session = synthetic(80, 0)
    speed = np.linalg.norm(session.velocity, axis=1)
    fast = speed > np.median(speed)
    slopes = np.linalg.lstsq(session.velocity[fast], session.spikes[fast].astype(float), rcond=None)[0]
    directions = np.arctan2(slopes[1], slopes[0])
    assert np.histogram(directions, bins=4, range=(-np.pi, np.pi))[0].min() > 10
    rates_hz = session.spikes.mean(axis=0) / STEP_S
    assert 1.0 < rates_hz.min() < rates_hz.max() < 30.0


def test_a_reach_begins_with_the_last_target_step() -> None:
    assert reaches_of(np.array([[0, 0], [0, 0], [1, 0], [1, 0], [1, 2]])).tolist() == [0, 1, 3]
