"""Check that a run keeps the limits of the benchmark that its workload declares, and plays the benchmark's samples."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rig.analysis.result.finding import Finding, note
from rig.analysis.verdict.benchmark_limits import Values, limits_of
from rig.recording.reader import Run
from rig.recording.records import ScenarioRecord
from rig.types import Benchmark, Parameter

Value = float | str | None
_SHOWN = 6
"""A check names at most this many values."""


def benchmark_checks(benchmark: Benchmark | None, scenario: ScenarioRecord) -> Iterator[Finding]:
    """Yield a check of the benchmark, of its scenario, of each of its parameters, and of each option that it limits.

    The allowed values are the rig's own limits of the benchmark. For an unknown benchmark, they are those that the
    workload declares. An option that the scenario does not have is not checked.
    """
    if benchmark is None:
        yield Finding("benchmark of the workload", "none declared", "declared by the workload", False, by="benchmark")
        return
    held = as_held(benchmark)
    yield Finding("benchmark of the workload", held.name, "declared by the workload", True, by="benchmark")
    yield _within("scenario of the benchmark", (scenario.name,), held.scenarios)
    for name, parameter in held.parameters.items():
        yield _within(f"benchmark: {name}", parameter.found, parameter)
    for name, parameter in held.options.items():
        if name in scenario.options:
            yield _within(f"benchmark: option {name}", (scenario.options[name],), parameter)


def as_held(benchmark: Benchmark) -> Benchmark:
    """Return the benchmark with the rig's own limits in place of those that a recording declares."""
    limits = limits_of(benchmark)
    if limits is None:
        return benchmark
    declared = benchmark.parameters, benchmark.options
    return replace(
        benchmark,
        scenarios=replace(benchmark.scenarios, allowed=limits.scenarios),
        parameters={k: _limited(declared[0].get(k), allowed) for k, allowed in limits.parameters.items()},
        options={k: _limited(declared[1].get(k), allowed) for k, allowed in limits.options.items()},
    )


def _limited(declared: Parameter | None, allowed: Values) -> Parameter:
    return Parameter((), allowed) if declared is None else replace(declared, allowed=allowed)


def set_findings(run: Run) -> Iterator[Finding]:
    """Yield a failed check if the samples of a run differ from those of a known benchmark.

    A benchmark is checked only if it states how long the data of one inference last. One check compares this length.
    If the rules ask for the whole set, another check compares the number of inferences with the declared number of
    samples. Under rules for submission, an unknown benchmark gets a note.
    """
    benchmark, rules = run.start.workload.benchmark, run.start.rules
    if benchmark is None or rules is None:
        return
    limits = limits_of(benchmark)
    if limits is None and rules.submittable:
        yield note(
            f"Limits of the benchmark {benchmark.name!r} are as declared by the workload; the rig knows none of its own"
        )
    if limits is None or limits.inference_s is None or not rules.benchmark:
        return
    rows = run.samples.select(["id", "inferences", "duration_s"]).to_pylist()
    lengths = {row["id"]: row["inferences"] * limits.inference_s for row in rows}
    odd = [row for row in rows if row["duration_s"] and not math.isclose(row["duration_s"], lengths[row["id"]])]
    if odd:
        found = f"{len(odd)} of {len(rows)}, such as {odd[0]['inferences']} in {odd[0]['duration_s']:g} s"
        yield Finding("samples with another length of an inference", found, f"0; {limits.inference_s:g} s each", False)
    said = benchmark.parameters["samples"].found if "samples" in benchmark.parameters else ()
    held = sum(row["inferences"] for row in rows)
    if rules.whole_set and run.start.purpose not in ("compliance", "probe") and said and said != (held,):
        yield Finding("samples in the recording", str(held), f"{_listed(said, ', ')}, as it declares", False)


def sample_findings(run: Run) -> Iterator[Finding]:
    """Yield a failed check if only some samples of an accuracy run have a label, because the others are not judged.

    If the rules ask for the whole set, samples with equal data get a note, because the set counts them separately.
    Only rules for submission have these findings.
    """
    rules, purpose = run.start.rules, run.start.purpose
    if rules is None or not rules.submittable:
        return
    without = run.samples["label"].null_count
    if purpose == "accuracy" and 0 < without < len(run.samples):
        yield Finding("samples without a label", f"{without} of {len(run.samples)}", "none, or all", False)
    if not rules.whole_set or purpose == "compliance":
        return
    digests = run.by_sample("payload_sha256")
    count, distinct = len(digests), len(set(digests.values()))
    if distinct < count:
        yield note(f"samples with the data of another: {count - distinct} of {count}, so {distinct} are distinct")


def _within(rule: str, found: Sequence[Value], parameter: Parameter) -> Finding:
    ok = bool(found) and all(value in parameter.allowed for value in found)
    allowed = _listed(parameter.allowed, " or ")
    return Finding(rule, _listed(found, ", "), allowed, ok, parameter.source, by="benchmark")


def _listed(values: Sequence[Value], between: str) -> str:
    words = ["none" if v is None else f"{v:g}" if isinstance(v, float) else str(v) for v in values]
    if len(words) > _SHOWN:
        words, between = [*words[: _SHOWN - 2], "...", words[-1]], ", "
    return between.join(words) or "none"
