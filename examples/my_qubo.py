"""A problem in one file: a workload of binary quadratic models of dimod, made by your own code.

    rig measure --device examples/my_solver.py:open_device --scenario optimization \
        --workload examples/my_qubo.py:open_workload --meter none

Each problem splits numbers into two groups of nearly the same sum. Replace ``split`` by your own models, with spins or
bits. A problem in a file needs no code: --workload qubo --data FILE. ``count`` is an option: --option count=5.
"""

import dimod
import numpy as np

import rig


def open_workload(*, count: int = 3, numbers: int = 24) -> rig.SampleSet:
    """Open a workload of ``count`` problems, each with this many ``numbers``."""
    return rig.qubo({f"split-{k}": split(k, numbers) for k in range(count)}, name="split")


def split(seed: int, numbers: int) -> dimod.BinaryQuadraticModel:
    """Return the square of the difference of two groups, with a spin for each number: its energy is the cost."""
    values = np.random.default_rng(seed).integers(1, 100, numbers).astype(float)
    pairs = {(i, j): 2 * values[i] * values[j] for i in range(numbers) for j in range(i)}
    return dimod.BinaryQuadraticModel({}, pairs, float(np.sum(values**2)), "SPIN")
