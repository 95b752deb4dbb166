"""What the two D-Wave samplers share as devices: the problem as they take it, and reads that fit the time left.

A call of either cannot be stopped from outside, and its set-up alone may take longer than a short budget. So what a
call takes beyond its search is measured when a graph is loaded; a call that would not end in time is not begun, and
what ends late all the same is recorded as an overrun.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from types import ModuleType
from typing import Any

import numpy as np

from drivers.devices.solver import PHASE
from rig.analysis.solving.graph import CONFLICT_COST, NODE_COST, Graph
from rig.errors import MissingExtraError
from rig.types import DeviceInfo


def imported(what: str) -> tuple[ModuleType, ModuleType]:
    """The modules dimod and dwave.samplers. Raises ``MissingExtraError``."""
    try:
        import dimod
        import dwave.samplers
    except ImportError as error:
        raise MissingExtraError(
            f"{what} needs {error.name or 'dwave-samplers'}, which is not installed",
            field="device",
            value=what,
            remedy="pip install 'neurorig[qubo]'",
        ) from error
    return dimod, dwave.samplers


def binary_model(dimod: Any, graph: Graph) -> Any:
    """The benchmark's Q as a binary quadratic model: an edge costs 8, once for both orders."""
    quadratic = (graph.edges[:, 0], graph.edges[:, 1], np.full(len(graph.edges), float(CONFLICT_COST)))
    linear = np.full(graph.nodes, float(NODE_COST))
    return dimod.BinaryQuadraticModel.from_numpy_vectors(linear, quadratic, 0.0, "BINARY")


def timed(call: Callable[[], object], times: int = 3) -> float:
    """Seconds of the quickest of some calls."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return min(took)


def info(name: str, description: str, tuning: str, longest_s: float) -> DeviceInfo:
    """What both declare; ``tuning`` says by what rule, its values stand in every answer."""
    return DeviceInfo(
        name,
        "hardware",
        description,
        phases=(PHASE,),
        timeout_s=1.1 * longest_s + 30.0,
        versions={package: version(package) for package in ("dimod", "dwave-samplers", "numpy")},
        details={
            "schedule_depends_on_budget": True,  # the last read is made to fit what is left
            "cost": "computed from each read's solution within the span",
            "tuning": f"{tuning}; by nodes and density alone, its values with every answer",
            "processor": platform.processor() or platform.machine(),
        },
    )
