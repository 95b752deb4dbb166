"""The core of the rig: records runs of neuromorphic systems and computes latency, power and energy from recordings.

The names in ``__all__`` are the public interface. Each is imported when it is first used.

Example::

    import rig

    run = rig.open_run("runs/first")
    result = rig.evaluate(run)
    power = result.quantities["active_power_w"]
    print(f"{power.value:.4g} W, 95 % interval {power.interval(0.95)}")
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rig.analysis.evaluate import evaluate
    from rig.analysis.result.quantity import Quantity
    from rig.analysis.result.result import Result
    from rig.bench.request import Request
    from rig.conformance.device import check_device
    from rig.conformance.meter import check_meter
    from rig.conformance.workload import check_workload
    from rig.engine.blocking_device import blocking
    from rig.engine.own_workload import workload
    from rig.errors import RigError
    from rig.recording.reader import Run, open_run
    from rig.session.measure import measure
    from rig.session.report import Evaluated, Report, evaluated, report
    from rig.solving.function import solver
    from rig.solving.model import qubo
    from rig.types import *

__all__ = [
    "UNSTAMPED", "Accuracy", "Bracket", "Budget", "Chunk", "Clock", "ClockInfo", "Clocked", "Conversion",
    "Device", "DeviceInfo", "Evaluated", "Exports", "Idle", "Issue", "Mark", "Marks", "Meter", "MeterInfo",
    "Problem", "Progress", "Quantity", "Rail", "Repeats", "Reply", "Report", "Request", "Result",
    "RigError", "Rules", "Run", "Sample", "SampleSet", "Sequenced", "SimulatedBench", "Span", "Step", "Streams",
    "Workload", "blocking", "check_device", "check_meter", "check_workload", "evaluate", "evaluated", "measure",
    "open_run", "qubo", "report", "solver", "workload",
]  # fmt: skip

_MODULES = {
    "Evaluated": "rig.session.report", "Quantity": "rig.analysis.result.quantity", "Report": "rig.session.report",
    "Request": "rig.bench.request", "Result": "rig.analysis.result.result", "RigError": "rig.errors",
    "Run": "rig.recording.reader", "blocking": "rig.engine.blocking_device", "check_device": "rig.conformance.device",
    "check_meter": "rig.conformance.meter", "check_workload": "rig.conformance.workload",
    "evaluate": "rig.analysis.evaluate", "evaluated": "rig.session.report", "measure": "rig.session.measure",
    "open_run": "rig.recording.reader", "qubo": "rig.solving.model", "report": "rig.session.report",
    "solver": "rig.solving.function", "workload": "rig.engine.own_workload",
}  # fmt: skip
"""The module of a public name; all other names are in ``rig.types``."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES.get(name, "rig.types")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
