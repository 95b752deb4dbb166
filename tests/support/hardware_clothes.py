"""A simulated bench that claims to be hardware, so that a verdict by strict rules can be VALID.

It is only for tests of verdicts. It refuses to be opened outside a test, and nothing registers it.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fixtures.bench.mock_device import open_device
from fixtures.bench.mock_meter import open_meter
from fixtures.bench.true_power import SimPlant
from rig.analysis.evaluate import evaluate
from rig.analysis.result.result import Result
from rig.analysis.sessions.part import Part
from rig.analysis.sessions.summary import summarise
from rig.analysis.solving.gap_to_target import SPECIFIED
from rig.bench.request import Request
from rig.recording.reader import open_run
from rig.session.measure import measure
from rig.session.report import Evaluated, evaluated
from rig.types import Budget, DeviceInfo, Parameter, Progress, Reply, Sample, Span
from scenarios.workloads.asc import workload as asc
from scenarios.workloads.asc.catalogue import TAU
from scenarios.workloads.asc.workload import benchmark_of
from scenarios.workloads.qubo_mis.graph import from_payload, to_hex
from scenarios.workloads.qubo_mis.random_graphs import gnm_edges
from scenarios.workloads.qubo_mis.targets import Target, digest, write_rows
from tests.support.mis_graphs import best_of
from tests.support.serving import Queue, abilities

HERE = Path(__file__)
SET = 12
"""The number of samples in the whole set that the scenes declare."""
LOAD_NS = 30_000_000
"""The pause before each solve, so that the meter sees idle between two solves."""
NODES, DENSITY, SEEDS = 10, 0.25, range(5, 10)


_ALGORITHM = {"model": "none: it knows the answers", "tuning": "none"}


class Clothed:
    """A driver whose info claims hardware; everything else is the driver's own."""

    def __init__(self, driver: Any) -> None:
        if "PYTEST_CURRENT_TEST" not in os.environ:
            raise RuntimeError("a simulated bench that claims to be hardware is for tests alone")
        self._driver = driver
        vars(self).update(abilities(driver, type(self)))

    def info(self) -> Any:
        info = replace(self._driver.info(), mode="hardware", description="a bench of a test")
        return replace(info, algorithm=_ALGORITHM) if isinstance(info, DeviceInfo) else info


def device(bench: SimPlant) -> Any:
    """Return a classifier with pre-processing and inference."""
    return Clothed(open_device(bench, inference_s=0.02, preprocess_s=0.01, hit_rate=1.0))


def meter(bench: SimPlant, *, rate_hz: float = 500.0) -> Any:
    """Return the meter of the classifier and of the solver."""
    return Clothed(open_meter(bench, rate_hz=rate_hz, noise=1e-3))


def solver(bench: SimPlant) -> Any:
    """Return a solver that finds the best set at once, and then uses up its budget."""
    return Clothed(Solver(bench))


def scenes() -> asc.AscWorkload:
    """Return scenes that claim to be the whole test split, of a benchmark whose limits the rig does not know."""
    opened = asc.open_workload(samples=SET, audio_hz=1000.0)
    details = {**opened.details, "source": TAU}
    benchmark = benchmark_of(details)
    whole = replace(benchmark.parameters["samples"], allowed=(SET,))
    return replace(
        opened,
        details=details,
        benchmark=replace(benchmark, name="of a test", parameters={**benchmark.parameters, "samples": whole}),
    )


def batches() -> asc.AscWorkload:
    """Return ``scenes`` for a benchmark with Offline and Server, which NeuroBench 1.0 does not have."""
    opened = scenes()
    presented = Parameter((), ("offline", "server"), "a benchmark of a test")
    return replace(opened, benchmark=replace(opened.benchmark, scenarios=presented))


class Solver(Queue):
    """The device of ``solver``; it stamps its spans in host nanoseconds."""

    def __init__(self, plant: SimPlant) -> None:
        super().__init__(plant.clock)
        self._plant = plant
        self.facts = DeviceInfo("solver", "simulator", "a solver", phases=("solve",), schedule_depends_on_budget=False)
        plant.install({"core": 1e-3}, {"solve": {"core": 3e-3}})

    def submit(self, samples: Sequence[Sample], budget: Budget | None) -> None:
        self.submit_repeated(samples, 1, None, budget)

    def submit_repeated(self, samples: Sequence[Sample], times: int, phase: str | None, budget: Budget | None) -> None:
        assert budget is not None and budget.timeout_s is not None
        for sample in samples:
            on_ns = max(self.clock.now_ns() + LOAD_NS, self.free_ns)
            self.free_ns = on_ns + times * round(budget.timeout_s * 1e9)
            self._plant.occupy("solve", on_ns, self.free_ns)
            cost, solution = best_of(from_payload(sample.payload))
            self.count += 1
            output = {"cost": cost, "solution": to_hex(solution), "budget_s": budget.timeout_s, "overrun_s": 0.0}
            output |= {"seed": self.count, "tuning": {"tries": "all"}}
            found = (Progress(on_ns + 1_000, float(cost), bytes.fromhex(to_hex(solution))),)
            span = Span("solve", on_ns, self.free_ns, times)
            self.held.append((self.free_ns, Reply(sample.id, output, (span,), found)))


def proven_targets(path: Path) -> Path:
    """Return a file of targets for ``SEEDS``, each proven by trying every set."""
    rows = []
    for seed in SEEDS:
        graph = gnm_edges(NODES, DENSITY, seed)
        cost, best = best_of(graph)
        shown, method = digest(graph), "every set was tried"
        rows.append(Target(NODES, DENSITY, seed, cost, to_hex(best), shown, method, proven=method, name=SPECIFIED))
    return write_rows(rows, path)


# ---- one session of each scenario ------------------------------------------------------------


def recorded(scenario: str, folder: Path, *options: str, **more: Any) -> Evaluated:
    """Return a session of ``scenario`` that keeps every rule, by ``neurobench-1.0`` if no ``rules`` are given."""
    asked: dict[str, tuple[str, str, tuple[str, ...]]] = {
        "single-stream": ("device", "scenes", ()),
        "real-time": ("device", "scenes", ("stream_s=12", "scene_s=4", "rate_hz=100")),
        "offline": ("device", "batches", ("rate_hz=100",)),
        "server": ("device", "batches", ("arrival_hz=25", "duration_s=1", "latency_bound_s=0.5", "rate_hz=100")),
        "optimization": ("solver", "qubo-mis", ("timeout_s=0.1", "window_s=0.1")),
    }  # fmt: skip
    driver, workload, own = asked[scenario]
    if workload == "qubo-mis":
        file = proven_targets(folder / "targets.json")
        seeds = f"{SEEDS.start}-{SEEDS.stop - 1}"
        own += (f"nodes={NODES}", f"density={DENSITY}", f"seeds={seeds}", "announced=true", f"targets={file}")
    else:
        workload = f"{HERE}:{workload}"
    request = Request(
        device=f"{HERE}:{driver}", meters=(f"{HERE}:meter",), scenario=scenario, workload=workload,
        options=(*own, *options), out=folder / scenario, **{"rules": "neurobench-1.0", **more},
    )  # fmt: skip
    return evaluated(measure(request, quiet=True))


Document = dict[str, Any]
Edit = Callable[[list[Document], dict[str, Any]], None]


def edited(session: Evaluated, edits: Mapping[str, Edit | None], folder: Path) -> Result:
    """Return the session's result after an edit for each run name; None leaves the run out."""
    from tests.support.run_by_hand import rewritten

    parts = []
    for part in session.parts:
        if part.name in edits:
            edit = edits[part.name]
            if edit is None:
                continue
            run = open_run(rewritten(part.run.path, folder / part.name, edit))
            part = Part(part.name, part.purpose, run, evaluate(run))  # noqa: PLW2901
        parts.append(part)
    whole = summarise("session", parts)
    assert whole is not None
    return whole
