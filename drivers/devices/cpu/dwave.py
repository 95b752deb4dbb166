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
from typing import Any

from drivers.devices.solver import PHASE
from rig.errors import missing_extra
from rig.types import DeviceInfo


def imported(what: str) -> Any:
    """The module dwave.samplers. Raises ``MissingExtraError`` that names ``what`` needs it."""
    try:
        import dwave.samplers
    except ImportError as error:
        raise missing_extra(what, error, "qubo", field="device", value=what) from error
    return dwave.samplers


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
