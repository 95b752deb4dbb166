"""A session without recordings: smooth reaches, and units whose rate follows the direction of the movement.

The task can run with it if the recorded sessions are not available. Its figures say nothing about a cortex.
"""

from __future__ import annotations

import numpy as np

from rig.types import Floats
from scenarios.workloads.primate_reaching.sessions import STEP_S, Session, reaches_of

RECIPE = "minimum-jerk reaches to targets drawn from a square, and cosine-tuned units with Poisson spikes"
_SIDE = 100.0
_REACH_S, _REST_S = (0.4, 1.0), (0.1, 0.4)
_BASE_HZ, _DEPTH = (2.0, 20.0), 1.5
"""The range of rates at rest, and how many times this rate the fastest movement in the preferred direction adds."""


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
