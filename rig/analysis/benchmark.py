"""Whether a run keeps the parameters of the benchmark that its workload declares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rig.analysis.verdict import Check
from rig.recording.records import ScenarioRecord
from rig.types import Benchmark, Parameter

Value = float | str | None
_SHOWN = 6
"""The most values that a check names."""


def benchmark_checks(benchmark: Benchmark | None, scenario: ScenarioRecord, source: str) -> Iterator[Check]:
    """Yield one check for each parameter that the workload declares, and for each option of the scenario.

    An option that the scenario does not have is not checked. ``source`` is that of the rule itself.
    """
    if benchmark is None:
        yield Check("benchmark of the workload", "none declared", "declared by the workload", False, source)
        return
    yield Check("benchmark of the workload", benchmark.name, "declared by the workload", True, source)
    yield _within("scenario of the benchmark", (scenario.name,), benchmark.scenarios)
    for name, parameter in benchmark.parameters.items():
        yield _within(f"benchmark: {name}", parameter.found, parameter)
    for name, parameter in benchmark.options.items():
        if name in scenario.options:
            yield _within(f"benchmark: option {name}", (scenario.options[name],), parameter)


def _within(rule: str, found: Sequence[Value], parameter: Parameter) -> Check:
    ok = bool(found) and all(value in parameter.allowed for value in found)
    return Check(rule, _listed(found, ", "), _listed(parameter.allowed, " or "), ok, parameter.source)


def _listed(values: Sequence[Value], between: str) -> str:
    words = ["none" if v is None else f"{v:g}" if isinstance(v, float) else str(v) for v in values]
    if len(words) > _SHOWN:
        words = [*words[: _SHOWN - 2], "...", words[-1]]
        between = ", "
    return between.join(words) or "none"
