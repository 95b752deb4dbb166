"""``rig check``: check a device, its meters and a workload against the rules of a driver, before any measurement.

    rig check --device NAME [--meter NAME] [--workload NAME] [--option KEY=VALUE]

It names the bench as ``rig measure`` does, and needs a few seconds. If a rule is broken, the exit code is that of
``ConformanceError``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from rig.errors import ConformanceError, DataError, RigError, RuleFailure, place, said
from rig.plugins import problem_factory
from rig.terminal import answer, say

if TYPE_CHECKING:
    from rig.bench.request import Request
    from rig.session.setup import BenchSetup
    from rig.types import Sample, Workload

SAMPLES = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from rig.commands.measure import add_bench_arguments

    parser.add_argument(
        "--device", required=True, help="a device of `rig list` or of the bench file, or path.py:function"
    )
    add_bench_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Check each part; print how many rules it keeps, and which it breaks. Raises as ``set_up_bench`` does."""
    from rig.commands.measure import bench_request
    from rig.session.measure import exclusive
    from rig.session.setup import set_up_bench
    from rig.status_line import StatusLine

    request = bench_request(args)
    rows: list[dict[str, Any]] = []
    live = StatusLine(args.json)
    with exclusive(request), set_up_bench(request) as setup:
        for what, check in _checks(setup, request):
            live.show(f"... {what}")
            kept, failures = _outcome(check)
            rows.append({"checked": what, "kept": kept, "failed": [failure._asdict() for failure in failures]})
            live.clear()
            if not args.json:
                say(*_lines(what, kept, failures))
    if args.json:
        answer(rows)
    return ConformanceError.exit_code if any(row["failed"] for row in rows) else 0


def _outcome(check: Callable[[], tuple[str, ...]]) -> tuple[list[str], list[RuleFailure]]:
    try:
        return list(check()), []
    except ConformanceError as error:
        return list(error.kept), list(error.failures)


def _lines(what: str, kept: Sequence[str], failures: Sequence[RuleFailure]) -> list[str]:
    keeps = f"{what} keeps {len(kept)} rule{'s' * (len(kept) != 1)}"
    if not failures:
        return [f"✓ {keeps}"]
    return [f"✗ {keeps} and fails {len(failures)}:", *(f"    {failure}" for failure in failures)]


def _checks(setup: BenchSetup, request: Request) -> Iterator[tuple[str, Callable[[], tuple[str, ...]]]]:
    """Yield the checks by name. The device comes last, because its check closes it."""
    from rig.conformance.device import answers_of, check_device
    from rig.conformance.meter import check_meter
    from rig.conformance.workload import check_workload, labels_of

    bench = setup.bench
    yield f"workload {request.workload}", partial(check_workload, setup.workload, answers=answers_of(bench))
    for meter in bench.meters:
        yield f"meter {meter.info().name}", partial(check_meter, meter, clock=bench.clock)
    yield f"scenario {request.scenario}", partial(_scenario, setup, request)
    samples = list(islice(setup.workload.samples, SAMPLES))
    labels = labels_of(setup.workload)
    judge = partial(_cost, setup.workload) if request.scenario == "optimization" else None
    check = partial(check_device, bench.device, samples, clock=bench.clock, labels=labels, judge=judge)
    yield f"device {request.device}", check


def _scenario(setup: BenchSetup, request: Request) -> tuple[str, ...]:
    """Run the first steps of the scenario. Raises ``ConformanceError`` if it cannot play on this workload or device."""
    from rig.session.measure import steps_of
    from rig.session.rate_and_size_search import PlannedRun

    planned = PlannedRun("", "performance", setup.workload, True)
    try:
        list(islice(steps_of(setup, planned, setup.bench, setup.scenario_options), SAMPLES))
    except RigError as error:
        failure = RuleFailure("scenario.steps", error.message, error.remedy or "steps for this workload")
        raise ConformanceError(request.scenario, [failure]) from error
    except Exception as error:  # a scenario may be the user's own code
        failure = RuleFailure("scenario.steps", said(error), f"steps for this workload: see {place(error)}")
        raise ConformanceError(request.scenario, [failure]) from error
    return ("scenario.steps",)


def _cost(workload: Workload, sample: Sample, solution: str) -> float:
    """Return the cost of a solution. Raises ``DataError`` if the rig cannot judge the workload's problems."""
    problem_of = problem_factory(workload.name, workload.task)
    if problem_of is None:
        what = f"the rig cannot judge solutions of the workload {workload.name}"
        remedy = "Make it with rig.qubo(models), or read it with --workload qubo"
        raise DataError(what, field="workload", value=workload.name, remedy=remedy)
    return float(problem_of(sample.payload).judge(solution)[0])
