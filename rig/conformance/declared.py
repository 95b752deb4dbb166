"""``check_declared``: what the parts of a bench declare, checked before the first run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rig.conformance.device import device_info_rules
from rig.conformance.meter import meter_info_rules
from rig.conformance.rule_failures import Checks
from rig.conformance.workload import check_workload
from rig.engine.acquisition import Bench
from rig.types import Workload


def check_declared(bench: Bench, workload: Workload) -> None:
    """Check the samples in memory, or only the first of lazy ones, and the infos of the device and the meters.

    Nothing is staged, issued or started. Raises ``ConformanceError`` for the first part that fails rules.
    """
    _check_info(bench, bench.device, device_info_rules)
    check_workload(workload, answers=answers_of(bench), looked_at=1)
    for meter in bench.meters:
        _check_info(bench, meter, meter_info_rules)


def answers_of(bench: Bench) -> Sequence[str]:
    """Return the answers that the device declares in its details as ``classes`` or ``labels``; none if unknown.

    The rules of devices report a bad info, not this function.
    """
    c = Checks(bench.clock, prompt_s=0.1, kind="device")
    with c.calling("info()"):
        details = c.call("info()", bench.device.info).details
        declared = details.get("classes") or details.get("labels") or ()
        return [str(name) for name in declared] if isinstance(declared, list | tuple) else ()
    return ()


def _check_info(bench: Bench, driver: Any, rules: Callable[[Checks, Any, Any], object]) -> None:
    c = Checks(bench.clock, prompt_s=0.1)
    with c.calling("info()"):
        rules(c, *(c.call("info()", driver.info) for _ in range(2)))
    c.verdict()
