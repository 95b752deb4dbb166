"""A solver in one file: a function that takes a dimod model and yields sample sets.

    rig measure --device examples/my_solver.py:open_device --workload qubo --data problem.txt --meter mock

The solver is a descent from random starts. ``yield`` makes it an anytime solver: each sample set is a timed solution,
and the rig closes the generator when the time is up. A function that returns one sample set is a solver too. Replace
``descend`` by the call that runs your chip, and state its watts, or leave ``power`` out and name a meter.
"""

from collections.abc import Iterator

import dimod
import numpy as np

import rig


def open_device(*, idle_w: float = 5.0, busy_w: float = 12.0) -> rig.Device:
    """Open the solver; ``idle_w`` and ``busy_w`` are the watts that the simulated meter measures."""
    return rig.solver(descend, power={"cpu": (idle_w, busy_w)})


def descend(model: dimod.BinaryQuadraticModel, seed: int) -> Iterator[dimod.SampleSet]:
    """Yield a local optimum for each start, endlessly. Each solve has another ``seed``."""
    draw = np.random.default_rng(seed)
    linear, (u, v, weight), *_ = model.to_numpy_vectors()
    matrix = np.zeros((len(linear), len(linear)))
    np.add.at(matrix, (u, v), weight)
    matrix += matrix.T
    while True:
        bits = draw.integers(0, 2, len(linear)).astype(float)
        while (change := (1 - 2 * bits) * (linear + matrix @ bits)).min() < 0:  # the change of cost if one bit flips
            bits[change.argmin()] = 1 - bits[change.argmin()]
        yield dimod.SampleSet.from_samples_bqm(bits.astype(int), model)
