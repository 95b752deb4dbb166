"""Solvers for tests of grids and searches: each names one node at most, whatever its graph is."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rig.engine.blocking_device import blocking
from rig.types import Device, DeviceInfo, Sample
from scenarios.workloads.qubo_mis.graph import from_payload


def _naming_one(found: Callable[[int], bool]) -> Device:
    """Return a solver that answers with a graph's first node if ``found(number of nodes)``, and else with no node."""

    def solve(sample: Sample) -> dict[str, object]:
        solution = np.zeros(from_payload(sample.payload).nodes, np.uint8)
        solution[0] = found(len(solution))
        return {"cost": -float(solution[0]), "solution": np.packbits(solution).tobytes().hex()}

    return blocking(solve, DeviceInfo("own", "hardware", phases=("solve",)))


def solver() -> Device:
    """Solve nothing."""
    return _naming_one(lambda nodes: False)


def interrupted(*, signal_file: str) -> Device:
    """Find a node of any graph below 45 nodes; while it solves 40 nodes, the signal in the file comes, once."""

    def found(nodes: int) -> bool:
        if nodes == 40 and Path(signal_file).exists():
            number = int(Path(signal_file).read_text())
            Path(signal_file).unlink()
            os.kill(os.getpid(), number)
            time.sleep(20.0)
        return nodes < 45

    return _naming_one(found)


def hungry() -> Device:
    """Find a node of any graph, and take a gibibyte of memory for each node beyond 20."""
    held: list[np.ndarray] = []

    def found(nodes: int) -> bool:
        held[:] = [np.empty(max(0, nodes - 20) << 30, dtype=np.uint8)]
        return True

    return _naming_one(found)
