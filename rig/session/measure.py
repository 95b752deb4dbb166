"""Plan and record the runs of a session.

Only probes are evaluated: the runs with which a search finds the highest rate or the largest problem.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, chdir, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rig.analysis.verdict.rule_remedies import remedy_of
from rig.bench.request import Request
from rig.conformance.device import check_declared
from rig.engine.acquisition import Bench
from rig.engine.interrupts import ENDING, interrupt, on_signals
from rig.engine.record import record
from rig.errors import LIMITS, SetupError, refused
from rig.factories import build, takes, values_of
from rig.plugins import load
from rig.recording.events import SessionLink
from rig.session.default_out import default_out
from rig.session.expected_samples import known_total
from rig.session.locks import device_lock
from rig.session.rate_and_size_search import PlannedRun, largest_size, peak_rate
from rig.session.resumable_session import opened, unused, writable
from rig.session.setup import BenchSetup, plant_factory_of, set_up_bench, which_of
from rig.terminal import tell
from rig.types import DeviceInfo, MeterInfo, SampleSet, Sequenced, Step, Workload

PURPOSES = {"together": "all", "performance": "performance", "accuracy": "accuracy", "power": "power"}
MODES = ("session", *PURPOSES)
MOST_TRIALS = 1000
REPEATS_LEAST = 64
"""A compliance run issues the same sample at least this many times."""
Link = Callable[[], SessionLink]


def measure(request: Request, quiet: bool = False, resume: bool = False) -> Path:
    """Record a session, or a single run in the other modes; return its directory.

    With ``resume``, continue the interrupted session in ``request.out`` and keep its good runs. Raises a ``RigError``,
    and after Ctrl-C ``Interrupted``, which is not a ``RigError``. Runs recorded before an error are kept as a session.

    Example::

        import rig
        from pathlib import Path

        request = rig.Request(device="mock", mode="together", options=("samples=8",), out=Path("runs/first"))
        print("recorded", rig.measure(request, quiet=True))
    """
    _check(request)
    folder = request.out or default_out(request.device, request.scenario)
    if not resume:
        unused(folder)
    writable(folder)
    with ExitStack() as staying:
        path = folder
        with suppress(OSError):  # a driver may change the working directory; a removed one cannot be restored
            path = folder.absolute()
            staying.enter_context(chdir("."))
        try:
            _measure(request, folder, path, quiet, resume)
        except OSError as error:
            raise SetupError(f"the system refused: {error}", remedy=f"{LIMITS}. Recorded until then: {path}") from error
    return folder


def _measure(request: Request, folder: Path, path: Path, quiet: bool, resume: bool) -> None:
    """Record into ``path``, the absolute form of ``folder``; the line printed at the start names ``folder``."""
    with exclusive(request), set_up_bench(request) as setup, on_signals(interrupt, *ENDING):
        check_declared(setup.bench, setup.workload)
        if not (quiet or sys.stderr.isatty()):
            tell(f"measuring {request.device}, {request.scenario}, into {folder}")
        if setup.rules.hardware_only and not quiet:
            _tell_of_simulators(setup)
        if request.mode != "session":
            purpose = PURPOSES[request.mode]
            workload = _for_power(request, setup) if purpose == "power" else setup.workload
            _record(request, setup, PlannedRun("", purpose, workload, True), path, quiet)
        else:
            _session(request, setup, path, quiet, resume)


def _tell_of_simulators(setup: BenchSetup) -> None:
    """Tell the user, before anything is recorded, that the rules ask for hardware but a part is simulated."""
    infos: list[DeviceInfo | MeterInfo] = [setup.bench.device.info(), *(meter.info() for meter in setup.bench.meters)]
    if simulators := sorted({info.name for info in infos if info.mode != "hardware"}):
        what = f"rules {setup.rules.name} allow only hardware, and here are simulators ({', '.join(simulators)})"
        tell(f"The verdict will be INVALID: {what}. {remedy_of('device and meters')}")


def _check(request: Request) -> None:
    if request.mode not in MODES:
        raise refused("mode", request.mode, f"Known: {', '.join(MODES)}", f"mode {request.mode!r} is unknown")
    if request.trials is not None and not 1 <= request.trials <= MOST_TRIALS:
        remedy = "Give 1 or more" if request.trials < 1 else f"Give {MOST_TRIALS} at most"
        raise refused("trials", request.trials, remedy, f"{request.trials} trials")
    for name in ("trials", "compliance", "find_peak", "find_size"):
        value = getattr(request, name)
        if value and request.mode != "session":
            raise refused(name, value, "Leave --mode out", f"{name} is for a session, not for mode {request.mode}")


def _session(request: Request, setup: BenchSetup, folder: Path, quiet: bool, resume: bool) -> None:
    plan = list(_plan(request, setup))
    with opened(folder, request, resume) as book:

        def play(planned: PlannedRun) -> Path:
            if (known := book.known(planned, setup.local_code)) is not None:
                return known
            try:
                return _record(request, setup, planned, folder / planned.name, quiet, book.link)
            finally:
                book.add(planned)

        if request.find_size:
            largest_size(setup, play, book.probes, quiet)
            return
        rate = peak_rate(setup, play, quiet) if request.find_peak else {}
        book.of = len(plan) + sum(purpose == "probe" for _, purpose in book.runs)
        for planned in plan:
            play(replace(planned, options=rate))


def _plan(request: Request, setup: BenchSetup) -> Iterator[PlannedRun]:
    """Yield the runs of a session.

    If the scenario can make an accuracy run, this is the first. Each trial has a performance run without meters and, if
    there are meters, a power run. If a compliance run is requested, it is the last.
    """
    trials = request.trials or setup.rules.trials
    if takes(setup.scenario, "purpose"):
        yield PlannedRun("accuracy", "accuracy", setup.workload, False)
    for k in range(1, trials + 1):
        tag = f"-{k}" if trials > 1 else ""
        yield PlannedRun(f"performance{tag}", "performance", setup.workload, False)
        if setup.bench.meters:
            yield PlannedRun(f"power{tag}", "power", _for_power(request, setup), True)
    if request.compliance:
        yield PlannedRun("repeated", "compliance", _repeated_sample(setup.workload), False)


def _record(
    request: Request, setup: BenchSetup, planned: PlannedRun, path: Path, quiet: bool, link: Link | None = None
) -> Path:
    options = {**setup.scenario_options, **planned.options}
    # if a device marks its spans on a pin, only a meter records them
    metered = planned.metered or setup.bench.device.info().spans_on_pin
    bench = setup.bench if metered else Bench(setup.bench.device, (), setup.bench.clock)
    steps = steps_of(setup, planned, bench, options)
    scenario: dict[str, Any] = {"name": request.scenario, "options": values_of(setup.scenario, options)}
    if planned.purpose == "power" and request.amortise_s is not None:
        scenario["amortise_s"] = request.amortise_s
    total = known_total(len(planned.workload.samples), planned.purpose, scenario["options"], setup.rules.min_duration_s)
    with nullcontext() if quiet else load("reports", "progress")(total, path) as progress:
        return record(
            path, bench, planned.workload, steps, scenario=scenario, rules=setup.rules, purpose=planned.purpose,
            argv=list(request.argv), artifacts={**request.artifacts, **setup.calibrations}, progress=progress,
            keep_identity=request.keep_identity, configuration=request.configuration,
            session=None if link is None else link(), workload_options=setup.workload_options,
            device_options=setup.device_options, local_code=setup.local_code,
        )  # fmt: skip


def steps_of(setup: BenchSetup, planned: PlannedRun, bench: Bench, options: Mapping[str, str]) -> Iterator[Step]:
    """Yield the steps of a run, by its scenario."""
    given = {"workload": planned.workload, "phases": bench.device.info().phases, "purpose": planned.purpose}
    given |= {"rules": setup.rules, "clock": bench.clock, "metered": bool(bench.meters)}
    steps: Iterator[Step] = build(setup.scenario, given, options)
    return steps


def _for_power(request: Request, setup: BenchSetup) -> Workload:
    """Return the workload of a power run; with ``amortise_s``, its samples are sequences of this length."""
    if request.amortise_s is None:
        return setup.workload
    if not isinstance(setup.workload, Sequenced):
        what = f"workload {setup.workload.name} cannot be cut into longer sequences"
        raise refused("amortise", request.amortise_s, "Leave --amortise out, or use --repeat", what)
    return setup.workload.sequences(request.amortise_s)


def _repeated_sample(workload: Workload) -> Workload:
    """Return a workload that repeats one sample of ``workload``."""
    first = workload.samples[len(workload.samples) // 2]  # the first samples were just used for warm-up
    times = max(REPEATS_LEAST, min(len(workload.samples), 1024))
    details = {**workload.details, "repeated": first.id}
    benchmark = getattr(workload, "benchmark", None)
    named = (workload.name, workload.task, workload.version, workload.digest_sha256)
    return SampleSet(*named, [first] * times, details, benchmark)


def exclusive(request: Request) -> AbstractContextManager[None]:
    """Lock a real device, before it is opened, against other commands of this user, if the request asks for that."""
    if not request.exclusive or plant_factory_of(load("devices", request.device), request.simulate):
        return nullcontext()
    return device_lock(request.device, wait=False, which=which_of(request.device, request.options))
